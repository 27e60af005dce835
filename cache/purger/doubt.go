package purger

import (
	"millrace/cache/key"
	"millrace/cache/purge"
)

// maxSuspects is how many answers that turned out to be doubtful wait until other
// machines have been told of them. An upstream gets no chance to bring about
// many: after the first its connections are not used again.
const maxSuspects = 64

// OnSuspect is what to do when it turns out that the answer to a request for a URL may
// have been sent before the request was: it is purged for good, here at once.
func (p *Purger) OnSuspect(url string) func() {
	s := purge.Selector{URL: key.Normal(url), Hard: true}
	return func() {
		p.purge(s)
		select {
		case p.suspects <- s:
		default:
			p.o.ErrorLog.Warn("a doubtful answer may still be served by other machines, or after a restart", "url", s.URL)
		}
	}
}

// purgeSuspects purges what is doubtful everywhere, until Close.
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
