package nats

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/store/bus"
)

// FuzzChannel encodes names: one token of a subject, and back.
func FuzzChannel(f *testing.F) {
	for _, name := range []string{"a", "a.b", "=41", "日本", "*", ">", " ", strings.Repeat(".", 255)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		token := encode(name)
		if strings.ContainsAny(token, " .*>\t\r\n") {
			t.Errorf("%q became %q, which is not one token", name, token)
		}
		if back, ok := unescape(token, plain); ok != (name != "") || ok && back != name {
			t.Errorf("%q became %q, and %q again, %v", name, token, back, ok)
		}
		if value := encodeID(name); strings.Contains(value, "N") {
			t.Errorf("the ID %q became %q, in which a header of the server can be found", name, value)
		} else if back, ok := decodeID(value); ok != (name != "") || ok && back != name {
			t.Errorf("the ID %q became %q, and %q again, %v", name, value, back, ok)
		}
		if back, ok := unescape(name, plain); ok && encode(back) != name {
			t.Errorf("%q was read as %q, which is written %q", name, back, encode(back))
		}
	})
}

// FuzzLive reads what comes from the server.
func FuzzLive(f *testing.F) {
	f.Add("test.out.a", "7", "5", "id", "1700000000000", []byte("x"))
	f.Add("test.in.a", "", "-1", "%zz", "x", []byte(nil))
	b := &Bus{o: Options{Name: "test"}}
	f.Fuzz(func(t *testing.T, subject, seq, last, id, at string, data []byte) {
		m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
			"Nats-Sequence": {seq}, "Nats-Last-Sequence": {last}, idHeader: {id}, timeHeader: {at},
		}}
		s, before, ok := b.live(m)
		if !ok {
			return
		}
		if got := s.message("a"); got.Offset == 0 || got.ID == "" || got.Time.IsZero() || fmt.Sprint(before) == "" {
			t.Errorf("read %+v", got)
		}
	})
}

func TestPause(t *testing.T) {
	for attempts := -1; attempts < 100; attempts++ {
		want := min(firstPause<<min(max(attempts, 0), 20), longestPause)
		if got := pause(attempts); got < want/2 || got > want {
			t.Errorf("after %d attempts the pause is %v, want %v to %v", attempts, got, want/2, want)
		}
	}
}

// TestPeers hears of machines, and forgets them.
func TestPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := peers{seen: map[string]time.Time{}}
		living := func() string {
			var all []string
			for id := range p.living(time.Now()) {
				all = append(all, id)
			}
			slices.Sort(all)
			return strings.Join(all, " ")
		}
		if !p.note(beatBody{ID: "x"}, time.Now()) || p.note(beatBody{ID: "x"}, time.Now()) {
			t.Error("a machine is new once")
		}
		p.note(beatBody{ID: "y"}, time.Now())
		time.Sleep(2 * time.Second)
		p.note(beatBody{ID: "y"}, time.Now())
		if got := living(); got != "x y" {
			t.Errorf("%q live after 2 s", got)
		}
		time.Sleep(time.Second)
		if got := living(); got != "y" {
			t.Errorf("%q live after 3 s without a word of x", got)
		}
		p.note(beatBody{ID: "y", Bye: true}, time.Now())
		if got := living(); got != "" {
			t.Errorf("%q live, the last has said goodbye", got)
		}
		for i := range 2 * peersMost {
			p.note(beatBody{ID: fmt.Sprint(i)}, time.Now())
		}
		if n := len(p.seen); n != peersMost {
			t.Errorf("%d machines are remembered, the bound is %d", n, peersMost)
		}
	})
}

func entry(channel string, i, size int) *pending {
	return &pending{token: channel, key: fmt.Sprint(channel, i), message: bus.Message{
		Channel: channel, ID: fmt.Sprint(i), Data: make([]byte, size), Time: time.Now(),
	}}
}

func keys(list []*pending) string {
	var all []string
	for _, p := range list {
		all = append(all, p.key)
	}
	return strings.Join(all, " ")
}

func TestOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o outbox
		o.init(bus.Keep{Messages: 2, Age: time.Minute, Bytes: 10_000, Channels: 3})
		var lost []*pending
		for _, p := range []*pending{entry("a", 1, 0), entry("b", 1, 0), entry("a", 2, 0), entry("a", 3, 0)} {
			lost = append(lost, o.add(p)...)
		}
		if got := keys(lost); got != "a1" {
			t.Errorf("lost %q, want the oldest of the full channel", got)
		}
		if batch, _ := o.batch(10); keys(batch) != "b1 a2 a3" {
			t.Errorf("the outbox has %q", keys(batch))
		}
		if batch, _ := o.batch(2); keys(batch) != "b1 a2" {
			t.Errorf("the first two are %q", keys(batch))
		}
		lost = append(o.add(entry("c", 1, 0)), o.add(entry("d", 1, 0))...)
		if got := keys(lost); got != "b1" {
			t.Errorf("lost %q, want the channel of the oldest, three are allowed", got)
		}
		if got := keys(o.add(entry("c", 2, 9000))); got != "a2 a3" {
			t.Errorf("lost %q for the bytes of a large one", got)
		}
		if got := keys(o.add(entry("c", 3, 90000))); got != "c1 d1 c2 c3" {
			t.Errorf("lost %q for one that is too large itself", got)
		}
		if o.count() != 0 || o.bytes != 0 || len(o.channels) != 0 {
			t.Errorf("%d, %d bytes and %d channels are in an empty outbox", o.count(), o.bytes, len(o.channels))
		}
		p := entry("a", 4, 0)
		o.add(p)
		time.Sleep(31 * time.Second)
		o.add(entry("a", 5, 0))
		time.Sleep(30 * time.Second)
		batch, expired := o.batch(10)
		if keys(batch) != "a5" || keys(expired) != "a4" {
			t.Errorf("after a minute there are %q, and %q have expired", keys(batch), keys(expired))
		}
		if o.settle(func() { t.Error("settled with something in it") }) {
			t.Error("settled with something in it")
		}
		o.remove(p) // is out
		emptied := make(chan struct{})
		go func() { o.empty(time.Hour); close(emptied) }()
		synctest.Wait()
		o.remove(batch[0])
		<-emptied
		o.add(entry("a", 6, 0))
		at := time.Now()
		o.empty(2 * time.Second)
		if waited := time.Since(at); waited != 2*time.Second {
			t.Errorf("waited %v for an outbox that does not empty, want 2 s", waited)
		}
	})
}

// TestOutboxLong is long in use: what is out must not pile up.
func TestOutboxLong(t *testing.T) {
	var o outbox
	o.init(bus.Keep{Messages: 10})
	for i := range 50_000 {
		p := entry(fmt.Sprint(i%7), i, 0)
		o.add(p)
		if len(o.all) > 2*len(o.in)+flushWindow {
			t.Fatalf("the list has %d places for %d", len(o.all), len(o.in))
		}
		if i%3 == 0 {
			o.remove(p)
		}
	}
	if n := o.count(); n != 68 {
		t.Errorf("%d are in, want 10 of each of 7 channels, but the two that were taken out last", n)
	}
}

// TestReaches shows when a reading is whole.
func TestReaches(t *testing.T) {
	i := info{first: 10, last: 20, perChannel: 3, limits: 5}
	for _, c := range []struct {
		after uint64
		count int64
		want  bool
	}{{9, 2, true}, {10, 0, true}, {8, 0, false}, {9, 3, false}, {20, 2, true}} {
		if got := i.reaches(c.after, c.count); got != c.want {
			t.Errorf("after %d with %d messages: %v", c.after, c.count, got)
		}
	}
	i.first = 1
	if i.reaches(4, 0) || !i.reaches(5, 0) {
		t.Error("the change of limits at 5 is not minded")
	}
}

