package lean

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// body is a request's body of known length, as in net/http: it reads nothing behind its end,
// and nothing after Close.
type body struct {
	mu        sync.Mutex
	link      Link
	failed    func() // called when reading fails: the client is gone
	remaining int64  // bytes that were not read yet
	ended     bool   // the end was seen
	closed    bool
	early     bool // closed with more than maxUnread remaining
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
	if int64(len(p)) > b.remaining {
		p = p[:b.remaining]
	}
	n, err := b.link.Read(p)
	b.remaining -= int64(n)
	if err != nil {
		b.failed()
	}
	if errors.Is(err, io.EOF) {
		b.ended = true
		if b.remaining > 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	if err == nil && b.remaining == 0 {
		b.ended = true
		err = io.EOF
	}
	return n, err
}

// Close implements [io.Closer]: it reads and discards the remaining bytes, up to maxUnread.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	defer func() { b.closed = true }()
	switch {
	case b.ended:
	case b.remaining > maxUnread:
		b.early = true
	default:
		n, err := io.CopyN(io.Discard, unlocked{b}, maxUnread)
		b.early = n == maxUnread
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// unlocked is an io.Reader for a body whose lock is held.
type unlocked struct{ b *body }

func (u unlocked) Read(p []byte) (int, error) { return u.b.read(p) }

// unread says what is unread of a body when the answer's head is to be sent.
type unread uint8

const (
	unreadNone    unread = iota // nothing: the next request can follow
	unreadCut                   // some, as the body was closed or reading failed
	unreadTooMuch               // more than maxUnread
)

// discardUnread reads what the handler has not read, up to maxUnread: some clients send the
// whole request before they read the answer.
func (b *body) discardUnread() unread {
	b.mu.Lock()
	closed, ended, left := b.closed, b.ended, b.remaining
	b.mu.Unlock()
	switch {
	case closed && ended:
		return unreadNone
	case closed:
		return unreadCut
	case left >= maxUnread:
		return unreadTooMuch
	}
	switch _, err := io.CopyN(io.Discard, b, maxUnread+1); {
	case err == nil:
		return unreadTooMuch
	case errors.Is(err, http.ErrBodyReadAfterClose):
		return unreadNone
	case errors.Is(err, io.EOF) && b.Close() == nil:
		return unreadNone
	}
	return unreadCut
}

// closedEarly reports whether the body was closed with more than maxUnread remaining.
func (b *body) closedEarly() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.early
}
