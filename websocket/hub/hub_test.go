package hub

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"millrace/store/bus"
	"millrace/websocket/frame"
)

func sortOffsets(o []uint64) { slices.Sort(o) }

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// bubble runs a test where synctest.Wait waits for the hub's goroutines.
func bubble(t *testing.T, o Options, shards int, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFixture(t, o, shards)) })
}

// settled waits for the hub's goroutines, and empties the runners.
func (f *fixture) settled() {
	for range 3 {
		synctest.Wait()
		f.run.drain()
	}
}

func TestPublishDelivers(t *testing.T) {
	bubble(t, Options{}, 2, func(t *testing.T, f *fixture) {
		a, b := f.join(t, Request{Channel: "x"}), f.join(t, Request{Channel: "x", Shard: 1})
		other := f.join(t, Request{Channel: "y"})
		f.settled()
		f.publish(t, "x", 1)
		f.publish(t, "x", 2)
		if n := f.run.posted(0); n != 1 {
			t.Errorf("two publications posted %d functions, want one", n)
		}
		f.settled()
		want(t, "shard 0", a.texts(), []string{"1", "2"})
		want(t, "shard 1", b.texts(), []string{"1", "2"})
		want(t, "another channel", other.texts(), []string(nil))
		if a.got[0] != b.got[0] {
			t.Error("two shards got two publications, want the same")
		}
		f.Measure()
		want(t, "meters", []uint64{
			f.meters.Published.Load(), f.meters.Delivered.Load(),
			uint64(f.meters.Channels.Load()), uint64(f.meters.Subscriptions.Load()),
		}, []uint64{2, 4, 2, 3})
		if s := f.meters.Lag.Snapshot(); s.Count() != 4 {
			t.Errorf("the lag was observed %d times, want once for each publication and shard", s.Count())
		}
		if a.s.Channel() != "x" {
			t.Errorf("the channel is %q", a.s.Channel())
		}
	})
}

// TestJoinDuringHistory publishes between Subscribe and the answer, and puts
// some of it into the answer as well.
func TestJoinDuringHistory(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		f.bus.late = true
		keep := f.join(t, Request{Channel: "x"})
		f.settled()
		f.bus.answer(first)
		f.settled()
		since := keep.answer.Top
		f.publish(t, "x", 1)
		c := f.join(t, Request{Channel: "x", Since: &since})
		f.publish(t, "x", 2)
		f.run.drain() // 2 goes to the log
		f.publish(t, "x", 3)
		f.bus.answer(first)
		f.publish(t, "x", 4)
		if c.answers != 0 {
			t.Fatal("answered in the bus's goroutine")
		}
		f.run.drain()
		want(t, "missed", missed(c.answer), []string{"1", "2", "3"})
		want(t, "delivered", c.texts(), []string{"4"})
		if !c.answer.Recovered || f.meters.Recovered.Load() != 1 || f.meters.Lost.Load() != 0 {
			t.Errorf("recovered: %v, counted %d and %d lost", c.answer.Recovered, f.meters.Recovered.Load(), f.meters.Lost.Load())
		}
		want(t, "the one before", keep.texts(), []string{"1", "2", "3", "4"})
	})
}

// TestSyncAnswer shows that an answer from memory comes before Subscribe returns.
func TestSyncAnswer(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		f.join(t, Request{Channel: "x"})
		f.settled()
		f.publish(t, "x", 1) // stays in the inbox
		c := f.join(t, Request{Channel: "x"})
		if c.answers != 1 || c.answer.Top.Offset != 1 || c.answer.Missed != nil || c.answer.Recovered {
			t.Errorf("%d answers: %+v", c.answers, c.answer)
		}
		f.publish(t, "x", 2)
		f.settled()
		want(t, "delivered", c.texts(), []string{"2"})
	})
}

