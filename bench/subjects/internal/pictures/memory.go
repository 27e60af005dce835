package pictures

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/metrics"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
	used "millrace/lab/record"
)

// memory watches each engine while it converts the folder, and in a thousand
// conversions in a row.
func (r *runner) memory(ctx context.Context) error {
	for _, a := range r.plan.engines() {
		if err := r.timeline(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	small, files := filepath.Join(r.Places.Temp, "small"), []string{}
	for _, p := range r.found.Photos {
		files = append(files, filepath.Join(r.site, p.Name))
	}
	crops, err := stage.Apart(func() ([]string, error) { return makeSmall(small, files, r.plan.Crop) })
	if err != nil {
		return err
	}
	for _, a := range r.plan.engines() {
		if err := r.row(ctx, a, small, crops); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return nil
}

// watcher reads a server and its workers at short intervals.
type watcher struct {
	server *arm.Running
	tree   *used.Target
	began  time.Time
	first  time.Duration // CPU at the start
	done   atomic.Int64  // conversions so far
	quit   chan struct{}
	ended  chan watched
}

type watched struct {
	readings []record.ImageUse
	workers  uint64 // the most RSS of the workers together
	err      error
}

// watch begins; stop ends it.
func watch(server *arm.Running, every time.Duration) (*watcher, error) {
	tree, err := used.Open(server.PID())
	if err != nil {
		return nil, err
	}
	w := &watcher{server: server, tree: tree, began: time.Now(), quit: make(chan struct{}), ended: make(chan watched, 1)}
	now, err := tree.Read()
	if err != nil {
		tree.Close() //nolint:errcheck // it only read
		return nil, err
	}
	w.first = now.CPU
	go func() { // ends with stop, which waits for it
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		var all watched
		for {
			use, err := w.read()
			if err != nil {
				all.err = err
				break
			}
			all.readings = append(all.readings, use)
			all.workers = max(all.workers, use.All-use.Server)
			select {
			case <-w.quit:
			case <-ticker.C:
				continue
			}
			break
		}
		w.ended <- all
	}()
	return w, nil
}

// read is one reading.
func (w *watcher) read() (u record.ImageUse, err error) {
	now, err := w.tree.Read()
	if err != nil {
		return u, err
	}
	alone, err := proc.ReadRSS(w.server.PID())
	if err != nil {
		return u, err
	}
	return record.ImageUse{
		At: now.At.Sub(w.began), Done: int(w.done.Load()), CPU: now.CPU - w.first,
		// Read one after the other: the sum is never less than its part.
		Server: alone, All: max(now.RSS, alone),
	}, nil
}

func (w *watcher) stop() watched {
	close(w.quit)
	all := <-w.ended
	w.tree.Close() //nolint:errcheck // it only read
	return all
}

// peak is the most of each.
func (w watched) peak() (p record.ImageUse) {
	for _, u := range w.readings {
		p.Server, p.All = max(p.Server, u.Server), max(p.All, u.All)
	}
	return p
}

const (
	// lookEvery is how often a server is read while it converts.
	lookEvery = 50 * time.Millisecond
	// rowEvery is how often in a row of conversions, which takes a minute.
	rowEvery = 250 * time.Millisecond
	// lead is what a chart shows before the first request.
	lead = time.Second
)

// timeline converts the folder once more with an eye on CPU and memory; reading
// them often costs some CPU, so the CPU of the part convert is not from here.
func (r *runner) timeline(ctx context.Context, a arm.Arm) error {
	server, err := r.start(ctx, a, r.site, arm.Images{Wait: visit})
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := stage.Sleep(ctx, rest); err != nil { // the start's worker has ended
		return err
	}
	got := record.Timeline{Arm: a.Name, Photos: len(r.found.Photos), Settled: rest}
	alone := []int{server.PID()}
	if got.Before, err = proc.ReadMemory(alone); err != nil {
		return err
	}
	w, err := watch(server, lookEvery)
	if err != nil {
		return err
	}
	took, err := stage.Apart(func() (time.Duration, error) { return r.oneByOne(ctx, server, w) })
	all := w.stop()
	if err != nil {
		return err
	}
	if all.err != nil {
		return all.err
	}
	got.Took, got.Readings = took, all.readings
	if got.Server, err = proc.ReadMemory(alone); err != nil {
		return err
	}
	if got.Anonymous, err = proc.ReadAnonymous(server.PID()); err != nil {
		return err
	}
	family, err := proc.Family(server.PID())
	if err != nil {
		return err
	}
	got.Workers = len(family) - 1
	r.found.Timelines = append(r.found.Timelines, got)
	p := all.peak()
	r.Meter.Step(2*folderGuess+rest, "watched %-17s at most %.1f MB, with its workers %.1f MB; %v after the last answer %.1f MB",
		a.Name, mega(p.Server), mega(p.All), rest, mega(got.Server.RSS))
	return nil
}

func mega(bytes uint64) float64 { return float64(bytes) / 1e6 }

// oneByOne asks for all photographs, and lets the server rest at the end.
func (r *runner) oneByOne(ctx context.Context, server *arm.Running, w *watcher) (took time.Duration, err error) {
	if err := stage.Sleep(ctx, lead); err != nil {
		return 0, err
	}
	client := server.Client("tcp")
	client.Timeout = visit + 10*time.Second
	start := time.Now()
	for _, p := range r.found.Photos {
		if _, err := ask(ctx, client, server.URL("/"+p.Name)); err != nil {
			return 0, err
		}
		w.done.Add(1)
	}
	took = time.Since(start)
	client.CloseIdleConnections()
	return took, stage.Sleep(ctx, rest)
}

// row has two clients ask for so many conversions: for all pictures, and again
// and again after each of them has changed. What is kept of a picture that
// changes has to go, so memory is that of the first time, unless something leaks.
func (r *runner) row(ctx context.Context, a arm.Arm, site string, files []string) error {
	server, err := r.start(ctx, a, site, arm.Images{Wait: visit})
	if err != nil {
		return err
	}
	defer server.Stop()
	w, err := watch(server, rowEvery)
	if err != nil {
		return err
	}
	got := record.Thousand{Arm: a.Name, Distinct: len(files)}
	var failed atomic.Int64
	start := time.Now()
	for pass := 0; got.Asked < r.plan.Row && err == nil; pass++ {
		if err = touch(files, pass); err == nil {
			err = stage.Sleep(ctx, noticed)
		}
		if err == nil {
			_, err = stage.Apart(func() (struct{}, error) { return struct{}{}, r.pass(ctx, server, files, w, &failed) })
		}
		got.Asked += len(files)
	}
	got.Took, got.Failed = time.Since(start), int(failed.Load())
	all := w.stop()
	if err != nil {
		return err
	}
	if all.err != nil {
		return all.err
	}
	got.Readings = all.readings
	counted, err := metrics.ReadImages(ctx, server.Env.Admin())
	if err != nil {
		return err
	}
	got.Counted = counted.Converted
	r.found.Thousands = append(r.found.Thousands, got)
	p := all.peak()
	r.Meter.Step(rowGuess, "%d in a row, %-17s %.0f s, %d failed, at most %.1f MB, with its workers %.1f MB",
		got.Asked, a.Name, got.Took.Seconds(), got.Failed, mega(p.Server), mega(p.All))
	return server.Alive()
}

// touch gives all pictures a time of their last change that they have not had,
// and that is long ago.
func touch(files []string, pass int) error {
	then := time.Now().Add(-time.Hour).Add(time.Duration(pass) * time.Minute)
	for _, f := range files {
		if err := os.Chtimes(f, then, then); err != nil {
			return err
		}
	}
	return nil
}

// noticed is how long after a change the server is asked again: it says that it
// follows within a second.
const noticed = 2 * time.Second

// pass has the clients ask for each picture once.
func (r *runner) pass(ctx context.Context, server *arm.Running, files []string, w *watcher, failed *atomic.Int64) error {
	next := make(chan string)
	var clients sync.WaitGroup
	for range rowClients {
		clients.Go(func() {
			client := server.Client("tcp")
			client.Timeout = visit + 10*time.Second
			defer client.CloseIdleConnections()
			for name := range next {
				if answer, err := ask(ctx, client, server.URL("/"+filepath.Base(name))); err != nil || !answer.webp {
					failed.Add(1)
				}
				w.done.Add(1)
			}
		})
	}
	for _, name := range files {
		if ctx.Err() != nil {
			break
		}
		next <- name
	}
	close(next)
	clients.Wait()
	return context.Cause(ctx)
}
