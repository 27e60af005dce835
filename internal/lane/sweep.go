package lane

import (
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"millrace/internal/observe/meter"
	"millrace/internal/process/gogc"
)

const (
	// connShards keeps accepting connections from waiting for each other.
	connShards = 16
	// sweepMin and sweepMax bound how often deadlines are checked. One sweeper for
	// all connections costs a request nothing; a timer for each connection would have
	// to be moved at every request.
	sweepMin = 5 * time.Millisecond
	sweepMax = time.Second
	// tableEvery is how often invalid answers are removed from the table. They are
	// never used, but take memory and open files until then.
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
	l.meters.Clients.Add(1)
	l.meters.Connections.Add(1)
}

func (l *Lane) untrack(c *Conn) {
	s := &l.conns[c.shard%connShards]
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	l.meters.Clients.Add(-1)
	l.meters.Connections.Add(-1)
}

// each calls visit for every open connection. Some may be closed by then.
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

// Open returns the number of open connections.
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

// sweeper closes connections that are past a deadline. It has no timer while there are no
// clients. Started by New, ended by Close.
func (l *Lane) sweeper() {
	defer l.done.Done()
	s := sweep{lane: l}
	l.meters.Clients.Keep(l.stop, meter.Upkeep{
		Every: func() time.Duration { return l.settings.Load().interval() },
		Turn:  s.turn,
	})
}

// sweep is what the sweeper remembers between its turns.
type sweep struct {
	lane  *Lane
	wave  gogc.Wave
	table time.Time // when invalid answers were last removed
	used  bool      // there have been clients since
}

// turn reports whether there is more to do without clients: invalid answers to remove that
// hold memory and files, or memory to give back.
func (s *sweep) turn(now time.Time) (more bool) {
	l := s.lane
	l.each(func(c *Conn) { c.expire(now.UnixNano()) })
	handshakes := l.handshakes.Load()
	if s.wave.Over(handshakes, now) {
		l.done.Go(gogc.GiveBack)
	}
	clients := l.meters.Clients.Load() > 0
	if l.on() && (now.Sub(s.table) >= tableEvery || !clients && !s.used) {
		l.table.sweep(now.Unix(), l.siteGone)
		s.table, s.used = now, false
	}
	s.used = l.on() && (s.used || clients)
	return s.used || s.wave.Pending(handshakes)
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

// recheckTime is how long the last read of an idle connection may take: time enough for
// its goroutine to be scheduled on a busy machine.
const recheckTime = 100 * time.Millisecond

// recheckIdle asks whoever reads from a connection, whose idle timeout has passed at d,
// to read once more before closing it: a request may be in the socket, of which the
// sweeper cannot know. It reports false where nobody can be asked.
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
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection alone
	}
	return true
}

// isRecheck reports whether err is that of a read which recheckIdle has ended. The caller
// reads once more, for at most recheckTime.
func (c *Conn) isRecheck(err error) bool {
	if !endedByDeadline(err) || !c.deadline.CompareAndSwap(recheckDue, rechecking) {
		return false
	}
	c.mu.Lock() // recheckIdle has set its deadline by then
	defer c.mu.Unlock()
	return c.nc.SetReadDeadline(time.Now().Add(recheckTime)) == nil
}

// setInputDeadline sets the deadline for bytes from the client. If the sweeper was about
// to close the connection for being idle, it does not.
func (c *Conn) setInputDeadline(deadline int64) {
	if was := c.deadline.Swap(deadline); was == recheckDue || was == rechecking {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = c.nc.SetReadDeadline(time.Time{}) // on an error the next read fails, too
	}
}

// queueSample is how full the socket was when the sweeper last looked, on a connection
// whose client is to take more.
type queueSample struct {
	by     int64 // the write deadline then
	queued int   // bytes in the socket
}

// taking reports whether the client may have more time, at its write deadline as well: if
// it has taken bytes since the last look. The kernel says that there is room again only
// when a third of the socket's buffer is free. That may be a megabyte, for which a client
// on a slow line needs longer than the write timeout. With nothing queued the wait is not
// for the client, but perhaps for the disk.
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
		return c.writeBy.Load() != by // the client may have taken some just now
	}
	next := now + int64(c.lane.settings.Load().Write)
	c.writeBy.CompareAndSwap(by, next)
	c.queueSample = queueSample{next, queued}
	return true
}

// ackSample is how much the client had taken when the sweeper last looked. The zero value:
// no bytes wait for it.
type ackSample struct {
	at    int64  // when that was, in Unix nanoseconds
	acked uint64 // bytes that the client's kernel had acknowledged
	pace  Pace
}

// keepsUp reports whether the client takes at least WriteRate. It may be behind that by
// as long as the write timeout. With nothing queued the wait is not for the client.
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
	return t.pace.left > 0 || c.writeBy.Load() == 0 // it may have taken everything just now
}

// CloseAll closes every connection at once.
func (l *Lane) CloseAll() { l.each((*Conn).cut) }

// shedGrace is for how long a new connection without a request does not count as idle:
// the request may be on its way.
const shedGrace = time.Second

// ShedIdle closes the connection that has been idle for longest, to make room for a new
// one. It considers those for whose clients which returns true; nil: all. It reports
// whether there was one. A connection with half a request is not idle.
func (l *Lane) ShedIdle(which func(net.Addr) bool) bool {
	young := time.Now().Add(l.settings.Load().Idle - shedGrace).UnixNano()
	return l.shed(which, func(c *Conn) (order int64, ok bool) {
		d := c.deadline.Load()
		return d, c.state.load() == stateReading && d&idleMark != 0 && (d <= young || c.served.Load())
	})
}

// shedTimeout is how long a client may neither send nor take bytes before ShedSlow may cut
// its connection; half of the usual timeout if that is shorter.
const shedTimeout = 5 * time.Second

// ShedSlow is ShedIdle for connections on which the server waits for the remaining bytes
// of a head or a body, or for the client to take an answer. It closes the one whose
// timeout passes first.
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

// shed cuts the candidate with the lowest order.
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
