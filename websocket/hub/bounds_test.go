package hub

import (
	"testing"
	"time"

	"millrace/store/bus"
)

// TestSlices: a large channel is served in slices, and a small one meanwhile.
func TestSlices(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		var large []*client
		for range 3*slice + 10 {
			large = append(large, f.join(t, Request{Channel: "large"}))
		}
		small := f.join(t, Request{Channel: "small"})
		f.settled()
		f.publish(t, "large", 1)
		f.publish(t, "large", 2)
		f.publish(t, "small", 3)
		count := func() (n int) {
			for _, c := range large {
				n += len(c.got)
			}
			return n
		}
		f.run.step(0)
		if n := count(); n != slice {
			t.Errorf("%d deliveries in one run, want %d", n, slice)
		}
		f.run.step(0)
		want(t, "small, while the large channel is served", small.texts(), []string{"3"})
		if n := f.run.posted(0); n != 1 {
			t.Errorf("%d functions are posted, want one", n)
		}
		f.leave(large[0]) // has it
		last := large[len(large)-1]
		f.leave(last) // has not
		f.run.drain()
		for i, c := range large[1 : len(large)-1] {
			if len(c.got) != 2 {
				t.Fatalf("client %d was served %v", i, c.texts())
			}
		}
		want(t, "who left before its turn", last.texts(), []string(nil))
	})
}

// TestBehind publishes without end to a shard that does not run.
func TestBehind(t *testing.T) {
	bubble(t, Options{}, 2, func(t *testing.T, f *fixture) {
		c, quick := f.join(t, Request{Channel: "x"}), f.join(t, Request{Channel: "x", Shard: 1})
		other := f.join(t, Request{Channel: "y"})
		f.settled()
		for i := range listWaiting + 50 {
			f.publish(t, "x", i)
			for f.run.step(1) {
			}
		}
		f.publish(t, "y", "y")
		f.run.drain()
		if n := len(c.got); n != listWaiting+1 || c.texts()[n-1] != Reset {
			t.Errorf("%d were delivered, the last %q; want %d and a reset", n, c.texts()[n-1], listWaiting)
		}
		want(t, "another shard", len(quick.got), listWaiting+50)
		want(t, "another channel", other.texts(), []string{"y"})
		dropped := map[string]uint64{}
		f.meters.Dropped.Each(func(reason string, n uint64) { dropped[reason] = n })
		want(t, "dropped", dropped, map[string]uint64{"behind": 50})
		f.publish(t, "x", "after")
		f.run.drain()
		if got := c.texts(); got[len(got)-1] != "after" {
			t.Error("nothing is delivered any more")
		}
		if in := &f.shards[0].in; in.bytes != 0 || cap(in.tokens) > keptTokens {
			t.Errorf("%d bytes are left, and %d tokens", in.bytes, cap(in.tokens))
		}
	})
}

// TestBehindBytes does so with large ones.
func TestBehindBytes(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		c := f.join(t, Request{Channel: "x"})
		f.settled()
		big := make([]byte, listBytes/4)
		for i := range uint64(10) {
			f.Deliver(bus.Message{Channel: "x", Offset: i + 1, Data: big})
		}
		f.Reset("x") // one is enough
		f.run.drain()
		want(t, "delivered", len(c.got), 4)
		want(t, "the last", c.got[3].Note.Kind, Reset)
		f.Deliver(bus.Message{Channel: "x", Offset: 20, Data: make([]byte, 2*listBytes)})
		f.run.drain()
		want(t, "delivered: alone it may be as large as it is", len(c.got), 5)
	})
}

// TestLogOverflows: too much comes while somebody joins.
func TestLogOverflows(t *testing.T) {
	for name, answerLast := range map[string]bool{"lost": false, "in the history": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
				seed := f.join(t, Request{Channel: "x"})
				f.settled()
				since := seed.answer.Top
				f.bus.late = true
				c := f.join(t, Request{Channel: "x", Since: &since})
				if !answerLast {
					f.bus.answer(first) // posted
				}
				answer := f.run.queues[0]
				f.run.queues[0] = nil
				for i := range logLength + 10 {
					f.publish(t, "x", i)
					f.run.drain()
				}
				if answerLast {
					f.bus.answer(first)
				}
				f.run.queues[0] = append(f.run.queues[0], answer...)
				f.run.drain()
				if c.answer.Recovered != answerLast {
					t.Errorf("recovered: %v", c.answer.Recovered)
				}
				if answerLast {
					want(t, "delivered", c.texts(), []string(nil))
					want(t, "missed", len(c.answer.Missed), logLength+10)
				} else {
					want(t, "delivered", len(c.got), logLength+1)
					want(t, "the first", c.texts()[0], Reset)
				}
				if l := c.s.list; l.log != nil || l.joining != 0 {
					t.Error("the log is still there")
				}
			})
		})
	}
}

// TestListShrinks: a crowd that has gone leaves no memory behind.
func TestListShrinks(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		var all []*client
		for range 1000 {
			all = append(all, f.join(t, Request{Channel: "x"}))
		}
		f.settled()
		for _, c := range all[10:] {
			f.leave(c)
		}
		if n := cap(all[0].s.list.subs); n > shrinkFrom {
			t.Errorf("room for %d subscribers is kept for 10", n)
		}
		f.publish(t, "x", 1)
		f.settled()
		for _, c := range all[:10] {
			want(t, "delivered", c.texts(), []string{"1"})
		}
	})
}

// TestInboxGivesBack: a burst leaves no memory behind, and a busy inbox does
// not grow for ever.
func TestInboxGivesBack(t *testing.T) {
	in := &inbox{posted: true}
	l := &list{}
	p := &Publication{since: time.Now()}
	for range 100_000 {
		in.put(l, p, nil)
		in.put(l, p, nil)
		in.take()
		in.delivered(l, p)
		if len(in.tokens)-in.taken > 1000 {
			in.take()
			in.delivered(l, p)
		}
	}
	if cap(in.tokens) > 8192 {
		t.Errorf("%d tokens for some thousand that wait", cap(in.tokens))
	}
	for {
		if _, ok := in.take(); !ok {
			break
		}
		in.delivered(l, p)
	}
	if in.posted || in.bytes != 0 || l.waiting != 0 || cap(in.tokens) > keptTokens {
		t.Errorf("left: %+v", in)
	}
}
