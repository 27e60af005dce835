package conn

import (
	"golang.org/x/sys/unix"

	"millrace/internal/send"
	"millrace/websocket/frame"
)

func closeFD(fd int) { _ = unix.Close(fd) }

// adoptPipe begins to pass on between two descriptors.
func (lp *loop) adoptPipe(fds [2]int, early [2][]byte, s *Settings, p *pipe) {
	front := lp.enter(fds[frontEnd], s, frame.Params{}, p)
	if front == nil {
		_ = unix.Close(fds[backEnd])
		p.done()
		lp.refuse(fds[frontEnd], s)
		return
	}
	front.put(pipeEnd)
	p.ends[frontEnd] = front
	back := lp.enter(fds[backEnd], s, frame.Params{}, p)
	if back == nil {
		_ = unix.Close(fds[backEnd])
		p.over = true
		p.done()
		lp.release(front)
		lp.engine.count(s, -1)
		return
	}
	back.put(pipeEnd)
	p.ends[backEnd] = back
	lp.wheel.put(front, front.firstLook(lp.tick))
	for i, b := range early {
		if len(b) > 0 && !p.over {
			lp.pass(p, i, b)
		}
	}
	lp.settled(front)
	lp.settled(back)
}

// readyPipe does what one side of a pipe is ready for.
func (lp *loop) readyPipe(c *Conn) {
	p, ok := c.state.(*pipe)
	if !ok {
		c.put(doomed)
		return
	}
	me := backEnd
	if p.ends[frontEnd] == c {
		me = frontEnd
	}
	if c.out != nil && lp.push(c) {
		if p.over && me == frontEnd {
			lp.halfClose(c)
			return
		}
		lp.watchPipe(p, 1-me)
		lp.watchPipe(p, me)
	}
	if other := p.ends[1-me]; other != nil && other.out != nil || c.is(doomed) {
		return // not before it has taken what came before
	}
	n, ok, err := send.TryRead(uintptr(c.fd), lp.buf)
	switch {
	case !ok:
	case n == 0 || err != nil:
		lp.pipeEnded(p, me)
	case p.over: // whatever the client still says: its upstream is gone
	default:
		c.heard = lp.tick
		if other := p.ends[1-me]; other != nil {
			other.heard = lp.tick
		}
		lp.pass(p, me, lp.buf[:n])
	}
}

// watchPipe says what to wait for: input, if the other side takes it, and room
// for output, if some waits. The two directions do not wait for each other.
func (lp *loop) watchPipe(p *pipe, i int) {
	c := p.ends[i]
	if c == nil || c.is(dead|doomed) {
		return
	}
	var events uint32
	if other := p.ends[1-i]; other == nil || other.out == nil {
		events |= unix.EPOLLIN
	}
	if c.out != nil {
		events |= unix.EPOLLOUT
	}
	lp.watch(c, events)
}

// pass writes what came from one end to the other.
func (lp *loop) pass(p *pipe, from int, b []byte) {
	to := p.ends[1-from]
	if to == nil || from == frontEnd && p.deaf {
		return
	}
	s := to.set
	p.follow(from, b, s)
	if from == frontEnd {
		s.Meters.BytesIn.Add(uint32(lp.index), uint64(len(b)))
	}
	n := 0
	if to.out == nil {
		var err error
		if n, err = send.TryWrite(uintptr(to.fd), b, nil); err != nil {
			if from == backEnd {
				lp.doom(to)
			}
			// An upstream that takes no more may have said why: that is
			// still to be read, and behind it the end.
			p.deaf = true
			return
		}
	}
	if from == backEnd {
		s.Meters.BytesOut.Add(uint32(lp.index), uint64(n))
	}
	if n < len(b) {
		lp.queue(to, append([]byte(nil), b[n:]...), false)
		lp.watchPipe(p, from)
		lp.watchPipe(p, 1-from)
	}
	if p.leaving {
		lp.insert(p)
	}
}

// insert puts the close frame in as soon as it fits, and lets the upstream go.
func (lp *loop) insert(p *pipe) bool {
	front := p.ends[frontEnd]
	if p.over || !p.canInsert() || front.is(dead|doomed) {
		return false
	}
	p.over = true
	if back := p.ends[backEnd]; back != nil {
		if w := &p.walk[frontEnd]; back.out == nil && !p.lost[frontEnd] && w.Between() && !w.Closed() {
			_, _ = send.TryWrite(uintptr(back.fd), farewell(frame.GoingAway), nil)
		}
		lp.doom(back)
	}
	last := frame.AppendClose(nil, p.code, p.hint)
	front.put(closeSent)
	front.schedule(closeTime)
	n := 0
	if front.out == nil {
		var err error
		if n, err = send.TryWrite(uintptr(front.fd), last, nil); err != nil {
			lp.doom(front)
			return true
		}
	}
	if n < len(last) {
		lp.queue(front, last[n:], false)
	} else {
		lp.halfClose(front)
	}
	return true
}

// halfClose ends our side of the client's connection, and waits for its own end.
func (lp *loop) halfClose(front *Conn) {
	if !front.is(halfShut) {
		front.put(halfShut)
		_ = unix.Shutdown(int(front.fd), unix.SHUT_WR)
		lp.watch(front, unix.EPOLLIN)
	}
}

// pipeEnded is the end of what comes from one side.
func (lp *loop) pipeEnded(p *pipe, from int) {
	front := p.ends[frontEnd]
	if from == frontEnd || p.over {
		lp.doom(front)
		return
	}
	p.code, p.hint = frame.ServiceRestart, upstreamGone
	if lp.insert(p) {
		front.set.Meters.Closed.Add(closeReason(frame.ServiceRestart, true))
		return
	}
	// A proper goodbye, or a frame that has no end: the client gets what there
	// is of it, and then the end, which is no reset (see loop.settle).
	p.over = true
	front.put(closeSent)
	front.schedule(closeTime)
	if back := p.ends[backEnd]; back != nil {
		lp.doom(back)
	}
	if front.out == nil {
		lp.halfClose(front)
	}
}

// finishPipe is the end of one side. Without the client there is no pipe;
// without the upstream the client still has to be told.
func (lp *loop) finishPipe(c *Conn) (counts bool) {
	p, ok := c.state.(*pipe)
	if !ok {
		return true
	}
	front, back := p.ends[frontEnd], p.ends[backEnd]
	if c == front {
		p.ends[frontEnd] = nil
		if back != nil {
			lp.doom(back)
		}
		p.over = true
		p.done()
		return true
	}
	p.ends[backEnd] = nil
	if front != nil && !p.over {
		lp.doom(front)
	}
	return false
}

// leavePipe sends the client of a pipe away.
func (c *Conn) leavePipe(code frame.Code, hint string) {
	p, ok := c.state.(*pipe)
	if !ok || p.ends[frontEnd] != c || p.over {
		return
	}
	p.leaving, p.code, p.hint = true, code, hint
	c.loop.insert(p)
}
