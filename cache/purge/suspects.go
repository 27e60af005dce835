package purge

import (
	"millrace/cache/key"
)

// maxSuspects is how many answers that turned out to be suspect wait until other
// machines have been notified. An upstream hardly causes more than one: after the
// first its connections are not used again.
const maxSuspects = 64

// OnSuspect returns the function to call if the answer for a URL turns out to have
// been sent before the request was (see [upstream.Request.OnSuspect]). It purges that URL,
// hard: here at once, elsewhere in the background.
func (p *Purger) OnSuspect(url string) func() {
	s := Selector{URL: key.Normal(url), Hard: true}
	return func() {
		p.purge(s)
		select {
		case p.suspects <- s:
		default:
			p.o.ErrorLog.Warn("a doubtful answer may still be served by other machines, or after a restart", "url", s.URL)
		}
	}
}

// purgeSuspects purges suspect answers everywhere, until Close.
func (p *Purger) purgeSuspects() {
	for {
		select {
		case s := <-p.suspects:
			p.o.ErrorLog.Warn("an answer is purged: the upstream may have sent it before it was asked", "url", s.URL)
			if err := p.Purge(p.ctx, s); err != nil {
				p.o.ErrorLog.Warn("a doubtful answer may still be served elsewhere, or after a crash", "url", s.URL, "err", err)
			}
		case <-p.done:
			return
		}
	}
}
