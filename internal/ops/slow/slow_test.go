package slow

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/observe/meter"
	follow "millrace/internal/observe/trace"
)

// running is a store that runs until the test ends, in a bubble.
func running(t *testing.T, o Options, m *meter.Meters) *Store {
	t.Helper()
	s := New(o, m, func(err error) { t.Error(err) })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	synctest.Wait()
	return s
}

// asked counts requests of a route.
func asked(j *meter.Job, n int, took time.Duration) {
	for range n {
		j.Slow.Observe(0, 200, 10, took)
	}
}

func of(j *meter.Job) *follow.Trace {
	return &follow.Trace{Summary: follow.Summary{Site: j.Site, Route: j.Route, Job: j.Name}, Began: time.Now()}
}

// What is slow follows the p99 of the route, and forgets old times.
func TestThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter.New()
		quick, rare, ws := m.Route("a", "/quick", "proxy"), m.Route("a", "/rare", "proxy"), m.Route("a", "/ws", conversations)
		running(t, Options{Least: 100 * time.Millisecond, Factor: 2}, m)
		m.Clients.Add(1)
		if Slow(quick, 99*time.Millisecond) || !Slow(quick, 100*time.Millisecond) {
			t.Error("before anything is known, the least time does not count")
		}
		if Slow(ws, time.Hour) {
			t.Error("a conversation counts as slow")
		}
		asked(quick, 1000, time.Second)
		asked(rare, fewest-1, time.Second)
		time.Sleep(refresh)
		synctest.Wait()
		if Slow(quick, 1800*time.Millisecond) || !Slow(quick, 2200*time.Millisecond) {
			t.Errorf("with a p99 of 1s, slow is from %v", time.Duration(quick.SlowFrom.Load()))
		}
		if !Slow(rare, 100*time.Millisecond) {
			t.Error("a p99 of too few requests counts")
		}
		for range 3 { // windows in which the route is quick
			time.Sleep(window)
			asked(quick, 1000, time.Millisecond)
		}
		time.Sleep(refresh)
		synctest.Wait()
		if !Slow(quick, 100*time.Millisecond) {
			t.Errorf("slow is still from %v", time.Duration(quick.SlowFrom.Load()))
		}
		m.Clients.Add(-1)
		time.Sleep(2 * refresh)
		quick.SlowFrom.Store(1)
		time.Sleep(time.Hour)
		if quick.SlowFrom.Load() != 1 {
			t.Error("the times are read while there is no client")
		}
	})
}

// The store is bounded, and one route does not push the others out.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter.New()
		many, one := m.Route("a", "/many", "proxy"), m.Route("a", "/one", "static")
		s := running(t, Options{Keep: 10}, m)
		s.Add(one, of(one))
		kept := 0
		for range 5 {
			for range mostASecond + 5 {
				if s.Wants(time.Now()) {
					kept++
					s.Add(many, of(many))
				}
			}
			time.Sleep(time.Second)
		}
		list := s.List()
		if kept != 5*mostASecond || len(list.Entries) != 10 || list.Seen != uint64(5*(mostASecond+5)) {
			t.Errorf("%d were taken, %d are kept of %d", kept, len(list.Entries), list.Seen)
		}
		if first := list.Entries[0]; first.Number != uint64(kept+1) || first.Route != "/many" {
			t.Errorf("the youngest is %+v", first)
		}
		if last := list.Entries[9]; last.Number != 1 || last.Route != "/one" {
			t.Errorf("the other route's was pushed out; the oldest is %+v", last)
		}
		s.Set(Options{Off: true})
		if s.Wants(time.Now()) || Slow(many, time.Hour) || !s.List().Off {
			t.Error("it is not off")
		}
	})
}

// The recorder is read for a slow request, once a minute at the most.
func TestRecorder(t *testing.T) {
	m := meter.New()
	j := m.Route("a", "/", "proxy")
	s := New(Options{Recorder: true}, m, func(err error) { t.Error(err) })
	s.record()
	defer s.stop()
	if got := s.List().Recorder; got != "on" {
		t.Fatal("the recorder is", got)
	}
	for i := range 4 {
		s.Add(j, of(j))
		s.record()
		s.Add(j, of(j)) // within the minute
		s.record()
		var b bytes.Buffer
		first, second := uint64(2*i+1), uint64(2*i+2)
		if found, err := s.Trace(first, &b); !found || err != nil || !strings.HasPrefix(b.String(), "go 1.") {
			t.Errorf("request %d: %t, %v, %.20q", first, found, err, b.String())
		}
		if found, _ := s.Trace(second, &b); found {
			t.Errorf("request %d has a trace, within the minute", second)
		}
		s.read = s.read.Add(-readEvery)
	}
	with := ""
	for _, e := range s.List().Entries {
		if e.Recorded > 0 {
			with += fmt.Sprint(e.Number, " ")
		}
	}
	if with != "7 5 " {
		t.Errorf("entries %swith traces, want the last two", with)
	}
	s.Set(Options{})
	s.record()
	if got := s.List().Recorder; got != "off" {
		t.Error("the recorder is", got)
	}
}

func TestMostly(t *testing.T) {
	step := func(k follow.Kind, began, took, parent int) follow.Step {
		return follow.Step{Kind: k, Began: time.Duration(began), Took: time.Duration(took), Parent: parent}
	}
	for _, tt := range []struct {
		steps []follow.Step
		want  follow.Kind // 0: itself
		own   time.Duration
	}{
		{nil, 0, 100},
		{[]follow.Step{step(follow.Disk, 0, 10, -1)}, 0, 90},
		{[]follow.Step{step(follow.Upstream, 0, 90, -1), step(follow.Queue, 5, 70, 0), step(follow.Attempt, 75, 15, 0), step(follow.Write, 90, 10, -1)}, follow.Queue, 70},
		{[]follow.Step{step(follow.Fetch, 20, -1, -1)}, follow.Fetch, 80},
	} {
		e := Entry{Trace: &follow.Trace{Summary: follow.Summary{Took: 100}, Steps: tt.steps}}
		got, own, ok := e.Mostly()
		if got.Kind != tt.want || own != tt.own || ok != (tt.want != 0) {
			t.Errorf("%v: %v for %v, %t", tt.steps, got.Kind, own, ok)
		}
	}
	deep := Entry{Trace: &follow.Trace{Steps: []follow.Step{step(1, 0, 1, -1), step(2, 0, 1, 0), step(3, 0, 1, 1)}}}
	if deep.Depth(2) != 2 {
		t.Error("depth", deep.Depth(2))
	}
}

func TestCheck(t *testing.T) {
	if n := len((Options{Factor: 0.5, Least: -1, Keep: 1e6}).Check()); n != 3 {
		t.Errorf("%d faults, want 3", n)
	}
	var o Options
	if o.UnmarshalText([]byte("off")) != nil || !o.Off || o.UnmarshalText([]byte("perhaps")) == nil {
		t.Error("on and off are not read")
	}
}
