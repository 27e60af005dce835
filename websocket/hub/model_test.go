package hub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/store/bus"
)

// told is what a client knows after a while: the offsets of a channel, from
// where on, and whether it was told that some may be missing.
func (c *client) check(all []uint64, end bool) error {
	if c.answers == 0 {
		if end && !c.left {
			return fmt.Errorf("no answer")
		}
		return nil
	}
	if c.err != nil {
		return c.err
	}
	var got []uint64
	from := c.answer.Top.Offset
	if c.request.Since != nil {
		if !c.answer.Recovered {
			return fmt.Errorf("not recovered: %+v", c.answer)
		}
		from = c.request.Since.Offset
		for _, m := range c.answer.Missed {
			got = append(got, m.Offset)
		}
	}
	for _, p := range c.got {
		if p.Note != nil {
			return fmt.Errorf("a note: %+v", p.Note)
		}
		got = append(got, p.Offset)
	}
	var want []uint64
	for _, offset := range all {
		if offset > from {
			want = append(want, offset)
		}
	}
	for i, offset := range got {
		if i >= len(want) || offset != want[i] {
			return fmt.Errorf("got %v, want %v", got, want)
		}
	}
	if end && !c.left && len(got) != len(want) {
		return fmt.Errorf("lost some: got %v, want %v", got, want)
	}
	return nil
}

// position is where a client would go on.
func (c *client) position() bus.Position {
	p := c.answer.Top
	if n := len(c.got); n > 0 {
		p.Offset = c.got[n-1].Offset
	}
	return p
}

// TestModel lets clients come and go at random while others publish, with all
// turns in the hands of one random source, and holds every client against the
// channel: nothing lost, nothing doubled, in order.
func TestModel(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { model(t, seed) })
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func model(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	shards := 1 + r.IntN(3)
	f := newFixture(t, Options{}, shards)
	f.bus.late = seed%2 == 0
	f.bus.gap = func() uint64 { return 1 + r.Uint64N(3) }
	for _, sh := range f.shards {
		sh.most = 1 + r.IntN(5)
	}
	channels := []string{"a", "b", "c"}[:1+r.IntN(3)]
	offsets := map[string][]uint64{}
	var here, all []*client
	subscribe := func(channel string, shard int, since *bus.Position) {
		c := f.join(t, Request{Channel: channel, Shard: shard, Since: since})
		here, all = append(here, c), append(all, c)
	}
	leave := func() *client {
		i := r.IntN(len(here))
		c := here[i]
		here[i] = here[len(here)-1]
		here = here[:len(here)-1]
		f.leave(c)
		return c
	}
	for range 400 {
		switch n := r.IntN(20); {
		case n < 4:
			channel := channels[r.IntN(len(channels))]
			offsets[channel] = append(offsets[channel], f.publish(t, channel, "x").Offset)
		case n < 7:
			subscribe(channels[r.IntN(len(channels))], r.IntN(shards), nil)
		case n < 9 && len(here) > 0:
			leave()
		case n < 11 && len(here) > 0: // comes back somewhere else
			if c := leave(); c.answers == 1 {
				p := c.position()
				subscribe(c.request.Channel, r.IntN(shards), &p)
			}
		case n < 14:
			f.bus.answer(anyOf(r))
		default:
			f.run.step(r.IntN(shards))
		}
		synctest.Wait()
	}
	f.run.drain()
	for f.bus.answer(anyOf(r)) {
	}
	f.run.drain()
	for i, c := range all {
		if err := c.check(offsets[c.request.Channel], true); err != nil {
			t.Errorf("client %d of %s on shard %d, since %v: %v", i, c.request.Channel, c.request.Shard, c.request.Since, err)
		}
	}
	for len(here) > 0 {
		leave()
	}
	f.run.drain()
	synctest.Wait()
	f.Measure()
	if n, s := f.meters.Channels.Load(), f.meters.Subscriptions.Load(); n != 0 || s != 0 || f.bus.listens != 0 {
		t.Errorf("%d channels, %d subscriptions and %d listened to are left", n, s, f.bus.listens)
	}
	for i, sh := range f.shards {
		if sh.in.bytes != 0 || len(sh.in.tokens) != 0 {
			t.Errorf("shard %d: %d bytes and %d tokens are left", i, sh.in.bytes, len(sh.in.tokens))
		}
	}
	if f.bus.nested {
		t.Error("Listen and Ignore overtook each other")
	}
}

// loops are real runners.
type loops struct {
	queues []chan func()
	done   sync.WaitGroup
}

func newLoops(n int) *loops {
	l := &loops{}
	for range n {
		q := make(chan func(), 1<<16)
		l.queues = append(l.queues, q)
		l.done.Go(func() {
			for f := range q {
				f()
			}
		})
	}
	return l
}

func (l *loops) post(i int, f func()) { l.queues[i] <- f }

func (l *loops) stop() {
	for _, q := range l.queues {
		close(q)
	}
	l.done.Wait()
}

