package h2

import (
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
// client to read.
func (s *Stream) Send(block, body []byte, end bool) error {
	c := s.c
	buf := outBuffers.Get().(*[]byte)
	defer outBuffers.Put(buf)
	if block != nil {
		block = c.withTable(block)
	}
	for first := true; first || len(body) > 0; first = false {
		out, frame := (*buf)[:0], int(min(c.frame.Load(), record))
		if block != nil {
			out = appendHeaderFrames(out, s.id, block, end && len(body) == 0, int(c.frame.Load()))
		}
		n, err := s.take(len(body), block == nil)
		if err != nil {
			return err
		}
		last := end && n == len(body)
		switch {
		case n > 0:
			out = appendPart(out, s.id, body[:n], frame, last)
		case block == nil && last:
			out = appendHead(out, head{kind: frameData, flags: flagEndStream, id: s.id})
		}
		block, body = nil, body[n:]
		if len(out) == 0 {
			continue
		}
		c.flood.countUseful(n)
		if err := c.writeBeside(out, nil); err != nil {
			return err
		}
	}
	if end {
		c.flows.end(s.id)
	}
	return nil
}

// take uses up to n bytes of the windows. wait: it waits until there are some.
func (s *Stream) take(n int, wait bool) (int, error) {
	c, l := s.c, &s.c.flows
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case s.over:
			return 0, errGone
		case s.f.reset:
			l.mu.Unlock()
			s.reset(codeCancel)
			l.mu.Lock()
			return 0, errGone
		}
		s.f.progressAt = max(s.f.progressAt, 1)
		if k := min(int64(n), s.f.window, maxOut); n == 0 || k > 0 {
			if k = c.window.takeUpTo(k); k > 0 || n == 0 || !wait {
				s.f.window -= k
				s.f.progressAt = time.Now().UnixNano()
				return int(k), nil
			}
			l.mu.Unlock()
			ok := c.window.awaitMore(c.o.Stall)
			l.mu.Lock()
			if !ok {
				return 0, errGone
			}
			continue
		}
		if !wait {
			return 0, nil
		}
		s.more.Wait()
	}
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
	_ = c.writeBeside(appendReset(nil, s.id, why), nil) // an error: the client has gone
}
