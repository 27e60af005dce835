package bus

import (
	"context"
	"crypto/rand"
	"errors"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// shards of the channels: publishers of different channels seldom wait for
	// each other. Far more than cores, and a power of two.
	shards = 64
	// floors of a shard, a power of two: see shard.floors. All shards' together
	// take half a MiB.
	floors = 1024
	// sweepEvery is how long an expired history may stay in memory. It is not
	// seen any more at once.
	sweepEvery = time.Second
	// sweepBatch is how many expired channels are cleared before others get at
	// the shard.
	sweepBatch = 256
	// messageCost and channelCost are the bytes that a kept message and a
	// channel with a history take beside their text.
	messageCost = 144
	channelCost = 384
	// memberCost is the same of who has published a message.
	memberCost = 128
	// tagCost is the same of one tag.
	tagCost = 64
)

// Memory is the bus of one process. A channel is kept while it is listened to or has a
// history, and its offsets grow by one as long. One that comes back goes on behind its
// last offset, perhaps with a gap.
//
// Publish holds the turn of its channel while it calls Deliver, which is what
// makes the order. Nothing but another Publish of the channel, and Close, waits
// for that.
type Memory struct {
	keep     atomic.Pointer[Keep] // see Bound
	epoch    string
	seed     maphash.Seed
	listener Listener

	seq      atomic.Uint64 // of writes; makes IDs, and says which channel was written longest ago
	bytes    atomic.Int64  // kept
	kept     atomic.Int64  // channels with a history
	evicting sync.Mutex
	shards   [shards]shard

	start   sync.Mutex // for started and closed
	started bool
	closed  bool
	stop    chan struct{}
	wake    chan struct{} // tells sweep of a first history, or of another age
	swept   sync.WaitGroup
}

var _ Bus = (*Memory)(nil)

// NewMemory returns a bus whose epoch is its own: positions of before a
// restart are not taken for its.
func NewMemory(keep Keep) *Memory {
	m := &Memory{
		epoch: rand.Text()[:12], // 60 bits
		seed:  maphash.MakeSeed(),
		stop:  make(chan struct{}),
		wake:  make(chan struct{}, 1),
	}
	m.keep.Store(&keep)
	for i := range m.shards {
		m.shards[i].m = m
		m.shards[i].channels = map[string]*channel{}
		m.shards[i].oldest.Store(math.MaxUint64)
	}
	return m
}

// Start implements Bus.
func (m *Memory) Start(l Listener) error {
	m.start.Lock()
	defer m.start.Unlock()
	if m.closed {
		return ErrClosed
	}
	if m.started {
		return errors.New("the bus was started before")
	}
	m.started = true
	m.listener = l
	m.swept.Go(m.sweep) // Close waits for it
	return nil
}

// Bound changes what is kept. What is there stays, except for what the new bounds have
// no room for. Offsets and epoch do not change.
func (m *Memory) Bound(keep Keep) {
	m.keep.Store(&keep)
	for i := range m.shards {
		m.shards[i].bound(keep)
	}
	if m.over() {
		m.evict()
	}
	m.wakeSweep()
}

// Publish implements Bus. Deliver is called before it returns.
func (m *Memory) Publish(ctx context.Context, msg Message) (Message, error) {
	if err := ctx.Err(); err != nil {
		return Message{}, err
	}
	if err := CheckChannel(msg.Channel); err != nil {
		return Message{}, err
	}
	s, floor := m.shard(msg.Channel)
	c, err := s.enter(msg.Channel, floor)
	if err != nil {
		return Message{}, err
	}
	defer s.leave(c, floor)
	msg = s.publish(c, msg)
	if m.over() {
		m.evict()
	}
	return msg, nil
}

// Listen implements Bus.
func (m *Memory) Listen(channel string) error {
	if err := CheckChannel(channel); err != nil {
		return err
	}
	s, floor := m.shard(channel)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.get(channel, floor).listening = true
	return nil
}

// Ignore implements Bus.
func (m *Memory) Ignore(channel string) {
	s, floor := m.shard(channel)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[channel]; c != nil {
		c.listening = false
		s.drop(c, floor)
	}
}

// History implements Bus; done is called before it returns.
func (m *Memory) History(channel string, since *Position, limit int, done func(History, error)) {
	if err := CheckChannel(channel); err != nil {
		done(History{}, err)
		return
	}
	s, floor := m.shard(channel)
	done(s.history(channel, floor, since, limit))
}

// Members implements Bus; done is called before it returns.
func (m *Memory) Members(channel string, done func([]Member, error)) {
	s, _ := m.shard(channel)
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		done(nil, ErrClosed)
		return
	}
	done(m.listener.Members(channel), nil)
}

// Close implements Bus. What was kept is gone.
func (m *Memory) Close() error {
	m.start.Lock()
	if !m.closed {
		m.closed = true
		close(m.stop)
	}
	m.start.Unlock()
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}
	for i := range m.shards {
		m.shards[i].active.Wait()
	}
	m.swept.Wait()
	return nil
}

// shard returns where a channel lives, and the index of its floor there.
func (m *Memory) shard(channel string) (*shard, int) {
	h := maphash.String(m.seed, channel)
	return &m.shards[h%shards], int(h / shards % floors)
}

// newID makes an ID from the number of a write.
func (m *Memory) newID(seq uint64) string {
	b := make([]byte, 0, len(m.epoch)+14)
	b = append(append(b, m.epoch...), '-')
	return string(strconv.AppendUint(b, seq, 36))
}

// ownID reports whether newID may have made the ID.
func (m *Memory) ownID(id string) bool {
	return strings.HasPrefix(id, m.epoch) && strings.HasPrefix(id[len(m.epoch):], "-")
}

// over reports whether more is kept than may be.
func (m *Memory) over() bool {
	keep := m.keep.Load()
	return keep.Bytes > 0 && m.bytes.Load() > keep.Bytes ||
		keep.Channels > 0 && m.kept.Load() > int64(keep.Channels)
}

// evict takes from the channels that were written longest ago until the bounds
// hold.
func (m *Memory) evict() {
	m.evicting.Lock()
	defer m.evicting.Unlock()
	for m.over() {
		oldest, at := uint64(math.MaxUint64), -1
		for i := range m.shards {
			if o := m.shards[i].oldest.Load(); o < oldest {
				oldest, at = o, i
			}
		}
		if at < 0 {
			return
		}
		m.shards[at].evict()
	}
}

// sweep clears the histories that have expired as a whole, and forgets those
// channels that nobody listens to. The others are trimmed when they are
// written or read. It sleeps until the next one expires.
func (m *Memory) sweep() {
	for {
		var due <-chan time.Time // never
		next, some := m.clear(time.Now())
		timer := time.NewTimer(max(time.Until(next), sweepEvery))
		if some {
			due = timer.C
		}
		select {
		case <-m.stop:
			timer.Stop()
			return
		case <-due:
		case <-m.wake:
		}
		timer.Stop()
	}
}

// clear clears the histories that have expired, and returns when the next one will.
func (m *Memory) clear(now time.Time) (next time.Time, some bool) {
	age := m.keep.Load().Age
	if age <= 0 {
		return next, false
	}
	for i := range m.shards {
		for {
			n, last := m.shards[i].sweep(now.Add(-age))
			if n == sweepBatch {
				continue
			}
			if !last.IsZero() && (next.IsZero() || last.Add(age).Before(next)) {
				next = last.Add(age)
			}
			break
		}
	}
	return next, m.kept.Load() > 0
}

// wakeSweep has sweep look anew at when it must clear.
func (m *Memory) wakeSweep() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
