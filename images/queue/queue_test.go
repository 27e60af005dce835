package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inBubble runs a test in fake time with a queue that is closed at its end.
func inBubble(t *testing.T, o Options, f func(t *testing.T, q *Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := New(o)
		defer q.Close()
		f(t, q)
	})
}

// takes is a Run that takes a while.
func takes(d time.Duration) func(context.Context, bool) (time.Duration, error) {
	return func(ctx context.Context, _ bool) (time.Duration, error) {
		select {
		case <-time.After(d):
			return d, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func submit(t *testing.T, q *Queue, j Job) *Ticket {
	t.Helper()
	ticket, err := q.Submit(j)
	if err != nil {
		t.Fatalf("%s: %v", j.Key, err)
	}
	return ticket
}

// recorder notes the keys of jobs in the order in which they start. Only for
// queues of one worker, whose jobs run one after the other.
type recorder struct{ keys []string }

func (r *recorder) job(key string, p Priority, d time.Duration) Job {
	return Job{Key: key, Priority: p, Run: func(ctx context.Context, urgent bool) (time.Duration, error) {
		r.keys = append(r.keys, key)
		return takes(d)(ctx, urgent)
	}}
}

func (r *recorder) want(t *testing.T, keys string) {
	t.Helper()
	if got := strings.Join(r.keys, " "); got != keys {
		t.Errorf("ran %s, want %s", got, keys)
	}
}

func TestUrgentFirst(t *testing.T) {
	inBubble(t, Options{Workers: 1}, func(t *testing.T, q *Queue) {
		var r recorder
		submit(t, q, r.job("first", Background, time.Second))
		submit(t, q, r.job("b1", Background, time.Second))
		submit(t, q, r.job("b2", Background, time.Second))
		submit(t, q, r.job("u1", Urgent, time.Second))
		last := submit(t, q, r.job("i1", Idle, time.Second))
		submit(t, q, r.job("u2", Urgent, time.Second))
		<-last.Done()
		r.want(t, "first u1 u2 b1 b2 i1")
	})
}

func TestIdleWaitsForQuiet(t *testing.T) {
	inBubble(t, Options{Workers: 4, Idle: 5 * time.Second}, func(t *testing.T, q *Queue) {
		began := time.Now()
		at := func(tick *Ticket) time.Duration { <-tick.Done(); return time.Since(began) }
		first := submit(t, q, Job{Key: "i1", Priority: Idle, Run: takes(time.Second)})
		second := submit(t, q, Job{Key: "i2", Priority: Idle, Run: takes(time.Second)})
		time.Sleep(4 * time.Second)
		submit(t, q, Job{Key: "b", Priority: Background, Run: takes(2 * time.Second)}) // to 6 s
		if got := at(first); got != 12*time.Second {
			t.Errorf("ended after %v, want 12 s: quiet since 6 s, 5 s of it, 1 s of work", got)
		}
		if got := at(second); got != 13*time.Second {
			t.Errorf("the second ended after %v, want 13 s: one at a time, without another wait", got)
		}
		// Nothing has happened for long: an Idle job runs at once, and asking for
		// what runs already counts as something that happens.
		third := submit(t, q, Job{Key: "i3", Priority: Idle, Run: takes(time.Second)})
		fourth := submit(t, q, Job{Key: "i4", Priority: Idle, Run: takes(time.Second)})
		if joined := submit(t, q, Job{Key: "i3", Priority: Urgent}); at(joined) != 14*time.Second || at(third) != 14*time.Second {
			t.Errorf("ended after %v, want 14 s", at(third))
		}
		if got := at(fourth); got != 20*time.Second {
			t.Errorf("the fourth ended after %v, want 20 s", got)
		}
	})
}

func TestSameKeyIsDoneOnce(t *testing.T) {
	inBubble(t, Options{Workers: 1}, func(t *testing.T, q *Queue) {
		failure := errors.New("the picture is broken")
		runs := 0
		job := Job{Key: "a", Priority: Background, Run: func(context.Context, bool) (time.Duration, error) {
			runs++
			time.Sleep(time.Second)
			return 0, failure
		}}
		waiting := submit(t, q, job)
		if waiting.Err() != nil {
			t.Error("an error before the end")
		}
		synctest.Wait()
		joined := submit(t, q, job) // it runs
		<-waiting.Done()
		<-joined.Done()
		if !errors.Is(waiting.Err(), failure) || !errors.Is(joined.Err(), failure) || runs != 1 {
			t.Errorf("%v and %v after %d runs", waiting.Err(), joined.Err(), runs)
		}
		<-submit(t, q, job).Done()
		if runs != 2 {
			t.Errorf("%d runs: what has ended is no more to be joined", runs)
		}
		if s := q.Stats(); s.Joined != 1 || s.Failed != 2 || s.Done != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestJoiningMakesUrgent(t *testing.T) {
	inBubble(t, Options{Workers: 1}, func(t *testing.T, q *Queue) {
		var r recorder
		var urgent bool
		submit(t, q, r.job("first", Urgent, time.Second))
		submit(t, q, r.job("u1", Urgent, time.Second))
		last := submit(t, q, r.job("b1", Background, time.Second))
		submit(t, q, Job{Key: "i1", Priority: Idle, Run: func(_ context.Context, u bool) (time.Duration, error) {
			urgent = u
			r.keys = append(r.keys, "i1")
			return 0, nil
		}})
		joined := submit(t, q, Job{Key: "i1", Priority: Urgent})
		submit(t, q, Job{Key: "i1", Priority: Background}) // takes no urgency away
		submit(t, q, r.job("u2", Urgent, time.Second))
		<-joined.Done()
		if !urgent {
			t.Error("the job does not know that a client waits by now")
		}
		<-last.Done()
		r.want(t, "first u1 i1 u2 b1")
	})
}

func TestMemory(t *testing.T) {
	inBubble(t, Options{Workers: 4, Memory: 100}, func(t *testing.T, q *Queue) {
		if _, err := q.Submit(Job{Key: "huge", Memory: 101}); !errors.Is(err, ErrTooBig) {
			t.Errorf("%v, want ErrTooBig", err)
		}
		job := func(key string, memory int64) Job {
			return Job{Key: key, Memory: memory, Run: takes(time.Second)}
		}
		submit(t, q, job("half", 60))
		big := submit(t, q, job("all", 100))
		small := submit(t, q, job("small", 40))
		if s := q.Stats(); s.Running != 2 || s.Memory != 100 || s.Waiting != 1 {
			t.Errorf("%+v: what fits may pass what does not", s)
		}
		<-small.Done()
		synctest.Wait()
		if s := q.Stats(); s.Running != 1 || s.Memory != 100 {
			t.Errorf("%+v: now the large one", s)
		}
		<-big.Done()
		if s := q.Stats(); s.Running != 0 || s.Memory != 0 {
			t.Errorf("%+v: all has ended", s)
		}
	})
}

// A stream of small jobs that overlap never leaves room for a large one.
func TestSmallJobsDoNotStarveLargeOnes(t *testing.T) {
	inBubble(t, Options{Workers: 2, Memory: 100}, func(t *testing.T, q *Queue) {
		small := func(i int) Job {
			return Job{Key: fmt.Sprint("small ", i), Memory: 50, Run: takes(time.Second)}
		}
		submit(t, q, small(0))
		large := submit(t, q, Job{Key: "large", Memory: 100, Run: takes(time.Second)})
		for i := 1; ; i++ {
			time.Sleep(500 * time.Millisecond)
			select {
			case <-large.Done():
				if passed := q.Stats().Done - 2; passed != maxPassed {
					t.Errorf("passed %d times, want %d", passed, maxPassed)
				}
				return
			default:
			}
			if i > 100 {
				t.Fatal("the large job is kept out")
			}
			submit(t, q, small(i))
		}
	})
}

func TestReserve(t *testing.T) {
	inBubble(t, Options{Workers: 3, Reserve: 1}, func(t *testing.T, q *Queue) {
		job := func(key string, p Priority, d time.Duration) Job {
			return Job{Key: key, Priority: p, Class: "x", Megapixels: d.Seconds(), Run: takes(d)}
		}
		<-submit(t, q, job("first", Urgent, time.Second)).Done()
		for _, key := range []string{"b1", "b2", "b3"} {
			submit(t, q, job(key, Background, 10*time.Second))
		}
		if s := q.Stats(); s.Running != 2 || s.Waiting != 1 {
			t.Errorf("%+v: one worker is for clients", s)
		}
		u1, u2 := job("u1", Urgent, time.Second), job("u2", Urgent, time.Second)
		if d, ok := q.Predict(u1); !ok || d != time.Second {
			t.Errorf("%v (%v), want 1 s", d, ok)
		}
		if d, ok := q.Predict(job("b4", Background, time.Second)); !ok || d != 11*time.Second {
			t.Errorf("%v (%v), want 11 s", d, ok)
		}
		submit(t, q, u1)
		if d, ok := q.Predict(u2); !ok || d != 2*time.Second {
			t.Errorf("%v (%v), want 2 s", d, ok)
		}
		ticket := submit(t, q, u2)
		began := time.Now()
		<-ticket.Done()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %v, want 2 s", took)
		}
		<-submit(t, q, job("b3", Background, 0)).Done()
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("the last took %v, want 20 s", took)
		}
	})
	q := New(Options{Workers: 1, Reserve: 5})
	defer q.Close()
	<-submit(t, q, Job{Key: "a", Priority: Background, Run: takes(0)}).Done() // somebody must do it
}

func TestShedding(t *testing.T) {
	inBubble(t, Options{Workers: 1, Depth: 2}, func(t *testing.T, q *Queue) {
		job := func(key string, p Priority) Job {
			return Job{Key: key, Priority: p, Run: takes(time.Second)}
		}
		submit(t, q, job("runs", Urgent))
		idle1 := submit(t, q, job("i1", Idle))
		idle2 := submit(t, q, job("i2", Idle))
		if _, err := q.Submit(job("i3", Idle)); !errors.Is(err, ErrFull) {
			t.Errorf("a third Idle job: %v", err)
		}
		behind := submit(t, q, job("b1", Background))
		<-idle2.Done() // the newest goes first
		if !errors.Is(idle2.Err(), ErrFull) || idle1.Err() != nil {
			t.Errorf("%v, %v", idle2.Err(), idle1.Err())
		}
		submit(t, q, job("u1", Urgent))
		<-idle1.Done()
		if _, err := q.Submit(job("b2", Background)); !errors.Is(err, ErrFull) {
			t.Errorf("a Background job among Urgent and Background ones: %v", err)
		}
		if _, err := q.Submit(job("b1", Background)); err != nil {
			t.Errorf("joining needs no place: %v", err)
		}
		submit(t, q, job("u2", Urgent))
		<-behind.Done()
		if !errors.Is(behind.Err(), ErrFull) {
			t.Error(behind.Err())
		}
		if _, err := q.Submit(job("u3", Urgent)); !errors.Is(err, ErrFull) {
			t.Errorf("nothing is left to give up: %v", err)
		}
		if s := q.Stats(); s.Shed != 6 || s.Waiting != 2 || s.Running != 1 {
			t.Errorf("%+v", s)
		}
		again := submit(t, q, job("u1", Background)) // what was given up may come again, this one was not
		<-again.Done()
		<-submit(t, q, job("i2", Background)).Done()
	})
}

func TestPanic(t *testing.T) {
	inBubble(t, Options{Workers: 1}, func(t *testing.T, q *Queue) {
		bad := submit(t, q, Job{Key: "bad", Run: func(context.Context, bool) (time.Duration, error) { panic("index out of range") }})
		<-bad.Done()
		if err := bad.Err(); !errors.Is(err, ErrPanicked) || !strings.Contains(err.Error(), "index out of range") || !strings.Contains(err.Error(), "queue_test.go") {
			t.Errorf("%v: want what happened, and where", err)
		}
		good := submit(t, q, Job{Key: "good", Run: takes(time.Second)})
		<-good.Done()
		if good.Err() != nil {
			t.Errorf("the worker is lost: %v", good.Err())
		}
	})
}

func TestTimeout(t *testing.T) {
	inBubble(t, Options{Workers: 1, Timeout: 3 * time.Second}, func(t *testing.T, q *Queue) {
		began := time.Now()
		endless := submit(t, q, Job{Key: "endless", Run: takes(time.Hour)})
		<-endless.Done()
		if !errors.Is(endless.Err(), context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", endless.Err(), time.Since(began))
		}
	})
}

// TestTooLong: what would be ended by the limit is not begun, once that can be
// known.
func TestTooLong(t *testing.T) {
	inBubble(t, Options{Workers: 1, Timeout: time.Minute}, func(t *testing.T, q *Queue) {
		job := func(key string, megapixels float64, guess time.Duration) Job {
			return Job{Key: key, Class: "animation", Megapixels: megapixels, Guess: guess, Run: takes(time.Duration(megapixels) * time.Second)}
		}
		if _, err := q.Submit(job("guessed", 70, 31*time.Second)); !errors.Is(err, ErrTooLong) {
			t.Errorf("twice the guess is too long: %v", err)
		}
		<-submit(t, q, job("short", 10, 29*time.Second)).Done()
		if _, err := q.Submit(job("learned", 61, time.Second)); !errors.Is(err, ErrTooLong) {
			t.Errorf("61 s by what is known: %v", err)
		}
		<-submit(t, q, job("no longer guessed", 50, 40*time.Second)).Done()
		<-submit(t, q, job("tried", 300, 0)).Done() // one without a guess
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Workers: 1})
		ended := false
		running := submit(t, q, Job{Key: "runs", Run: func(ctx context.Context, _ bool) (time.Duration, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return 0, ctx.Err()
		}})
		waiting := submit(t, q, Job{Key: "waits", Run: takes(time.Second)})
		idle := submit(t, q, Job{Key: "idle", Priority: Idle, Run: takes(time.Second)})
		synctest.Wait()
		q.Close()
		if !ended {
			t.Error("Close does not wait for what runs")
		}
		for _, c := range []struct {
			ticket *Ticket
			want   error
		}{{running, context.Canceled}, {waiting, ErrClosed}, {idle, ErrClosed}} {
			<-c.ticket.Done()
			if !errors.Is(c.ticket.Err(), c.want) {
				t.Errorf("%v, want %v", c.ticket.Err(), c.want)
			}
		}
		if _, err := q.Submit(Job{Key: "late"}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, ok := q.Predict(Job{Key: "late"}); ok {
			t.Error("a prediction of what will never run")
		}
		q.Close()
	})
}

// What was handed to a worker that had no time to take it is not started after
// Close.
func TestCloseAtOnce(t *testing.T) {
	for range 100 {
		q := New(Options{Workers: 2})
		var tickets []*Ticket
		for _, key := range []string{"a", "b", "c", "d"} {
			tickets = append(tickets, submit(t, q, Job{Key: key, Run: func(ctx context.Context, _ bool) (time.Duration, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}}))
		}
		q.Close()
		for _, ticket := range tickets {
			<-ticket.Done()
			if err := ticket.Err(); !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
	}
}

func TestDefaults(t *testing.T) {
	q := New(Options{})
	defer q.Close()
	if q.o.Workers < 1 || q.o.Memory != 512<<20 || q.o.Depth != 1000 || q.o.Idle != 5*time.Second || q.o.Timeout != time.Minute {
		t.Errorf("%+v", q.o)
	}
	done := submit(t, q, Job{Key: "a", Memory: -5, Priority: 77, Run: takes(0)})
	joined := submit(t, q, Job{Key: "a", Priority: Urgent, Run: takes(0)})
	<-done.Done()
	<-joined.Done()
	if s := q.Stats(); s.Running != 0 || s.Waiting != 0 || s.Memory != 0 {
		t.Errorf("%+v", s)
	}
}
