// Package bustest is the suite that every engine of the seam bus passes.
//
// An engine calls [Run] from a test of its own:
//
//	func TestMemory(t *testing.T) {
//		bustest.Run(t, false, func(t *testing.T, keep bus.Keep) bus.Bus { return bus.NewMemory(keep) })
//	}
//
// The suite asks of an engine that it carries publications of 512 KiB and that
// its Age works from one second on. Nothing in it depends on how fast a
// machine is: it waits for what must happen, up to 30 seconds.
package bustest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"millrace/store/bus"
)

// waitLimit is how long the suite waits for what must happen.
const waitLimit = 30 * time.Second

// usual are bounds that no test but those of bounds reaches.
func usual() bus.Keep { return bus.Keep{Messages: 1000, Age: 10 * time.Minute} }

// A suite is one run of the tests.
type suite struct {
	open func(t *testing.T, keep bus.Keep) bus.Bus
}

// Run runs the suite. open returns the bus of another machine each time: if the
// engine reaches other processes (shared), those opened with the same t are on
// the same stream, and those of another t on another one; else each is a bus of
// its own. The suite starts and closes it.
func Run(t *testing.T, shared bool, open func(t *testing.T, keep bus.Keep) bus.Bus) {
	t.Helper()
	s := suite{open}
	type test struct {
		name string
		run  func(t *testing.T)
	}
	tests := []test{
		{"order", s.order},
		{"many channels", s.manyChannels},
		{"listen and ignore", s.listenIgnore},
		{"names", s.names},
		{"payloads", s.payloads},
		{"ids", s.ids},
		{"who has published", s.from},
		{"the same id at once", s.sameID},
		{"history since", s.since},
		{"history of the latest", s.latest},
		{"history of a new channel", s.fresh},
		{"history of a foreign epoch", s.foreign},
		{"history while publishing", s.meanwhile},
		{"bound of messages", s.boundMessages},
		{"bound of age", s.boundAge},
		{"bound of bytes", s.boundBytes},
		{"bound of channels", s.boundChannels},
		{"nothing kept", s.nothingKept},
		{"members", s.members},
		{"start twice", s.startTwice},
		{"close", s.close},
		{"close while publishing", s.closeBusy},
	}
	if shared {
		tests = append(
			tests,
			test{"two machines", s.twoMachines},
			test{"two machines' order", s.twoOrder},
			test{"two machines' history", s.twoHistory},
			test{"two machines' ids", s.twoIDs},
			test{"two machines' members", s.twoMembers},
			test{"one machine closes", s.oneCloses},
			test{"a third machine comes late", s.late},
		)
	}
	for _, test := range tests {
		t.Run(test.name, test.run)
	}
}

// A machine is a bus and who listens to it.
type machine struct {
	bus.Bus
	t *testing.T

	mu      sync.Mutex
	news    chan struct{}            // closed when something has come
	got     map[string][]bus.Message // by channel
	resets  int
	members map[string][]bus.Member
}

var _ bus.Listener = (*machine)(nil)

func (s suite) machine(t *testing.T, keep bus.Keep) *machine {
	t.Helper()
	m := &machine{
		Bus:     s.open(t, keep),
		t:       t,
		news:    make(chan struct{}),
		got:     map[string][]bus.Message{},
		members: map[string][]bus.Member{},
	}
	if err := m.Start(m); err != nil {
		t.Fatalf("starting the bus: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("closing the bus: %v", err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.resets > 0 {
			t.Errorf("the bus said %d times that publications may have been missed", m.resets)
		}
	})
	return m
}

// change does f, and wakes those who wait for news.
func (m *machine) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.news)
	m.news = make(chan struct{})
}

func (m *machine) Deliver(msg bus.Message) {
	m.change(func() { m.got[msg.Channel] = append(m.got[msg.Channel], msg) })
}

func (m *machine) Placed(channel, id string, offset uint64) {
	m.t.Errorf("the message %s of %s was placed at %d: it was delivered without a place while nothing was wrong", id, channel, offset)
}

func (m *machine) Reset(string) { m.change(func() { m.resets++ }) }
func (m *machine) State(error)  {}

func (m *machine) Members(channel string) []bus.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.members[channel]
}

