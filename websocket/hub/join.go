package hub

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"millrace/store/bus"
)

// Subscriber is one client of a shard.
type Subscriber interface {
	// Deliver is called on the shard's runner, or on the last shard in any
	// goroutine, for one publication after the other. It must not block, and
	// must not call the hub: the shard is locked.
	Deliver(p *Publication)
}

// Request asks for a subscription.
type Request struct {
	Shard      int // of those that New was told
	Subscriber Subscriber
	Channel    string
	Since      *bus.Position // go on behind this; nil: from now
	Member     *bus.Member   // to be seen in the channel's presence; nil: not to be
	Joins      bool          // wants notes of who joins and leaves, itself included
	// UntilReset: nothing is delivered behind a Reset note, for which the client has to
	// subscribe anew.
	UntilReset bool
	// Done is called once, on the shard's runner or before Subscribe returns;
	// never after Unsubscribe or Close (but on the last shard, if Unsubscribe is
	// called elsewhere, it may be about to be called then). What it says to the client must be on
	// its way when it returns: Deliver is called after that, for nothing that
	// is in the answer and for all that came after it. Done may call the hub.
	// With an error the subscription is over, and Unsubscribe need not be
	// called: the bus cannot listen to the channel, or did not answer.
	Done func(Answer, error)
}

// Answer is where a subscription begins.
type Answer struct {
	Top       bus.Position
	Missed    []bus.Message // what came since, oldest first; only if Since was given
	Recovered bool          // Since was given, and Missed is all that came after it
	// Down: the other machines cannot be reached, so Missed is not known, and
	// Top is Since, or nothing. What is published on this machine is delivered
	// from now on, and when the others are back a Reset note says that it is
	// time to ask anew. Until then a subscription with Since gets nothing that
	// has an offset: it would move past what it missed.
	Down bool
}

// state of a subscription.
type state uint8

const (
	entering state = iota // in the list, but what comes for it is in the log
	live
	gone
)

// flags of a subscription.
type flags uint8

const (
	wantsMembers flags = 1 << iota // gets notes of joins and leaves
	member                         // is in channel.members
	untilReset                     // see Request.UntilReset
	over                           // there was one
)

// Subscription is a subscriber's place in a channel. It is small, and what a
// delivery looks at comes first: a million of them do not fit into any cache.
type Subscription struct {
	to    Subscriber
	top   uint64 // offsets up to this are not delivered
	pos   uint32 // in list.subs
	gen   uint16 // see channel.gen
	state state
	flags flags
	list  *list
	join  *joining // nil if it does not join
}

// Channel is its name.
func (s *Subscription) Channel() string { return s.list.channel.name }

// joining is what only a subscription that joins needs.
type joining struct {
	done   func(Answer, error)
	since  *bus.Position
	member *bus.Member
	start  uint64 // of what it has to get from the list's log
	gen    uint16 // of the channel, before the history was asked
	phase  atomic.Uint32
	left   atomic.Bool // it waits for no answer any more

	// The bus's answer; there when phase is answered.
	history bus.History
	err     error
}

// phases of a joining.
const (
	idle = iota // nobody has asked for the history
	here        // Subscribe is asking
	away        // the answer will come to the runner
	answered
)

// Subscribe must be called on the shard's runner, or for the last shard from
// anywhere; never in a Deliver. The error is ErrChannels, or bus.ErrClosed;
// Done is then not called.
func (h *Hub) Subscribe(r Request) (*Subscription, error) {
	if h.closed.Load() {
		return nil, bus.ErrClosed
	}
	sh := h.shards[r.Shard]
	l, err := h.enter(r.Channel, sh)
	if err != nil {
		return nil, err
	}
	j := &joining{done: r.Done, since: r.Since}
	s := &Subscription{to: r.Subscriber, list: l, join: j}
	if r.UntilReset {
		s.flags |= untilReset
	}
	if h.o.Presence {
		j.member = r.Member
		if r.Joins {
			s.flags |= wantsMembers
		}
	}
	sh.mu.Lock()
	if l.joining++; l.log == nil {
		l.log = &log{}
	}
	j.start = l.log.end()
	l.add(s)
	sh.mu.Unlock()
	// From here on nothing is missed: it is in the log, or in the history.
	if h.listens(l.channel) && j.phase.CompareAndSwap(idle, here) {
		h.ask(waiter{s, j})
		if !j.phase.CompareAndSwap(here, away) {
			h.answer(s)
		}
	}
	return s, nil
}

