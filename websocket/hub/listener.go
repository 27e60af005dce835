package hub

import (
	"maps"
	"slices"
	"time"

	"millrace/store/bus"
)

const (
	// MaxMembers is how many clients of this process are told to who asks for a
	// channel's presence; those beyond are left out. One answer of the bus has
	// to hold them.
	MaxMembers = 10_000
	// notifiedMembers is up to how many members of this process a channel has for
	// joins and leaves to be told: they are members times members messages. In
	// a larger one, who wants to know asks Presence.
	notifiedMembers = 1000
)

// lists returns a channel's lists, and its gen.
func (h *Hub) lists(name string) (first *list, gen uint16) {
	st := h.stripe(name)
	st.mu.Lock()
	defer st.mu.Unlock()
	if ch := st.channels[name]; ch != nil {
		return ch.first, ch.gen
	}
	return nil, 0
}

// Deliver implements [bus.Listener].
func (h *Hub) Deliver(m bus.Message) {
	first, gen := h.lists(m.Channel)
	var p *Publication
	for l := first; l != nil; l = l.next {
		if l.size.Load() == 0 {
			continue // who comes now finds m in the history
		}
		if p == nil {
			p = &Publication{Message: m, options: &h.o, gen: gen, since: time.Now()}
			if !m.Time.IsZero() && m.Time.Before(p.since) {
				p.since = m.Time
			}
		}
		l.shard.put(l, p)
	}
}

// Placed implements [bus.Listener].
func (h *Hub) Placed(channel, id string, offset uint64) {
	h.notify(Note{Kind: Placed, Channel: channel, ID: id, Offset: offset})
}

// notify sends a note to all subscribers of a channel.
func (h *Hub) notify(n Note) {
	first, _ := h.lists(n.Channel)
	h.spread(first, n, false)
}

// spread sends a note to lists; ofJoins: only to those with subscriptions that want
// notes of joins.
func (h *Hub) spread(first *list, n Note, ofJoins bool) {
	var p *Publication
	for l := first; l != nil; l = l.next {
		if l.size.Load() == 0 || ofJoins && l.joins.Load() == 0 {
			continue
		}
		if p == nil {
			p = h.note(n)
		}
		l.shard.put(l, p)
	}
}

// Reset implements [bus.Listener]. Offsets that come after it are not compared
// with those that came before.
func (h *Hub) Reset(channel string) {
	if channel != "" {
		h.reset(h.stripe(channel), channel)
		return
	}
	for i := range h.stripes {
		h.reset(&h.stripes[i], h.stripes[i].names()...)
	}
}

// names are those of its channels.
func (st *stripe) names() []string {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Collect(maps.Keys(st.channels))
}

// reset begins the order of channels of one stripe anew.
func (h *Hub) reset(st *stripe, names ...string) {
	for _, name := range names {
		st.mu.Lock()
		var first *list
		if ch := st.channels[name]; ch != nil {
			ch.gen++
			first = ch.first
		}
		st.mu.Unlock()
		h.spread(first, Note{Kind: Reset, Channel: name}, false)
	}
}

// State implements [bus.Listener].
func (h *Hub) State(err error) {
	for channel := range h.outage.set(err) {
		h.notify(Note{Kind: Reset, Channel: channel})
	}
}

// Members implements [bus.Listener].
func (h *Hub) Members(channel string) []bus.Member {
	st := h.stripe(channel)
	st.mu.Lock()
	defer st.mu.Unlock()
	ch := st.channels[channel]
	if ch == nil || len(ch.members) == 0 {
		return nil
	}
	members := make([]bus.Member, 0, min(len(ch.members), MaxMembers))
	for _, m := range ch.members {
		if len(members) == MaxMembers {
			break
		}
		members = append(members, *m)
	}
	return members
}

// present adds a subscription to the members of its channel; shard.mu is held, so that
// it cannot leave before.
func (h *Hub) present(s *Subscription, m *bus.Member) {
	if m == nil {
		return
	}
	ch := s.list.channel
	st := h.stripe(ch.name)
	st.mu.Lock()
	defer st.mu.Unlock()
	if ch.members == nil {
		ch.members = map[*Subscription]*bus.Member{}
	}
	ch.members[s] = m
	s.flags |= member
}

// absent removes it again, and notifies subscriptions that want to know.
func (h *Hub) absent(s *Subscription) {
	if s.flags&member == 0 {
		return
	}
	ch := s.list.channel
	st := h.stripe(ch.name)
	st.mu.Lock()
	m := ch.members[s]
	delete(ch.members, s)
	if len(ch.members) == 0 {
		ch.members = nil
	}
	st.mu.Unlock()
	h.notifyMember(s, m, Leave)
}

// notifyMember sends the note that a member joined or left.
func (h *Hub) notifyMember(s *Subscription, m *bus.Member, kind string) {
	if m == nil {
		return
	}
	ch := s.list.channel
	st := h.stripe(ch.name)
	st.mu.Lock()
	first, large := ch.first, len(ch.members) > notifiedMembers
	st.mu.Unlock()
	if !large {
		h.spread(first, Note{Kind: kind, Channel: ch.name, Member: m}, true)
	}
}
