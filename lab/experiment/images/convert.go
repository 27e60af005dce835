package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
	"millrace/lab/trial"
)

const (
	// visit is how long a client may wait for a conversion: the most that
	// millrace's images.wait takes.
	visit = 30 * time.Second
	// commandTimeout is how long a command, or a visitor, may take.
	commandTimeout = visit + 10*time.Second
	// settle is how long a server rests before and after its work: what a start
	// still has to do is not part of it, what an answer leaves to do is.
	settle = 300 * time.Millisecond
	// look is how often memory is read.
	look = 50 * time.Millisecond
)

// sample is one WebP of a photograph.
type sample struct{ arm, photo, hash string }

// folder converts all photographs one after the other.
func (m *measurement) folder(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
	if c, ok := m.commands[slot.Arm]; ok {
		return m.byCommand(ctx, c)
	}
	return m.byServer(ctx, slot)
}

// byCommand starts a command for each photograph and sums up what they used.
func (m *measurement) byCommand(ctx context.Context, c command) (got trial.TaskResult, err error) {
	var used time.Duration
	var most, size uint64
	out, began := filepath.Join(m.Env.Work, "out.webp"), time.Now()
	for _, p := range m.photos {
		files := strings.NewReplacer(inFile, filepath.Join(m.Site, p.name), outFile, out)
		var args []string
		for _, a := range c.args[1:] {
			args = append(args, files.Replace(a))
		}
		limited, cancel := context.WithTimeout(ctx, commandTimeout)
		cmd := exec.CommandContext(limited, c.args[0], args...)
		highest, err := runWatched(cmd)
		cancel()
		if err != nil {
			return got, fmt.Errorf("%s: %w", strings.Join(c.args, " "), err)
		}
		used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		most = max(most, highest)
		body, err := os.ReadFile(out)
		if err != nil {
			return got, fmt.Errorf("reading what %s wrote: %w", c.name, err)
		}
		size += uint64(pictureBytes(body))
		if err := m.keep(c.name, p, body); err != nil {
			return got, err
		}
		got.Done++
	}
	got.Values = map[string]float64{
		perMegapixel: float64(used) / m.megapixels(), "cpu_ns": float64(used) / float64(got.Done),
		took: float64(time.Since(began)), size80: float64(size),
	}
	if most > 0 {
		got.Values[peak] = float64(most)
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
	client, watched, began := newClient(), watch(slot.Target), time.Now()
	defer client.CloseIdleConnections()
	size := int64(0)
	for _, p := range m.photos {
		a, askErr := ask(ctx, client, slot.URL+p.name)
		if err = askErr; err != nil {
			break
		}
		if !a.webp {
			fail(&got, 1, p.name+" is sent as the original: "+a.why)
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
	most, watchErr := watched()
	used, readErr := slot.Target.Read()
	slot.Window(false)
	if err = errors.Join(err, watchErr, readErr, experiment.Sleep(ctx, m.idle)); err != nil {
		return got, err
	}
	rested, err := slot.Target.Read()
	got.Values = map[string]float64{
		perMegapixel: float64(used.Sub(before).CPU) / m.megapixels(), took: float64(whole), size80: float64(size),
		peak: float64(most), after: float64(rested.RSS),
	}
	return got, err
}

// fail counts failures, and keeps why the first of them was one.
func fail(got *trial.TaskResult, n uint64, why string) {
	if got.Failed == 0 {
		got.FirstFailure = why
	}
	got.Failed += n
}

// watch reads the memory of a target until the function that it returns is
// called, which says what the most was.
func watch(target *record.Target) (stop func() (most uint64, err error)) {
	quit, ended := make(chan struct{}), make(chan struct{})
	var most uint64
	var problem error
	go func() { // ends with stop, which waits for it
		defer close(ended)
		ticker := time.NewTicker(look)
		defer ticker.Stop()
		for {
			now, err := target.Read()
			if err != nil {
				problem = err
				return
			}
			most = max(most, now.RSS)
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
		}
	}()
	return func() (uint64, error) {
		close(quit)
		<-ended
		return most, problem
	}
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
