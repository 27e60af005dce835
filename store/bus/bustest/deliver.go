package bustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"millrace/store/bus"
)

// checkOrder looks at what publishers sent as "publisher/number".
func checkOrder(t *testing.T, got []bus.Message, publishers, each int) {
	t.Helper()
	if len(got) != publishers*each {
		t.Errorf("%d publications were delivered, want %d", len(got), publishers*each)
	}
	next := make([]int, publishers)
	for i, m := range got {
		if i > 0 && m.Offset <= got[i-1].Offset {
			t.Fatalf("the offset %d was delivered after %d", m.Offset, got[i-1].Offset)
		}
		who, number, _ := strings.Cut(string(m.Data), "/")
		p, _ := strconv.Atoi(who)
		if strconv.Itoa(next[p]) != number {
			t.Fatalf("publisher %d's number %s came where %d was due", p, number, next[p])
		}
		next[p]++
	}
}

func (s suite) order(t *testing.T) {
	const publishers, each = 8, 50
	m := s.machine(t, usual())
	m.listen("a")
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for i := range each {
				if _, err := m.Publish(t.Context(), bus.Message{Channel: "a", Data: fmt.Appendf(nil, "%d/%d", p, i)}); err != nil {
					t.Errorf("publishing: %v", err)
				}
			}
		})
	}
	all.Wait()
	m.publish("a", "0/"+strconv.Itoa(each)) // behind it nothing can come twice
	got := m.delivered("a", publishers*each+1)
	checkOrder(t, got[:len(got)-1], publishers, each)
	if h := m.history("a", nil, 0); !same(h.Messages, got) {
		t.Errorf("the history's %d messages are not the %d that were delivered", len(h.Messages), len(got))
	}
}

func (s suite) manyChannels(t *testing.T) {
	const channels, each = 40, 5
	m := s.machine(t, usual())
	var all sync.WaitGroup
	for c := range channels {
		name := fmt.Sprint("channel", c)
		m.listen(name)
		all.Go(func() {
			for i := range each {
				if _, err := m.Publish(t.Context(), bus.Message{Channel: name, Data: fmt.Appendf(nil, "0/%d", i)}); err != nil {
					t.Errorf("publishing to %s: %v", name, err)
				}
			}
		})
	}
	all.Wait()
	for c := range channels {
		checkOrder(t, m.delivered(fmt.Sprint("channel", c), each), 1, each)
	}
}

func (s suite) listenIgnore(t *testing.T) {
	m := s.machine(t, usual())
	m.publish("a", "before")
	m.listen("a", "b")
	if err := m.Listen("a"); err != nil { // a second time: once is enough
		t.Fatal(err)
	}
	m.publish("a", "1")
	m.publish("c", "of nobody's interest")
	m.delivered("a", 1)
	m.Ignore("a")
	m.Ignore("a")
	m.Ignore("never heard of")
	m.publish("a", "2")
	m.publish("b", "1")
	m.delivered("b", 1)
	m.listen("a")
	m.publish("a", "3")
	if got := texts(m.delivered("a", 2)); !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("delivered %q, want what came while somebody listened", got)
	}
	if got := texts(m.history("a", nil, 0).Messages); !slices.Equal(got, []string{"before", "1", "2", "3"}) {
		t.Errorf("the history has %q, want everything", got)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.got["c"]) > 0 {
		t.Error("a channel was delivered that nobody listened to")
	}
}

