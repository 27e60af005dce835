package experiment

import (
	"testing"
	"testing/synctest"
	"time"

	"millrace/lab/result"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.in, got, c.want)
		}
	}
}

func TestStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []result.Event
		res := &result.Result{}
		s := newStage(Env{Mode: result.Quick, Watch: func(e result.Event) { events = append(events, e) }}, res)
		time.Sleep(20 * time.Second) // building, which says nothing about the rest
		s.note("left out: %d", 1)
		s.note("left out: %d", 1)
		s.plan(8)
		time.Sleep(10 * time.Second)
		s.step(2, result.Event{Kind: result.EventSample})
		if len(res.Notes) != 1 || len(events) != 2 {
			t.Fatalf("%v, %v", res.Notes, events)
		}
		if e := events[1]; e.Done != 0.25 || e.Left != 30*time.Second || e.Time.IsZero() {
			t.Errorf("%+v", e)
		}
		s.step(100, result.Event{})
		if e := events[2]; e.Done != 1 || e.Left != 0 {
			t.Errorf("more than planned: %+v", e)
		}
		if left := s.left(); left <= 0 || left >= time.Minute {
			t.Errorf("%v are left after 30 s of a quick run", left)
		}
	})
	newStage(Env{}, &result.Result{}).note("nobody watches") // no panic
}

func TestShownNS(t *testing.T) {
	for in, want := range map[float64]string{500: "0.50 µs", 1234: "1.23 µs", 138_000: "138 µs", 12_340_000: "12.3 ms", 2.5e9: "2.50 s"} {
		if got := shownNS(in); got != want {
			t.Errorf("%v: %s, want %s", in, got, want)
		}
	}
}
