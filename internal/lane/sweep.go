package lane

import (
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"millrace/internal/gogc"
)

const (
	// connShards keeps accepting connections from waiting for each other.
	connShards = 16
	// sweepMin and sweepMax bound how often deadlines are looked at. One
	// clock for all connections costs nothing per request, where a timer of
	// its own for each would be set and moved at every one.
	sweepMin = 5 * time.Millisecond
	sweepMax = time.Second
	// tableEvery is how often void answers are cleared out of the table;
	// they are never used, but hold memory and open files until then.
	tableEvery = 5 * time.Second
)

type connSet struct {
	mu    sync.Mutex
	conns map[*Conn]struct{}
}

func (l *Lane) track(c *Conn) {
	s := &l.conns[c.shard%connShards]
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	l.meters.Connections.Add(1)
}

func (l *Lane) untrack(c *Conn) {
	s := &l.conns[c.shard%connShards]
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	l.meters.Connections.Add(-1)
}

// each calls visit for every open connection, which may close meanwhile.
func (l *Lane) each(visit func(*Conn)) {
	var open []*Conn
	for i := range l.conns {
		s := &l.conns[i]
		s.mu.Lock()
		open = slices.AppendSeq(open[:0], maps.Keys(s.conns))
		s.mu.Unlock()
		for _, c := range open {
			visit(c)
		}
	}
}

// Open is the number of open connections.
func (l *Lane) Open() int {
	n := 0
	for i := range l.conns {
		s := &l.conns[i]
		s.mu.Lock()
		n += len(s.conns)
		s.mu.Unlock()
	}
	return n
}

// interval is a quarter of the shortest timeout, within bounds.
func (s *Settings) interval() time.Duration {
	return min(max(min(s.Header, s.Body, s.Write, s.Idle)/4, sweepMin), sweepMax)
}

// sweeper closes connections that are past a deadline. Started by New, ended
// by Close.
func (l *Lane) sweeper() {
	defer l.done.Done()
	lastTable := time.Now()
	var wave gogc.Wave
	for {
		timer := time.NewTimer(l.settings.Load().interval())
		select {
		case <-l.stop:
			timer.Stop()
			return
		case now := <-timer.C:
			l.each(func(c *Conn) { c.expire(now.UnixNano()) })
			if wave.Over(l.handshakes.Load(), now) {
				l.done.Go(gogc.GiveBack)
			}
			if l.on() && now.Sub(lastTable) >= tableEvery {
				lastTable = now
				l.table.sweep(now.Unix(), l.siteGone)
			}
		}
	}
}

// expire cuts a connection that is past one of its deadlines.
func (c *Conn) expire(now int64) {
	d := c.deadline.Load()
	if d != 0 && d < now {
		if !c.recheckIdle(d) {
			c.cut()
		}
		return
	}
	f := c.h2conn.Load()
	if f != nil && c.lane.cutsShort(time.Unix(0, now)) && !f.IsShut() {
		c.notifyDrain(f)
	}
	since := time.Unix(0, now).Add(-c.lane.settings.Load().Write)
	if f != nil && (f.Expire(since) || c.writeBy.Load() == 0 && f.Stuck(since)) {
		c.cut()
		return
	}
	c.parking.Load().parkIfIdle(d, now)
	by := c.writeBy.Load()
	if by == 0 {
		c.ackSample = ackSample{}
		return
	}
	if !c.taking(by, now) || !c.keepsUp(now) {
		c.cut()
	}
}

// recheckTime is how long a goroutine has to look once more: time enough to be run on
// a busy machine.
const recheckTime = 100 * time.Millisecond

// recheckIdle has whoever reads from a connection that was idle until d, and too
// long, look once more before it closes it: a request may have come that the
// sweeper cannot know of. It reports false where nobody can be asked.
func (c *Conn) recheckIdle(d int64) bool {
	if d&idleMark == 0 || c.h2conn.Load() != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state.load() == stateReleased || c.cutPending:
		return false
	case c.fd != noFD:
		c.wakeLoop()
	case c.nc != nil && d != rechecking && c.deadline.CompareAndSwap(d, recheckDue):
		// Again if need be: before it reads, net/http sets a deadline, too.
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // of a connection that is closed it does not matter
	}
	return true
}

// isRecheck reports whether err is that of a read which the sweeper has ended by
// lookAgain, and which is to be tried once more.
func (c *Conn) isRecheck(err error) bool {
	if !endedByDeadline(err) || !c.deadline.CompareAndSwap(recheckDue, rechecking) {
		return false
	}
	c.mu.Lock() // lookAgain has set its deadline by then
	defer c.mu.Unlock()
	return c.nc.SetReadDeadline(time.Now().Add(recheckTime)) == nil
}