// answer is called on the runner, when the history is there.
func (h *Hub) answer(s *Subscription) {
	l := s.list
	l.shard.mu.Lock()
	if l.shard.closed || s.state != entering {
		l.shard.mu.Unlock()
		return
	}
	j := s.join
	down := errors.Is(j.err, bus.ErrDown) && h.outage.remember(s.Channel())
	if j.err != nil && !down {
		l.shard.mu.Unlock()
		if h.leave(s) {
			j.done(Answer{}, fmt.Errorf("asking for a channel's history: %w", j.err))
		}
		return
	}
	a := Answer{Top: j.history.Top, Down: down}
	s.top, s.gen = a.Top.Offset, j.gen
	if down {
		s.top = 0
		if a.Top = (bus.Position{}); j.since != nil {
			a.Top = *j.since // still the best to ask anew with
			s.top = blind
		}
	}
	if j.since != nil {
		_, whole := l.log.since(j.start, s)
		a.Missed = j.history.Messages
		a.Recovered = j.history.Complete && whole && !down
	}
	h.present(s, j.member)
	l.shard.mu.Unlock()
	h.count(l.shard, j.since != nil, a)
	j.done(a, nil)
	h.begin(s, j)
}

// count counts an answer.
func (h *Hub) count(sh *shard, since bool, a Answer) {
	switch {
	case !since || a.Down:
	case a.Recovered:
		h.o.Meters.Recovered.Add(uint32(sh.i), 1)
	default:
		h.o.Meters.Lost.Add(uint32(sh.i), 1)
	}
}

// begin delivers what came while s joined, and lets it into the list.
func (h *Hub) begin(s *Subscription, j *joining) {
	l := s.list
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	if l.shard.closed || s.state != entering {
		return // it has left while it was told
	}
	entries, whole := l.log.since(j.start, s)
	if !whole {
		s.to.Deliver(h.note(Note{Kind: Reset, Channel: s.Channel()}))
		if s.flags&untilReset != 0 {
			s.reset()
		}
	}
	for _, p := range entries {
		if s.takes(p) {
			s.to.Deliver(p)
			h.o.Meters.Delivered.Add(uint32(l.shard.i), uint64(counted(p, 1)))
		}
	}
	l.through(s)
	l.joined()
	s.state, s.join = live, nil
	h.notifyMember(s, j.member, Join)
}

// Unsubscribe ends deliveries at once, also one that has not begun: when it
// returns, none is under way. It must be called where Subscribe may be. A
// second call does nothing.
func (h *Hub) Unsubscribe(s *Subscription) { h.leave(s) }

// StopJoins ends the notes of joins and leaves for a subscription, and nothing else.
// It must be called where Subscribe may be.
func (h *Hub) StopJoins(s *Subscription) {
	l := s.list
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	if s.state != gone && s.flags&wantsMembers != 0 {
		s.flags &^= wantsMembers
		l.joins.Add(-1)
	}
}

// Over reports whether a subscription with UntilReset has got a Reset note. It may be
// called where Subscribe may be.
func (h *Hub) Over(s *Subscription) bool {
	l := s.list
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	return s.flags&over != 0
}

// leave reports whether s had not left before.
func (h *Hub) leave(s *Subscription) bool {
	l := s.list
	l.shard.mu.Lock()
	if s.state == gone {
		l.shard.mu.Unlock()
		return false
	}
	if s.state == entering {
		l.joined()
		s.join.left.Store(true)
	}
	l.remove(s)
	s.state, s.to, s.join = gone, nil, nil
	l.shard.mu.Unlock()
	h.absent(s)
	h.exit(l.channel)
	return true
}

// blind is the top of a subscription that waits for a Reset note, see
// Answer.Down.
const blind = math.MaxUint64

// joined is called for each that joined, or gave up; shard.mu is held.
func (l *list) joined() {
	if l.joining--; l.joining == 0 {
		l.log = nil
	}
}

// wants reports whether p comes after what s knows.
func (s *Subscription) wants(p *Publication) bool {
	if s.flags&over != 0 {
		return false
	}
	if p.Offset == 0 { // it has no place: a note, or the bus is down
		return p.isFor(s)
	}
	switch age := int16(p.gen - s.gen); {
	case age < 0:
		return false // the history was asked after the order began anew
	case age > 0:
		return true
	}
	return p.Offset > s.top
}

// reset is called when s gets a Reset note.
func (s *Subscription) reset() {
	switch {
	case s.flags&untilReset != 0:
		s.flags |= over
		s.top = blind // the hot loop looks at nothing else
	case s.top == blind:
		s.top = 0
	}
}

// takes is wants for a delivery: who is in a new order forgets the old one.
func (s *Subscription) takes(p *Publication) bool {
	ok := s.wants(p)
	if p.isReset() {
		s.reset()
	}
	if ok && p.Offset != 0 && p.gen != s.gen {
		s.gen, s.top = p.gen, 0
	}
	return ok
}
