package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/trial"
)

const (
	// smallRate is how often a small file is asked for beside a crowd, a second.
	smallRate = 200
	// smallConnections share these requests: one that waits holds up no other.
	smallConnections = 4
	// crowdLimit is how long a crowd's conversions may take.
	crowdLimit = 3 * time.Minute
	// askEvery is how often the server is asked how many are done.
	askEvery = 250 * time.Millisecond
	// rowClients ask for the conversions in a row.
	rowClients = 2
	// noticed is how long after a change the server is asked again: it says that
	// it follows within a second.
	noticed = 2 * time.Second
)

// folder converts all photographs one after the other.
func (m *measurement) folder(ctx context.Context, slot trial.TaskSlot, _ experiment.Workload) (trial.TaskResult, error) {
	if slot.Instance.Reports {
		return m.byCommand(ctx, slot.Arm)
	}
	return m.byServer(ctx, slot)
}

// byCommand starts a command for each photograph and sums up what they used.
func (m *measurement) byCommand(ctx context.Context, arm string) (got trial.TaskResult, err error) {
	var used time.Duration
	var most, size uint64
	out, began := filepath.Join(m.Env.Work, "out.webp"), time.Now()
	for _, p := range m.photos {
		limited, cancel := context.WithTimeout(ctx, commandTimeout)
		cmd, _, leave, err := m.Ready(limited, arm, map[string]string{"In": filepath.Join(m.Site, p.name), "Out": out})
		var highest uint64
		if err == nil {
			highest, err = runWatched(cmd)
			err = errors.Join(err, leave())
		}
		cancel()
		if err != nil {
			return got, fmt.Errorf("%s: %w", arm, err)
		}
		used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		most = max(most, highest)
		body, err := os.ReadFile(out)
		if err != nil {
			return got, fmt.Errorf("reading what %s wrote: %w", arm, err)
		}
		size += uint64(pictureBytes(body))
		if err := m.keep(arm, p, body); err != nil {
			return got, err
		}
		got.Done++
	}
	got.Values = map[string]float64{
		"cpu_per_megapixel_ns": float64(used) / m.megapixels(), experiment.CPU: float64(used) / float64(got.Done),
		"took_ns": float64(time.Since(began)), "webp_bytes": float64(size),
	}
	if most > 0 {
		got.Values["peak_rss_bytes"] = float64(most)
	}
	return got, nil
}

// runWatched runs a command to its end, and says how much memory it had at most.
func runWatched(cmd *exec.Cmd) (most uint64, err error) {
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	watched := watchCommand(cmd.Process.Pid)
	err = cmd.Wait()
	most = watched()
	if err != nil {
		err = fmt.Errorf("%w: %.300s", err, text.Bytes())
	}
	return most, err
}

// byServer asks a server for each photograph, as a browser would.
func (m *measurement) byServer(ctx context.Context, slot trial.TaskSlot) (got trial.TaskResult, err error) {
	if err := experiment.Sleep(ctx, settle); err != nil {
		return got, err
	}
	before, err := slot.Target.Read()
	if err != nil {
		return got, err
	}
	slot.Window(true)
	client, watched, began := newClient(), experiment.WatchMemory(slot.Target, look), time.Now()
	defer client.CloseIdleConnections()
	size := int64(0)
	for _, p := range m.photos {
		a, askErr := ask(ctx, client, slot.URL+p.name)
		if err = askErr; err != nil {
			break
		}
		if !a.webp {
			fail(&got, p.name+" is sent as the original: "+a.why)
			continue
		}
		got.Done++
		size += pictureBytes(a.body)
		if err = m.keep(slot.Arm, p, a.body); err != nil {
			break
		}
	}
	whole := time.Since(began)
	err = errors.Join(err, experiment.Sleep(ctx, settle))
	readings, watchErr := watched()
	used, readErr := slot.Target.Read()
	slot.Window(false)
	if err = errors.Join(err, watchErr, readErr, experiment.Sleep(ctx, idle)); err != nil {
		return got, err
	}
	rested, err := slot.Target.Read()
	got.Values = map[string]float64{
		"cpu_per_megapixel_ns": float64(used.Sub(before).CPU) / m.megapixels(), "took_ns": float64(whole), "webp_bytes": float64(size),
		"peak_rss_bytes": float64(experiment.MostRSS(readings)), "after_rss_bytes": float64(rested.RSS),
	}
	return got, err
}

// keep writes a WebP down the first time that its bytes are seen.
func (m *measurement) keep(arm string, p photograph, body []byte) error {
	key := sample{arm, p.name, hashOf(body)}
	if m.samples[key] != "" {
		return nil
	}
	name := filepath.Join(m.Env.Work, "sample-"+strings.TrimSuffix(p.name, ".jpg")+"-"+key.hash+".webp")
	if err := os.WriteFile(name, body, 0o600); err != nil {
		return fmt.Errorf("keeping a result: %w", err)
	}
	m.samples[key] = name
	return nil
}

