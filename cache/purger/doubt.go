package purger

import (
	"millrace/cache/key"
	"millrace/cache/purge"
)

// maxDoubts is how many answers that turned out to be doubtful wait until other
// machines have been told of them. An upstream gets no chance to bring about
// many: after the first its connections are not used again.
const maxDoubts = 64

// Doubt is what to do when it turns out that the answer to a request for a URL may
// have been sent before the request was: it is purged for good, here at once.
func (p *Purger) Doubt(url string) func() {
	s := purge.Selector{URL: key.Normal(url), Hard: true}
	return func() {
		p.purge(s)
		select {
		case p.doubts <- s:
		default:
			p.o.ErrorLog.Warn("a doubtful answer may still be served by other machines, or after a restart", "url", s.URL)
		}
	}
}

// doubtLoop purges what is doubtful everywhere, until Close.
func (p *Purger) doubtLoop() {
	for {
		select {
		case s := <-p.doubts:
			p.o.ErrorLog.Warn("an answer is purged: the upstream may have sent it before it was asked", "url", s.URL)
			if err := p.Purge(p.ctx, s); err != nil {
				p.o.ErrorLog.Warn("a doubtful answer may still be served elsewhere, or after a crash", "url", s.URL, "err", err)
			}
		case <-p.done:
			return
		}
	}
}
