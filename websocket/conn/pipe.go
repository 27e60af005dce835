package conn

import (
	"net"
	"sync"

	"millrace/websocket/frame"
)

// Join passes frames on between two connections that have both done their
// handshake, front a client's and back an upstream's, with what was read from
// each already. Nothing is parsed but where frames end, so that a close frame
// can be put between them: when the upstream goes without one, the client
// gets 1012 (Service Restart); else whatever either says goes through as it is.
// Neither is read from while the other does not take what came before. Of s,
// App is not used. release is called once, when it is over. Both are closed by the engine,
// also when Join fails.
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
	if lp := e.nextLoop(); lp != nil {
		if fd, ok := detach(front); ok {
			if fd2, ok := detach(back); ok {
				_ = front.Close()
				_ = back.Close()
				lp.base().post(func() { lp.adoptPipe([2]int{fd, fd2}, early, s, p) })
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

// follow takes bytes that came from one end and counts the frames.
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

// canInsert reports whether a frame can be put into what goes to the client.
func (p *pipe) canInsert() bool {
	return !p.lost[backEnd] && p.walk[backEnd].Between() && !p.walk[backEnd].Closed()
}

// countClose counts the end once, by what came first.
func (p *pipe) countClose(s *Settings, reason string) {
	if !p.counted {
		p.counted = true
		s.Meters.Closed.Add(reason)
	}
}

// countEnd counts an end that nobody here has caused.
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

// upstreamGone is what a client is told whose upstream has died.
const upstreamGone = "the upstream has gone away"

// maskedClose is a close frame as a client sends it, to an upstream that is left:
// masked, with the code alone.
func maskedClose(code frame.Code) []byte {
	h := frame.Header{Fin: true, Op: frame.Close, Masked: true, Length: 2}
	return append(h.Append(nil), byte(code>>8), byte(code)) // a mask of zeros leaves them as they are
}
