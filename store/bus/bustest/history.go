package bustest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/store/bus"
)

func (s suite) since(t *testing.T) {
	m := s.machine(t, usual())
	m.publish("b", "between")
	before := m.top("a")
	all := m.many("a", 6)
	m.publish("b", "between")
	for i := -1; i < len(all); i++ {
		since := before
		if i >= 0 {
			since.Offset = all[i].Offset
		}
		h := m.history("a", &since, 0)
		if !h.Complete || !same(h.Messages, all[i+1:]) {
			t.Errorf("since number %d: complete %v, %q, want the %d after it", i, h.Complete, texts(h.Messages), len(all)-i-1)
		}
		// The position that it ends with goes on from there.
		if next := m.history("a", &h.Top, 0); !next.Complete || len(next.Messages) > 0 {
			t.Errorf("since the top: %+v, want nothing, complete", next)
		}
	}
	since := before
	if h := m.history("a", &since, 2); h.Complete || !same(h.Messages, all[4:]) {
		t.Errorf("the latest 2 since the beginning: complete %v, %q", h.Complete, texts(h.Messages))
	}
	if h := m.history("a", &since, 6); !h.Complete || !same(h.Messages, all) {
		t.Errorf("the latest 6 since the beginning: complete %v, %q", h.Complete, texts(h.Messages))
	}
	since.Offset = m.top("a").Offset + 1000
	if h := m.history("a", &since, 0); h.Complete || len(h.Messages) > 0 && !same(h.Messages, all) {
		t.Errorf("since a position that is not yet: %+v, want it not complete", h)
	}
}

func (s suite) latest(t *testing.T) {
	m := s.machine(t, usual())
	all := m.many("a", 5)
	for limit, want := range map[int][]bus.Message{0: all, 1: all[4:], 3: all[2:], 5: all, 9: all} {
		h := m.history("a", nil, limit)
		if h.Complete || !same(h.Messages, want) || h.Top.Offset < all[4].Offset {
			t.Errorf("the latest %d: complete %v, top %v, %q", limit, h.Complete, h.Top, texts(h.Messages))
		}
	}
}

// fresh shows that who saw nothing yet has a position to go on from.
func (s suite) fresh(t *testing.T) {
	m := s.machine(t, usual())
	m.publish("other", "x")
	for _, listened := range []bool{false, true} {
		name := fmt.Sprint("a", listened)
		if listened {
			m.listen(name)
		}
		top := m.top(name)
		if h := m.history(name, &top, 0); !h.Complete || len(h.Messages) > 0 {
			t.Errorf("a channel without messages, since its top: %+v, want nothing, complete", h)
		}
		m.publish("other", "x")
		all := m.many(name, 3)
		if h := m.history(name, &top, 0); !h.Complete || !same(h.Messages, all) {
			t.Errorf("since the top of before the first message: complete %v, %q", h.Complete, texts(h.Messages))
		}
	}
}

func (s suite) foreign(t *testing.T) {
	m := s.machine(t, usual())
	all := m.many("a", 3)
	for _, since := range []bus.Position{{}, {Epoch: "foreign"}, {Epoch: "foreign", Offset: all[1].Offset}, {Epoch: m.top("a").Epoch + "x", Offset: all[2].Offset}} {
		h := m.history("a", &since, 0)
		if h.Complete || !same(h.Messages, all) || h.Top.Epoch == since.Epoch {
			t.Errorf("since %v: complete %v, top %v, %q, want all, not complete", since, h.Complete, h.Top, texts(h.Messages))
		}
		if h := m.history("a", &since, 2); h.Complete || !same(h.Messages, all[1:]) {
			t.Errorf("the latest 2 since %v: complete %v, %q", since, h.Complete, texts(h.Messages))
		}
	}
}

// meanwhile joins a channel while it is published to: the history up to its
// top and the deliveries behind it must be everything.
func (s suite) meanwhile(t *testing.T) {
	const rounds, last = 5, 300
	m := s.machine(t, usual())
	published := make(chan []bus.Message, 1)
	go func() {
		var all []bus.Message
		for i := range last {
			msg, err := m.Publish(t.Context(), bus.Message{Channel: "a", Data: fmt.Appendf(nil, "%d", i)})
			if err != nil {
				t.Errorf("publishing: %v", err)
			}
			all = append(all, msg)
		}
		published <- all
	}()
	var tops []bus.History
	if err := m.Listen("a"); err != nil {
		t.Fatal(err)
	}
	for range rounds {
		tops = append(tops, m.history("a", nil, 0))
	}
	all := <-published
	end := m.publish("a", "end")
	m.eventually("the last is delivered", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.ContainsFunc(m.got["a"], func(got bus.Message) bool { return got.ID == end.ID })
	})
	got := m.delivered("a", 1)
	for i, h := range tops {
		joined := slices.Clone(h.Messages)
		for _, msg := range got {
			if msg.Offset > h.Top.Offset {
				joined = append(joined, msg)
			}
		}
		if !same(joined, append(slices.Clone(all), end)) {
			t.Errorf("history %d with %d messages and the deliveries behind %d make %d, want %d", i, len(h.Messages), h.Top.Offset, len(joined), last+1)
		}
	}
}

