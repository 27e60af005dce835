package experiment

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"millrace/lab/record"
)

const (
	// buildLimit is how long compiling what is measured may take, on a machine
	// that has to fetch and compile everything first.
	buildLimit = 6 * time.Minute
	// buildShare is how much of it counts as part of the run: what the go command
	// takes to see that all is built. The rest comes before the run's own time,
	// so that there is always enough left to measure in.
	buildShare = 15 * time.Second
	// builders is how many go commands run at once: each uses all cores while
	// it compiles, and one while it links.
	builders = 2
)

// Programs are executables that were built, or why they were not.
type Programs struct {
	mu sync.Mutex       // guards by while they are built
	by map[string]built // by key
}

// packTime is how long packing the site may take.
const packTime = time.Minute

// pack packs the site into an executable of millrace, the program "packed".
func (p *Programs) pack(ctx context.Context, r *Run) {
	ctx, cancel := context.WithTimeout(ctx, packTime)
	defer cancel()
	b := built{path: filepath.Join(r.Env.Work, "millrace-packed")}
	if r.Env.Millrace == "" {
		b.err = ErrNoMillrace
	} else if out, err := exec.CommandContext(ctx, r.Env.Millrace, "pack", r.Site, "-o", b.path).CombinedOutput(); err != nil {
		b.err = fmt.Errorf("packing the site: %w: %s", err, bytes.TrimSpace(out))
	}
	p.by["packed"] = b
}

// has reports whether there is, or should be, a program with a key.
func (p *Programs) has(key string) bool {
	_, ok := p.by[key]
	return ok
}

type built struct {
	path string
	err  error
}

// Path is the executable with a key.
func (p *Programs) Path(key string) (string, error) {
	b, ok := p.by[key]
	if !ok {
		return "", fmt.Errorf("%s was not built", key)
	}
	return b.path, b.err
}

// Build compiles programs, the first ones first, until the time for that is
// over. Those that could not be built have the reason; only ctx ends it early,
// and is the only error, which the result explains.
func (s *Stage) Build(ctx context.Context, list []Program) (*Programs, error) {
	found := &Programs{by: map[string]built{}}
	if s.env.Bench == nil {
		for _, p := range list {
			found.by[p.Key] = built{err: ErrNoSources}
		}
		return found, nil
	}
	s.announce(list)
	limited, cancel := context.WithTimeoutCause(ctx, buildLimit, fmt.Errorf(
		"not built within %v: run it again, what was compiled until then is kept", buildLimit))
	defer cancel()
	queue := make(chan Program, len(list))
	for _, p := range list {
		queue <- p
	}
	close(queue)
	var group sync.WaitGroup // of builders goroutines, which end with the queue
	for range builders {
		group.Go(func() {
			for p := range queue {
				s.Emit(record.Event{Kind: record.EventStep, Text: "building lab/bench/subjects/" + p.Folder})
				path, err := s.env.Bench.Build(limited, p.Folder, p.Flags, p.Env)
				found.mu.Lock()
				found.by[p.Key] = built{path, err}
				found.mu.Unlock()
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		s.res.Interrupted = "stopped while the subjects were built"
	}
	return found, ctx.Err()
}

// announce says at the start what has to be built first, and what that means.
func (s *Stage) announce(list []Program) {
	missing := 0
	for _, p := range list {
		if !s.env.Bench.Built(p.Folder, p.Flags, p.Env) {
			missing++
		}
	}
	if missing > 0 {
		s.Emit(record.Event{Kind: record.EventNote, Text: fmt.Sprintf(
			"%d of %d programs to measure with are not built yet: that comes first and may take minutes, up to %v; the time for measuring begins after it, and the next run finds them built",
			missing, len(list), buildLimit)})
	}
}
