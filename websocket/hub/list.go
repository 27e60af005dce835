package hub

import "sync/atomic"

const (
	// logLength and logBytes bound what a list keeps for those who join: what
	// is published between asking for a history and its answer, which may be
	// seconds if the bus is slow.
	logLength = 1024
	logBytes  = 4 << 20
	// shrinkFrom is from how many places on a list's memory is given back when
	// three quarters of it are empty.
	shrinkFrom = 64
)

// list is a channel's subscribers on one shard. It lives as long as the
// channel does.
type list struct {
	channel *channel
	shard   *shard
	next    *list // of the channel, on another shard

	// By shard.mu.
	subs    []*Subscription
	open    *opened // nil: no publication is delivered in part
	log     *log    // nil: nobody joins
	joining int32   // of subs

	size  atomic.Int32 // of subs, for who has no shard.mu
	joins atomic.Int32 // of subs, those with Joins

	// By inbox.mu.
	resetLast bool  // nothing waits behind a reset note
	waiting   int32 // publications, with the one that is delivered in part
	bytes     int64 // of them
}

// opened is a publication that some of a list's subscribers have, and others
// not yet: subs[:at] are through, subs[at:end] not; those from end on came after
// it and do not get it.
type opened struct {
	p       *Publication
	at, end int
	served  int
	next    []*Publication // wait for this one to be through
}

// add puts s at the end; shard.mu is held.
func (l *list) add(s *Subscription) {
	s.pos = uint32(len(l.subs))
	l.subs = append(l.subs, s)
	l.size.Add(1)
	l.shard.subscriptions.Add(1)
	if s.flags&wantsMembers != 0 {
		l.joins.Add(1)
	}
}

// remove takes s out, by moving one from each of the three parts of subs into
// the gap of the part before; shard.mu is held.
func (l *list) remove(s *Subscription) {
	gap := int(s.pos)
	if o := l.open; o != nil {
		if gap < o.at {
			o.at--
			gap = l.move(o.at, gap)
		}
		if gap < o.end {
			o.end--
			gap = l.move(o.end, gap)
		}
	}
	last := len(l.subs) - 1
	l.move(last, gap)
	l.subs[last] = nil
	l.subs = l.subs[:last]
	if cap(l.subs) >= shrinkFrom && len(l.subs) <= cap(l.subs)/4 {
		l.subs = append(make([]*Subscription, 0, cap(l.subs)/2), l.subs...)
	}
	l.size.Add(-1)
	l.shard.subscriptions.Add(-1)
	if s.flags&wantsMembers != 0 {
		l.joins.Add(-1)
	}
}

// move moves a subscriber, and returns where the gap is then.
func (l *list) move(from, to int) (gap int) {
	if from != to {
		l.subs[to] = l.subs[from]
		l.subs[to].pos = uint32(to)
	}
	return from
}

// through moves s among those that have the publication that is being delivered, if it
// is not there yet; shard.mu is held.
func (l *list) through(s *Subscription) {
	o := l.open
	if pos := int(s.pos); o != nil && pos >= o.at && pos < o.end {
		l.subs[pos], l.subs[o.at] = l.subs[o.at], s
		l.subs[pos].pos = uint32(pos)
		s.pos = uint32(o.at)
		o.at++
	}
}

// begin is called before the first of the list gets p.
func (l *list) begin(p *Publication) {
	if l.log != nil {
		l.log.add(p)
	}
}

// serve delivers p to subs: the hot loop.
func (l *list) serve(p *Publication, subs []*Subscription) (n int) {
	offset, gen := p.Offset, p.gen
	for _, s := range subs {
		// Those who are live, after the position that they began at.
		if s.state == live && (offset > s.top && gen == s.gen || s.takes(p)) {
			s.to.Deliver(p)
			n++
		}
	}
	return n
}

// log keeps what is published while subscriptions of a list join, for all of them
// together.
type log struct {
	entries []*Publication
	first   uint64 // number of entries[0]
	bytes   int64
	// lost is the newest that was given up for want of room, and looseEnd one
	// behind the number of the newest of those without an offset.
	lost     *Publication
	looseEnd uint64
}

// end is the number of the next entry.
func (g *log) end() uint64 { return g.first + uint64(len(g.entries)) }

func (g *log) add(p *Publication) {
	g.entries = append(g.entries, p)
	g.bytes += p.cost()
	for len(g.entries) > logLength || g.bytes > logBytes && len(g.entries) > 1 {
		g.lost = g.entries[0]
		g.entries[0] = nil
		g.entries = g.entries[1:]
		g.first++
		g.bytes -= g.lost.cost()
		if g.lost.Offset == 0 {
			g.looseEnd = g.first
		}
	}
}

// since returns what s still has to get of the entries from number start on. whole:
// none of those was dropped.
func (g *log) since(start uint64, s *Subscription) (entries []*Publication, whole bool) {
	if start >= g.first {
		return g.entries[start-g.first:], true
	}
	return g.entries, start >= g.looseEnd && !s.wants(g.lost)
}