func TestNotRecovered(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		f.bus.keep = 2
		c := f.join(t, Request{Channel: "x"})
		f.settled()
		since := c.answer.Top
		for i := range 5 {
			f.publish(t, "x", i)
		}
		for _, p := range []bus.Position{{Epoch: since.Epoch, Offset: 0}, {Epoch: "another", Offset: 5}} {
			c := f.join(t, Request{Channel: "x", Since: &p})
			want(t, "missed", missed(c.answer), []string{"3", "4"})
			if p.Epoch == "another" && c.answer.Recovered {
				t.Error("recovered over epochs")
			}
		}
		if f.meters.Lost.Load() == 0 {
			t.Error("no loss was counted")
		}
	})
}

// TestUnsubscribeEnds: also what waits in the inbox, and an answer.
func TestUnsubscribeEnds(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		c := f.join(t, Request{Channel: "x"})
		f.settled()
		f.publish(t, "x", 1)
		f.leave(c)
		f.leave(c)
		f.bus.late = true
		joins := f.join(t, Request{Channel: "x"})
		synctest.Wait()
		f.bus.answer(first)
		f.leave(joins)
		f.settled()
		want(t, "delivered", c.texts(), []string(nil))
		if joins.answers != 0 {
			t.Error("answered after the end")
		}
		if n := f.channels.Load(); n != 0 || f.bus.listens != 0 {
			t.Errorf("%d channels, %d listened to", n, f.bus.listens)
		}
	})
}

// TestLeaveInDone lets a subscriber go while it is told where it begins.
func TestLeaveInDone(t *testing.T) {
	bubble(t, Options{Presence: true}, 1, func(t *testing.T, f *fixture) {
		f.bus.late = true
		c := f.join(t, Request{Channel: "x", Member: &bus.Member{Client: "1"}})
		c.onDone = func() { f.leave(c) }
		synctest.Wait()
		f.publish(t, "x", 1)
		f.bus.answer(first)
		f.settled()
		if c.answers != 1 || len(c.got) != 0 || f.channels.Load() != 0 || len(f.Members("x")) != 0 {
			t.Errorf("%d answers, %v, %d channels, members %v", c.answers, c.texts(), f.channels.Load(), f.Members("x"))
		}
	})
}

// TestListenCoalesces: whoever comes while Listen is under way waits for it.
func TestListenCoalesces(t *testing.T) {
	bubble(t, Options{}, 2, func(t *testing.T, f *fixture) {
		hold := make(chan struct{})
		f.bus.hold = hold
		var all []*client
		for i := range 10 {
			all = append(all, f.join(t, Request{Channel: "x", Shard: i % 2}))
		}
		synctest.Wait()
		f.leave(all[9])
		for _, c := range all {
			if c.answers != 0 {
				t.Fatal("answered before the bus listens")
			}
		}
		f.bus.hold = nil
		close(hold)
		f.settled()
		f.publish(t, "x", 1)
		f.settled()
		for _, c := range all[:9] {
			want(t, "delivered", c.texts(), []string{"1"})
		}
		if f.bus.calls != 1 {
			t.Errorf("Listen was called %d times", f.bus.calls)
		}
	})
}

// TestListenIgnoreDoNotNest lets the last go and another come while the bus is
// slow.
func TestListenIgnoreDoNotNest(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		c := f.join(t, Request{Channel: "x"})
		f.settled()
		hold := make(chan struct{})
		f.bus.hold = hold
		f.leave(c)
		synctest.Wait() // in Ignore
		c = f.join(t, Request{Channel: "x"})
		synctest.Wait()
		if c.answers != 0 {
			t.Error("answered while the bus ignores the channel")
		}
		f.bus.hold = nil
		close(hold)
		f.settled()
		f.publish(t, "x", 1)
		f.settled()
		want(t, "delivered", c.texts(), []string{"1"})
		if f.bus.nested || f.bus.calls != 2 || f.bus.listens != 1 {
			t.Errorf("nested: %v, %d calls of Listen, %d open", f.bus.nested, f.bus.calls, f.bus.listens)
		}
	})
}

