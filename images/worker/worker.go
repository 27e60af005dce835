// Package worker runs conversions in child processes: whatever a hostile file
// does to a decoder, it does it to a process that holds nothing, runs at a low
// priority, is killed with its request, and gives all its memory back.
//
// A child is the program itself with another verb (Options.Command), which
// calls Main. It is started when a picture needs it, converts one after the
// other, and ends after some idle seconds. Two kinds exist, since a priority
// once lowered cannot be raised again: one for pictures that a visitor waits
// for, one for the background.
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"
)

// ErrCrashed is returned, wrapped, when a worker died of a picture, took more
// memory than it may, or answered nonsense.
var ErrCrashed = errors.New("the worker process died")

// ErrNotStarted is returned, wrapped, when no worker could be started, such as
// for want of descriptors or processes. It says nothing of the picture.
var ErrNotStarted = errors.New("a worker process could not be started")

// ErrClosed is returned by a Pool after Close.
var ErrClosed = errors.New("the workers are closed")

// Defaults and bounds of Options.
const (
	defaultIdle   = 3 * time.Second
	defaultJobs   = 200
	defaultMemory = 512 << 20

	// maxJob ends what would never end: the largest picture in the slowest
	// format takes a minute of CPU, and the lowest priority gets at least a
	// tenth of a core on all but a machine that is overloaded for good.
	maxJob = 10 * time.Minute
	// maxIdle workers of a kind are kept for the next picture, more than any
	// machine that this serves has cores.
	maxIdle = 64
)

// Options of a Pool.
type Options struct {
	// Command starts a worker: a program that calls Main with its standard
	// input and output, such as "millrace", "images-worker". Empty: conversions
	// run in this process.
	Command []string
	// Level is what the workers encode with: "" or "auto" (tools where they
	// are, else embedded), "tools", "embedded".
	Level string
	// Alike gives the workers for the background the priority of the others.
	Alike bool
	// Idle is how long a worker without work lives. Default 3 s.
	Idle time.Duration
	// Jobs is after how many conversions a worker is replaced. Default 200.
	Jobs int
	// Memory bounds one worker in bytes: GOMEMLIMIT softly, and twice that by
	// killing it, with the commands it runs (Linux). Default 512 MiB.
	Memory   int64
	ErrorLog *slog.Logger
}

// Pool starts workers as they are needed and lets them go when they are not.
// How many run at once is the caller's affair: each Convert has one for itself.
// All methods may be called by many goroutines.
type Pool struct {
	o         Options
	abilities Abilities
	here      *engine // where Command is empty

	jobs      sync.WaitGroup // calls of Convert
	processes sync.WaitGroup // children that are not reaped
	starter   *starter

	started, crashed atomic.Uint64
	complained       atomic.Bool // about the priority

	mu     sync.Mutex
	closed bool
	all    map[*process]bool // true: idle
	idle   [2][]*process     // by kind; the last one in is the first out
}

// The kinds of workers.
const (
	foreground = 0
	background = 1
)

// New tests the encoders (Abilities) in a worker of its own, which ends then.
func New(ctx context.Context, o Options) (*Pool, error) {
	p := &Pool{o: o, all: map[*process]bool{}}
	if p.o.Idle <= 0 {
		p.o.Idle = defaultIdle
	}
	if p.o.Jobs <= 0 {
		p.o.Jobs = defaultJobs
	}
	if p.o.Memory <= 0 {
		p.o.Memory = defaultMemory
	}
	if p.o.ErrorLog == nil {
		p.o.ErrorLog = slog.New(slog.DiscardHandler)
	}
	if len(o.Command) == 0 {
		e, err := newEngine(ctx, hello{Level: p.o.Level, Memory: p.o.Memory})
		if err != nil {
			return nil, err
		}
		p.here, p.abilities = e, e.abilities
		return p, nil
	}
	path, err := exec.LookPath(o.Command[0])
	if err != nil {
		return nil, fmt.Errorf("looking for the worker's program: %w", err)
	}
	p.o.Command = append([]string{path}, o.Command[1:]...)
	p.starter = newStarter()
	probe, err := p.start(ctx, foreground, nil)
	if err != nil {
		p.Close() //nolint:errcheck // it never fails, and there is an error already
		return nil, fmt.Errorf("testing the encoders: %w", err)
	}
	p.abilities = probe.abilities
	probe.kill()
	<-probe.done
	return p, nil
}

// Abilities are what the workers can write.
type Abilities struct {
	Level   string // "tools", "embedded", "tools+embedded"
	Formats map[codec.Format]Ability
	// Tools are the commands that passed their self-test, so that each worker
	// need not test them again.
	Tools []codec.Tested `json:",omitempty"`
}

