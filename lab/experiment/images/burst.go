package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/trial"
)

const (
	// smallRate is how often a small file is asked for beside a burst, a second.
	smallRate = 200
	// smallConnections share these requests: one that waits holds up no other.
	smallConnections = 4
	// burstLimit is how long a burst's conversions may take.
	burstLimit = 3 * time.Minute
	// askEvery is how often the server is asked how many are done.
	askEvery = 250 * time.Millisecond
	// rowClients ask for the conversions in a row.
	rowClients = 2
	// noticed is how long after a change the server is asked again: it says that
	// it follows within a second.
	noticed = 2 * time.Second
)

// burst has many clients ask at once for photographs that are not converted,
// beside one that asks for a small file.
func (m *measurement) burst(ctx context.Context, slot trial.TaskSlot) (got trial.TaskResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, burstLimit)
	defer cancel()
	before, err := count(ctx, slot.Instance.URL[control])
	if err != nil {
		return got, err
	}
	alone, err := small(ctx, slot.URL, m.alone)
	if err != nil {
		return got, err
	}
	slot.Window(true)
	watched := watch(slot.Target)
	loading, loaded := context.WithCancel(ctx)
	defer loaded()
	type latency struct {
		p99 time.Duration
		err error
	}
	beside := make(chan latency, 1)
	go func() { // ends with loaded, and is waited for below
		p99, err := small(loading, slot.URL, burstLimit)
		beside <- latency{p99, err}
	}()
	began := time.Now()
	got.Values = m.askAll(ctx, slot.URL, &got)
	now, err := allDone(ctx, slot.Instance.URL[control])
	got.Values[took] = float64(time.Since(began))
	loaded()
	most, watchErr := watched()
	slot.Window(false)
	meanwhile := <-beside
	if err = errors.Join(err, watchErr, meanwhile.err); err != nil {
		return got, err
	}
	if n := now.Converted - before.Converted; n != uint64(len(m.burstImages)) {
		fail(&got, 1, fmt.Sprintf("%d photographs took %d conversions; %d failed, %d were turned away", len(m.burstImages), n, now.Failed, now.Shed))
	}
	got.Values[peak], got.Values[smallAlone], got.Values[smallBeside] = float64(most), float64(alone), float64(meanwhile.p99)
	return got, nil
}

// askAll has all clients ask at once, each for other images in turn.
func (m *measurement) askAll(ctx context.Context, url string, got *trial.TaskResult) map[string]float64 {
	values := map[string]float64{originals: 0}
	var mu sync.Mutex // guards got and values
	var clients sync.WaitGroup
	begin := make(chan struct{})
	for i := range m.clients {
		clients.Go(func() {
			client := newClient()
			defer client.CloseIdleConnections()
			<-begin
			for k := range m.each {
				start := time.Now()
				a, err := ask(ctx, client, url+m.burstImages[(i+k*7)%len(m.burstImages)])
				waited := float64(time.Since(start))
				mu.Lock()
				switch {
				case err != nil:
					fail(got, 1, err.Error())
				case a.webp:
					got.Done++
				default:
					got.Done++
					values[originals]++
				}
				values[slowest] = max(values[slowest], waited)
				mu.Unlock()
			}
		})
	}
	close(begin)
	clients.Wait()
	return values
}

// allDone waits until the server has nothing left to convert.
func allDone(ctx context.Context, socket string) (conversions, error) {
	for {
		n, err := count(ctx, socket)
		if err != nil || n.Running+n.Waiting == 0 {
			return n, err
		}
		if err := experiment.Sleep(ctx, askEvery); err != nil {
			return n, fmt.Errorf("%d conversions are done: %w", n.Converted, err)
		}
	}
}

// small asks for a small file at a fixed rate for so long, or until ctx ends.
// Latency counts from the moment at which a request was due.
func small(ctx context.Context, url string, d time.Duration) (p99 time.Duration, err error) {
	got, err := load.Run(ctx, load.Config{
		URL: url + smallFile, Connections: smallConnections, Threads: 1,
		Arrival: load.Constant, Rate: smallRate, Duration: d, Warmup: 100 * time.Millisecond,
	})
	switch {
	case got != nil && got.Requests > 0 && ctx.Err() != nil: // it was ended, as it should be
	case err != nil:
		return 0, fmt.Errorf("asking for a small file: %w", err)
	}
	if n := got.Requests - got.Status[http.StatusOK] + got.Errors.Sum(); n > 0 {
		return 0, fmt.Errorf("%d of %d requests for a small file failed: %s", n, got.Requests, got.Errors.First)
	}
	return got.Latency.Quantile(0.99), nil
}

// row has two clients ask for all crops, and again after each of them has changed.
// What is kept of an image that changes has to go, so memory is that of the first
// pass, unless something leaks.
func (m *measurement) row(ctx context.Context, slot trial.TaskSlot) (got trial.TaskResult, err error) {
	before, err := slot.Target.Read()
	if err != nil {
		return got, err
	}
	slot.Window(true)
	watched := watch(slot.Target)
	var rested []uint64
	for pass := 0; pass < m.passes && err == nil; pass++ {
		if pass > 0 {
			err = m.touch()
		}
		if err == nil {
			err = experiment.Sleep(ctx, noticed)
		}
		if err == nil {
			m.pass(ctx, slot.URL, &got)
			err = experiment.Sleep(ctx, m.idle) // until the workers have ended
		}
		now, readErr := slot.Target.Read()
		err = errors.Join(err, readErr)
		rested = append(rested, now.RSS)
	}
	slot.Window(false)
	most, watchErr := watched()
	now, readErr := slot.Target.Read()
	if err = errors.Join(err, watchErr, readErr, ctx.Err()); err != nil {
		return got, err
	}
	pixels := m.cropPixels() * float64(m.passes)
	got.Values = map[string]float64{
		peak: float64(most), after: float64(rested[len(rested)-1]), growth: float64(rested[len(rested)-1]) / float64(rested[0]),
		perMegapixel: float64(now.Sub(before).CPU) / pixels,
	}
	return got, nil
}

// touch gives all crops a time of their last change that they have not had, and
// that is long ago.
func (m *measurement) touch() error {
	m.changes++
	then := time.Now().Add(-24 * time.Hour).Add(time.Duration(m.changes) * time.Minute)
	for _, name := range m.crops {
		if err := os.Chtimes(filepath.Join(m.Site, name), then, then); err != nil {
			return fmt.Errorf("changing a picture: %w", err)
		}
	}
	return nil
}

// pass has the clients ask for each crop once.
func (m *measurement) pass(ctx context.Context, url string, got *trial.TaskResult) {
	var next atomic.Int64
	var mu sync.Mutex // guards got
	var clients sync.WaitGroup
	for range rowClients {
		clients.Go(func() {
			client := newClient()
			defer client.CloseIdleConnections()
			for i := next.Add(1) - 1; i < int64(len(m.crops)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				a, err := ask(ctx, client, url+m.crops[i])
				mu.Lock()
				switch {
				case err != nil:
					fail(got, 1, err.Error())
				case !a.webp:
					fail(got, 1, m.crops[i]+" is sent as the original: "+a.why)
				default:
					got.Done++
				}
				mu.Unlock()
			}
		})
	}
	clients.Wait()
}

// cropPixels are the megapixels of all crops.
func (m *measurement) cropPixels() (sum float64) {
	for i := range m.crops {
		w, h := cropSize(i)
		sum += float64(w*h) / 1e6
	}
	return sum
}
