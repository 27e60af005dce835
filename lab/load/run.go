package load

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoAnswer is what Run's error wraps when not one request was answered: the
// target cannot be reached, refuses, or says nothing.
var ErrNoAnswer = errors.New("nothing was answered")

const (
	// tickEvery is how often progress is told.
	tickEvery = 250 * time.Millisecond
	// maxTicks bounds Result.Ticks: in runs longer than a quarter of an hour
	// there are fewer in a second.
	maxTicks = 4096
	// openGrace is how long the load waits for connections that are neither
	// opened nor refused.
	openGrace = 5 * time.Second
)

// A driver is one of the two ways to make load. Run's goroutine alone calls it.
type driver interface {
	// open opens the connections, and returns when each was tried once, or it
	// is clear that none can be opened.
	open(ctx context.Context) error
	// begin lets the requests begin.
	begin()
	// cut returns what was counted since the cut before, and the state now. The
	// tally is the caller's until the next cut.
	cut(cutReason) *tally
	// full is sent to when as many requests were answered as the plan wants.
	full() <-chan struct{}
	// stop ends the load and closes the connections.
	stop() ending
}

// A cutReason is why a cut is made.
type cutReason uint8

const (
	tickOver     cutReason = iota
	windowOpens            // requests count from now
	windowCloses           // no more requests from now
)

// An ending is what a driver knows when all is over.
type ending struct {
	connect Histogram
	answers []Answer // by path
	changed uint64   // first answers that differ between threads, where they must not
	gaps    []span   // of a closed loop: stretches of the window without an answer
	err     error    // why it could not go on
}

// Run puts a load on the target, and returns when the window has closed or ctx
// ended. It first opens all connections; a target that lets none of them in
// ends it at once. Then the load begins, and after the warm-up the window opens.
//
// The result is nil only if cfg is wrong (the error is then that of
// [Config.Check]). An error beside a result says why it is not the whole that
// was asked for: it wraps ErrNoAnswer, or ctx's cause if ctx ended.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	p, err := cfg.plan()
	if err != nil {
		return nil, err
	}
	p.base = time.Now()
	r := &run{plan: p, total: newTally(p), result: &Result{Protocol: p.Protocol, Path: "goroutines", Status: map[int]uint64{}}}
	if p.fast {
		r.result.Path = "epoll"
	}
	if r.driver, err = newDriver(ctx, p); err != nil {
		return r.result, fmt.Errorf("prepare the load on %s: %w", p.URL, err)
	}
	return r.result, r.execute(ctx)
}

func newDriver(ctx context.Context, p *plan) (driver, error) {
	if !p.fast {
		return newSlow(p)
	}
	if err := p.resolve(ctx); err != nil {
		return nil, err
	}
	return newEpoll(p)
}

// A run is one call of Run.
type run struct {
	*plan
	driver driver
	result *Result

	opened   time.Time // the window; planned, until it has
	inWindow bool
	cutAt    time.Time // the last cut
	answered uint64    // of the whole run
	first    string    // error of the whole run
	total    *tally    // of the window
}

// execute does all but choose the driver.
func (r *run) execute(ctx context.Context) error {
	err := r.driver.open(ctx)
	if err == nil {
		t := r.driver.cut(tickOver)
		r.note(t)
		switch {
		case t.open > 0:
			r.conduct(ctx)
		case r.first == "":
			err = fmt.Errorf("%w: no connection was let in within %v: is the address right, and no firewall in between?", ErrNoAnswer, openGrace)
		}
	}
	end := r.driver.stop()
	r.finish(&end)
	return r.verdict(ctx, errors.Join(err, end.err))
}

// conduct leads the load through warm-up and window.
func (r *run) conduct(ctx context.Context) {
	ticker := time.NewTicker(max(tickEvery, r.Duration/maxTicks))
	defer ticker.Stop()
	r.cutAt = time.Now()
	r.opened = r.cutAt.Add(r.Warmup)
	if r.Warmup > 0 {
		r.driver.begin()
		r.wait(ctx, ticker, r.Warmup)
	}
	if ctx.Err() != nil {
		return
	}
	// The target's counters are read just before ours at both ends, so that
	// both stretches are equally long.
	if r.Window != nil {
		r.Window(true)
	}
	r.take(r.driver.cut(windowOpens))
	r.inWindow, r.opened = true, time.Now()
	if r.Warmup == 0 {
		r.driver.begin()
	}
	r.wait(ctx, ticker, r.Duration)
	if r.Window != nil {
		r.Window(false)
	}
	r.take(r.driver.cut(windowCloses))
}

