package h2

import (
	"errors"
	"sync"
	"time"
)

// Stream is a request that the host has taken and answers from another goroutine than Run's.
// It writes to the client by itself; Run goes on meanwhile. Only one goroutine at a time may
// call Send.
type Stream struct {
	c  *Conn
	id uint32
	f  *flow

	// Guarded by flows.mu.
	more   sync.Cond // the window has grown, or the stream is over
	over   bool      // ended or reset, by either side
	cancel func()    // called when the client resets the stream; nil: not yet known
}

// Beside makes a Stream of a request that the host takes, or has taken. Call it in
// [Host.Forward] or between calls of Run.
func (c *Conn) Beside(id uint32) *Stream {
	i := c.forwardedAt(id)
	if i < 0 {
		return nil
	}
	s := &Stream{c: c, id: id}
	s.more.L = &c.flows.mu
	s.f = &flow{id: id, stream: s, window: c.run.forwarded[i].window}
	c.run.forwarded = append(c.run.forwarded[:i], c.run.forwarded[i+1:]...)
	c.run.answered.add(id)
	c.lastAnswered.Store(max(id, c.lastAnswered.Load()))
	c.flows.begin(s.f)
	c.flows.mu.Lock()
	c.flows.taken = max(0, c.flows.taken-1)
	c.flows.mu.Unlock()
	return s
}

// OnCancel has cancel called when the client does not want the answer any more; at once if
// that has happened already.
func (s *Stream) OnCancel(cancel func()) {
	s.c.flows.mu.Lock()
	over := s.over
	s.cancel = cancel
	s.c.flows.mu.Unlock()
	if over {
		cancel()
	}
}

// overLocked ends the stream with flows.mu held, and returns what is to be called without it.
func (s *Stream) overLocked() (cancel func()) {
	if s == nil || s.over {
		return func() {}
	}
	s.over = true
	s.more.Broadcast()
	if s.cancel == nil {
		return func() {}
	}
	return s.cancel
}

// notify has a waiting Send look again. flows.mu is held.
func (s *Stream) notify() {
	if s != nil {
		s.more.Broadcast()
	}
}

// Send sends a header block, as for [AppendHeaders] but of any length, and then body; block
// may be nil. end: the stream ends with that. It waits for the client's windows, and for the
// client to read. While it waits it needs no memory but body.
func (s *Stream) Send(block, body []byte, end bool) error {
	for block != nil || len(body) > 0 || end {
		n, last, err := s.sendPart(block, body, end)
		if errors.Is(err, errStalled) {
			s.reset(codeCancel)
		}
		if err != nil || last {
			return err
		}
		if block, body = nil, body[n:]; len(body) == 0 {
			return nil
		}
	}
	return nil
}

// sendPart sends the header block, if there is one, and as much of body as the windows allow,
// or waits for them. last: it has ended the stream.
func (s *Stream) sendPart(block, body []byte, end bool) (n int, last bool, err error) {
	c := s.c
	if block == nil && len(body) > 0 {
		s.awaitWindow()
	}
	c.lockToWrite()
	defer c.w.mu.unlock()
	if n, last, err = s.take(len(body), block != nil, end); err != nil {
		return 0, false, err
	}
	buf := outBuffers.Get().(*[]byte)
	defer outBuffers.Put(buf)
	out := (*buf)[:0]
	if block != nil {
		out = appendHeaderFrames(out, s.id, c.withTable(block), last && n == 0, int(c.frame.Load()))
	}
	switch {
	case n > 0:
		out = appendPart(out, s.id, body[:n], int(min(c.frame.Load(), record)), last)
	case block == nil && last:
		out = appendHead(out, head{kind: frameData, flags: flagEndStream, id: s.id})
	case block == nil:
		return 0, false, nil // another stream has used the connection's window
	}
	c.flood.countUseful(n)
	return n, last, c.writeLocked(out)
}

// Await waits until the client takes some of the body, and returns how much that is; 1 where
// the stream is over, as Send says. So who makes the body needs no memory meanwhile.
func (s *Stream) Await() int {
	s.awaitWindow()
	s.c.lockToWrite()
	s.c.w.mu.unlock()
	l := &s.c.flows
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(max(1, min(s.f.window, s.c.window.left(), maxOut)))
}

// awaitWindow waits until there is some of both windows, or the stream is over.
func (s *Stream) awaitWindow() {
	l := &s.c.flows
	l.mu.Lock()
	defer l.mu.Unlock()
	for !s.over && !s.f.reset && (s.f.window <= 0 || s.c.window.left() <= 0) {
		s.more.Wait()
	}
}

// take uses up to n bytes of the windows. With all of them it ends the stream, if end is set:
// before they are written, since the client may open another one as soon as it has them. The
// lock for writing is held, so nothing follows a frame that resets the stream.
func (s *Stream) take(n int, head, end bool) (k int, last bool, err error) {
	c, l := s.c, &s.c.flows
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.over:
		return 0, false, errGone
	case s.f.reset:
		return 0, false, errStalled
	}
	k = int(c.window.takeUpTo(min(int64(n), s.f.window, maxOut)))
	s.f.window -= int64(k)
	if k > 0 || head {
		s.f.progressAt = time.Now().UnixNano()
	}
	if last = end && k == n; last {
		l.removeLocked(s.f)
		s.overLocked()
	}
	return k, last, nil
}

// Reset ends the stream without a complete answer, unless it has ended.
func (s *Stream) Reset() { s.reset(codeInternal) }

func (s *Stream) reset(why code) {
	c := s.c
	c.flows.mu.Lock()
	over := s.over
	if !over {
		c.flows.removeLocked(s.f)
	}
	cancel := s.overLocked()
	c.flows.mu.Unlock()
	if cancel(); over {
		return
	}
	if c.resets.Many(time.Now()) {
		_ = c.flooded(nil, Resets)
		_ = c.host.Close() // GOAWAY has gone
		return
	}
	_ = c.writeBeside(appendReset(nil, s.id, why)) // an error: the client has gone
}
