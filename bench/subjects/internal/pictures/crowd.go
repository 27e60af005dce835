package pictures

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/metrics"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
	"millrace/lab/load"
)

const (
	// smallFile is what is asked for all the time, smallSize its bytes.
	smallFile = "small.txt"
	smallSize = 501
	// crowdFrom are the megapixels that a picture of the crowd has at least.
	crowdFrom = 4
	// crowdLimit is how long a crowd's conversions may take.
	crowdLimit = 3 * time.Minute
	// crowdLook is how often memory is read meanwhile.
	crowdLook = 20 * time.Millisecond
	// askEvery is how often the server is asked how many are done.
	askEvery = 250 * time.Millisecond
)

// crowds has many clients ask each engine at once for photographs that are not
// converted.
func (r *runner) crowds(ctx context.Context) error {
	site := filepath.Join(r.Places.Temp, "crowd")
	var files []string
	for _, p := range r.found.Photos {
		if p.Megapixels >= crowdFrom {
			files = append(files, filepath.Join(r.site, p.Name))
		}
	}
	if len(files) == 0 {
		return errors.New("no photograph is large enough")
	}
	names, err := spread(site, files, r.plan.Crowd, "photo")
	if err != nil {
		return err
	}
	if err := writeOld(filepath.Join(site, smallFile), make([]byte, smallSize)); err != nil {
		return err
	}
	for _, a := range r.plan.engines() {
		got, err := r.crowd(ctx, a, site, names)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		r.found.Crowds = append(r.found.Crowds, got)
		r.Meter.Step(crowdGuess+r.plan.Idle, "%d clients, %-17s %d conversions in %.1f s, workers at most %.0f MB of %d; a small file's p99 %v, idle %v", got.Clients, a.Name,
			got.Converted, got.Took.Seconds(), mega(got.Workers), r.plan.Budget, got.During.P99.Round(10*time.Microsecond), got.Idle.P99.Round(10*time.Microsecond))
	}
	return nil
}

// crowd is one engine under its crowd. Visitors wait as long as they do by
// default, and get the original when the conversion takes longer.
func (r *runner) crowd(ctx context.Context, a arm.Arm, site string, names []string) (got record.Crowd, err error) {
	server, err := r.start(ctx, a, site, arm.Images{Memory: r.plan.Budget})
	if err != nil {
		return got, err
	}
	defer server.Stop()
	got = record.Crowd{
		Arm: a.Name, Clients: r.plan.Clients, Pictures: len(names), Requests: r.plan.Clients * r.plan.Each,
		Budget: uint64(r.plan.Budget) << 20, Rate: smallRate,
	}
	if got.Idle, err = small(ctx, server, r.plan.Idle); err != nil {
		return got, err
	}
	w, err := watch(server, crowdLook)
	if err != nil {
		return got, err
	}
	ctx, cancel := context.WithTimeout(ctx, crowdLimit)
	defer cancel()
	loading, loaded := context.WithCancel(ctx)
	defer loaded()
	type latency struct {
		record.Latency
		err error
	}
	measured := make(chan latency, 1)
	go func() { // ends with loaded, which is called below; waited for there
		l, err := small(loading, server, crowdLimit)
		measured <- latency{l, err}
	}()
	start := time.Now()
	r.ask(ctx, server, names, &got)
	err = r.allDone(ctx, server, &got)
	got.Took = time.Since(start)
	loaded()
	all, meanwhile := w.stop(), <-measured
	if err = errors.Join(err, meanwhile.err, all.err); err != nil {
		return got, err
	}
	got.During = meanwhile.Latency
	got.Peak, got.Workers = all.peak(), all.workers
	return got, server.Alive()
}

// ask has all clients ask at once, each for other pictures in turn.
func (r *runner) ask(ctx context.Context, server *arm.Running, names []string, got *record.Crowd) {
	var mu sync.Mutex // guards got
	var clients sync.WaitGroup
	begin := make(chan struct{})
	for i := range r.plan.Clients {
		clients.Go(func() {
			client := server.Client("tcp")
			client.Timeout = visit + 10*time.Second
			client.Transport.(*http.Transport).MaxConnsPerHost = 1
			defer client.CloseIdleConnections()
			<-begin
			for k := range r.plan.Each {
				start := time.Now()
				answer, err := ask(ctx, client, server.URL("/"+names[(i+k*7)%len(names)]))
				took := time.Since(start)
				mu.Lock()
				switch {
				case err != nil:
					got.Failed++
				case answer.webp:
					got.Variants++
				default:
					got.Originals++
				}
				got.Slowest = max(got.Slowest, took)
				mu.Unlock()
			}
		})
	}
	close(begin)
	clients.Wait()
}

// allDone waits until the server has converted all, or gives up some.
func (r *runner) allDone(ctx context.Context, server *arm.Running, got *record.Crowd) error {
	for {
		n, err := metrics.ReadImages(ctx, server.Env.Admin())
		if err != nil {
			return err
		}
		got.Converted, got.Broken, got.Shed = n.Converted, n.Failed, n.Shed
		if n.Running+n.Waiting == 0 {
			return nil
		}
		if err := stage.Sleep(ctx, askEvery); err != nil {
			return fmt.Errorf("%d of %d conversions are done: %w", n.Converted, got.Pictures, err)
		}
	}
}

// small asks for a small file at a fixed rate for so long, or until ctx ends. The
// generator is the lab's, on a thread of its own; latency counts from the moment
// at which a request was due.
func small(ctx context.Context, server *arm.Running, d time.Duration) (record.Latency, error) {
	res, err := stage.Apart(func() (*load.Result, error) {
		res, err := load.Run(ctx, load.Config{
			URL: server.URL("/" + smallFile), Connections: smallConnections, Threads: 1,
			Arrival: load.Constant, Rate: smallRate, Duration: d, Warmup: 200 * time.Millisecond,
		})
		if res != nil && res.Requests > 0 && ctx.Err() != nil {
			err = nil // it was ended, as it should be
		}
		return res, err
	})
	if err != nil {
		return record.Latency{}, fmt.Errorf("asking for a small file: %w", err)
	}
	failed := res.Errors.Sum() + res.Dropped
	for status, n := range res.Status {
		if status != http.StatusOK {
			failed += n
		}
	}
	return record.Latency{
		Requests: res.Requests, Failed: failed, Late: res.Late,
		P50: res.Latency.Quantile(0.5), P99: res.Latency.Quantile(0.99), Max: res.Latency.Max(),
	}, nil
}