func TestListenFails(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		f.bus.fail = errFake
		a, b := f.join(t, Request{Channel: "x"}), f.join(t, Request{Channel: "x"})
		f.settled()
		if !errors.Is(a.err, errFake) || !errors.Is(b.err, errFake) {
			t.Errorf("answered %v and %v", a.err, b.err)
		}
		if f.bus.calls > 2 || f.channels.Load() != 0 {
			t.Errorf("%d calls of Listen for two subscribers, %d channels left", f.bus.calls, f.channels.Load())
		}
		f.leave(a) // does nothing
		f.bus.fail = nil
		c := f.join(t, Request{Channel: "x"})
		f.settled()
		if c.answers != 1 || c.err != nil {
			t.Errorf("%d answers, %v: a later subscriber should have one", c.answers, c.err)
		}
	})
}

func TestHistoryFails(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		f.bus.down = errFake
		c := f.join(t, Request{Channel: "x"})
		f.settled()
		if !errors.Is(c.err, errFake) || f.channels.Load() != 0 {
			t.Errorf("answered %v, %d channels", c.err, f.channels.Load())
		}
	})
}

// TestDown: who comes during an outage gets what this machine has, and is told
// to ask anew when it is over.
func TestDown(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		f.State(bus.ErrDown)
		if !errors.Is(f.Down(), bus.ErrDown) {
			t.Errorf("down: %v", f.Down())
		}
		f.Measure()
		want(t, "gauge", f.meters.BusDown.Load(), int64(1))
		f.bus.down = fmt.Errorf("asking: %w", bus.ErrDown)
		since := bus.Position{Epoch: "7", Offset: 70}
		c, blank := f.join(t, Request{Channel: "x", Since: &since}), f.join(t, Request{Channel: "x"})
		f.settled()
		want(t, "answer", c.answer, Answer{Down: true, Top: since})
		want(t, "answer without since", blank.answer, Answer{Down: true})
		f.Deliver(bus.Message{Channel: "x", ID: "i", Data: []byte("here")})
		f.Deliver(bus.Message{Channel: "x", ID: "j", Offset: 5, Data: []byte("placed")})
		f.Placed("x", "i", 71)
		f.State(nil)
		f.settled()
		// Who goes on behind an offset must not be taken past it by what is
		// caught up: what came in between would be lost.
		want(t, "delivered", c.texts(), []string{"here", Placed, Reset})
		want(t, "delivered without since", blank.texts(), []string{"here", "placed", Placed, Reset})
		want(t, "note", *c.got[1].Note, Note{Kind: Placed, Channel: "x", ID: "i", Offset: 71})
		f.State(nil)
		f.Deliver(bus.Message{Channel: "x", ID: "k", Offset: 72, Data: []byte("later")})
		f.settled()
		want(t, "delivered", c.texts(), []string{"here", Placed, Reset, "later"})
		f.Measure()
		want(t, "gauge", f.meters.BusDown.Load(), int64(0))
	})
}

// TestDownUnsaid: a bus that says ErrDown only here would have clients asking
// for ever.
func TestDownUnsaid(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		f.bus.down = bus.ErrDown
		c := f.join(t, Request{Channel: "x"})
		f.settled()
		if !errors.Is(c.err, bus.ErrDown) {
			t.Errorf("answered %v", c.err)
		}
	})
}

// TestReset begins the order anew: offsets from before must not hide what
// comes after, nor may what came before it appear behind a later answer.
func TestReset(t *testing.T) {
	for _, all := range []bool{false, true} {
		bubble(t, Options{}, 2, func(t *testing.T, f *fixture) {
			old := f.join(t, Request{Channel: "x"})
			f.settled()
			for i := range 3 {
				f.publish(t, "x", i)
			}
			mid := f.join(t, Request{Channel: "x"}) // begins at 3
			f.bus.begin("x")
			if all {
				f.Reset("") // nobody minds two
			}
			f.publish(t, "x", "new 1")
			late := f.join(t, Request{Channel: "x"}) // begins at 1 of the new order
			f.publish(t, "x", "new 2")
			f.settled()
			drop := func(s []string) []string {
				return slices.DeleteFunc(s, func(s string) bool { return s == Reset })
			}
			want(t, "old", drop(old.texts()), []string{"0", "1", "2", "new 1", "new 2"})
			want(t, "mid", drop(mid.texts()), []string{"new 1", "new 2"})
			want(t, "late", drop(late.texts()), []string{"new 2"})
			if i := slices.Index(old.texts(), Reset); i != 3 {
				t.Errorf("the reset is at place %d of %v", i, old.texts())
			}
		})
	}
}