// Ability is who writes a format.
type Ability struct {
	Level string // "tools" or "embedded"
	By    string // such as "cwebp 1.2.4"
}

// Abilities of the workers.
func (p *Pool) Abilities() Abilities {
	return Abilities{Level: p.abilities.Level, Formats: maps.Clone(p.abilities.Formats), Tools: slices.Clone(p.abilities.Tools)}
}

// Source is a file to convert, Size bytes of it.
type Source struct {
	// Reader is read in the goroutine of Convert; a Read of it that blocks
	// must end with the context.
	io.Reader
	Size int64
}

// Convert has a worker convert the source. background runs it at the lowest
// priority. When ctx ends the worker is killed.
//
// Errors wrap those of package convert, ErrCrashed, ErrNotStarted, ErrClosed, or
// the context's. A source that ends before Size is io.ErrUnexpectedEOF, wrapped;
// one of more than 256 MiB is header.ErrTooLarge.
func (p *Pool) Convert(ctx context.Context, src Source, s convert.Spec, inBackground bool) (*convert.Result, error) {
	if src.Size < 0 || src.Size > maxSource {
		return nil, fmt.Errorf("%w: a file of %d bytes", header.ErrTooLarge, src.Size)
	}
	if !p.begin() {
		return nil, ErrClosed
	}
	defer p.jobs.Done()
	ctx, cancel := context.WithTimeout(ctx, maxJob)
	defer cancel()
	if p.here != nil {
		return p.here.convertHere(ctx, src, s)
	}
	kind := foreground
	if inBackground && !p.o.Alike {
		kind = background
	}
	for {
		w := p.take(kind)
		idle := w != nil
		if w == nil {
			var err error
			if w, err = p.start(ctx, kind, &p.abilities); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
			}
		}
		res, err := w.convert(ctx, src, s)
		closed := p.give(w)
		switch {
		case !errors.Is(err, ErrCrashed):
			return res, err
		case closed: // it was killed by Close
			return nil, ErrClosed
		case idle && !w.took:
			continue // it died while it had nothing to do; there are fewer now
		}
		p.crashed.Add(1)
		return nil, err
	}
}

// begin counts a conversion in, unless the pool is closed.
func (p *Pool) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.jobs.Add(1)
	return true
}

// take returns an idle worker, or nil.
func (p *Pool) take(kind int) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.idle[kind]); n > 0; n-- {
		w := p.idle[kind][n-1]
		p.idle[kind] = p.idle[kind][:n-1]
		w.retire.Stop()
		if w.alive() {
			p.all[w] = false
			return w
		}
	}
	return nil
}

// give makes a worker idle, or ends it. It reports whether the pool is closed.
func (p *Pool) give(w *process) (closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !w.alive() || w.jobs >= p.o.Jobs || len(p.idle[w.kind]) >= maxIdle {
		w.kill()
		return p.closed
	}
	p.all[w] = true
	p.idle[w.kind] = append(p.idle[w.kind], w)
	w.retire = time.AfterFunc(p.o.Idle, func() { p.dismiss(w) })
	return false
}

// dismiss ends a worker that is idle still.
func (p *Pool) dismiss(w *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.idle[w.kind] {
		if other == w {
			p.idle[w.kind] = append(p.idle[w.kind][:i], p.idle[w.kind][i+1:]...)
			w.kill() // it holds nothing that could be lost
			return
		}
	}
}

// Stats of the pool.
type Stats struct {
	Running, Idle    int
	Started, Crashed uint64
	RSS              int64 // of all workers now and of the commands they run, in bytes (Linux; else 0)
}

// Stats may be called at any time.
func (p *Pool) Stats() Stats {
	s := Stats{Started: p.started.Load(), Crashed: p.crashed.Load()}
	p.mu.Lock()
	defer p.mu.Unlock()
	for w, idle := range p.all {
		if idle {
			s.Idle++
		} else {
			s.Running++
		}
		s.RSS += resident(w.cmd.Process.Pid)
	}
	return s
}

// Close kills the workers and waits for them. Conversions that are under way
// end with ErrClosed. It returns nil, and may be called again.
func (p *Pool) Close() error {
	p.mu.Lock()
	already := p.closed
	p.closed = true
	for w := range p.all {
		if w.retire != nil {
			w.retire.Stop()
		}
		w.kill()
	}
	p.idle = [2][]*process{}
	p.mu.Unlock()
	p.jobs.Wait()
	p.processes.Wait()
	if p.starter != nil && !already {
		p.starter.close()
	}
	return nil
}