// TestStorm is the model with goroutines, on a bus in memory and on one that
// answers late, for the race detector to look at.
func TestStorm(t *testing.T) {
	for name, b := range map[string]bus.Bus{
		"memory": bus.NewMemory(bus.Keep{Messages: 1 << 20}),
		"late":   newFakeBus(),
	} {
		t.Run(name, func(t *testing.T) { storm(t, b) })
	}
}

const (
	stormShards     = 3
	stormChannels   = 4
	stormPublishers = 3
	stormMessages   = 300 // of each publisher
	stormSeats      = 12  // of each shard
)

func storm(t *testing.T, b bus.Bus) {
	l := newLoops(stormShards)
	h, err := New(Options{}, b, stormShards, l.post)
	if err != nil {
		t.Fatal(err)
	}
	for _, sh := range h.shards {
		sh.most = 3
	}
	stop := make(chan struct{})
	var answering sync.WaitGroup
	if f, ok := b.(*fakeBus); ok {
		f.late = true
		answering.Go(func() {
			for {
				if f.answer(first) {
					continue
				}
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Microsecond):
				}
			}
		})
	}
	var mu sync.Mutex
	offsets := map[string][]uint64{}
	var publishers sync.WaitGroup
	for range stormPublishers {
		publishers.Go(func() {
			for i := range stormMessages {
				channel := fmt.Sprint("c", i%stormChannels)
				m, err := h.Publish(context.Background(), bus.Message{Channel: channel, Data: []byte("x")})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				offsets[channel] = append(offsets[channel], m.Offset)
				mu.Unlock()
			}
		})
	}
	seats := make([]*seat, 0, stormShards*stormSeats)
	var ends sync.WaitGroup
	for i := range stormShards * stormSeats {
		s := &seat{hub: h, t: t, shard: i % stormShards, r: rand.New(rand.NewPCG(uint64(i), 2))}
		s.post = func(f func()) { l.post(s.shard, f) }
		seats = append(seats, s)
		ends.Add(1)
		s.over = ends.Done
		if s.shard == stormShards-1 {
			// Goroutines of their own.
			s.post = func(f func()) { go f() }
		}
		s.post(s.move)
	}
	publishers.Wait()
	ends.Wait()
	checkSeats(t, seats, offsets)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	close(stop)
	answering.Wait()
	l.stop()
}

func checkSeats(t *testing.T, seats []*seat, offsets map[string][]uint64) {
	t.Helper()
	for name := range offsets {
		sortOffsets(offsets[name])
	}
	for i, s := range seats {
		// The last stays: wait until it has all.
		last := s.clients[len(s.clients)-1]
		all := offsets[last.c.request.Channel]
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			last.mu.Lock()
			p := last.c.position()
			last.mu.Unlock()
			if p.Offset == all[len(all)-1] {
				break
			}
		}
		for k, lc := range s.clients {
			lc.mu.Lock()
			if err := lc.c.check(offsets[lc.c.request.Channel], k == len(s.clients)-1); err != nil {
				t.Errorf("seat %d, client %d on %s, since %v: %v", i, k, lc.c.request.Channel, lc.c.request.Since, err)
			}
			lc.mu.Unlock()
		}
	}
}

// seat is a place where one client after the other sits, each going on where
// the one before was, or afresh in another channel.
type seat struct {
	hub     *Hub
	t       *testing.T
	shard   int
	r       *rand.Rand
	post    func(func())
	over    func()
	moves   int
	s       *Subscription
	clients []*lockedClient
}

// lockedClient is a client that others look at, too.
type lockedClient struct {
	mu sync.Mutex
	c  client
}

func (c *lockedClient) Deliver(p *Publication) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c.Deliver(p)
}

// move is called on the runner, again and again.
func (s *seat) move() {
	const moves = 60
	request := Request{Shard: s.shard, Channel: fmt.Sprint("c", s.r.IntN(stormChannels))}
	if n := len(s.clients); n > 0 {
		before := s.clients[n-1]
		before.mu.Lock()
		answered := before.c.answers > 0
		before.mu.Unlock()
		if s.r.IntN(4) > 0 && !answered { // give it time
			s.post(s.move)
			return
		}
		s.hub.Unsubscribe(s.s)
		before.mu.Lock()
		before.c.left = true
		if before.c.answers > 0 && s.r.IntN(3) > 0 {
			p := before.c.position()
			request.Since, request.Channel = &p, before.c.request.Channel
		}
		before.mu.Unlock()
	}
	c := &lockedClient{c: client{t: s.t, request: request, anywhere: s.shard == stormShards-1}}
	s.clients = append(s.clients, c)
	request.Subscriber = c
	request.Done = func(a Answer, err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.c.done(a, err)
	}
	var err error
	if s.s, err = s.hub.Subscribe(request); err != nil {
		s.t.Error(err)
	}
	if s.moves++; s.moves == moves {
		s.over()
		return
	}
	s.post(s.move)
}
