package images

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/queue"
	"millrace/images/sandbox"
	"millrace/images/worker"
)

// Converter makes one image of another: a *worker.Pool.
type Converter interface {
	Convert(ctx context.Context, src worker.Source, s convert.Spec, background bool) (*convert.Result, error)
	Abilities() worker.Abilities
	Sandbox() sandbox.Report
	Stats() worker.Stats
	io.Closer
}

// EngineOptions are those of a process for all its handlers with the same.
type EngineOptions struct {
	Level   string // auto, tools or embedded
	Workers int
	Memory  int64
	Queue   int
	Alike   bool // what nobody waits for has the priority of the rest
}

// EngineOptions are what the handler's engine has to be like.
func (o Options) EngineOptions() EngineOptions {
	level := cmp.Or(o.Engine, "auto")
	return EngineOptions{Level: level, Workers: o.Workers, Memory: o.memory(), Queue: o.Queue, Alike: o.Background == "normal"}
}

// Engine converts for handlers: processes that do it, and the queue that
// decides when.
type Engine struct {
	converter Converter
	queue     *queue.Queue
	workers   int
}

// NewEngine starts an engine; Close ends it. command starts a worker, as
// worker.Options says; nil converts in this process.
func NewEngine(ctx context.Context, o EngineOptions, command []string, errorLog *slog.Logger) (*Engine, error) {
	workers := o.Workers
	if workers == 0 {
		workers = runtime.NumCPU()
	}
	pool, err := worker.New(ctx, worker.Options{Command: command, Level: o.Level, Alike: o.Alike, Memory: workerMemory(o.Memory, workers), ErrorLog: errorLog})
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	return newEngine(pool, o, workers), nil
}

// workerMemory is what one worker may take: the whole budget, because the queue
// lets an image that needs it run alone. 0: the worker's default.
func workerMemory(budget int64, _ int) int64 { return budget }

// newEngine has one worker more than there are conversions at once, for those
// that somebody waits for: the others run at the lowest priority, so that one
// takes the processor from them instead of waiting for seconds of AVIF to end.
func newEngine(c Converter, o EngineOptions, workers int) *Engine {
	return &Engine{converter: c, workers: workers, queue: queue.New(queue.Options{Workers: workers + 1, Reserve: 1, Memory: o.Memory, Depth: o.Queue})}
}

// Close ends the conversions under way.
func (e *Engine) Close() error {
	err := e.queue.Close()
	if cerr := e.converter.Close(); err == nil {
		err = cerr
	}
	return err
}

// Abilities say who writes which format.
func (e *Engine) Abilities() worker.Abilities { return e.converter.Abilities() }

// Stats of the queue and of the workers.
func (e *Engine) Stats() (queue.Stats, worker.Stats) { return e.queue.Stats(), e.converter.Stats() }

// format is one that is made.
type format struct {
	codec.Format
	media string // its media type
	level string // who writes it
	// quick ones are made while a visitor waits. AVIF in WebAssembly is not:
	// 700 ms and more a megapixel.
	quick bool
}

// formats are those of the names that the engine can write, in their order.
func (e *Engine) formats(names []string) (all []format) {
	can := e.converter.Abilities().Formats
	for _, n := range names {
		f := codec.Format(n)
		if a, ok := can[f]; ok {
			all = append(all, format{f, "image/" + n, a.Level, f == codec.WebP || a.Level == "tools"})
		}
	}
	return all
}

// Abilities say who writes which of the formats that the handler makes.
func (h *Handler) Abilities() worker.Abilities {
	can := h.engine.Abilities()
	mine := worker.Abilities{Level: can.Level, Formats: map[codec.Format]worker.EncoderInfo{}}
	for _, f := range h.formats {
		mine.Formats[f.Format] = can.Formats[f.Format]
	}
	return mine
}

// Sandbox says what keeps the processes that convert from the rest of the
// machine; empty where the server converts itself.
func (h *Handler) Sandbox() sandbox.Report { return h.engine.converter.Sandbox() }

// Folder is the absolute path of where the handler keeps variants, empty if
// there is none for its user.
func (h *Handler) Folder() string {
	dir, err := h.options.Folder(h.variants.scope)
	if err != nil {
		return "" // a store that was given needs none
	}
	if whole, err := filepath.Abs(dir); err == nil {
		return whole
	}
	return dir
}
