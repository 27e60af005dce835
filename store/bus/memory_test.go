package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"millrace/store/bus"
	"millrace/store/bus/bustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ears notes what it is told.
type ears struct {
	mu      sync.Mutex
	got     []bus.Message
	deliver func(bus.Message) // called too, if there is one
	members []bus.Member
}

func (e *ears) Deliver(m bus.Message) {
	if e.deliver != nil {
		e.deliver(m)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, m)
}
func (e *ears) Placed(string, string, uint64) {}
func (e *ears) Reset(string)                  {}
func (e *ears) State(error)                   {}
func (e *ears) Members(string) []bus.Member   { return e.members }

func open(t *testing.T, keep bus.Keep, l bus.Listener) *bus.Memory {
	t.Helper()
	b := bus.NewMemory(keep)
	if err := b.Start(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func publish(t *testing.T, b bus.Bus, channel, text string) bus.Message {
	t.Helper()
	m, err := b.Publish(t.Context(), bus.Message{Channel: channel, Data: []byte(text)})
	if err != nil {
		t.Fatalf("publishing to %s: %v", channel, err)
	}
	return m
}

func history(t *testing.T, b bus.Bus, channel string, since *bus.Position, limit int) bus.History {
	t.Helper()
	var h bus.History
	called := 0
	b.History(channel, since, limit, func(got bus.History, err error) {
		called++
		h = got
		if err != nil {
			t.Fatalf("history of %s: %v", channel, err)
		}
	})
	if called != 1 {
		t.Fatalf("done was called %d times before History returned, want once", called)
	}
	return h
}

// TestMemoryContiguous holds what the comment promises: by one while a channel
// is kept.
func TestMemoryContiguous(t *testing.T) {
	b := open(t, bus.Keep{Messages: 3}, &ears{})
	for i := range 10 {
		if m := publish(t, b, "a", "x"); m.Offset != uint64(i+1) {
			t.Fatalf("publication %d has the offset %d", i+1, m.Offset)
		}
	}
	for since, complete := range map[uint64]bool{0: false, 6: false, 7: true, 9: true, 10: true, 11: false} {
		h := history(t, b, "a", &bus.Position{Epoch: history(t, b, "a", nil, 0).Top.Epoch, Offset: since}, 0)
		if h.Complete != complete {
			t.Errorf("since %d: complete %v, want %v", since, h.Complete, complete)
		}
	}
}

// TestMemoryEpochs shows that positions of before a restart are foreign.
func TestMemoryEpochs(t *testing.T) {
	one, two := open(t, bus.Keep{Messages: 3}, &ears{}), open(t, bus.Keep{Messages: 3}, &ears{})
	publish(t, one, "a", "x")
	publish(t, two, "a", "y")
	top := history(t, one, "a", nil, 0).Top
	if h := history(t, two, "a", &top, 0); h.Complete || len(h.Messages) != 1 {
		t.Errorf("another bus's position gave %+v, want one message, not complete", h)
	}
}

// TestMemoryExpires shows that what is too old is gone at once, that channels
// are forgotten, and that one that comes back does not make a position from
// before look complete that is not.
func TestMemoryExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bus.NewMemory(bus.Keep{Messages: 10, Age: 10 * time.Second})
		b.Start(&ears{})
		defer b.Close()
		publish(t, b, "a", "1")
		first := history(t, b, "a", nil, 0).Top
		time.Sleep(6 * time.Second)
		publish(t, b, "a", "2")
		last := history(t, b, "a", nil, 0).Top
		time.Sleep(4 * time.Second)
		if h := history(t, b, "a", &bus.Position{Epoch: first.Epoch}, 0); h.Complete || len(h.Messages) != 1 {
			t.Errorf("of two messages one has expired, got %+v", h)
		}
		if h := history(t, b, "a", &first, 0); !h.Complete || len(h.Messages) != 1 {
			t.Errorf("what came after the expired one is there, got %+v", h)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := bus.Channels(b); n != 0 {
			t.Errorf("%d channels are in memory, want none", n)
		}
		if n := bus.Bytes(b); n != 0 {
			t.Errorf("%d bytes are accounted for, want none", n)
		}
		if h := history(t, b, "a", &last, 0); !h.Complete || len(h.Messages) != 0 {
			t.Errorf("nothing came after the last, got %+v", h)
		}
		if h := history(t, b, "a", &first, 0); h.Complete {
			t.Errorf("something came after the first and is gone, got %+v", h)
		}
		if m := publish(t, b, "a", "3"); m.Offset <= last.Offset {
			t.Errorf("the channel came back with the offset %d, it had %d before", m.Offset, last.Offset)
		}
		if h := history(t, b, "a", &first, 0); h.Complete {
			t.Errorf("something came after the first and is gone, got %+v", h)
		}
		if h := history(t, b, "a", &last, 0); !h.Complete || len(h.Messages) != 1 {
			t.Errorf("one came after the last, got %+v", h)
		}
	})
}

