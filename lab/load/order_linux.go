package load

import (
	"time"

	"millrace/lab/record"
)

// obey carries out the order that woke the loop.
func (l *loop) obey() {
	var o order
	select {
	case o = <-l.orders:
	default: // an event left over
		return
	}
	now := l.clock()
	switch o {
	case orderBegin:
		l.begin(now)
	case orderStop:
		l.stopped = true
	default:
		l.sweep(now)
		l.cut(cutReason(o), now)
	}
	l.obeyed <- struct{}{}
}

// begin lets the requests begin.
func (l *loop) begin(now int64) {
	l.running = true
	if l.Arrival != Closed {
		l.arrivals = newArrivals(&l.Config, l.number, l.Threads, l.begins)
		return // the chores send what is due
	}
	for range l.idle.count {
		if c := l.rested(); c != nil {
			l.next(c, now)
		}
	}
}

// cut hands over what was counted since the last cut, as l.other.
func (l *loop) cut(why cutReason, now int64) {
	if why == windowCloses {
		if l.arrivals != nil {
			l.cur.dropped += l.arrivals.skip(now, l.opensAt)
		}
		l.running = false
	}
	switch {
	case why == windowOpens && l.arrivals == nil:
		l.gaps.open(now)
	case why == windowCloses:
		l.gaps.close(now)
	}
	if why == windowCloses {
		for i := range l.conns {
			if c := &l.conns[i]; c.state == asking {
				l.cur.under(c.since, now, l.opensAt)
			}
		}
	}
	l.fly(now, 0)
	t := l.cur
	t.took, t.open, t.flying = time.Duration(now-l.cutAt), l.open, l.flying
	t.cpu = l.cpu.since()
	l.cutAt = now
	l.cur, l.other = l.other, t
	l.cur.reset()
	if why == windowOpens {
		l.opensAt = now
		if l.Requests > 0 {
			l.limited, l.left = true, share(l.Requests, l.number, l.Threads)
			l.isFull()
		}
	}
}

// share is what one of several threads has of n.
func share(n uint64, thread, threads int) uint64 {
	each, rest := n/uint64(threads), n%uint64(threads)
	if uint64(thread) < rest {
		each++
	}
	return each
}

// A meter reads what the calling thread uses.
type meter struct {
	thread *record.Thread // nil where it cannot be read
	last   cpu
}

func (m *meter) start() {
	if t, err := record.OpenThread(); err == nil {
		m.thread = t
	}
}

// since is what was used since it was called before.
func (m *meter) since() cpu {
	if m.thread == nil {
		return cpu{}
	}
	user, system, instructions, err := m.thread.Read()
	if err != nil {
		return cpu{}
	}
	now := cpu{user, system, instructions}
	used := now.sub(m.last)
	m.last = now
	return used
}

func (m *meter) stop() {
	if m.thread != nil {
		_ = m.thread.Close()
	}
}
