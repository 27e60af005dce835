package hub

import (
	"fmt"
	"strings"
	"sync"

	"millrace/store/bus"
)

const (
	// stripes of the channels: a power of two, and far more than cores, so that
	// those who look for different channels seldom meet.
	stripes = 64
	// tuners is how many channels may be in the bus's Listen or Ignore at once:
	// each may be a round trip to another machine.
	tuners = 64
)

// stripe is a part of the channels.
type stripe struct {
	mu       sync.Mutex
	channels map[string]*channel // bounded by Options.MaxChannels
}

// channel has a subscriber here, or had one a moment ago. By stripe.mu.
type channel struct {
	name    string
	first   *list                         // of the shards that have subscribers, or had
	members map[*Subscription]*bus.Member // nil: none
	subs    int32                         // on all shards, with those on their way in
	// gen is how often the bus has said Reset. A publication carries the gen
	// that it came with, and a subscription the one at which its history was
	// asked: only offsets with the same gen can be compared.
	gen       uint16
	listening bool      // the bus delivers
	wanted    bool      // somebody waits for that
	tuning    bool      // h.tuner has it
	asking    bool      // the bus is asked for the history
	waiting   *[]waiter // for the next question; nil: nobody
}

// enter finds or makes a channel, and its list for a shard, and holds it there
// until exit.
func (h *Hub) enter(name string, sh *shard) (*list, error) {
	st := h.stripe(name)
	st.mu.Lock()
	defer st.mu.Unlock()
	ch := st.channels[name]
	if ch == nil {
		if h.channels.Add(1) > int64(h.o.MaxChannels) {
			h.channels.Add(-1)
			return nil, ErrChannels
		}
		ch = &channel{name: strings.Clone(name)}
		st.channels[ch.name] = ch
	}
	ch.subs++
	for l := ch.first; l != nil; l = l.next {
		if l.shard == sh {
			return l, nil
		}
	}
	ch.first = &list{channel: ch, shard: sh, next: ch.first}
	return ch.first, nil
}

// exit is called once for each enter.
func (h *Hub) exit(ch *channel) {
	st := h.stripe(ch.name)
	st.mu.Lock()
	defer st.mu.Unlock()
	if ch.subs--; ch.subs == 0 {
		h.tune(ch)
	}
}

// listens reports whether the bus delivers the channel. If not, it has the bus asked
// to.
func (h *Hub) listens(ch *channel) bool {
	st := h.stripe(ch.name)
	st.mu.Lock()
	defer st.mu.Unlock()
	if !ch.listening {
		ch.wanted = true
		h.tune(ch)
	}
	return ch.listening
}

// tune queues a channel for settle; its stripe is locked.
func (h *Hub) tune(ch *channel) {
	if !ch.tuning {
		ch.tuning = true
		h.tuner.add(ch, h.settle)
	}
}

// settle makes the bus listen to a channel that has subscribers, and ignore one that
// has none. Only one goroutine settles a channel at a time, so the two calls cannot
// overtake each other.
func (h *Hub) settle(ch *channel) {
	st := h.stripe(ch.name)
	for {
		st.mu.Lock()
		switch {
		case ch.subs > 0 && !ch.listening && ch.wanted:
			ch.wanted = false
			st.mu.Unlock()
			err := h.bus.Listen(ch.name)
			if err == nil {
				st.mu.Lock()
				ch.listening = true
				st.mu.Unlock()
			}
			h.release(ch, err)
		case ch.subs == 0 && ch.listening:
			ch.listening = false
			st.mu.Unlock()
			h.bus.Ignore(ch.name)
		default:
			ch.tuning = false
			if ch.subs == 0 {
				delete(st.channels, ch.name)
				h.channels.Add(-1)
			}
			st.mu.Unlock()
			return
		}
	}
}

// release continues the subscriptions that waited for the bus to listen.
func (h *Hub) release(ch *channel, err error) {
	first, _ := h.lists(ch.name)
	for l := first; l != nil; l = l.next {
		for _, w := range l.claim() {
			if err == nil {
				h.ask(w)
				continue
			}
			if h.leave(w.s) {
				l.shard.post(func() {
					if !h.closed.Load() {
						w.j.done(Answer{}, fmt.Errorf("listening to a channel: %w", err))
					}
				})
			}
		}
	}
}

// claim returns the subscriptions for which nobody has asked the history yet, and
// marks them, so that nobody else does.
func (l *list) claim() []waiter {
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	var waiters []waiter
	for _, s := range l.subs {
		if s.state == entering && s.join.phase.CompareAndSwap(idle, away) {
			waiters = append(waiters, waiter{s, s.join})
		}
	}
	return waiters
}

// tuner is what brings channels to settle: goroutines that are started when
// there is work, and end when there is none. Hub.Close waits for them.
type tuner struct {
	mu      sync.Mutex
	queue   []*channel // each at most once
	running int
	closed  bool
	workers sync.WaitGroup
}

func (t *tuner) add(ch *channel, settle func(*channel)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.queue = append(t.queue, ch)
	if t.running < tuners {
		t.running++
		t.workers.Go(func() { t.work(settle) })
	}
}

func (t *tuner) work(settle func(*channel)) {
	for {
		ch := t.next()
		if ch == nil {
			return
		}
		settle(ch)
	}
}

func (t *tuner) next() *channel {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		t.queue = nil
		t.running--
		return nil
	}
	ch := t.queue[0]
	t.queue[0] = nil
	t.queue = t.queue[1:]
	return ch
}

// close forgets who waits, and lets nobody in any more.
func (t *tuner) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.queue = true, nil
}