// setInputDeadline sets the deadline. If the sweeper was about to close the connection, it is not.
func (c *Conn) setInputDeadline(deadline int64) {
	if was := c.deadline.Swap(deadline); was == recheckDue || was == rechecking {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = c.nc.SetReadDeadline(time.Time{}) // a read finds out
	}
}

// queueSample is what the sweeper, alone, knows of a connection that waits to write.
type queueSample struct {
	by     int64 // the deadline it is about
	queued int   // bytes in the socket when it was last looked at
}

// taking reports whether a client that the lane waits for still has time, or
// has used it: the kernel tells that there is room again only when a third of
// the socket's buffer is free. That may be a megabyte, for which an honest
// client on a slow line needs longer than the write timeout. One that has taken
// all is not waited for: the disk may be.
func (c *Conn) taking(by, now int64) bool {
	if c.queueSample.by == by && by >= now {
		return true
	}
	queued, known := c.queued()
	if by >= now {
		c.queueSample = queueSample{by, queued}
		return true
	}
	if !known || (c.queueSample.by == by && queued > 0 && queued >= c.queueSample.queued) {
		return c.writeBy.Load() != by // it may have moved on just now
	}
	next := now + int64(c.lane.settings.Load().Write)
	c.writeBy.CompareAndSwap(by, next)
	c.queueSample = queueSample{next, queued}
	return true
}

// ackSample is what the sweeper, alone, knows of how fast a client takes what waits
// for it. The zero value: nothing waits.
type ackSample struct {
	at    int64  // when it was looked at last
	acked uint64 // bytes that the client had taken by then
	pace  Pace
}

// keepsUp reports whether a client that the lane waits for takes at least
// WriteRate, but for the write timeout. What its kernel has acknowledged counts.
// When all was taken, something else is waited for than the client.
func (c *Conn) keepsUp(now int64) bool {
	s := c.lane.settings.Load()
	acked, known := c.acked()
	if s.WriteRate <= 0 || !known {
		return true
	}
	t := &c.ackSample
	began := t.at == 0
	waited, n := time.Duration(now-t.at), int(acked-t.acked)
	t.at, t.acked = now, acked
	if queued, known := c.queued(); began || known && queued == 0 {
		t.pace = Pace{}
		return true
	}
	if left := t.pace.Left(s.Write); n == 0 {
		t.pace.left = left - waited
	}
	t.pace.Took(waited, n, s.Write, s.WriteRate)
	return t.pace.left > 0 || c.writeBy.Load() == 0 // it may have taken the rest just now
}

// CloseAll closes every connection at once.
func (l *Lane) CloseAll() { l.each((*Conn).cut) }

// shedGrace is how long a new connection has for its first request before it
// counts as idle: that may be on its way.
const shedGrace = time.Second

// ShedIdle closes the connection that has been idle for longest, to make room
// for a new one: of those whose clients which is true for, of all if it is nil.
// It reports whether there was one. Half a request is not idle.
func (l *Lane) ShedIdle(which func(net.Addr) bool) bool {
	young := time.Now().Add(l.settings.Load().Idle - shedGrace).UnixNano()
	return l.shed(which, func(c *Conn) (order int64, ok bool) {
		d := c.deadline.Load()
		return d, c.state.load() == stateReading && d&idleMark != 0 && (d <= young || c.served.Load())
	})
}

// shedTimeout is how long a client may take no bytes before its connection is cut
// to make room for others; half of the timeout if that is shorter.
const shedTimeout = 5 * time.Second

// ShedSlow is ShedIdle for connections on which the server has waited for a while
// for the rest of a head or a body, or for the client to take an answer. It closes
// the one that would be cut off first anyway.
func (l *Lane) ShedSlow(which func(net.Addr) bool) bool {
	s, now := l.settings.Load(), time.Now()
	late := func(deadline int64, allowed time.Duration) bool {
		return deadline != 0 && deadline < now.Add(allowed-min(shedTimeout, allowed/2)).UnixNano()
	}
	return l.shed(which, func(c *Conn) (order int64, ok bool) {
		if by := c.writeBy.Load(); late(by, s.Write) {
			return by, true
		}
		d := c.deadline.Load()
		switch p := c.state.load(); {
		case p == stateReading && d&idleMark == 0:
			return d, late(d, s.Header)
		case p == stateActive:
			return d, late(d, s.Body)
		}
		return 0, false
	})
}

// shed closes the candidate that comes first.
func (l *Lane) shed(which func(net.Addr) bool, candidate func(*Conn) (order int64, ok bool)) bool {
	for {
		var first *Conn
		var least int64
		l.each(func(c *Conn) {
			order, ok := candidate(c)
			if ok && (first == nil || order < least) && (which == nil || which(c.peer)) && !c.beingCut() {
				first, least = c, order
			}
		})
		if first == nil {
			return false
		}
		if first.cutToMakeRoom() {
			return true
		}
	}
}
