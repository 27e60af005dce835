package conn

import (
	"net"
	"sync"

	"millrace/websocket/frame"
)

// Join forwards frames between two connections that have both done their handshake:
// front is a client's, back an upstream's; frontEarly and backEarly were read from
// them already. Only the ends of frames are parsed, so that a close frame can be put
// between two: a client whose upstream ends without one gets 1012 (Service Restart).
// Everything else is forwarded as it is. Neither is read from while the other does not
// take what came before. s.App is not used. release is called once, when both are
// over. The engine closes both, also when Join fails.
func (e *Engine) Join(front net.Conn, frontEarly []byte, back net.Conn, backEarly []byte, s *Settings, release func()) error {
	e.adopts.RLock()
	defer e.adopts.RUnlock()
	if e.closed.Load() {
		_ = front.Close()
		_ = back.Close()
		release()
		return ErrClosed
	}
	s.prepare()
	e.count(s, 1)
	p := &pipe{release: release}
	early := [2][]byte{frontEarly, backEarly}
	if len(e.loops) > 0 {
		if fd, ok := detach(front); ok {
			if fd2, ok := detach(back); ok {
				_ = front.Close()
				_ = back.Close()
				e.join(fd, fd2, early, s, p)
				return nil
			}
			closeFD(fd)
		}
	}
	o := &goroutinePipe{strand: e.strand, set: s, pipe: p, ends: [2]net.Conn{front, back}}
	o.lastBytes.Store(e.now())
	e.strand.pipe(o)
	e.strand.readers.Go(func() { o.serve(early) })
	return nil
}

// Detached is a plain connection as a second descriptor. It is closed, or joined.
type Detached int

// Close closes it.
func (d Detached) Close() { closeFD(int(d)) }

// Detach returns a second descriptor of a connection for JoinDetached; the caller closes
// nc when that is certain. It reports false where there is none, such as over TLS: Join
// is for those.
func (e *Engine) Detach(nc net.Conn) (d Detached, ok bool) {
	if len(e.loops) == 0 {
		return 0, false
	}
	fd, ok := detach(nc)
	return Detached(fd), ok
}

// JoinDetached is Join for descriptors, which nobody else has any more: front as
// [Engine.AdoptDescriptor] takes it.
func (e *Engine) JoinDetached(front int, frontEarly []byte, back Detached, backEarly []byte, s *Settings, release func()) error {
	e.adopts.RLock()
	defer e.adopts.RUnlock()
	if e.closed.Load() {
		closeFD(front)
		back.Close()
		release()
		return ErrClosed
	}
	s.prepare()
	e.count(s, 1)
	e.join(front, int(back), [2][]byte{frontEarly, backEarly}, s, &pipe{release: release})
	return nil
}

// join has a loop forward between two descriptors.
func (e *Engine) join(front, back int, early [2][]byte, s *Settings, p *pipe) {
	lp := e.nextLoop()
	lp.base().post(func() { lp.adoptPipe([2]int{front, back}, early, s, p) })
}

// The ends of a pipe.
const (
	frontEnd = 0
	backEnd  = 1
)

// pipe is what both drivers know about a proxied connection.
type pipe struct {
	ends            [2]*Conn // on a loop
	walk            [2]frame.Walker
	lost            [2]bool // what came from there is no WebSocket: nothing can be put in
	over            bool    // the client was told, or has all there was
	upstreamStalled bool    // the upstream takes no more
	off             bool    // the upstream is not watched: it is gone, but the client has not yet taken what it had said
	parted          bool    // the client sends no more, but may still be answered
	counted         bool    // the end has been, in Meters.Closed
	leaving         bool
	code            frame.Code // to leave with at the end of the frame, with
	hint            string     // this reason
	once            sync.Once
	release         func()
}

// follow counts the frames in bytes that came from one end.
func (p *pipe) follow(from int, b []byte, s *Settings) {
	if p.lost[from] {
		return
	}
	frames, err := p.walk[from].Walk(b)
	if err != nil {
		p.lost[from] = true
	}
	if from == frontEnd {
		s.Meters.MessagesIn.Add(0, uint64(frames))
	} else {
		s.Meters.MessagesOut.Add(0, uint64(frames))
	}
}

// canInsert reports whether a frame can be inserted into what the client gets: only
// between two frames.
func (p *pipe) canInsert() bool {
	return !p.lost[backEnd] && p.walk[backEnd].Between() && !p.walk[backEnd].Closed()
}

// countClose counts the connection's end once, with the reason that came first.
func (p *pipe) countClose(s *Settings, reason string) {
	if !p.counted {
		p.counted = true
		s.Meters.Closed.Add(reason)
	}
}

// countEnd counts an end that one of the two peers has caused.
func (p *pipe) countEnd(s *Settings) {
	reason := closedNone
	if p.walk[frontEnd].Closed() || p.walk[backEnd].Closed() {
		reason = closedPassed
	}
	p.countClose(s, reason)
}

// isBack reports whether c is the upstream's end of a pipe.
func (c *Conn) isBack() bool {
	p, ok := c.state.(*pipe)
	return ok && c.is(pipeEnd) && p.ends[backEnd] == c
}

// done calls release.
func (p *pipe) done() { p.once.Do(p.release) }

// upstreamGone is the reason that a client is given whose upstream has died.
const upstreamGone = "the upstream has gone away"

// maskedClose is a close frame as a client sends it, masked, with the code alone, for
// an upstream that this side leaves.
func maskedClose(code frame.Code) []byte {
	h := frame.Header{Fin: true, Op: frame.Close, Masked: true, Length: 2}
	return append(h.Append(nil), byte(code>>8), byte(code)) // a mask of zeros leaves them as they are
}
