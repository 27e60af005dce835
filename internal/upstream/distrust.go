package upstream

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
)

// distrustFor is how long each request to a server gets a connection of its own
// after the server has sent bytes without a request. A server that does so once
// does it with every answer of a kind, and sometimes the bytes come so late that
// they look like the answer to the next request. A handshake for each request is
// expensive, so the server gets another chance after this time.
const distrustFor = 10 * time.Minute

// distrust notes whether a server has sent such bytes lately.
type distrust struct {
	since         time.Time // what until is counted from
	log           *slog.Logger
	until         atomic.Int64 // nanoseconds; not later than now: none
	count         atomic.Uint64
	onUnsolicited atomic.Pointer[func()] // see Pool.OnUnsolicited
	over          atomic.Bool            // the pool is closed, and its idle connections are
}

// OnUnsolicited registers f, which is called for each connection that was closed
// because the server sent bytes without a request. f must return at once.
func (p *Pool) OnUnsolicited(f func()) {
	for _, s := range p.servers {
		s.distrust.onUnsolicited.Store(&f)
	}
}

// noteUnsolicited notes that s has sent bytes without a request. It may be
// called by net/http with locks held.
func (s *server) noteUnsolicited() {
	d := &s.distrust
	if d.over.Load() {
		return
	}
	d.count.Add(1)
	if notify := d.onUnsolicited.Load(); notify != nil {
		(*notify)()
	}
	now := int64(time.Since(d.since))
	if before := d.until.Swap(now + int64(distrustFor)); before <= now {
		d.log.Warn("an upstream sends more than its answers: for a while each request gets a connection of its own",
			slog.String("upstream", s.name), slog.Duration("for", distrustFor))
	}
}

// distrusted reports whether s has sent such bytes lately.
func (s *server) distrusted() bool {
	until := s.distrust.until.Load()
	return until > 0 && int64(time.Since(s.distrust.since)) < until
}

// transporter sends the next request to s by net/http.
func (s *server) transporter() http.RoundTripper {
	if s.distrusted() {
		return s.single
	}
	return s.transport
}
