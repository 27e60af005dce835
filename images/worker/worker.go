// Package worker runs conversions in child processes. A hostile file can crash
// or take over only a process that has nothing to lose: it holds no secrets and
// no connections, runs at a low priority, is killed when its conversion is
// cancelled, and gives all its memory back.
//
// A child is the program itself with another verb (Options.Command), which
// calls Main. It is started when an image needs it, converts one after the
// other, and ends after some idle seconds. Two kinds exist, since a priority
// once lowered cannot be raised again: one for images that a visitor waits
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
	"syscall"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"
	"millrace/images/sandbox"
)

// ErrCrashed is returned, wrapped, when a worker died of an image, took more
// memory than it may, or answered nonsense.
var ErrCrashed = errors.New("the worker process died")

// ErrNotStarted is returned, wrapped, when no worker could be started, such as
// for want of descriptors or processes. It says nothing of the image.
var ErrNotStarted = errors.New("a worker process could not be started")

// ErrClosed is returned by a Pool after Close.
var ErrClosed = errors.New("the workers are closed")

// Defaults and bounds of Options.
const (
	defaultIdle   = 3 * time.Second
	defaultJobs   = 200
	defaultMemory = 512 << 20

	// maxJob ends what would never end: the largest image in the slowest
	// format takes a minute of CPU, and the lowest priority gets at least a
	// tenth of a core on all but a machine that is overloaded for good.
	maxJob = 10 * time.Minute
	// maxIdle workers of a kind are kept for the next image, more than any
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
	// Memory bounds all workers together in bytes, with the commands they run
	// and those that are idle. Default 512 MiB. See budget.go.
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
	sandbox          sandbox.Report

	mu     sync.Mutex
	closed bool
	ways   []*syscall.SysProcAttr // to start a child that the kernel may allow, the best first
	all    map[*process]bool      // true: idle
	idle   [2][]*process          // by kind; the last one in is the first out
}

// The kinds of workers.
const (
	foreground = 0
	background = 1
)

// New tests the encoders (Abilities) in a worker of its own, which ends then.
// Where there are workers, the memory of this process is closed to them and to
// all others of its user, for ever (sandbox.Conceal).
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
	p.starter, p.ways = newStarter(), sandbox.Namespaces()
	concealed := sandbox.Conceal() // before anything reads an image
	probe, err := p.start(ctx, foreground, p.o.Memory, nil)
	if err != nil {
		p.Close() //nolint:errcheck // it never fails, and there is an error already
		return nil, fmt.Errorf("testing the encoders: %w", err)
	}
	p.abilities, p.sandbox = probe.abilities, append(probe.sandbox, concealed)
	probe.kill()
	<-probe.done
	return p, nil
}

// Abilities are what the workers can write.
type Abilities struct {
	Level   string // "tools", "embedded", "tools+embedded"
	Formats map[codec.Format]EncoderInfo
	// Tools are the commands that passed their self-test, so that each worker
	// need not test them again.
	Tools []codec.Tested `json:",omitempty"`
}

// EncoderInfo is who writes a format.
type EncoderInfo struct {
	Level string // "tools" or "embedded"
	By    string // such as "cwebp 1.2.4"
}

// Abilities of the workers.
func (p *Pool) Abilities() Abilities {
	return Abilities{Level: p.abilities.Level, Formats: maps.Clone(p.abilities.Formats), Tools: slices.Clone(p.abilities.Tools)}
}

// Probe starts a worker, has it try what is forbidden to it, and ends it.
func Probe(ctx context.Context, command []string) (sandbox.Report, error) {
	p, err := New(ctx, Options{Command: command, Level: "embedded"})
	if err != nil {
		return nil, err
	}
	defer p.Close() //nolint:errcheck // it never fails
	return p.Sandbox(), nil
}

// Sandbox says what keeps the workers from the rest of the machine, as the
// first one has found by trying it. Empty where there are no workers.
func (p *Pool) Sandbox() sandbox.Report { return slices.Clone(p.sandbox) }

// Source is a file to convert, Size bytes of it.
type Source struct {
	// Reader is read in the goroutine of Convert; a Read of it that blocks
	// must end with the context.
	io.Reader
	Size int64
	// Memory is how many bytes the conversion is predicted to take at its peak,
	// those of the worker included. It is the soft limit of the worker's heap
	// (GOMEMLIMIT). 0: nobody knows; Options.Memory.
	Memory int64
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
	if src.Memory <= 0 {
		src.Memory = p.o.Memory
	}
	for {
		w := p.take(kind, src.Memory, s.Format)
		idle := w != nil
		if w == nil {
			var err error
			if w, err = p.start(ctx, kind, src.Memory, &p.abilities); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
			}
		}
		res, err := w.convert(ctx, src, s)
		// After a failure, too: whether the result is too large is seen only when it is encoded.
		w.compiled = w.compiled || w.took && s.Format == codec.AVIF && p.abilities.Formats[codec.AVIF].Level != "tools"
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

// take returns an idle worker for a conversion that needs so much memory, or
// nil. Either way there is room for it afterwards. One that has the compiled
// encoder of AVIF in memory is kept for AVIF.
func (p *Pool) take(kind int, needs int64, f codec.Format) (taken *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.fitting(kind, f); w != nil {
		p.idle[kind] = slices.DeleteFunc(p.idle[kind], func(other *process) bool { return other == w })
		w.retire.Stop()
		p.all[w] = false
		w.needs, taken = needs, w
		needs = 0 // it is counted with those that run
	}
	p.makeRoom(needs)
	return taken
}

// fitting is the idle worker for a format that was used last, or nil; p.mu is
// held.
func (p *Pool) fitting(kind int, f codec.Format) (best *process) {
	for _, w := range slices.Backward(p.idle[kind]) {
		switch {
		case !w.alive():
		case w.compiled == (f == codec.AVIF):
			return w
		case !w.compiled && best == nil:
			best = w
		}
	}
	return best
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
	w.needs = 0
	p.idle[w.kind] = append(p.idle[w.kind], w)
	w.retire = time.AfterFunc(p.o.Idle, func() { p.dismiss(w) })
	return false
}

// dismiss ends a worker that is still idle.
func (p *Pool) dismiss(w *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endIdle(w)
}

// endIdle ends a worker if it is idle; p.mu is held.
func (p *Pool) endIdle(w *process) {
	if i := slices.Index(p.idle[w.kind], w); i >= 0 {
		p.idle[w.kind] = slices.Delete(p.idle[w.kind], i, i+1)
		w.retire.Stop()
		w.kill() // it holds nothing that could be lost
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
