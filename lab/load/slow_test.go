package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/lab/load/client"
)

// A fake dialer makes connections whose answers come from a function.
type fake struct {
	dial   func(n int64) error // of the n-th connection, from 1; nil: all are fine
	answer func(ctx context.Context, conn *fakeConn, path int) (client.Answer, error)
	dialed atomic.Int64
	open   atomic.Int64
	closed atomic.Bool
}

type fakeConn struct {
	*fake
	asked atomic.Int64
	once  sync.Once
}

func (f *fake) Dial(ctx context.Context) (client.Conn, error) {
	if n := f.dialed.Add(1); f.dial != nil {
		if err := f.dial(n); err != nil {
			return nil, err
		}
	}
	f.open.Add(1)
	return &fakeConn{fake: f}, nil
}

func (f *fake) Close() error { f.closed.Store(true); return nil }

func (c *fakeConn) Do(ctx context.Context, path int, tee io.Writer) (client.Answer, error) {
	c.asked.Add(1)
	a, err := c.answer(ctx, c, path)
	if tee != nil && err == nil {
		tee.Write([]byte(strings.Repeat("x", int(a.Body))))
	}
	return a, err
}

func (c *fakeConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return nil
}

// hello answers after a while, or when the run ends.
func hello(after time.Duration) func(context.Context, *fakeConn, int) (client.Answer, error) {
	return func(ctx context.Context, _ *fakeConn, _ int) (client.Answer, error) {
		select {
		case <-time.After(after):
			return client.Answer{Status: 200, Body: 5, Bytes: 50, Head: http.Header{"A": {"b"}}}, nil
		case <-ctx.Done():
			return client.Answer{}, fmt.Errorf("%w: %w", client.ErrClosed, ctx.Err())
		}
	}
}

// runFake carries out a load over a fake dialer, as Run does over a real one.
func runFake(t *testing.T, f *fake, c Config) (*Result, error) {
	t.Helper()
	c.URL = "https://example.org/"
	p, err := c.plan()
	if err != nil {
		t.Fatal(err)
	}
	p.base = time.Now()
	r := &run{plan: p, total: newTally(p), result: &Result{Status: map[int]uint64{}}}
	r.driver = newSlowOver(p, f)
	err = r.execute(t.Context())
	if f.open.Load() != 0 || !f.closed.Load() {
		t.Errorf("%d connections are still open, the dialer is closed: %v", f.open.Load(), f.closed.Load())
	}
	consistent(t, r.result)
	return r.result, err
}

// In a world without noise all figures are exact.
func TestSlowClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: hello(10 * time.Millisecond)}
		var ticks int
		r, err := runFake(t, f, Config{
			Connections: 20, Protocol: HTTP2, Streams: 3, Warmup: time.Second, Duration: 2 * time.Second,
			Progress: func(tick Tick) {
				ticks++
				if want := uint64(tick.Length / (10 * time.Millisecond) * 60); tick.Requests+60 < want || tick.Requests > want+60 {
					t.Errorf("%d requests in a tick of %v, want %d", tick.Requests, tick.Length, want)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Requests < 60*199 || r.Requests > 60*201 || r.InFlight < 59.9 || r.InFlight > 60.1 || r.Took != 2*time.Second {
			t.Errorf("%d requests in %v, %v in flight", r.Requests, r.Took, r.InFlight)
		}
		if l := r.Latency; l.Min() != 10*time.Millisecond || l.Max() != 10*time.Millisecond {
			t.Errorf("latencies from %v to %v", l.Min(), l.Max())
		}
		if ticks < 11 || ticks > 14 {
			t.Errorf("%d ticks in 3 s", ticks)
		}
		if a := r.Answers[0]; a.Status != 200 || a.Length != 5 || a.Bytes != 50 || a.Hash == 0 || a.Head.Get("A") != "b" {
			t.Errorf("answer: %+v", a)
		}
	})
}

// Errors are counted by kind, and the connection is opened anew.
func TestSlowErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{
			dial: func(n int64) error {
				if n%5 == 0 {
					return fmt.Errorf("%w: no", client.ErrConnect)
				}
				return nil
			},
			answer: func(ctx context.Context, c *fakeConn, path int) (client.Answer, error) {
				time.Sleep(time.Millisecond)
				switch n := c.dialed.Load(); {
				case c.asked.Load() < 3:
					return hello(0)(ctx, c, path)
				case n%3 == 0:
					return client.Answer{}, fmt.Errorf("%w: no", client.ErrTimeout)
				case n%3 == 1:
					return client.Answer{}, fmt.Errorf("%w: no", client.ErrProtocol)
				default:
					return client.Answer{}, fmt.Errorf("%w: no", client.ErrClosed)
				}
			},
		}
		r, err := runFake(t, f, Config{Connections: 1, Duration: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		e := r.Errors
		if e.Connect == 0 || e.Timeout == 0 || e.Protocol == 0 || e.Closed == 0 || e.Unexpected != 0 || e.First == "" {
			t.Errorf("errors: %+v", e)
		}
		if dials := uint64(f.dialed.Load()); dials < e.Sum() || r.Connect.Count() != dials-e.Connect {
			t.Errorf("%d errors, %d connections opened", e.Sum(), dials)
		}
	})
}

