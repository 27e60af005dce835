package lean

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// body is a request's body of known length, as net/http has it: it reads
// nothing behind its end, and nothing after Close.
type body struct {
	mu     sync.Mutex
	link   Link
	failed func() // called when reading fails: the client is gone
	left   int64  // bytes that were not read yet
	ended  bool   // the end was seen
	closed bool
	early  bool // closed with more left than is read for the next request
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.read(p)
}

func (b *body) read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.link.Read(p)
	b.left -= int64(n)
	if err != nil {
		b.failed()
	}
	if errors.Is(err, io.EOF) {
		b.ended = true
		if b.left > 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	if err == nil && b.left == 0 {
		b.ended = true
		err = io.EOF
	}
	return n, err
}

// Close implements [io.Closer]: it reads what is left, if that is not too much.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	defer func() { b.closed = true }()
	switch {
	case b.ended:
	case b.left > mostUnread:
		b.early = true
	default:
		n, err := io.CopyN(io.Discard, unlocked{b}, mostUnread)
		b.early = n == mostUnread
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// unlocked reads a body whose lock is held.
type unlocked struct{ b *body }

func (u unlocked) Read(p []byte) (int, error) { return u.b.read(p) }

// leftover is what Response wants to know of a body before the head goes.
type leftover uint8

const (
	nothing leftover = iota // the next request can follow
	cut                     // it was closed before its end
	tooMuch                 // more than is read for the next request
)

// rid reads what the handler has not read, so that clients that send all of a
// request before they read anything of the answer get that far.
func (b *body) rid() leftover {
	b.mu.Lock()
	closed, ended, left := b.closed, b.ended, b.left
	b.mu.Unlock()
	switch {
	case closed && ended:
		return nothing
	case closed:
		return cut
	case left >= mostUnread:
		return tooMuch
	}
	switch _, err := io.CopyN(io.Discard, b, mostUnread+1); {
	case err == nil:
		return tooMuch
	case errors.Is(err, http.ErrBodyReadAfterClose):
		return nothing
	case errors.Is(err, io.EOF) && b.Close() == nil:
		return nothing
	}
	return cut
}

func (b *body) closedEarly() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.early
}