// TestMemoryForgets shows that a channel without history or listeners takes no
// memory, and one with listeners stays.
func TestMemoryForgets(t *testing.T) {
	b := open(t, bus.Keep{}, &ears{})
	for i := range 1000 {
		publish(t, b, fmt.Sprint(i), "x")
		b.Listen(fmt.Sprint("l", i))
		b.Ignore(fmt.Sprint("l", i))
	}
	if n := bus.Channels(b); n != 0 {
		t.Errorf("%d channels are in memory, want none", n)
	}
	b.Listen("a")
	publish(t, b, "a", "x")
	if n := bus.Channels(b); n != 1 {
		t.Errorf("%d channels are in memory, want the one that is listened to", n)
	}
}

// TestMemoryBytes fills the bound and looks who loses.
func TestMemoryBytes(t *testing.T) {
	const bound = 64 << 10
	b := open(t, bus.Keep{Messages: 1000, Bytes: bound}, &ears{})
	kilo := strings.Repeat("x", 1000)
	for range 20 {
		publish(t, b, "old", kilo)
	}
	for range 20 {
		publish(t, b, "new", kilo)
	}
	for range 30 {
		publish(t, b, "newest", kilo)
	}
	old, fresh, newest := len(history(t, b, "old", nil, 0).Messages), len(history(t, b, "new", nil, 0).Messages), len(history(t, b, "newest", nil, 0).Messages)
	if old == 20 || fresh != 20 || newest != 30 {
		t.Errorf("kept %d, %d and %d messages; the first channel alone should have lost some", old, fresh, newest)
	}
	if n := bus.Bytes(b); n > bound || n < bound/2 {
		t.Errorf("%d bytes are kept, the bound is %d", n, bound)
	}
	publish(t, b, "huge", strings.Repeat("x", 2*bound))
	if n := bus.Bytes(b); n != 0 {
		t.Errorf("%d bytes are kept after one publication beyond the bound, want none", n)
	}
	publish(t, b, "huge", "small")
	if got := history(t, b, "huge", nil, 0).Messages; len(got) != 1 || got[0].Offset != 2 {
		t.Errorf("kept %v, want the second publication", got)
	}
}

// TestMemoryChannels fills that bound.
func TestMemoryChannels(t *testing.T) {
	b := open(t, bus.Keep{Messages: 5, Channels: 3}, &ears{})
	b.Listen("a")
	for _, c := range []string{"a", "b", "c", "a", "d", "e"} {
		publish(t, b, c, "x")
	}
	for c, want := range map[string]int{"a": 2, "b": 0, "c": 0, "d": 1, "e": 1} {
		if got := len(history(t, b, c, nil, 0).Messages); got != want {
			t.Errorf("channel %s has %d messages, want %d", c, got, want)
		}
	}
	if n := bus.Channels(b); n != 3 {
		t.Errorf("%d channels are in memory, want 3", n)
	}
}

// TestMemorySlowListener shows that a Deliver that is under way holds up
// nobody but publishers of its own channel.
func TestMemorySlowListener(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	e := &ears{deliver: func(m bus.Message) {
		if m.Channel == "slow" {
			close(entered)
			<-release
		}
	}}
	b := open(t, bus.Keep{Messages: 5, Channels: 2}, e)
	b.Listen("slow")
	var slow sync.WaitGroup
	slow.Go(func() { publish(t, b, "slow", "x") })
	<-entered
	for i := range 200 { // some share its shard
		publish(t, b, fmt.Sprint(i), "x")
		b.Listen(fmt.Sprint(i))
		b.Ignore(fmt.Sprint(i))
	}
	b.Ignore("slow")
	b.Listen("slow")
	history(t, b, "slow", nil, 0)
	close(release)
	slow.Wait()
}

// TestMemoryCloseWaits shows that Close waits for a delivery.
func TestMemoryCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e := &ears{deliver: func(bus.Message) { <-release }}
		b := bus.NewMemory(bus.Keep{Messages: 1, Age: time.Minute})
		b.Start(e)
		b.Listen("a")
		go b.Publish(context.Background(), bus.Message{Channel: "a"})
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			b.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close returned while Deliver was under way")
		default:
		}
		close(release)
		<-closed
	})
}

