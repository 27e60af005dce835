package hub

import (
	"sort"
	"sync/atomic"

	"millrace/store/bus"
)

// waiter is a subscription that joins.
type waiter struct {
	s *Subscription
	j *joining
}

// ask asks the bus where a subscription begins. When thousands come back at
// once, from a server that has ended, each question may cost a bus between
// machines milliseconds. So of each channel one is with the bus at a time, and
// all who come meanwhile share the next one.
func (h *Hub) ask(w waiter) {
	ch := w.s.list.channel
	st := h.stripe(ch.name)
	st.mu.Lock()
	if ch.asking {
		if ch.waiting == nil {
			ch.waiting = &[]waiter{}
		}
		*ch.waiting = append(*ch.waiting, w) // bounded by who joins
		st.mu.Unlock()
		return
	}
	ch.asking = true
	gen := ch.gen
	st.mu.Unlock()
	h.askHistory(ch, []waiter{w}, gen)
}

// next returns who waits for the next question, and the channel's gen before it.
// The next ask asks at once if there is nobody.
func (h *Hub) next(ch *channel) (group []waiter, gen uint16) {
	st := h.stripe(ch.name)
	st.mu.Lock()
	defer st.mu.Unlock()
	if ch.waiting != nil {
		for _, w := range *ch.waiting {
			if !w.j.left.Load() {
				group = append(group, w)
			}
		}
		ch.waiting = nil
	}
	ch.asking = len(group) > 0
	return group, ch.gen
}

// askHistory asks the bus for a group, and then for those who came meanwhile.
func (h *Hub) askHistory(ch *channel, group []waiter, gen uint16) {
	for len(group) > 0 {
		asked, others := group, []waiter(nil)
		since := earliest(asked)
		limit := 0
		if since == nil {
			limit = 1 // none is wanted, but no limit would be all
		}
		var phase atomic.Uint32 // here, away or answered
		phase.Store(here)
		h.bus.History(ch.name, since, limit, func(history bus.History, err error) {
			others = h.share(asked, gen, since, history, err)
			if phase.Swap(answered) == away {
				h.alone(others)
				group, gen := h.next(ch)
				h.askHistory(ch, group, gen)
			}
		})
		if phase.CompareAndSwap(here, away) {
			return
		}
		h.alone(others)
		group, gen = h.next(ch)
	}
}

// alone asks the history for each of them separately.
func (h *Hub) alone(others []waiter) {
	for _, w := range others {
		st := h.stripe(w.s.Channel())
		st.mu.Lock()
		w.j.gen = w.s.list.channel.gen
		st.mu.Unlock()
		h.bus.History(w.s.Channel(), w.j.since, 0, func(history bus.History, err error) {
			w.answered(history, err)
		})
	}
}

// earliest returns the earliest position of a group. What comes behind it includes
// what each of those with the same epoch has missed. nil if none of the group
// continues anywhere.
func earliest(group []waiter) (first *bus.Position) {
	for _, w := range group {
		if p := w.j.since; p != nil && (first == nil || p.Epoch == first.Epoch && p.Offset < first.Offset) {
			first = p
		}
	}
	return first
}

// share answers the subscriptions of a group for which one history suffices, and
// returns the others.
func (h *Hub) share(group []waiter, gen uint16, since *bus.Position, history bus.History, err error) (others []waiter) {
	for _, w := range group {
		w.j.gen = gen
		if err != nil {
			w.answered(bus.History{}, err)
		} else if own, ok := part(history, since, w.j.since); ok {
			w.answered(own, nil)
		} else if !w.j.left.Load() {
			others = append(others, w)
		}
	}
	return others
}

// part is the history behind own, taken from that behind since. It reports false
// if that does not say what is missing.
func part(all bus.History, since, own *bus.Position) (bus.History, bool) {
	switch {
	case own == nil:
		return bus.History{Top: all.Top}, true
	case *own == *since:
		return all, true
	case own.Epoch != since.Epoch || own.Epoch != all.Top.Epoch || own.Offset > all.Top.Offset:
		return bus.History{}, false
	}
	// What a channel loses are its oldest messages.
	if !all.Complete && (len(all.Messages) == 0 || all.Messages[0].Offset > own.Offset) {
		return bus.History{}, false
	}
	i := sort.Search(len(all.Messages), func(i int) bool { return all.Messages[i].Offset > own.Offset })
	return bus.History{Messages: all.Messages[i:], Top: all.Top, Complete: true}, true
}

// answered keeps the bus's answer. From then on the subscription is the runner's.
func (w waiter) answered(history bus.History, err error) {
	j := w.j
	j.history, j.err = history, err
	if j.phase.Swap(answered) == away {
		l := w.s.list
		l.shard.post(func() { l.shard.hub.answer(w.s) })
	}
}