// oddNames are all different, and some differ in what engines might take for the
// same.
func oddNames() []string {
	return []string{
		"a", "A", "a.b", "a b", "a*b", "a>b", "*", ">", ".", "..", "a.", ".a", "a.>", "$JS.API", "%41", "=41", "_", "-", "a/b", "/", " ", "a ",
		"日本", "é", "e\u0301", "🐎", "\u00a0", "\ufffd", `"`, `\`, "'", "{}", strings.Repeat("x", bus.MaxChannel), strings.Repeat(".", bus.MaxChannel),
		strings.Repeat("日", bus.MaxChannel/3), strings.Repeat("x", bus.MaxChannel-1),
	}
}

func (s suite) names(t *testing.T) {
	m := s.machine(t, usual())
	names := oddNames()
	m.listen(names...)
	for _, name := range names {
		m.publish(name, name)
	}
	for _, name := range names {
		m.publish(name, "end")
		if got := texts(m.delivered(name, 2)); !slices.Equal(got, []string{name, "end"}) {
			t.Errorf("%q got %q", name, got)
		}
		if got := texts(m.history(name, nil, 0).Messages); !slices.Equal(got, []string{name, "end"}) {
			t.Errorf("the history of %q has %q", name, got)
		}
	}
	for _, name := range []string{"", "a\x00", "a\nb", "a\r\nb", "\u0085", "\xff", strings.Repeat("x", bus.MaxChannel+1)} {
		if err := m.Listen(name); !errors.Is(err, bus.ErrChannel) {
			t.Errorf("listening to %q: %v, want ErrChannel", name, err)
		}
		if _, err := m.Publish(t.Context(), bus.Message{Channel: name}); !errors.Is(err, bus.ErrChannel) {
			t.Errorf("publishing to %q: %v, want ErrChannel", name, err)
		}
		if _, err := ask(t, "a history", func(done func(bus.History, error)) { m.History(name, nil, 0, done) }); !errors.Is(err, bus.ErrChannel) {
			t.Errorf("the history of %q: %v, want ErrChannel", name, err)
		}
		m.Ignore(name)
	}
}

func (s suite) payloads(t *testing.T) {
	m := s.machine(t, usual())
	m.listen("a")
	big := make([]byte, 512<<10)
	for i := range big {
		big[i] = byte(i * i >> 8)
	}
	for i, data := range [][]byte{nil, {}, {0}, []byte("\r\n\xff\xfe NATS/1.0\r\n\r\n"), big, []byte("end")} {
		sent := m.send(bus.Message{Channel: "a", Data: data})
		got := m.delivered("a", i+1)[i]
		if !bytes.Equal(got.Data, data) || got.ID != sent.ID || got.Offset != sent.Offset || got.Time.UnixMilli() != sent.Time.UnixMilli() {
			t.Errorf("of %d bytes came %d, with ID %s, offset %d and time %v for %s, %d and %v",
				len(data), len(got.Data), got.ID, got.Offset, got.Time, sent.ID, sent.Offset, sent.Time)
		}
	}
	got := m.history("a", nil, 0).Messages
	if len(got) != 6 || !bytes.Equal(got[4].Data, big) {
		t.Errorf("the history has %d messages, want 6, the fifth of 512 KiB", len(got))
	}
}

func (s suite) from(t *testing.T) {
	m := s.machine(t, usual())
	m.listen("a", "tags")
	full := &bus.Member{Client: "Nats-Msg-Id: c", User: "日\r\n\x00=", Info: []byte(`{"name":"Ada"}`), InChannel: []byte(`["x"]`)}
	for i, tags := range []map[string]string{nil, {"a": "", "": "b"}, {"Nats-Msg-Id: x\r\n": "\x00日"}} {
		m.send(bus.Message{Channel: "tags", Data: []byte("x"), Tags: tags})
		if got := m.delivered("tags", i+1)[i].Tags; !maps.Equal(got, tags) {
			t.Errorf("of %v came %v", tags, got)
		}
	}
	for i, from := range []*bus.Member{nil, {}, full} {
		m.send(bus.Message{Channel: "a", Data: []byte("x"), From: from})
		if got := m.delivered("a", i+1)[i].From; !reflect.DeepEqual(got, from) {
			t.Errorf("of %+v came %+v", from, got)
		}
		if got := m.history("a", nil, 0).Messages[i].From; !reflect.DeepEqual(got, from) {
			t.Errorf("of %+v the history has %+v", from, got)
		}
	}
}

func (s suite) ids(t *testing.T) {
	m := s.machine(t, usual())
	m.listen("a", "b")
	made := map[string]bool{}
	for _, msg := range append(m.many("a", 20), m.many("b", 20)...) {
		made[msg.ID] = true
	}
	if len(made) != 40 {
		t.Errorf("%d IDs were made for 40 publications", len(made))
	}
	n := 20
	for _, id := range []string{"x", "X", " x", "x\r\nNats-Msg-Id: y", "日本", "\x00\xff", "a=b&c%20", strings.Repeat("x", 1000)} {
		first := m.send(bus.Message{Channel: "a", ID: id, Data: []byte("first")})
		again := m.send(bus.Message{Channel: "a", ID: id, Data: []byte("again")})
		if again.Offset != first.Offset || first.ID != id || again.ID != id {
			t.Errorf("%q was published as %q at %d and as %q at %d, want the same place", id, first.ID, first.Offset, again.ID, again.Offset)
		}
		// Another channel's is another one.
		if other := m.send(bus.Message{Channel: "b", ID: id, Data: []byte("other")}); other.ID != id {
			t.Errorf("%q came back as %q", id, other.ID)
		}
		n++
		if got := m.delivered("b", n)[n-1]; got.ID != id || string(got.Data) != "other" {
			t.Errorf("%q was delivered as %q with %q", id, got.ID, got.Data)
		}
	}
	// Made by the engine, and published again.
	first := m.publish("a", "made")
	if again := m.send(bus.Message{Channel: "a", ID: first.ID}); again.Offset != first.Offset {
		t.Errorf("%q was published at %d and at %d, want the same place", first.ID, first.Offset, again.Offset)
	}
	m.publish("a", "end")
	if got := m.delivered("a", n+2); len(got) != n+2 || string(got[n+1].Data) != "end" {
		t.Errorf("%d publications were delivered, want %d", len(got), n+2)
	}
}

func (s suite) sameID(t *testing.T) {
	m := s.machine(t, usual())
	m.listen("a")
	var all sync.WaitGroup
	offsets := make([]uint64, 16)
	for i := range offsets {
		all.Go(func() {
			placed, err := m.Publish(t.Context(), bus.Message{Channel: "a", ID: "one", Data: []byte("x")})
			if err != nil {
				t.Errorf("publishing: %v", err)
			}
			offsets[i] = placed.Offset
		})
	}
	all.Wait()
	if slices.Min(offsets) != slices.Max(offsets) {
		t.Errorf("one ID has the offsets %v", offsets)
	}
	m.publish("a", "end")
	if got := m.delivered("a", 2); len(got) != 2 || string(got[1].Data) != "end" {
		t.Errorf("delivered %q, want x and end", texts(got))
	}
}

func (s suite) startTwice(t *testing.T) {
	m := s.machine(t, usual())
	if err := m.Start(m); err == nil {
		t.Error("the bus could be started twice")
	}
}

func (s suite) close(t *testing.T) {
	m := s.machine(t, usual())
	m.listen("a")
	m.publish("a", "1")
	m.delivered("a", 1)
	if err := m.Close(); err != nil {
		t.Fatalf("closing: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("closing again: %v, want nil", err)
	}
	if _, err := m.Publish(t.Context(), bus.Message{Channel: "a"}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("publishing: %v, want ErrClosed", err)
	}
	if err := m.Listen("a"); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("listening: %v, want ErrClosed", err)
	}
	if _, err := ask(t, "a history", func(done func(bus.History, error)) { m.History("a", nil, 0, done) }); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("history: %v, want ErrClosed", err)
	}
	if _, err := ask(t, "members", func(done func([]bus.Member, error)) { m.Bus.Members("a", done) }); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("members: %v, want ErrClosed", err)
	}
	m.Ignore("a")
}

// closeBusy closes amid publications, and looks that nothing is delivered
// later.
func (s suite) closeBusy(t *testing.T) {
	m := s.machine(t, usual())
	m.listen("a")
	var publishers sync.WaitGroup
	for range 4 {
		publishers.Go(func() {
			for {
				if _, err := m.Publish(context.Background(), bus.Message{Channel: "a", Data: []byte("x")}); err != nil {
					if !errors.Is(err, bus.ErrClosed) {
						t.Errorf("publishing: %v, want ErrClosed at last", err)
					}
					return
				}
			}
		})
	}
	m.delivered("a", 20)
	if err := m.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	m.mu.Lock()
	n := len(m.got["a"])
	m.mu.Unlock()
	publishers.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.got["a"]) != n {
		t.Errorf("%d publications were delivered after Close had returned", len(m.got["a"])-n)
	}
}
