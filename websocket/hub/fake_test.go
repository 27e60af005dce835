package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/observe/meter"
	"millrace/store/bus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeBus is a bus whose answers may come late, and that fails on request.
type fakeBus struct {
	keep     int
	late     bool // histories are answered by answer
	gap      func() uint64
	listener bus.Listener

	mu       sync.Mutex
	epoch    int
	channels map[string]*fakeChannel
	waiting  []func() // answers
	listens  int      // calls that succeeded less those of Ignore
	calls    int      // of Listen
	asked    int      // calls of History
	nested   bool     // Listen or Ignore for a channel that was so already, or is being changed
	hold     chan struct{}
	fail     error // of Listen
	down     error // of History
	closed   bool
}

type fakeChannel struct {
	turn      sync.Mutex // makes the order of Deliver
	top       uint64
	messages  []bus.Message
	listening bool
	changing  bool
}

func newFakeBus() *fakeBus {
	return &fakeBus{keep: 1 << 30, gap: func() uint64 { return 1 }, channels: map[string]*fakeChannel{}}
}

func (b *fakeBus) channel(name string) *fakeChannel {
	c := b.channels[name]
	if c == nil {
		c = &fakeChannel{}
		b.channels[name] = c
	}
	return c
}

func (b *fakeBus) Start(l bus.Listener) error {
	b.listener = l
	return nil
}

func (b *fakeBus) Publish(_ context.Context, m bus.Message) (bus.Message, error) {
	b.mu.Lock()
	c := b.channel(m.Channel)
	b.mu.Unlock()
	c.turn.Lock()
	defer c.turn.Unlock()
	b.mu.Lock()
	c.top += b.gap()
	m.Offset, m.Time = c.top, time.Now()
	c.messages = append(c.messages, m)
	c.messages = c.messages[max(0, len(c.messages)-b.keep):]
	listening := c.listening
	b.mu.Unlock()
	if listening {
		b.listener.Deliver(m)
	}
	return m, nil
}

// begin has the order of a channel begin anew.
func (b *fakeBus) begin(name string) {
	b.mu.Lock()
	c := b.channel(name)
	b.mu.Unlock()
	c.turn.Lock()
	defer c.turn.Unlock()
	b.mu.Lock()
	b.epoch++
	c.top, c.messages = 0, nil
	b.mu.Unlock()
	b.listener.Reset(name)
}