// megapixels are those of the folder.
func (m *measurement) megapixels() (sum float64) {
	for _, p := range m.photos {
		sum += p.megapixels
	}
	return sum
}

// burst has many clients ask at once for photographs that are not converted,
// beside one that asks for a small file.
func (m *measurement) burst(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (got trial.TaskResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, crowdLimit)
	defer cancel()
	before, err := count(ctx, slot.Instance.URL["control"])
	if err != nil {
		return got, err
	}
	alone, err := small(ctx, slot.URL, w.Idle)
	if err != nil {
		return got, err
	}
	slot.Window(true)
	watched := experiment.WatchMemory(slot.Target, look)
	loading, loaded := context.WithCancel(ctx)
	defer loaded()
	type latency struct {
		p99 time.Duration
		err error
	}
	beside := make(chan latency, 1)
	go func() { // ends with loaded, and is waited for below
		p99, err := small(loading, slot.URL, crowdLimit)
		beside <- latency{p99, err}
	}()
	began := time.Now()
	m.askAll(ctx, slot.URL, w, &got)
	now, err := allDone(ctx, slot.Instance.URL["control"])
	got.Values["took_ns"] = float64(time.Since(began))
	loaded()
	readings, watchErr := watched()
	slot.Window(false)
	meanwhile := <-beside
	if err = errors.Join(err, watchErr, meanwhile.err); err != nil {
		return got, err
	}
	if n := now.Converted - before.Converted; n != uint64(len(m.burstImages)) {
		fail(&got, fmt.Sprintf("%d photographs took %d conversions; %d failed, %d were turned away", len(m.burstImages), n, now.Failed, now.Shed))
	}
	got.Values["peak_rss_bytes"], got.Values["small_alone_p99_ns"], got.Values["small_beside_p99_ns"] = float64(experiment.MostRSS(readings)), float64(alone), float64(meanwhile.p99)
	return got, nil
}

// askAll has all clients ask at once, each for other images in turn.
func (m *measurement) askAll(ctx context.Context, url string, w experiment.Workload, got *trial.TaskResult) {
	got.Values = map[string]float64{"originals": 0}
	var mu sync.Mutex                                                     // guards got
	_ = experiment.Each(w.Connections, w.Connections, func(i int) error { // it reports none
		client := newClient()
		defer client.CloseIdleConnections()
		for k := range w.Count {
			start := time.Now()
			a, err := ask(ctx, client, url+m.burstImages[(i+k*7)%len(m.burstImages)])
			waited := float64(time.Since(start))
			mu.Lock()
			if err != nil {
				fail(got, err.Error())
			} else {
				got.Done++
				if !a.webp {
					got.Values["originals"]++
				}
			}
			got.Values["slowest_ns"] = max(got.Values["slowest_ns"], waited)
			mu.Unlock()
		}
		return nil
	})
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

// row has two clients ask for all crops, and again after each of Count changes of them.
// What is kept of an image that changes has to go, so memory is that of the first
// pass, unless something leaks.
func (m *measurement) row(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (got trial.TaskResult, err error) {
	before, err := slot.Target.Read()
	if err != nil {
		return got, err
	}
	slot.Window(true)
	watched := experiment.WatchMemory(slot.Target, look)
	var rested []uint64
	for pass := 0; pass <= w.Count && err == nil; pass++ {
		if pass > 0 {
			err = m.touch()
		}
		if err = errors.Join(err, experiment.Sleep(ctx, noticed)); err == nil {
			m.pass(ctx, slot.URL, &got)
			err = experiment.Sleep(ctx, idle)
		}
		now, readErr := slot.Target.Read()
		err = errors.Join(err, readErr)
		rested = append(rested, now.RSS)
	}
	slot.Window(false)
	readings, watchErr := watched()
	now, readErr := slot.Target.Read()
	if err = errors.Join(err, watchErr, readErr, ctx.Err()); err != nil {
		return got, err
	}
	last := float64(rested[len(rested)-1])
	got.Values = map[string]float64{
		"peak_rss_bytes": float64(experiment.MostRSS(readings)), "after_rss_bytes": last, "growth": last / float64(rested[0]),
		"cpu_per_megapixel_ns": float64(now.Sub(before).CPU) / cropPixels(len(m.crops)) / float64(w.Count+1),
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
	var mu sync.Mutex                                             // guards got
	_ = experiment.Each(rowClients, rowClients, func(int) error { // it reports none
		client := newClient()
		defer client.CloseIdleConnections()
		for i := next.Add(1) - 1; i < int64(len(m.crops)) && ctx.Err() == nil; i = next.Add(1) - 1 {
			a, err := ask(ctx, client, url+m.crops[i])
			mu.Lock()
			switch {
			case err != nil:
				fail(got, err.Error())
			case !a.webp:
				fail(got, m.crops[i]+" is sent as the original: "+a.why)
			default:
				got.Done++
			}
			mu.Unlock()
		}
		return nil
	})
}
