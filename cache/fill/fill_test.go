package fill

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestJoin(t *testing.T) {
	var g Group[int]
	first, leader := g.Join("a")
	if !leader {
		t.Error("the first to come does not lead")
	}
	if f, leader := g.Join("a"); f != first || leader {
		t.Error("the second to come does not join the first")
	}
	if f, leader := g.Join("b"); f == first || !leader {
		t.Error("another key joins")
	}
	first.Settle(1)
	if f, _ := g.Join("a"); f != first {
		t.Error("a settled fill cannot be joined")
	}
	first.Detach()
	first.Detach()
	second, leader := g.Join("a")
	if second == first || !leader {
		t.Error("a detached fill can be joined")
	}
	if n := g.Running(); n != 3 {
		t.Errorf("%d running, want 3: two for a, one for b", n)
	}
	first.Finish()
	first.Finish()
	if f, leader := g.Join("a"); f != second || leader {
		t.Error("the end of a detached fill removed its successor")
	}
	second.Finish()
	if f, leader := g.Join("a"); f == second || !leader {
		t.Error("a finished fill can be joined")
	}
	if n := g.Running(); n != 2 {
		t.Errorf("%d running, want 2", n)
	}
}

func TestOutcome(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var g Group[string]
	f, _ := g.Join("a")
	if _, err := f.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a waiter whose context has ended got %v", err)
	}
	f.Settle("first")
	f.Settle("second")
	f.Finish()
	f.Settle("third")
	for _, ctx := range []context.Context{t.Context(), ended} {
		if o, err := f.Wait(ctx); o != "first" || err != nil {
			t.Errorf("the outcome is %q, %v", o, err)
		}
	}
	f, _ = g.Join("a")
	f.Finish()
	f.Settle("late")
	if o, err := f.Wait(t.Context()); o != "" || !errors.Is(err, ErrBroken) {
		t.Errorf("the outcome of a fill without one is %q, %v", o, err)
	}
}

// TestRelease: an outcome lets all who wait go at once, and those that have
// their own way to go from there go in parallel.
func TestRelease(t *testing.T) {
	const waiters = 100
	synctest.Test(t, func(t *testing.T) {
		var g Group[bool]
		f, _ := g.Join("a")
		start := time.Now()
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				if f, leader := g.Join("a"); leader {
					t.Error("there are two leaders")
				} else if cacheable, err := f.Wait(t.Context()); cacheable || err != nil {
					t.Errorf("the outcome is %v, %v", cacheable, err)
				}
				time.Sleep(300 * time.Millisecond) // to the origin, on its own
			})
		}
		time.Sleep(300 * time.Millisecond)
		f.Detach()
		f.Settle(false)
		f.Finish()
		wg.Wait()
		if took := time.Since(start); took != 600*time.Millisecond {
			t.Errorf("all have their answer after %v, want 600ms", took)
		}
	})
}

func TestUnwanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		f, _ := g.Join("a")
		f.Enter()
		ctx := f.Context(time.Second, time.Minute)
		alive := func(want bool) {
			t.Helper()
			synctest.Wait()
			if (ctx.Err() == nil) != want {
				t.Fatalf("at %v the context's error is %v", time.Now(), ctx.Err())
			}
		}
		f.Enter()
		f.Leave()
		time.Sleep(5 * time.Second) // one is still there
		alive(true)
		f.Leave()
		time.Sleep(900 * time.Millisecond)
		f.Enter() // in time
		time.Sleep(5 * time.Second)
		alive(true)
		f.Leave()
		time.Sleep(900 * time.Millisecond)
		f.Enter()
		f.Leave() // the linger begins anew
		f.lapse() // what the timer of the one before may still do
		time.Sleep(900 * time.Millisecond)
		alive(true)
		time.Sleep(101 * time.Millisecond)
		alive(false)
		if !errors.Is(context.Cause(ctx), ErrUnwanted) {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
		if f.Enter() {
			t.Error("entered a fill that has ended")
		}
		if other, leader := g.Join("a"); other == f || !leader {
			t.Error("who could not enter joins the same fill again")
		} else {
			other.Finish()
		}
		f.Finish()
	})
}

func TestUnwantedFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		f, _ := g.Join("a")
		ctx := f.Context(time.Second, 0)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("ended before the linger was over")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("goes on although nobody has ever come")
		}
		f.Finish()

		f, _ = g.Join("a")
		f.Enter()
		ctx = f.Context(0, 0)
		if ctx.Err() != nil {
			t.Error("without a linger, ended although somebody waits")
		}
		f.Leave()
		if ctx.Err() == nil {
			t.Error("without a linger, goes on although nobody waits")
		}
		f.Finish()
	})
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		f, _ := g.Join("a")
		f.Enter()
		ctx := f.Context(time.Second, time.Minute)
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if ctx.Err() != nil || !f.Enter() {
			t.Error("ended before the limit")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("at the limit the cause is %v", context.Cause(ctx))
		}
		if f.Enter() {
			t.Error("entered a fill whose time is up")
		}
		f.Finish()
	})
}

func TestFinishEndsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		f, _ := g.Join("a")
		f.Enter()
		ctx := f.Context(time.Second, time.Minute)
		f.Settle(1)
		f.Finish()
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("after Finish the context's error is %v", ctx.Err())
		}
		if !f.Enter() { // a latecomer may still read the body
			t.Error("a finished fill cannot be entered")
		}
		f.Leave()
		f.Leave()

		f, _ = g.Join("a")
		f.Finish()
		if ctx := f.Context(time.Second, time.Minute); ctx.Err() == nil {
			t.Error("the context of a finished fill is alive")
		}
		defer func() {
			if recover() == nil {
				t.Error("a Leave too many is accepted")
			}
		}()
		f.Leave()
	})
}

// TestManyJoin races joining, waiting and ending: each fetch's waiters get
// its own outcome, and nothing is left.
func TestManyJoin(t *testing.T) {
	type outcome struct{ n int }
	var group Group[outcome]
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 300 {
				f, leader := group.Join("k")
				if !f.Enter() {
					continue
				}
				if leader {
					wg.Go(func() {
						ctx := f.Context(time.Minute, time.Minute)
						if j%3 == 0 {
							f.Detach()
						}
						f.Settle(outcome{i*1000 + j})
						f.Finish()
						if ctx.Err() == nil {
							t.Error("a finished fill's context is alive")
						}
					})
				}
				if o, err := f.Wait(t.Context()); err != nil || leader && o.n != i*1000+j {
					t.Errorf("fill %d got %v, %v", i*1000+j, o, err)
				}
				f.Leave()
			}
		})
	}
	wg.Wait()
	if group.Running() != 0 || len(group.fills) != 0 {
		t.Errorf("%d are running, %d can be joined", group.Running(), len(group.fills))
	}
}
