package nats

import (
	"sync"
	"time"

	"millrace/store/bus"
)

const (
	// outboxMost and outboxBytes bound the outbox where Keep does not: the
	// memory that a long interruption may take.
	outboxMost  = 100_000
	outboxBytes = 64 << 20
)

// outbox holds the publications that the server has not confirmed, in the
// order in which they were published.
type outbox struct {
	mu       sync.Mutex
	keep     bus.Keep
	all      []*pending // some of them out already
	in       map[*pending]bool
	channels map[string][]*pending // the same by channel, some of them out already
	bytes    int64
	changed  chan struct{} // closed when it becomes empty
}

func (o *outbox) init(keep bus.Keep) {
	// One of each channel at least: what was on its way when the connection
	// went should not be lost because no history is kept.
	keep.Messages = max(keep.Messages, 1)
	if keep.Bytes <= 0 {
		keep.Bytes = outboxBytes
	}
	if keep.Channels <= 0 {
		keep.Channels = outboxMost
	}
	*o = outbox{keep: keep, in: map[*pending]bool{}, channels: map[string][]*pending{}, changed: make(chan struct{})}
}

func (p *pending) size() int64 {
	return int64(len(p.message.Data) + len(p.message.ID) + aboutSize(p.message) + headerRoom)
}

// add puts a publication in, and returns those that have to go for it.
func (o *outbox) add(p *pending) (lost []*pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, p)
	o.in[p] = true
	o.bytes += p.size()
	own := o.trim(append(o.channels[p.token], p))
	o.channels[p.token] = own
	drop := func(p *pending) {
		o.out(p)
		lost = append(lost, p)
	}
	for n := o.live(own); n > o.keep.Messages; n-- {
		drop(own[0])
		own = o.trim(own)
		o.channels[p.token] = own
	}
	for len(o.in) > outboxMost || o.bytes > o.keep.Bytes || len(o.channels) > o.keep.Channels {
		o.all = o.trim(o.all)
		drop(o.all[0])
	}
	o.compact()
	return lost
}

// live counts the publications in a list that are still in the outbox.
func (o *outbox) live(list []*pending) int {
	if len(list) <= o.keep.Messages {
		return len(list)
	}
	n := 0
	for _, p := range list {
		if o.in[p] {
			n++
		}
	}
	return n
}

// trim removes from the front of a list what is out of the outbox.
func (o *outbox) trim(list []*pending) []*pending {
	for len(list) > 0 && !o.in[list[0]] {
		list[0] = nil
		list = list[1:]
	}
	return list
}

// out removes a publication.
func (o *outbox) out(p *pending) {
	if !o.in[p] {
		return
	}
	delete(o.in, p)
	o.bytes -= p.size()
	if own := o.trim(o.channels[p.token]); len(own) > 0 {
		o.channels[p.token] = own
	} else {
		delete(o.channels, p.token)
	}
	if len(o.in) == 0 {
		close(o.changed)
		o.changed = make(chan struct{})
	}
}

// compact keeps the list at most twice as long as the outbox.
func (o *outbox) compact() {
	if len(o.all) <= 2*len(o.in)+flushWindow {
		return
	}
	list := make([]*pending, 0, len(o.in))
	for _, p := range o.all {
		if o.in[p] {
			list = append(list, p)
		}
	}
	o.all = list
}

// batch returns the oldest n publications, and separately those that have expired
// before them.
func (o *outbox) batch(n int) (batch, expired []*pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = o.trim(o.all)
	for _, p := range o.all {
		switch {
		case len(batch) == n:
			return batch, expired
		case !o.in[p]:
		case o.keep.Age > 0 && time.Since(p.message.Time) > o.keep.Age:
			o.out(p)
			expired = append(expired, p)
		default:
			batch = append(batch, p)
		}
	}
	return batch, expired
}

func (o *outbox) remove(p *pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.out(p)
}

func (o *outbox) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.in)
}

// settle calls f if the outbox is empty, and reports whether it was.
func (o *outbox) settle(f func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.in) > 0 {
		return false
	}
	f()
	return true
}

// empty waits until the outbox is empty, but no longer than most.
func (o *outbox) empty(most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	for {
		o.mu.Lock()
		n, changed := len(o.in), o.changed
		o.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-changed:
		case <-t.C:
			return
		}
	}
}
