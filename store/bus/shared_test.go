package bus_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"millrace/store/bus"
	"millrace/store/bus/bustest"
)

// TestSharedSuite: what one user has is a bus as any other.
func TestSharedSuite(t *testing.T) {
	bustest.Run(t, false, func(_ *testing.T, keep bus.Keep) bus.Bus {
		s := bus.Share(bus.NewMemory(keep))
		return closingToo{s.Join(), s}
	})
}

// closingToo leaves nothing open behind the suite.
type closingToo struct {
	bus.Bus
	shared *bus.Shared
}

func (c closingToo) Close() error { return errors.Join(c.Bus.Close(), c.shared.Close()) }

// ear keeps what it is told.
type ear struct {
	mu   sync.Mutex
	got  []string
	down error
}

func (e *ear) Deliver(m bus.Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, m.Channel+":"+string(m.Data))
}
func (e *ear) Placed(string, string, uint64) {}
func (e *ear) Reset(string)                  {}
func (e *ear) State(err error)               { e.down = err }
func (e *ear) Members(channel string) []bus.Member {
	return []bus.Member{{Client: "of " + channel}}
}

func (e *ear) all() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := ""
	for _, g := range e.got {
		s += g + " "
	}
	return s
}

// TestShared hands a bus over from one user to the next, as a reload does.
func TestShared(t *testing.T) {
	s := bus.Share(bus.NewMemory(bus.Keep{Messages: 10, Age: time.Minute}))
	before, after := s.Join(), s.Join()
	var a, b ear
	must(t, before.Start(&a))
	publish := func(by bus.Bus, channel, data string) {
		t.Helper()
		_, err := by.Publish(t.Context(), bus.Message{Channel: channel, Data: []byte(data)})
		must(t, err)
	}
	must(t, before.Listen("both"))
	must(t, before.Listen("old"))
	publish(before, "both", "1")
	must(t, after.Start(&b))
	must(t, after.Listen("both"))
	must(t, after.Listen("new"))
	publish(before, "both", "2")
	publish(after, "both", "3")
	publish(after, "old", "4")
	publish(before, "new", "5")
	before.Ignore("both") // which the other still wants
	publish(after, "both", "6")
	must(t, before.Close())
	publish(after, "both", "7")
	publish(after, "old", "8")
	if got, want := a.all(), "both:1 both:2 both:3 old:4 "; got != want {
		t.Errorf("the first user got %q, want %q", got, want)
	}
	if got, want := b.all(), "both:2 both:3 new:5 both:6 both:7 "; got != want {
		t.Errorf("the second user got %q, want %q", got, want)
	}
	after.History("both", nil, 0, func(h bus.History, err error) {
		if err != nil || len(h.Messages) != 5 {
			t.Errorf("the history has %d messages, %v; want those of both users", len(h.Messages), err)
		}
	})
	after.Members("x", func(m []bus.Member, err error) {
		if err != nil || len(m) != 1 {
			t.Errorf("members are %v, %v", m, err)
		}
	})
	if _, err := before.Publish(context.Background(), bus.Message{Channel: "both"}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("publishing after Close: %v", err)
	}
	must(t, after.Close())
	must(t, s.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
