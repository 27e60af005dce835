package conn

import (
	"golang.org/x/sys/unix"

	"millrace/internal/wire/epoll"
	"millrace/internal/wire/send"
	"millrace/websocket/frame"
)

func closeFD(fd int) { _ = unix.Close(fd) }

// adoptPipe begins to forward between two descriptors.
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
	front.leaveToo()
	lp.settled(front)
	lp.settled(back)
}

// readyPipe does what one end's events allow.
func (lp *loop) readyPipe(c *Conn, events uint32) {
	p, ok := c.state.(*pipe)
	if !ok {
		c.put(doomed)
		return
	}
	me := backEnd
	if p.ends[frontEnd] == c {
		me = frontEnd
	}
	if c.out != nil && events&(epoll.Out|epoll.Failed|epoll.HungUp) != 0 && !lp.pushPipe(p, me) {
		return
	}
	if other := p.ends[1-me]; other != nil && other.out != nil {
		// Not before it has taken what came before. The system tells of a
		// connection's end all the same, again and again.
		if events&(epoll.Failed|epoll.HungUp) != 0 {
			lp.endedEarly(p, me)
		}
		return
	}
	n, ok, err := send.TryRead(uintptr(c.fd), lp.buf)
	switch {
	case !ok:
	case n == 0 && err == nil && me == frontEnd && lp.parted(p):
	case n == 0 || err != nil:
		lp.pipeEnded(p, me)
	case p.over: // whatever the client still says: its upstream is gone
	default:
		c.lastMessage = lp.tick
		if other := p.ends[1-me]; other != nil && !other.is(closeSent) {
			other.lastMessage = lp.tick
		}
		lp.pass(p, me, lp.buf[:n])
	}
}

// parted is called when a client has ended its direction. If it has sent a close frame
// first, the upstream, which is told the same, has a little time to answer that.
// Otherwise it reports false.
func (lp *loop) parted(p *pipe) bool {
	front, back := p.ends[frontEnd], p.ends[backEnd]
	if p.over || p.upstreamStalled || p.parted || back == nil || !p.walk[frontEnd].Closed() {
		return false
	}
	p.parted = true
	_ = unix.Shutdown(int(back.fd), unix.SHUT_WR)
	front.put(closeSent)
	front.schedule(closeTime)
	lp.watchPipe(p, frontEnd)
	return true
}

// pushPipe writes what waits for one end. It reports whether that end is to be read
// from now.
func (lp *loop) pushPipe(p *pipe, me int) bool {
	c := p.ends[me]
	all, err := lp.push(c)
	switch {
	case err != nil && me == frontEnd:
		lp.doom(c)
		return false
	case err != nil: // it may have said why: that is still to be read, and behind it the end
		p.upstreamStalled = true
		c.out.forget(c.set, droppedGone)
		c.out = nil
	case !all:
		return true
	case p.over && me == frontEnd:
		lp.halfClose(c)
		return false
	}
	lp.watchPipe(p, 1-me)
	lp.watchPipe(p, me)
	return true
}

// endedEarly is called when one end is gone while the other has not taken what came
// from it before. Without the client all is over; an upstream's last bytes wait for
// the client, and its end comes behind them.
func (lp *loop) endedEarly(p *pipe, me int) {
	c := p.ends[me]
	if me == frontEnd {
		lp.doom(c)
		return
	}
	if err := lp.poller.Remove(int(c.fd)); err != nil {
		lp.doom(c)
		return
	}
	p.upstreamStalled, p.off = true, true
}

// watchPipe sets the events to wait for: input, if the other end takes it, and room
// for output, if some waits. The two directions do not wait for each other.
func (lp *loop) watchPipe(p *pipe, i int) {
	c := p.ends[i]
	if c == nil || c.is(dead|doomed) {
		return
	}
	var events uint32
	if other := p.ends[1-i]; (other == nil || other.out == nil) && (i == backEnd || !p.parted) {
		events |= epoll.In
	}
	if c.out != nil {
		events |= epoll.Out
	}
	if i == backEnd && p.off && events != 0 {
		p.off = false
		if err := lp.poller.Add(int(c.fd), events, int32(c.slot), c.gen); err != nil {
			lp.doom(c)
		}
		return
	}
	if !p.off || i == frontEnd {
		lp.watch(c, events)
	}
}

// pass writes what came from one end to the other.
func (lp *loop) pass(p *pipe, from int, b []byte) {
	to := p.ends[1-from]
	if to == nil || from == frontEnd && p.upstreamStalled {
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
			p.upstreamStalled = true
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

// insert inserts the close frame as soon as a frame has ended, and leaves the
// upstream.
func (lp *loop) insert(p *pipe) bool {
	front := p.ends[frontEnd]
	if p.over || !p.canInsert() || front.is(dead|doomed) {
		return false
	}
	p.over = true
	p.countClose(front.set, closeReason(p.code, true))
	if back := p.ends[backEnd]; back != nil {
		if w := &p.walk[frontEnd]; back.out == nil && !p.lost[frontEnd] && w.Between() && !w.Closed() {
			_, _ = send.TryWrite(uintptr(back.fd), maskedClose(frame.GoingAway), nil)
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

// halfClose ends our direction to the client, and waits for the client's end.
func (lp *loop) halfClose(front *Conn) {
	if !front.is(halfShut) {
		front.put(halfShut)
		_ = unix.Shutdown(int(front.fd), unix.SHUT_WR)
		lp.watch(front, epoll.In)
	}
}

// pipeEnded is called at the end of what comes from one end.
func (lp *loop) pipeEnded(p *pipe, from int) {
	front := p.ends[frontEnd]
	if from == frontEnd || p.over {
		lp.doom(front)
		return
	}
	if !p.leaving {
		p.code, p.hint = frame.ServiceRestart, upstreamGone
	}
	if lp.insert(p) {
		return
	}
	// A proper goodbye, or a frame that has no end: the client gets what there
	// is of it, and then the end, which is not a reset (see loop.settle).
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

// finishPipe is called when one end is over. Without the client the pipe is over;
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
		p.countEnd(c.set)
		p.done()
		return true
	}
	p.ends[backEnd] = nil
	if front != nil && !p.over {
		lp.pipeEnded(p, backEnd)
	}
	return false
}

// leavePipe sends the client of a pipe away.
func (c *Conn) leavePipe(code frame.Code, hint string) {
	p, ok := c.state.(*pipe)
	if !ok || p.ends[frontEnd] != c || p.over {
		return
	}
	if p.leaving && code == frame.Timeout { // for too long, within a frame
		c.loop.doom(c)
		return
	}
	p.leaving, p.code, p.hint = true, code, hint
	c.loop.insert(p)
}