// TestGap has messages lost on a connection that stays.
func TestGap(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one, two := openHost(t, s.url(), usual(), "a"), openHost(t, s.url(), usual(), "a")
	want := one.numbers("a", "a", 3)
	two.texts("a", 3)
	c := two.worker("a").find("a", nil)
	deaf := func(f func()) {
		t.Helper()
		c.sub.Unsubscribe()
		if err := two.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		f()
		sub, err := two.nc.ChanSubscribe(two.out("a"), two.worker("a").live)
		if err != nil {
			t.Fatal(err)
		}
		two.worker("a").mu.Lock()
		c.sub = sub
		two.worker("a").mu.Unlock()
		if err := two.nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for _, lost := range []int{1, singly, 100} {
		deaf(func() { want = append(want, one.numbers("a", fmt.Sprint("b", lost, "."), lost)...) })
		want = append(want, one.numbers("a", fmt.Sprint("c", lost, "."), 2)...)
		if got := two.texts("a", len(want)); !slices.Equal(got, want) {
			t.Fatalf("%d were lost: delivered %q, want %q", lost, got, want)
		}
	}
	two.sound()
	if got := two.resetOf(); len(got) > 0 {
		t.Errorf("reset %q, and nothing was lost", got)
	}
}

// TestOverflow floods a listener that is stuck for a while: more than a queue
// holds, and more than is held back.
func TestOverflow(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	keep := usual()
	keep.Messages = 100_000
	one, two := openHost(t, s.url(), keep), openHost(t, s.url(), keep, "a")
	two.mu.Lock() // Deliver waits
	n := liveQueue + 2*heldMost
	for i := range n {
		p := &pending{token: "a", key: fmt.Sprint(i), message: bus.Message{Channel: "a", ID: fmt.Sprint(i), Data: []byte("x"), Time: time.Now()}}
		f, err := one.dispatch(p)
		if err != nil {
			two.mu.Unlock()
			t.Fatal(err)
		}
		if i%flushWindow == 0 || i == n-1 {
			if _, err := one.confirmed(t.Context(), f); err != nil {
				two.mu.Unlock()
				t.Fatal(err)
			}
		}
	}
	// The stream is looked at meanwhile: what waits must not pass for delivered.
	for range 3 {
		if err := two.look(false, true, two.link.dials.Load()); err != nil {
			t.Error(err)
		}
	}
	two.mu.Unlock()
	if got := two.texts("a", n); len(got) != n {
		t.Errorf("%d were delivered, want %d", len(got), n)
	}
	two.sound()
	if got := two.resetOf(); len(got) > 0 {
		t.Errorf("reset %q, and nothing was lost", got)
	}
}

// TestRecall looks for what was sent so long ago that the server may have
// forgotten it.
func TestRecall(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one := openHost(t, s.url(), usual())
	after := one.history("a", nil).Top
	one.numbers("a", "x", 10)
	m := one.publish("a", "y")
	p := &pending{token: "a", key: "k", message: m, sentAt: time.Now().Add(-one.window), epoch: after.Epoch, after: after.Offset}
	if seq, err := one.recall(t.Context(), p); err != nil || seq != m.Offset {
		t.Errorf("found at %d, %v, want %d", seq, err, m.Offset)
	}
	p.message.ID = "another"
	if seq, err := one.recall(t.Context(), p); err != nil || seq != 0 {
		t.Errorf("what was never stored was found at %d, %v", seq, err)
	}
	p.message, p.epoch = m, "another"
	if seq, err := one.recall(t.Context(), p); err != nil || seq != 0 {
		t.Errorf("what is of another epoch was found at %d, %v", seq, err)
	}
}

// TestAskedMeanwhile: a publication was delivered here without a place, and before it gets
// one somebody subscribes, who finds it neither in the history nor among the deliveries. A
// reset says so; whoever begins to listen when nobody does gets the publication itself.
func TestAskedMeanwhile(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one := openHost(t, s.url(), usual(), "a")
	top := one.history("a", nil).Top
	w := one.worker("a")
	place := func(id string, meanwhile func()) uint64 {
		t.Helper()
		p := w.enter("a", bus.Message{Channel: "a", ID: id, Data: []byte("x"), Time: time.UnixMilli(1)})
		if _, queue, ok := w.deliverHere(p); !queue || !ok {
			t.Fatalf("%v, %v", queue, ok)
		}
		meanwhile()
		seq, err := one.send(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		one.arrived(p, seq)
		w.leave(p)
		return seq
	}
	seq := place("nobody asks", func() {})
	one.until("it has its place", func() bool { return one.placed["nobody asks"] == seq })
	if got := one.resetOf(); len(got) > 0 {
		t.Errorf("reset %q, and nobody has asked", got)
	}
	seq = place("one asks", func() {
		if h := one.history("a", &top); len(h.Messages) != 1 {
			t.Errorf("the history has %+v", h.Messages)
		}
	})
	one.until("a reset", func() bool { return one.placed["one asks"] == seq && len(one.resets) == 1 && one.resets[0] == "a" })
	if h := one.history("a", &top); len(h.Messages) != 2 || h.Messages[1].Offset != seq {
		t.Errorf("the history behind the reset has %+v", h.Messages)
	}
	place("others listen", func() {
		one.Ignore("a")
		if err := one.Listen("a"); err != nil {
			t.Fatal(err)
		}
		if err := one.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		one.mu.Lock()
		one.got["a"] = nil
		one.mu.Unlock()
	})
	one.until("it comes with its place", func() bool {
		got := one.got["a"]
		return len(got) == 1 && got[0].ID == "others listen" && got[0].Offset > seq
	})
}

// TestForeign publishes as an operator does: nats pub test.in.a hello.
func TestForeign(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	one := openHost(t, s.url(), usual(), "a")
	if _, err := one.js.Publish(t.Context(), "test.in.a", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	one.nc.Publish("test.out.a", []byte("no number"))
	one.nc.Publish("test.beat", []byte("{"))
	one.nc.PublishRequest("test.members", "test.nowhere", []byte("{"))
	if got := one.texts("a", 1); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("delivered %q", got)
	}
	h := one.history("a", nil)
	if len(h.Messages) != 1 || h.Messages[0].ID == "" || h.Messages[0].ID != one.got["a"][0].ID || h.Messages[0].Time.IsZero() {
		t.Errorf("the history has %+v, delivered was %+v", h.Messages, one.got["a"])
	}
}

// TestChaos cuts and mends at random, while all publish.
func TestChaos(t *testing.T) {
	t.Parallel()
	const rounds, each = 12, 8
	s := startServer(t)
	wires := []*wire{newWire(t, s.addr()), newWire(t, s.addr()), newWire(t, s.addr())}
	var hosts []*host
	for _, w := range wires {
		hosts = append(hosts, openHost(t, w.url(), usual(), "a", "b"))
	}
	want := map[string][]string{}
	for round := range rounds {
		for i, w := range wires {
			w.set(rand.N(3) == 0, false)
			for _, channel := range []string{"a", "b"} {
				want[channel] = append(want[channel], hosts[i].numbers(channel, fmt.Sprintf("%c%02d.", 'x'+i, round), each)...)
			}
		}
		if round == rounds/2 {
			s.Kill()
			s.run()
		}
	}
	for i, w := range wires {
		w.set(false, false)
		hosts[i].isUp()
	}
	for _, channel := range []string{"a", "b"} {
		for i, h := range hosts {
			got := h.texts(channel, len(want[channel]))
			slices.Sort(got)
			all := slices.Sorted(slices.Values(want[channel]))
			if !slices.Equal(got, all) {
				t.Errorf("host %d has %d publications of %s, want %d", i, len(got), channel, len(all))
			}
		}
		hosts[0].until("all are in the stream", func() bool {
			hosts[0].mu.Unlock()
			defer hosts[0].mu.Lock()
			h, err := hosts[0].tryHistory(channel, nil)
			return err == nil && len(h.Messages) == len(want[channel])
		})
	}
	for _, h := range hosts {
		h.until("everything is placed", func() bool {
			n := 0
			for _, got := range h.got {
				for _, m := range got {
					if m.Offset == 0 && h.placed[m.ID] == 0 {
						n++
					}
				}
			}
			return n == 0
		})
		h.sound()
		if got := h.resetOf(); len(got) > 0 {
			t.Errorf("reset %q, and nothing was lost", got)
		}
		for _, w := range h.workers {
			h.until("nothing is pending", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return len(w.pending) == 0
			})
		}
	}
}
