// Package worker runs conversions in child processes: whatever a hostile file
// does to a decoder, it does it to a process that holds nothing, runs at a low
// priority, is killed with its request, and gives all its memory back.
package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
)

// ErrCrashed is returned, wrapped, when a worker died of a picture.
var ErrCrashed = errors.New("the worker process died")

// Options of a Pool.
type Options struct {
	// Command starts a worker: a program that calls Main with its standard
	// input and output, such as "millrace", "images-worker". Empty: conversions
	// run in this process.
	Command []string
	// Level is what the workers encode with: "" or "auto" (tools where they
	// are, else embedded), "tools", "embedded".
	Level string
	// Idle is how long a worker without work lives. Default 3 s.
	Idle time.Duration
	// Jobs is after how many conversions a worker is replaced. Default 200.
	Jobs int
	// Memory bounds one worker in bytes: GOMEMLIMIT softly, and twice that by
	// killing it. Default 512 MiB.
	Memory   int64
	ErrorLog *slog.Logger
}

// Pool starts workers as they are needed and lets them go when they are not.
// How many run at once is the caller's affair: each Convert has one for itself.
type Pool struct{}

// New tests the encoders (Abilities) in a worker of its own, which ends then.
func New(ctx context.Context, o Options) (*Pool, error) { panic("not built") }

// Abilities are what the workers can write.
type Abilities struct {
	Level   string // "tools", "embedded", "tools+embedded"
	Formats map[codec.Format]Ability
}

// Ability is who writes a format.
type Ability struct {
	Level string // "tools" or "embedded"
	By    string // such as "cwebp 1.2.4"
}

// Abilities of the workers.
func (p *Pool) Abilities() Abilities { panic("not built") }

// Source is a file to convert, Size bytes of it.
type Source struct {
	io.Reader
	Size int64
}

// Convert has a worker convert the source. background runs it at the lowest
// priority. When ctx ends the worker is killed.
func (p *Pool) Convert(ctx context.Context, src Source, s convert.Spec, background bool) (*convert.Result, error) {
	panic("not built")
}

// Stats of the pool.
type Stats struct {
	Running, Idle    int
	Started, Crashed uint64
	RSS              int64 // of all workers now, in bytes (Linux; else 0)
}

// Stats may be called at any time.
func (p *Pool) Stats() Stats { panic("not built") }

// Close kills the workers and waits for them.
func (p *Pool) Close() error { panic("not built") }

// Main is the worker: it converts what comes in until in ends, and returns.
func Main(in io.Reader, out io.Writer) error { panic("not built") }