// wait lets the load run for a time, or until ctx or the requests end.
func (r *run) wait(ctx context.Context, ticker *time.Ticker, d time.Duration) {
	if d == 0 {
		return
	}
	end := time.NewTimer(d)
	defer end.Stop()
	for {
		select {
		case <-ticker.C:
			r.take(r.driver.cut(tickOver))
		case <-end.C:
			return
		case <-r.driver.full():
			return
		case <-ctx.Done():
			return
		}
	}
}

// note remembers what counts of every cut, in the window or before.
func (r *run) note(t *tally) {
	r.answered += t.requests
	if r.first == "" {
		r.first = t.errors.First
	}
	if !r.inWindow && t.errors.Connect > 0 {
		r.total.errors.add(&Errors{Connect: t.errors.Connect, First: t.errors.First})
	}
}

// take adds a cut to what it belongs to, and tells of it.
func (r *run) take(t *tally) {
	r.note(t)
	if r.inWindow {
		r.total.follow(t)
	}
	now := time.Now()
	tick := t.tick(now.Sub(r.opened), now.Sub(r.cutAt))
	r.cutAt = now
	if r.inWindow && len(r.result.Ticks) < 2*maxTicks { // twice: tickers are not exact
		r.result.Ticks = append(r.result.Ticks, tick)
	}
	if r.Progress != nil {
		r.Progress(tick)
	}
}

// tick is a tally as one Tick.
func (t *tally) tick(at, length time.Duration) Tick {
	tick := Tick{
		At: at, Length: length, Requests: t.requests, Bytes: t.bytes, Errors: t.errors,
		Mean: t.latency.Mean(), P50: t.latency.Quantile(0.5), P90: t.latency.Quantile(0.9), P99: t.latency.Quantile(0.99), Max: t.latency.Max(),
		CPU: t.cpu.user + t.cpu.system, Open: t.open,
	}
	if length > 0 {
		tick.Rate = float64(t.requests) / length.Seconds()
	}
	return tick
}

// finish fills the result.
func (r *run) finish(end *ending) {
	t, res := r.total, r.result
	res.Took = t.took / time.Duration(r.Threads)
	res.Requests, res.Bytes, res.Body = t.requests, t.bytes, t.body
	for status, n := range t.status {
		if n > 0 {
			res.Status[status] = n
		}
	}
	res.Errors = t.errors
	res.Errors.Unexpected += end.changed
	res.Latency, res.Service = t.latency, t.service
	if r.Arrival == Closed {
		res.Service = t.latency
		r.findHoles(end.gaps)
	}
	res.Connect = end.connect
	if t.took > 0 {
		res.InFlight = float64(t.requestTime) / float64(res.Took)
	}
	res.Unanswered, res.Late, res.Dropped, res.Varied, res.Non2xx = t.flying, t.late, t.dropped, t.varied, t.non2xx
	res.Rest = time.Duration(t.rest)
	res.Steps = t.steps
	for i := range res.Steps {
		res.Steps[i].Name = r.steps[i].name
	}
	res.CPUUser, res.CPU, res.Instructions = t.cpu.user, t.cpu.user+t.cpu.system, t.cpu.instructions
	res.Answers = end.answers
}

// findHoles fills in how regularly a closed loop asked.
func (r *run) findHoles(silent []span) {
	res := r.result
	if res.Requests == 0 {
		return
	}
	places := uint64(r.Connections) * uint64(max(1, r.Streams)) // neither is negative
	res.Interval = time.Duration(uint64(res.Took) * places / res.Requests)
	res.Holes = holes(silent, int64(r.opened.Sub(r.base)), res.Interval)
}

// verdict is Run's error.
func (r *run) verdict(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the load on %s was ended early: %w", r.URL, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("load on %s: %w", r.URL, err)
	case r.answered == 0 && r.first == "":
		return fmt.Errorf("load on %s: %w in %v, and there was no error: give it longer, if it is that slow", r.URL, ErrNoAnswer, r.Warmup+r.Duration)
	case r.answered == 0 && r.total.errors.Sum() == r.total.errors.Connect:
		return fmt.Errorf("load on %s: %w: %s: is the server running there?", r.URL, ErrNoAnswer, r.first)
	case r.answered == 0:
		return fmt.Errorf("load on %s: %w; the first error: %s", r.URL, ErrNoAnswer, r.first)
	}
	return nil
}
