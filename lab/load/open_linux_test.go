package load

import (
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// A target that stalls for a while is charged for everything that was due
// meanwhile: the requests that could not be sent are late by what they waited,
// though each was answered at once when it was.
func TestOpenLoopChargesForStalls(t *testing.T) {
	const (
		rate  = 500
		stall = 300 * time.Millisecond
	)
	for name, c := range map[string]Config{
		"constant": {Arrival: Constant, Rate: rate}, "Poisson": {Arrival: Poisson, Rate: rate},
		"stages": {Arrival: Constant, Rate: rate, Stages: []Stage{{rate, time.Second}}},
	} {
		t.Run(name, func(t *testing.T) {
			var stalled atomic.Bool
			s := serveRaw(t, func(c net.Conn, n int) bool {
				if n == 10 {
					stalled.Store(true)
					time.Sleep(stall)
				}
				c.Write([]byte(fine))
				return true
			})
			c.URL, c.Connections, c.Duration = s.url(), 1, 700*time.Millisecond
			r, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			consistent(t, r)
			if !stalled.Load() {
				t.Fatalf("it never stalled: %d requests", r.Requests)
			}
			// All 150 that were due in the stall waited for it, 75 of them for
			// more than half of it; but the target was slow only once.
			if n := above(&r.Latency, stall/2); n < 50 {
				t.Errorf("%d latencies of more than %v, want some 75", n, stall/2)
			}
			if n := above(&r.Service, stall/2); n == 0 || n > 10 {
				t.Errorf("%d service times of more than %v, want the one", n, stall/2)
			}
			if r.Latency.Max() < stall || r.Requests+r.Dropped+r.Unanswered < rate/2 {
				t.Errorf("the longest took %v; %d requests, %d dropped", r.Latency.Max(), r.Requests, r.Dropped)
			}
		})
	}
}

// A closed loop sees one slow answer in the same stall: that is what
// coordinated omission means.
func TestClosedLoopOmits(t *testing.T) {
	s := serveRaw(t, func(c net.Conn, n int) bool {
		if n == 100 {
			time.Sleep(300 * time.Millisecond)
		}
		c.Write([]byte(fine))
		return true
	})
	r := exactly(t, Config{URL: s.url(), Connections: 1, Requests: 200})
	if n := above(&r.Latency, 250*time.Millisecond); n == 0 || n > 10 {
		t.Errorf("%d long latencies, want the one", n)
	}
}

// What waits for longer than the timeout, and what is still waiting at the end,
// was never sent, and is dropped. None of it is late: it was the target's doing.
func TestOpenLoopDrops(t *testing.T) {
	s := serveRaw(t, func(net.Conn, int) bool { return true }) // never answers
	r, err := Run(t.Context(), Config{
		URL: s.url(), Connections: 2, Arrival: Constant, Rate: 1000, Duration: 500 * time.Millisecond, Timeout: 100 * time.Millisecond,
	})
	if err == nil {
		t.Error("nothing was answered, and that is not an error")
	}
	if r.Requests != 0 || r.Errors.Timeout == 0 {
		t.Errorf("%d requests, errors %+v", r.Requests, r.Errors)
	}
	if sent := r.Errors.Timeout + r.Unanswered; r.Dropped+sent < 480 || r.Dropped < 300 {
		t.Errorf("%d dropped and %d sent, of 500 and more", r.Dropped, sent)
	}
}

// A target that keeps up gets what was to be sent, over all threads.
func TestOpenLoopSendsAll(t *testing.T) {
	for name, c := range map[string]Config{
		"constant": {Arrival: Constant, Rate: 400}, "Poisson": {Arrival: Poisson, Rate: 400},
		"stages": {Arrival: Constant, Rate: 200, Stages: []Stage{{600, 500 * time.Millisecond}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveRaw(t, func(c net.Conn, _ int) bool {
				c.Write([]byte(fine))
				return true
			})
			c.URL, c.Connections, c.Threads, c.Duration = s.url(), 4, 2, 500*time.Millisecond
			r, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			consistent(t, r)
			want := 400 * r.Took.Seconds() // a little longer than asked for, if the machine is busy
			if n := float64(r.Requests + r.Dropped + r.Unanswered); n < 0.6*want || n > 1.4*want || r.Errors.Sum() > 0 {
				t.Errorf("%d requests and %d dropped, want %.0f; errors %+v", r.Requests, r.Dropped, want, r.Errors)
			}
			if r.Latency.Mean() < r.Service.Mean() {
				t.Errorf("latency is %v, service time %v", r.Latency.Mean(), r.Service.Mean())
			}
		})
	}
}

// A connection that the target closed while it had nothing to do is not an error.
func TestOpenLoopOutlivesIdleConnections(t *testing.T) {
	s := serveRaw(t, func(c net.Conn, _ int) bool {
		c.Write([]byte(fine))
		return false // and closes
	})
	r, err := Run(t.Context(), Config{URL: s.url(), Connections: 8, Arrival: Constant, Rate: 50, Requests: 20, Duration: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	consistent(t, r)
	if r.Requests != 20 || r.Connect.Count() < 20 {
		t.Errorf("%d requests, %d connections, errors %+v", r.Requests, r.Connect.Count(), r.Errors)
	}
}