func (s suite) boundMessages(t *testing.T) {
	m := s.machine(t, bus.Keep{Messages: 3, Age: 10 * time.Minute})
	before := m.top("a")
	all := m.many("a", 3)
	h := m.history("a", nil, 0)
	if !same(h.Messages, all) {
		t.Errorf("kept %q, want all", texts(h.Messages))
	}
	all = append(all, m.many("a", 2)...)
	m.many("b", 5)
	for i := -1; i < len(all); i++ {
		since := before
		if i >= 0 {
			since.Offset = all[i].Offset
		}
		h := m.history("a", &since, 0)
		if want := all[max(i+1, 2):]; !same(h.Messages, want) {
			t.Errorf("since number %d: %q, want %q", i, texts(h.Messages), texts(want))
		}
		// An engine need not be sure when just the last one that is lost is the
		// one that was seen.
		if i < 1 && h.Complete || i > 1 && !h.Complete {
			t.Errorf("since number %d, where 0 and 1 are lost: complete %v", i, h.Complete)
		}
	}
}

func (s suite) boundAge(t *testing.T) {
	m := s.machine(t, bus.Keep{Messages: 10, Age: time.Second})
	first := m.many("a", 2)
	top := m.top("a")
	m.eventually("the history is empty", func() bool { return len(m.history("a", nil, 0).Messages) == 0 })
	since := top
	since.Offset = first[0].Offset
	if h := m.history("a", &since, 0); h.Complete {
		t.Errorf("what came after the first has expired, got %+v", h)
	}
	now := m.top("a")
	fresh := m.publish("a", "fresh")
	if fresh.Offset <= first[1].Offset {
		t.Errorf("the offset %d came after %d", fresh.Offset, first[1].Offset)
	}
	// It may have expired by now, on a slow machine: then it is not complete.
	if h := m.history("a", &now, 0); h.Complete && !same(h.Messages, []bus.Message{fresh}) {
		t.Errorf("since just before the last: %+v, which says complete and is not", h)
	}
}

func (s suite) boundBytes(t *testing.T) {
	const bound = 256 << 10
	m := s.machine(t, bus.Keep{Messages: 1000, Age: 10 * time.Minute, Bytes: bound})
	text := strings.Repeat("x", 4<<10)
	var first, last bus.Message
	for i := range 100 {
		last = m.publish(fmt.Sprint("channel", i%5), text)
		if i == 0 {
			first = last
		}
	}
	m.eventually("the bound holds", func() bool {
		n := 0
		for c := range 5 {
			n += len(m.history(fmt.Sprint("channel", c), nil, 0).Messages)
		}
		if n < bound/len(text)/2 {
			t.Fatalf("%d messages of 4 KiB are kept in %d bytes: too few", n, bound)
		}
		return n <= bound/len(text)
	})
	since := m.top("channel0")
	since.Offset = first.Offset
	if h := m.history("channel0", &since, 0); h.Complete {
		t.Errorf("since the first of too many bytes: %d messages, complete", len(h.Messages))
	}
	got := m.history("channel4", nil, 1).Messages
	if !same(got, []bus.Message{last}) {
		t.Errorf("the last message is not kept: %d", len(got))
	}
}

// boundChannels asks for no more than an engine can do that has no such bound
// but one of all messages.
func (s suite) boundChannels(t *testing.T) {
	m := s.machine(t, bus.Keep{Messages: 2, Age: 10 * time.Minute, Channels: 3})
	for i := range 30 {
		m.many(fmt.Sprint("channel", i), 2)
	}
	m.eventually("the bound holds", func() bool {
		n := 0
		for i := range 30 {
			n += len(m.history(fmt.Sprint("channel", i), nil, 0).Messages)
		}
		if n == 0 {
			t.Fatal("nothing is kept")
		}
		return n <= 6
	})
	if n := len(m.history("channel29", nil, 0).Messages); n != 2 {
		t.Errorf("%d messages are kept of the channel that was written last, want 2", n)
	}
}

func (s suite) nothingKept(t *testing.T) {
	m := s.machine(t, bus.Keep{})
	m.listen("a")
	before := m.top("a")
	all := m.many("a", 3)
	if got := m.delivered("a", 3); !same(got, all) {
		t.Errorf("delivered %q", texts(got))
	}
	if h := m.history("a", nil, 0); len(h.Messages) > 0 {
		t.Errorf("the history has %q, want nothing", texts(h.Messages))
	}
	if h := m.history("a", &before, 0); h.Complete || len(h.Messages) > 0 {
		t.Errorf("since before the first: complete %v, %q", h.Complete, texts(h.Messages))
	}
	top := m.top("a")
	if h := m.history("a", &top, 0); !h.Complete {
		t.Errorf("since the top: %+v, want it complete", h)
	}
}