func (b *fakeBus) change(name string, to bool, err error) error {
	b.mu.Lock()
	c := b.channel(name)
	b.nested = b.nested || c.changing || c.listening == to
	c.changing = true
	hold := b.hold
	b.mu.Unlock()
	if hold != nil {
		<-hold
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.changing = false
	if err != nil {
		return err
	}
	c.listening = to
	if to {
		b.listens++
	} else {
		b.listens--
	}
	return nil
}

func (b *fakeBus) Listen(name string) error {
	b.mu.Lock()
	b.calls++
	fail := b.fail
	b.mu.Unlock()
	return b.change(name, true, fail)
}

func (b *fakeBus) Ignore(name string) { _ = b.change(name, false, nil) }

func (b *fakeBus) History(name string, since *bus.Position, limit int, done func(bus.History, error)) {
	b.mu.Lock()
	b.asked++
	if b.late {
		b.waiting = append(b.waiting, func() { done(b.history(name, since, limit)) })
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	done(b.history(name, since, limit))
}

func (b *fakeBus) history(name string, since *bus.Position, limit int) (bus.History, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down != nil {
		return bus.History{}, b.down
	}
	c := b.channel(name)
	h := bus.History{Top: bus.Position{Epoch: strconv.Itoa(b.epoch), Offset: c.top}}
	from := 0
	if since != nil && since.Epoch == h.Top.Epoch {
		from = len(c.messages)
		for from > 0 && c.messages[from-1].Offset > since.Offset {
			from--
		}
		h.Complete = from > 0 || since.Offset == c.top || b.keep == 1<<30
	}
	h.Messages = slices.Clone(c.messages[from:])
	if limit > 0 && len(h.Messages) > limit {
		h.Messages, h.Complete = h.Messages[len(h.Messages)-limit:], false
	}
	return h, nil
}

// answer answers one history, or reports that none was asked.
func (b *fakeBus) answer(which func(n int) int) bool {
	b.mu.Lock()
	if len(b.waiting) == 0 {
		b.mu.Unlock()
		return false
	}
	i := which(len(b.waiting))
	f := b.waiting[i]
	b.waiting = slices.Delete(b.waiting, i, i+1)
	b.mu.Unlock()
	f()
	return true
}

func (b *fakeBus) Members(name string, done func([]bus.Member, error)) {
	done(b.listener.Members(name), nil)
}

func (b *fakeBus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.hold != nil {
		close(b.hold)
		b.hold, b.fail = nil, bus.ErrClosed
	}
	return nil
}

// runners are run by hand.
type runners struct {
	mu     sync.Mutex
	queues [][]func()
}

func newRunners(n int) *runners { return &runners{queues: make([][]func(), n)} }

func (r *runners) post(i int, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues[i] = append(r.queues[i], f)
}

// step runs one function.
func (r *runners) step(i int) bool {
	r.mu.Lock()
	if len(r.queues[i]) == 0 {
		r.mu.Unlock()
		return false
	}
	f := r.queues[i][0]
	if q := r.queues[i]; len(q) < 64 { // benchmarks count allocations
		r.queues[i] = slices.Delete(q, 0, 1)
	} else {
		r.queues[i] = q[1:]
	}
	r.mu.Unlock()
	f()
	return true
}

// drain runs all that there is, and what comes of it.
func (r *runners) drain() {
	for again := true; again; {
		again = false
		for i := range r.queues {
			for r.step(i) {
				again = true
			}
		}
	}
}

func (r *runners) posted(i int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queues[i])
}

// fixture is a hub on a fake bus with runners by hand.
type fixture struct {
	*Hub
	bus    *fakeBus
	run    *runners
	meters *meter.WebSocket
}

// newFixture makes one. Tests run it in a bubble, where settled waits for the
// hub's goroutines.
func newFixture(t *testing.T, o Options, shards int) *fixture {
	t.Helper()
	f := &fixture{bus: newFakeBus(), run: newRunners(shards), meters: &meter.WebSocket{}}
	o.Meters = f.meters
	var err error
	if f.Hub, err = New(o, f.bus, shards, f.run.post); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func (f *fixture) publish(t *testing.T, channel string, text any) bus.Message {
	t.Helper()
	m, err := f.Publish(t.Context(), bus.Message{Channel: channel, Data: fmt.Append(nil, text)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// client notes what it is told, and complains about what must not be. It is
// used by one goroutine, or under its shard's lock.
type client struct {
	t       testing.TB
	s       *Subscription
	request Request
	answers int
	answer  Answer
	err     error
	left    bool
	got     []*Publication
	// anywhere: it leaves not on its runner, but on some goroutine.
	anywhere bool
	onDone   func()
}

func (c *client) Deliver(p *Publication) {
	switch {
	case c.left:
		c.t.Errorf("%+v was delivered after the end of the subscription", p.Message)
	case c.answers == 0:
		c.t.Errorf("%+v was delivered before the answer", p.Message)
	case p.Channel != c.request.Channel:
		c.t.Errorf("a publication of %s was delivered to a subscriber of %s", p.Channel, c.request.Channel)
	}
	c.got = append(c.got, p)
}

func (c *client) done(a Answer, err error) {
	if c.answers++; c.answers > 1 || c.left && !c.anywhere {
		c.t.Errorf("answer %d, after the end: %v", c.answers, c.left)
	}
	c.answer, c.err = a, err
	if c.onDone != nil {
		c.onDone()
	}
}

// join subscribes.
func (f *fixture) join(t testing.TB, r Request) *client {
	t.Helper()
	c := &client{t: t}
	r.Subscriber, r.Done = c, c.done
	c.request = r
	var err error
	if c.s, err = f.Subscribe(r); err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fixture) leave(c *client) {
	f.Unsubscribe(c.s)
	c.left = true
}

// texts are the data of what a client was delivered; notes as their kind.
func (c *client) texts() []string {
	var all []string
	for _, p := range c.got {
		if p.Note != nil {
			all = append(all, p.Note.Kind)
		} else {
			all = append(all, string(p.Data))
		}
	}
	return all
}

func missed(a Answer) []string {
	var all []string
	for _, m := range a.Missed {
		all = append(all, string(m.Data))
	}
	return all
}

var errFake = errors.New("broken")

func first(int) int { return 0 }

func anyOf(r *rand.Rand) func(int) int { return r.IntN }