// TestLogIsShared: who joins while another does gets no news of before.
func TestLogIsShared(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		f.bus.late = true
		a := f.join(t, Request{Channel: "x"})
		synctest.Wait()
		f.Placed("x", "1", 1)
		f.run.drain()
		b := f.join(t, Request{Channel: "x"})
		f.Placed("x", "2", 2)
		f.run.drain()
		for f.bus.answer(first) {
		}
		f.run.drain()
		want(t, "the first", a.texts(), []string{Placed, Placed})
		want(t, "the second", b.texts(), []string{Placed})
	})
}

// TestResetAgain: one that was delivered does not stand for the next.
func TestResetAgain(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		c := f.join(t, Request{Channel: "x"})
		f.settled()
		for range 3 {
			f.Reset("x")
			f.Reset("x")
			f.run.drain()
		}
		want(t, "told", c.texts(), []string{Reset, Reset, Reset})
	})
}

func TestPresence(t *testing.T) {
	bubble(t, Options{Presence: true}, 2, func(t *testing.T, f *fixture) {
		watch := f.join(t, Request{Channel: "x", Joins: true, Member: &bus.Member{Client: "w"}})
		plain := f.join(t, Request{Channel: "x"})
		f.settled()
		a := f.join(t, Request{Channel: "x", Shard: 1, Member: &bus.Member{Client: "a", User: "u"}})
		f.settled()
		want(t, "members", len(f.Members("x")), 2)
		f.Presence("x", func(m []bus.Member, err error) { want(t, "presence", len(m), 2) })
		f.leave(a)
		f.leave(a)
		f.settled()
		want(t, "watcher", watch.texts(), []string{Join, Join, Leave})
		want(t, "note", watch.got[2].Note.Member.User, "u")
		want(t, "others", plain.texts(), []string(nil))
		want(t, "members", f.Members("x"), []bus.Member{{Client: "w"}})
		want(t, "delivered", f.meters.Delivered.Load(), uint64(0))
	})
}

// TestCrowd: joins and leaves of a large channel would be members times
// members notes.
func TestCrowd(t *testing.T) {
	bubble(t, Options{Presence: true}, 1, func(t *testing.T, f *fixture) {
		watch := f.join(t, Request{Channel: "x", Joins: true})
		f.settled()
		for i := range MaxMembers + 5 {
			f.join(t, Request{Channel: "x", Member: &bus.Member{Client: fmt.Sprint(i)}})
			f.run.drain()
		}
		want(t, "told", len(watch.got), notifiedMembers)
		want(t, "members", len(f.Members("x")), MaxMembers)
	})
}

func TestNoPresence(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		c := f.join(t, Request{Channel: "x", Joins: true, Member: &bus.Member{Client: "a"}})
		f.settled()
		want(t, "told", c.texts(), []string(nil))
		want(t, "members", f.Members("x"), []bus.Member(nil))
	})
}

func TestTooManyChannels(t *testing.T) {
	bubble(t, Options{MaxChannels: 2}, 1, func(t *testing.T, f *fixture) {
		a := f.join(t, Request{Channel: "a"})
		f.join(t, Request{Channel: "b"})
		f.settled()
		if _, err := f.Subscribe(Request{Channel: "c", Subscriber: a, Done: a.done}); !errors.Is(err, ErrChannels) {
			t.Errorf("a third channel: %v", err)
		}
		f.join(t, Request{Channel: "b"})
		f.leave(a)
		f.settled()
		f.join(t, Request{Channel: "c"})
	})
}

// TestClose ends what is under way.
func TestClose(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		c := f.join(t, Request{Channel: "x"})
		f.settled()
		f.publish(t, "x", 1)
		f.bus.hold = make(chan struct{}) // Close of the bus lets go
		waits := f.join(t, Request{Channel: "y"})
		synctest.Wait()
		for range 2 {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		f.run.drain()
		if len(c.got) != 0 || waits.answers != 0 || !f.bus.closed {
			t.Errorf("delivered %v, %d answers, bus closed: %v", c.texts(), waits.answers, f.bus.closed)
		}
		if _, err := f.Subscribe(Request{Channel: "x", Subscriber: c, Done: c.done}); !errors.Is(err, bus.ErrClosed) {
			t.Errorf("subscribing after Close: %v", err)
		}
		f.Unsubscribe(c.s)
	})
}