// A connection that the target leaves in good order takes nothing with it: what
// it did not take is asked again on the next one, and is not an error.
func TestSlowAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: func(ctx context.Context, c *fakeConn, path int) (client.Answer, error) {
			switch c.asked.Load() {
			case 3:
				return client.Answer{Close: true}, fmt.Errorf("%w: going away", client.ErrClosed)
			case 2:
				if c.dialed.Load()%2 == 0 { // or it says so with an answer
					a, err := hello(time.Millisecond)(ctx, c, path)
					a.Close = true
					return a, err
				}
			}
			return hello(time.Millisecond)(ctx, c, path)
		}}
		r, err := runFake(t, f, Config{Connections: 2, Requests: 100})
		if err != nil {
			t.Fatal(err)
		}
		if r.Requests != 100 || r.Errors.Sum() != 0 || r.Connect.Count() < 50 {
			t.Errorf("%d requests, errors %+v, %d connections", r.Requests, r.Errors, r.Connect.Count())
		}
	})
}

// A target that refuses is knocked at ever more slowly.
func TestSlowBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{
			dial: func(n int64) error {
				if n > 4 { // it dies at once
					return fmt.Errorf("%w: refused", client.ErrConnect)
				}
				return nil
			},
			answer: func(context.Context, *fakeConn, int) (client.Answer, error) {
				return client.Answer{}, fmt.Errorf("%w: no", client.ErrClosed)
			},
		}
		r, err := runFake(t, f, Config{Connections: 4, Duration: 10 * time.Second})
		if !errors.Is(err, ErrNoAnswer) {
			t.Errorf("the error is %v", err)
		}
		// After 10, 20 … 320 ms, and then every 500 ms, each.
		if n := r.Errors.Connect; n < 4*20 || n > 4*30 {
			t.Errorf("it was knocked at %d times", n)
		}
	})
}

// The open loop charges for stalls here too. Real time: the dispatcher waits in
// the system, not in Go.
func TestSlowOpenLoopChargesForStalls(t *testing.T) {
	const stall = 300 * time.Millisecond
	var stalled atomic.Bool
	f := &fake{answer: func(ctx context.Context, c *fakeConn, path int) (client.Answer, error) {
		if c.asked.Load() == 10 {
			stalled.Store(true)
			time.Sleep(stall)
		}
		return hello(0)(ctx, c, path)
	}}
	r, err := runFake(t, f, Config{Connections: 1, Arrival: Constant, Rate: 500, Duration: 700 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if n := above(&r.Latency, stall/2); !stalled.Load() || n < 50 {
		t.Errorf("stalled: %v; %d latencies of more than %v, want some 75", stalled.Load(), n, stall/2)
	}
	if n := above(&r.Service, stall/2); n == 0 || n > 10 {
		t.Errorf("%d service times of more than %v, want the one", n, stall/2)
	}
}

// What no connection is free for is dropped after the timeout.
func TestSlowOpenLoopDrops(t *testing.T) {
	f := &fake{answer: func(ctx context.Context, c *fakeConn, _ int) (client.Answer, error) {
		if c.asked.Load() == 1 {
			return hello(0)(ctx, c, 0)
		}
		<-ctx.Done()
		return client.Answer{}, fmt.Errorf("%w: %w", client.ErrClosed, ctx.Err())
	}}
	r, err := runFake(t, f, Config{Connections: 2, Arrival: Constant, Rate: 1000, Duration: 500 * time.Millisecond, Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 2 || r.Unanswered != 2 || r.Dropped < 480 || r.Errors.Sum() != 0 {
		t.Errorf("%d requests, %d unanswered, %d dropped, errors %+v", r.Requests, r.Unanswered, r.Dropped, r.Errors)
	}
}
