package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/client"
	"millrace/bench/subjects/internal/origin"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
)

const (
	// hands is how many connections ask for new answers: enough to keep two
	// cores busy.
	hands = 16
	// looksAt is how many bodies are let through for one that is compared.
	looksAt = 64
	// mayFail is how many requests of a flood may fail before it is given up.
	mayFail = 1000
)

// A flood asks for many objects, each once, as fast as they come.
type flood struct {
	address string
	object  func(i uint64) origin.Object
	version uint64
	from    uint64    // the first
	count   uint64    // how many at least
	until   time.Time // and until when at least

	done   *atomic.Uint64 // answers of this and other floods; may be nil
	failed atomic.Uint64
	next   atomic.Uint64
}

// run floods. What fails is counted; a wrong answer is an error.
func (f *flood) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup // of so many hands
	for range hands {
		all.Go(func() {
			if err := f.ask(ctx); err != nil {
				stop(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// ask is one connection's part.
func (f *flood) ask(ctx context.Context) error {
	var c *client.Client
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	for ctx.Err() == nil {
		n := f.next.Add(1) - 1
		if n >= f.count && time.Now().After(f.until) {
			return nil
		}
		if c == nil {
			var err error
			if c, err = client.Dial(ctx, "tcp", f.address); err != nil {
				return err
			}
		}
		o := f.object(f.from + n)
		a, err := c.Get(o.Target())
		if err != nil || a.Status != http.StatusOK {
			if f.failed.Add(1) > mayFail {
				return errors.Join(fmt.Errorf("more than %d requests failed; the last one: status %d", mayFail, a.Status), err)
			}
			c.Close()
			c = nil
			continue
		}
		if len(a.Body) != max(o.Size, origin.MinSize) || n%looksAt == 0 && !bytes.Equal(a.Body, o.Body(f.version)) {
			return fmt.Errorf("the answer to %s is not the API's: %d bytes, %.80q", o.Target(), len(a.Body), a.Body)
		}
		if f.done != nil {
			f.done.Add(1)
		}
	}
	return nil
}

// floods watches the memory of caches that are asked for ever other URLs.
func (r *runner) floods(ctx context.Context) error {
	for _, a := range r.plan.flooded() {
		got, err := r.flood(ctx, a)
		if err != nil {
			return fmt.Errorf("asking %s for ever other URLs: %w", a.Name, err)
		}
		r.Run.Floods = append(r.Run.Floods, got)
		most := uint64(0)
		for _, m := range got.Readings {
			most = max(most, m.RSS)
		}
		r.Meter.Step(r.plan.floodTime(), "%d URLs in %v: %s holds at most %.0f MB of a budget of %.0f, %d failed",
			got.Done, got.Took.Round(time.Second), a.Name, float64(most)/1e6, float64(got.Budget)/1e6, got.Failed)
	}
	return nil
}

// flood asks a cache of its own for as many URLs as planned, and then for
// others as long as planned.
func (r *runner) flood(ctx context.Context, a arm.Arm) (record.Flood, error) {
	server, err := r.StartOne(ctx, a, a.Name+"-flood", arm.Env{Upstream: r.api.Address(), Memory: floodMemory})
	if err != nil {
		return record.Flood{}, err
	}
	defer server.Stop()
	before := r.api.Requests()
	var done atomic.Uint64
	object := func(i uint64) origin.Object {
		return origin.Object{Path: "/url/" + strconv.FormatUint(i, 10), Size: floodSize}
	}
	got := record.Flood{Arm: a.Name, Budget: floodMemory << 20, Size: floodSize, URLs: r.plan.URLs}
	watch := stage.WatchMemory(server, done.Load)
	began := time.Now()
	first := flood{address: server.Env.Address, object: object, count: r.plan.URLs, done: &done}
	err = first.run(ctx)
	got.Filled = time.Since(began)
	then := flood{address: server.Env.Address, object: object, from: r.plan.URLs + hands, until: time.Now().Add(r.plan.Hold), done: &done}
	if err == nil {
		err = then.run(ctx)
	}
	got.Took = time.Since(began)
	readings, werr := watch.Stop()
	got.Readings, got.Done = readings, done.Load()
	got.Failed, got.Reached = first.failed.Load()+then.failed.Load(), r.api.Requests()-before
	return got, errors.Join(err, werr, server.Alive())
}