// TestMemoryOwnIDs shows that the IDs made here are found again.
func TestMemoryOwnIDs(t *testing.T) {
	b := open(t, bus.Keep{Messages: 2}, &ears{})
	first := publish(t, b, "a", "1")
	again, err := b.Publish(t.Context(), bus.Message{Channel: "a", ID: first.ID, Data: []byte("2")})
	if err != nil || again.Offset != first.Offset || string(again.Data) != "1" {
		t.Errorf("published again: %+v, %v, want the first", again, err)
	}
	publish(t, b, "a", "3")
	publish(t, b, "a", "4")
	if again, _ = b.Publish(t.Context(), bus.Message{Channel: "a", ID: first.ID}); again.Offset != 4 {
		t.Errorf("what history has lost was published as %+v, want a new one", again)
	}
}

func TestCheckChannel(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "a b.*>": true, "日本": true, "\ufffd": true, strings.Repeat("x", 255): true,
		"": false, strings.Repeat("x", 256): false, "a\x00": false, "a\n": false, "\u0085": false, "\xff": false, "a\xc3": false,
	} {
		if err := bus.CheckChannel(name); (err == nil) != ok || err != nil && !errors.Is(err, bus.ErrChannel) {
			t.Errorf("%q: %v, want ok = %v", name, err, ok)
		}
	}
}

func TestMemorySuite(t *testing.T) {
	bustest.Run(t, false, func(_ *testing.T, keep bus.Keep) bus.Bus { return bus.NewMemory(keep) })
}

// TestMemoryBound changes the bounds of a bus in use.
func TestMemoryBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, bus.Keep{Messages: 4, Age: time.Hour}, &ears{})
		texts := func(channel string) (all string) {
			for _, m := range history(t, b, channel, nil, 0).Messages {
				all += string(m.Data)
			}
			return all
		}
		expect := func(a, c string) {
			t.Helper()
			if gotA, gotC := texts("a"), texts("c"); gotA != a || gotC != c {
				t.Errorf("kept are %q and %q, want %q and %q", gotA, gotC, a, c)
			}
		}
		for _, text := range []string{"1", "2", "3", "4", "5"} {
			publish(t, b, "a", text)
		}
		time.Sleep(time.Minute)
		publish(t, b, "c", "x")
		top := history(t, b, "a", nil, 0).Top
		b.Bound(bus.Keep{Messages: 6, Age: time.Hour})
		expect("2345", "x")
		publish(t, b, "a", "6")
		publish(t, b, "a", "7")
		expect("234567", "x")
		if h := history(t, b, "a", &top, 0); !h.Complete || len(h.Messages) != 2 || h.Top.Epoch != top.Epoch {
			t.Errorf("behind %v comes %+v", top, h)
		}
		b.Bound(bus.Keep{Messages: 3})
		expect("567", "x")
		if h := history(t, b, "a", &bus.Position{Epoch: top.Epoch, Offset: 1}, 0); h.Complete || len(h.Messages) != 3 {
			t.Errorf("what is gone is missing without a word: %+v", h)
		}
		time.Sleep(time.Hour) // without a bound of age
		expect("567", "x")
		publish(t, b, "a", "8")
		time.Sleep(time.Minute)
		b.Bound(bus.Keep{Messages: 3, Age: 2 * time.Minute}) // and with one again
		expect("8", "")
		publish(t, b, "c", "y")
		b.Bound(bus.Keep{Messages: 3, Age: 2 * time.Minute, Channels: 1})
		expect("", "y")
		b.Bound(bus.Keep{})
		expect("", "")
		m := publish(t, b, "a", "9")
		b.Bound(bus.Keep{Messages: 1, Bytes: 1 << 20})
		if next := publish(t, b, "a", "0"); next.Offset <= m.Offset {
			t.Errorf("offset %d behind %d", next.Offset, m.Offset)
		}
		expect("0", "")
		b.Bound(bus.Keep{Messages: 1, Bytes: 1})
		expect("", "")
	})
}

// TestMemoryBoundWhilePublishing is for the race detector.
func TestMemoryBoundWhilePublishing(t *testing.T) {
	b := open(t, bus.Keep{Messages: 2}, &ears{})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 500 {
				m, err := b.Publish(t.Context(), bus.Message{Channel: "a", ID: fmt.Sprint(i, n%7)})
				if err != nil || m.Offset == 0 {
					t.Errorf("%+v, %v", m, err)
				}
			}
		})
	}
	for n := range 200 {
		b.Bound(bus.Keep{Messages: n % 4, Age: time.Minute})
	}
	all.Wait()
}
