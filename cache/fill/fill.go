// Package fill gets one thing once, however many wait for it: a Group joins
// requests for the same key to one Fill, whose Body they read while it grows.
package fill

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrBroken is what readers of a Body get when its source failed before its
// end; the cause is wrapped.
var ErrBroken = errors.New("the fill broke off")

// Group joins requests by key. The zero value is ready.
type Group[O any] struct{ _ O }

// Join returns the running fill for a key, or starts one: then leader is true
// and the caller must run it, in a goroutine that does not end with its client,
// up to Finish.
func (g *Group[O]) Join(key string) (f *Fill[O], leader bool) { panic("not built") }

// Running is the number of fills under way.
func (g *Group[O]) Running() int { panic("not built") }

// Fill is one journey to the origin. O is what it leads to, known when the
// response's header is.
type Fill[O any] struct{ _ O }

// Settle tells all who wait what the fill has led to. It may be called once;
// who joins later gets it at once.
func (f *Fill[O]) Settle(o O) { panic("not built") }

// Detach makes the next request for the key start a fill of its own, without
// ending this one: its answer is not for everyone, or is no longer joinable.
func (f *Fill[O]) Detach() { panic("not built") }

// Finish ends the fill: it is no longer found. Without a Settle before, those
// who wait get ErrBroken.
func (f *Fill[O]) Finish() { panic("not built") }

// Wait returns the outcome, or ctx's error, or ErrBroken.
func (f *Fill[O]) Wait(ctx context.Context) (O, error) { panic("not built") }

// Interest counts those who want the outcome or read the body: every waiter
// calls Enter (false when it has ended for want of any) and later Leave. When
// the last one has left for longer than the fill's grace, Context ends.
func (f *Fill[O]) Enter() bool { panic("not built") }

// Leave takes back one Enter.
func (f *Fill[O]) Leave() { panic("not built") }

// Context is the leader's: it ends when nobody was interested for grace, at
// limit after the start, or with Finish. Call it once.
func (f *Fill[O]) Context(grace, limit time.Duration) context.Context { panic("not built") }

// Spill is where a body goes that has become too large for memory. store.Writer is one.
type Spill interface {
	io.Writer
	io.ReaderAt // of what was written so far
}

// BodyOptions bound a Body.
type BodyOptions struct {
	Expected int64 // Content-Length, -1 when unknown
	Memory   int64 // bytes held in memory; above it the body goes to Spill
	// Spill is called once when the body outgrows Memory, or at once when
	// Expected does. nil, or an error: the body becomes a window of Memory bytes that moves with
	// its slowest reader, cannot be joined any more and will not be Whole.
	Spill func() (Spill, error)
}

// Body is a growing sequence of bytes with one writer and any number of
// readers, each with a position of its own.
type Body struct{}

// NewBody returns an empty body.
func NewBody(o BodyOptions) *Body { panic("not built") }

// Write appends. It blocks only while the body is a window and its slowest
// reader is Memory bytes behind; a window without readers returns an error.
func (b *Body) Write(p []byte) (int, error) { panic("not built") }

// Close ends the body: whole when err is nil, else broken with that cause.
// A body that is shorter or longer than Expected is broken.
func (b *Body) Close(err error) { panic("not built") }

// Whole reports whether the body has ended without error, can be read from its start, and its size.
func (b *Body) Whole() (size int64, ok bool) { panic("not built") }

// Bytes is the whole body in one piece of exactly its size, nil if it is not whole or was spilt.
func (b *Body) Bytes() []byte { panic("not built") }

// Spilt is what Spill returned, nil if the body is in memory.
func (b *Body) Spilt() Spill { panic("not built") }

// Reader reads from an offset, waiting for bytes that have not come yet until
// ctx ends. It returns nil when the body is a window that has moved on.
// The reader must be closed.
func (b *Body) Reader(ctx context.Context, offset int64) *Reader { panic("not built") }

// Reader is one reader of a Body.
type Reader struct{}

// Read implements io.Reader; after the last byte it returns io.EOF, or ErrBroken.
func (r *Reader) Read(p []byte) (int, error) { panic("not built") }

// WriteTo implements io.WriterTo without a copy of what is held in memory. flush, if set
// by Flush, is called whenever the reader has caught up with the writer.
func (r *Reader) WriteTo(w io.Writer) (int64, error) { panic("not built") }

// Flush is called by WriteTo before it waits for more.
func (r *Reader) Flush(f func()) { panic("not built") }

// Close gives the reader up.
func (r *Reader) Close() error { panic("not built") }
