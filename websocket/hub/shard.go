package hub

import (
	"sync"
	"sync/atomic"
	"time"
)

// slice is how many deliveries a shard makes before others on its runner get
// their turn: at some 2 µs each (one write to a socket) half a millisecond.
const slice = 256

// shard serves the subscribers of one runner.
type shard struct {
	hub  *Hub
	i    int
	run  func() // made once: posting it allocates nothing
	most int    // deliveries in a run: slice; less in tests
	in   inbox

	subscriptions atomic.Int64

	// mu is held while a slice is delivered. On the runners of loops hardly
	// anybody waits for it: who subscribes there is on the runner itself.
	mu     sync.Mutex
	closed bool
}

func newShard(h *Hub, i int) *shard {
	sh := &shard{hub: h, i: i, most: slice}
	sh.run = sh.deliver
	return sh
}

// close ends deliveries. None is under way when it returns.
func (sh *shard) close() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.closed = true
}

// post has f called on the shard's runner.
func (sh *shard) post(f func()) { sh.hub.post(sh.i, f) }

// put brings a publication to a list's subscribers, soon.
func (sh *shard) put(l *list, p *Publication) {
	post, fits := sh.in.put(l, p, func() *Publication {
		return sh.hub.note(Note{Kind: Reset, Channel: l.channel.name})
	})
	if !fits && p.Note == nil {
		sh.hub.o.Meters.Dropped.Add("behind")
	}
	if post {
		sh.post(sh.run)
	}
}

// deliver empties the inbox, or delivers a slice of it and posts itself again. Lists
// take turns, so that subscribers of a small channel do not wait until a large one is
// done.
func (sh *shard) deliver() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed {
		return // what is posted stays posted: nobody comes again
	}
	left, total := sh.most, 0
	for {
		if left <= 0 {
			sh.post(sh.run)
			break
		}
		t, ok := sh.in.take()
		if !ok {
			break
		}
		steps, n := sh.turn(t, left)
		left -= steps
		total += n
	}
	if total > 0 {
		sh.hub.o.Meters.Delivered.Add(uint32(sh.i), uint64(total))
	}
}

// turn delivers to one list. steps is how much of the slice that took, n the
// deliveries that are counted.
func (sh *shard) turn(t token, left int) (steps, n int) {
	l := t.l
	o := l.open
	switch {
	case t.p == nil:
		// o is there: whoever pushed the token left it there.
	case o != nil:
		o.next = append(o.next, t.p) // bounded by listWaiting
		return 1, 0
	default:
		l.begin(t.p)
		if len(l.subs) <= left { // almost always: nothing to remember
			n = l.serve(t.p, l.subs)
			sh.finish(l, t.p, n)
			return 1 + len(l.subs), counted(t.p, n)
		}
		o = &opened{p: t.p, end: len(l.subs)}
		l.open = o
	}
	stop := min(o.end, o.at+left)
	steps = 1 + stop - o.at
	p := o.p
	n = l.serve(p, l.subs[o.at:stop])
	o.served += n
	o.at = stop
	if o.at < o.end {
		sh.in.again(l)
		return steps, counted(p, n)
	}
	sh.finish(l, p, o.served)
	if len(o.next) == 0 {
		l.open = nil
		return steps, counted(p, n)
	}
	o.p, o.at, o.end, o.served = o.next[0], 0, len(l.subs), 0
	o.next[0] = nil
	o.next = o.next[1:]
	l.begin(o.p)
	sh.in.again(l)
	return steps, counted(p, n)
}

// counted is n for messages; notes do not count.
func counted(p *Publication, n int) int {
	if p.Note != nil {
		return 0
	}
	return n
}

// finish is called when all of a list have p.
func (sh *shard) finish(l *list, p *Publication, served int) {
	sh.in.delivered(l, p)
	if served > 0 && p.Note == nil {
		sh.hub.o.Meters.Lag.Observe(uint32(sh.i), time.Since(p.since))
	}
}