func TestNewFails(t *testing.T) {
	if _, err := New(Options{}, newFakeBus(), 0, nil); err == nil {
		t.Error("a hub without shards")
	}
	b := bus.NewMemory(bus.Keep{})
	b.Close()
	if _, err := New(Options{}, b, 1, nil); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("on a closed bus: %v", err)
	}
}

// TestPublication: all is made at most once, and only if it is wanted.
func TestPublication(t *testing.T) {
	made := map[string]int{}
	form := func(name string, notes bool) Form {
		f := Form{Message: func(m bus.Message) []byte { made[name]++; return append([]byte(name+":"), m.Data...) }, Op: frame.Text}
		f.Note = func(n Note) []byte {
			made["note of "+name]++
			if !notes {
				return nil
			}
			return []byte(n.Kind)
		}
		return f
	}
	o := Options{Forms: []Form{form("a", true), form("b", false), {}}}
	bubble(t, o, 1, func(t *testing.T, f *fixture) {
		c := f.join(t, Request{Channel: "x"})
		f.settled()
		f.publish(t, "x", 1)
		f.Reset("x")
		f.settled()
		want(t, "made without need", len(made), 0)
		message, note := c.got[0], c.got[1]
		for range 2 {
			want(t, "form a", string(message.Frame(0).Payload()), "a:1")
			want(t, "form b", string(message.Frame(1).Payload()), "b:1")
			want(t, "form without functions", string(message.Frame(2).Payload()), "1")
			want(t, "note in form a", string(note.Frame(0).Payload()), Reset)
			for form := 1; form < MaxForms; form++ {
				if note.Frame(form) != nil {
					t.Errorf("there is a note in form %d", form)
				}
			}
		}
		want(t, "made", made, map[string]int{"a": 1, "b": 1, "note of a": 1, "note of b": 1})
		if again := message.Frame(0); again != message.Frame(0) {
			t.Error("two frames")
		}
	})
	bare := &Publication{Message: bus.Message{Data: []byte("d")}}
	want(t, "without options", string(bare.Frame(0).Payload()), "d")
	if _, err := New(Options{Forms: make([]Form, MaxForms+1)}, newFakeBus(), 1, nil); err == nil {
		t.Error("one form too many is no error")
	}
}

// TestUntilReset: who is told of a reset gets nothing behind it, until it subscribes
// anew; others go on.
func TestUntilReset(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		short := f.join(t, Request{Channel: "x", UntilReset: true})
		long := f.join(t, Request{Channel: "x"})
		f.settled()
		f.publish(t, "x", 1)
		f.Reset("x")
		f.publish(t, "x", 2)
		f.Reset("x")
		f.publish(t, "x", 3)
		f.settled()
		want(t, "until the reset", short.texts(), []string{"1", Reset})
		want(t, "to the end", long.texts(), []string{"1", Reset, "2", Reset, "3"})
		f.leave(short)
		again := f.join(t, Request{Channel: "x", UntilReset: true})
		f.settled()
		f.publish(t, "x", 4)
		f.settled()
		want(t, "subscribed anew", again.texts(), []string{"4"})
	})
}

// TestUntilResetWhenDown: one that goes on somewhere while the other machines cannot
// be reached gets what has no place, then the reset.
func TestUntilResetWhenDown(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		f.bus.down = bus.ErrDown
		f.State(bus.ErrDown)
		c := f.join(t, Request{Channel: "x", UntilReset: true, Since: &bus.Position{Epoch: "e", Offset: 7}})
		f.settled()
		f.bus.down = nil
		f.State(nil)
		f.publish(t, "x", 1)
		f.settled()
		want(t, "after the outage", c.texts(), []string{Reset})
	})
}