func (m *machine) present(channel string, clients ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members[channel] = nil
	for _, c := range clients {
		m.members[channel] = append(m.members[channel], bus.Member{Client: c, User: "user of " + c, Info: []byte(`{"x":1}`)})
	}
}

// delivered returns what has come, once it is n messages.
func (m *machine) delivered(channel string, n int) []bus.Message {
	m.t.Helper()
	end := time.After(waitLimit)
	for {
		m.mu.Lock()
		got, news := m.got[channel], m.news
		m.mu.Unlock()
		if len(got) >= n {
			return got[:len(got):len(got)]
		}
		select {
		case <-news:
		case <-end:
			m.t.Fatalf("%d publications of %q were delivered, want %d", len(got), channel, n)
		}
	}
}

// listen listens, and returns when that holds for other machines too.
func (m *machine) listen(channels ...string) {
	m.t.Helper()
	for _, c := range channels {
		if err := m.Listen(c); err != nil {
			m.t.Fatalf("listening to %q: %v", c, err)
		}
	}
	m.history(channels[len(channels)-1], nil, 1)
}

func (m *machine) publish(channel, text string) bus.Message {
	m.t.Helper()
	return m.send(bus.Message{Channel: channel, Data: []byte(text)})
}

func (m *machine) send(msg bus.Message) bus.Message {
	m.t.Helper()
	placed, err := m.Publish(m.t.Context(), msg)
	if err != nil {
		m.t.Fatalf("publishing to %q: %v", msg.Channel, err)
	}
	if placed.Offset == 0 || placed.ID == "" || placed.Time.IsZero() || placed.Channel != msg.Channel {
		m.t.Fatalf("publishing to %q gave %+v, want an offset, an ID and a time", msg.Channel, placed)
	}
	return placed
}

func (m *machine) many(channel string, n int) []bus.Message {
	m.t.Helper()
	all := make([]bus.Message, 0, n)
	for i := range n {
		all = append(all, m.publish(channel, fmt.Sprint(i)))
	}
	return all
}

// ask waits for the one answer of a call.
func ask[T any](t *testing.T, what string, call func(done func(T, error))) (T, error) {
	t.Helper()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 2)
	call(func(v T, err error) { answers <- answer{v, err} })
	select {
	case a := <-answers:
		if len(answers) > 0 {
			t.Fatalf("done was called twice for %s", what)
		}
		return a.value, a.err
	case <-time.After(waitLimit):
		t.Fatalf("done was not called for %s", what)
		panic("not reached")
	}
}

func (m *machine) history(channel string, since *bus.Position, limit int) bus.History {
	m.t.Helper()
	h, err := ask(m.t, "the history of "+channel, func(done func(bus.History, error)) { m.History(channel, since, limit, done) })
	if err != nil {
		m.t.Fatalf("the history of %q: %v", channel, err)
	}
	if h.Top.Epoch == "" {
		m.t.Fatalf("the history of %q is of no epoch", channel)
	}
	for i, msg := range h.Messages {
		if msg.Offset > h.Top.Offset || i > 0 && msg.Offset <= h.Messages[i-1].Offset || msg.Channel != channel {
			m.t.Fatalf("the history of %q has %+v at %d: behind its top %v, out of order, or of another channel", channel, msg, i, h.Top)
		}
	}
	return h
}

// top is the channel's position now.
func (m *machine) top(channel string) bus.Position {
	m.t.Helper()
	return m.history(channel, nil, 1).Top
}

// eventually waits for what nobody tells.
func (m *machine) eventually(what string, ok func() bool) {
	m.t.Helper()
	for end := time.Now().Add(waitLimit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("did not happen: %s", what)
		}
	}
}

// texts are the messages' data.
func texts(messages []bus.Message) []string {
	all := []string{}
	for _, m := range messages {
		all = append(all, string(m.Data))
	}
	return all
}

// same reports whether two lists are of the same publications.
func same(a, b []bus.Message) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID || a[i].Offset != b[i].Offset || string(a[i].Data) != string(b[i].Data) ||
			a[i].Time.UnixMilli() != b[i].Time.UnixMilli() {
			return false
		}
	}
	return true
}
