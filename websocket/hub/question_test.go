package hub

import (
	"fmt"
	"testing"

	"millrace/store/bus"
)

// TestQuestionShared: a thousand clients of a channel that come back at once cost the bus
// a few questions, not a thousand.
func TestQuestionShared(t *testing.T) {
	bubble(t, Options{}, 2, func(t *testing.T, f *fixture) {
		keep := f.join(t, Request{Channel: "x"})
		f.settled()
		for i := range 10 {
			f.publish(t, "x", i+1)
		}
		f.settled()
		f.bus.late = true
		top := keep.position()
		f.bus.asked = 0
		var back []*client
		for i := range 1000 {
			r := Request{Channel: "x", Shard: i % 2}
			if i%11 < 10 {
				r.Since = &bus.Position{Epoch: top.Epoch, Offset: uint64(i % 11)}
			}
			back = append(back, f.join(t, r))
		}
		gone := back[len(back)-1]
		f.leave(gone)
		f.publish(t, "x", 11)
		for f.bus.answer(first) {
			f.settled()
		}
		for i, c := range back[:len(back)-1] {
			texts := append(missed(c.answer), c.texts()...)
			from := 10
			if i == 0 {
				from = 0 // the first one was asked for by itself
			} else if i%11 < 10 {
				from = i % 11
			}
			if c.answers != 1 || c.answer.Recovered != (c.request.Since != nil) || c.request.Since != nil && len(texts) != 11-from || len(texts) > 0 && texts[0] != fmt.Sprint(from+1) {
				t.Fatalf("client %d since %v: %d answers, recovered %v, %s", i, c.request.Since, c.answers, c.answer.Recovered, texts)
			}
		}
		if gone.answers != 0 {
			t.Error("one that had left was answered")
		}
		if f.bus.asked > 3 {
			t.Errorf("the bus was asked %d times", f.bus.asked)
		}
	})
}

// TestQuestionAlone: those whom a shared answer does not tell enough are asked for
// by themselves.
func TestQuestionAlone(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		f.bus.keep = 3
		keep := f.join(t, Request{Channel: "x"})
		f.settled()
		for i := range 6 {
			f.publish(t, "x", i+1)
		}
		f.settled()
		f.bus.late = true
		epoch := keep.answer.Top.Epoch
		f.join(t, Request{Channel: "x"}) // the question that the others wait for
		since := []bus.Position{{Epoch: epoch, Offset: 1}, {Epoch: epoch, Offset: 1}, {Epoch: epoch, Offset: 2}, {Epoch: epoch, Offset: 4}, {Epoch: "other", Offset: 4}}
		var back []*client
		for i := range since {
			back = append(back, f.join(t, Request{Channel: "x", Since: &since[i]}))
		}
		for f.bus.answer(first) {
			f.settled()
		}
		for i, c := range back {
			var want []string
			if want = []string{"4", "5", "6"}; i == 3 {
				want = want[1:]
			}
			if got := missed(c.answer); fmt.Sprint(got) != fmt.Sprint(want) || c.answer.Recovered != (i == 3) {
				t.Errorf("since %v: recovered %v, %s, want %s", since[i], c.answer.Recovered, got, want)
			}
		}
		f.publish(t, "x", 7)
		f.settled()
		for i, c := range back {
			if got := c.texts(); fmt.Sprint(got) != "[7]" {
				t.Errorf("since %v: then %s", since[i], got)
			}
		}
	})
}

// TestQuestionFails: an error is everybody's who shared the question, and nobody's
// who comes after it.
func TestQuestionFails(t *testing.T) {
	bubble(t, Options{}, 1, func(t *testing.T, f *fixture) {
		f.join(t, Request{Channel: "x"})
		f.settled()
		f.bus.late, f.bus.down = true, errFake
		var all []*client
		for range 3 {
			all = append(all, f.join(t, Request{Channel: "x"}))
		}
		f.bus.answer(first)
		all = append(all, f.join(t, Request{Channel: "x"}))
		f.bus.answer(first)
		f.bus.down = nil
		for f.bus.answer(first) {
		}
		f.settled()
		for i, c := range all {
			if (c.err != nil) != (i < 3) || c.answers != 1 {
				t.Errorf("client %d: %d answers, %v", i, c.answers, c.err)
			}
		}
	})
}
