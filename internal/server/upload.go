package server

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/lane"
	"millrace/internal/wire/stall"
)

// body is a request's body as the job reads it.
type body struct {
	io.ReadCloser
	asked atomic.Bool // somebody wanted to read it

	// Over HTTP/2, where the lane does not see it:
	limits *Options
	pace   lane.Pace
	late   *time.Timer // ends the stream; nil over HTTP/1.1
	waits  *stall.Handlers

	mu    sync.Mutex
	ended bool // the request is answered: its stream is not ours any more
}

// cut ends the stream of an upload that is late, if it is still there.
func (b *body) cut(rc *http.ResponseController) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = rc.SetReadDeadline(time.Unix(1, 0))
	}
}

func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// upload is r with a body that keeps to the limits. done must be called when
// the request is answered. It is a copy: what net/http does with its own
// request before and after an answer depends on the type of the body.
func upload(w *writer, r *http.Request, o *Options) (limited *http.Request, done func()) {
	rw := w.rw
	b := &body{waits: w.waits, ReadCloser: http.MaxBytesReader(rw, r.Body, int64(o.BodyBytes)), limits: o}
	if r.ProtoMajor >= 2 {
		rc := http.NewResponseController(rw)
		b.late = time.AfterFunc(o.BodyTimeout, func() { b.cut(rc) })
		b.late.Stop() // until somebody waits
	}
	c := *r
	c.Body = b
	done = func() {
		if b.late != nil {
			b.late.Stop()
			b.end()
		}
		// RFC 9110, 10.1.1: a client that expects 100 and is refused sends no
		// body. net/http would wait for it, in order to discard it.
		if !b.asked.Load() && r.ProtoMajor == 1 && r.Header["Expect"] != nil {
			lane.EndInput(r)
		}
	}
	if r.ProtoMajor == 2 && LookForBody(&c) != nil {
		done()
		panic(http.ErrAbortHandler) // the client has gone, or sends half a request
	}
	return &c, done
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	b.asked.Store(true)
	if b.late == nil {
		return b.ReadCloser.Read(p)
	}
	began := time.Now()
	b.late.Reset(b.pace.Left(b.limits.BodyTimeout))
	b.waits.Wait()
	n, err := b.ReadCloser.Read(p)
	b.waits.Go()
	b.late.Stop()
	b.pace.Took(time.Since(began), n, b.limits.BodyTimeout, int64(b.limits.BodyRate))
	return n, err
}

// LookForBody finds out whether a request that may have a body has one, which is an
// error where there is none and its length says otherwise: over HTTP/2 and HTTP/3 it
// may end behind its header, in a frame of its own. Methods whose requests have one
// are not waited for: their client may wait for the answer.
func LookForBody(r *http.Request) error {
	if r.ContentLength == 0 || !rarelyWithBody(r.Method) {
		return nil
	}
	first := make([]byte, 1)
	n, err := io.ReadAtLeast(r.Body, first, 1)
	switch {
	case n > 0:
		r.Body = &prefixedBody{r.Body, first}
	case errors.Is(err, io.EOF) && r.ContentLength < 0: // else it is malformed (RFC 9114, 4.1.2)
		r.Body, r.ContentLength = http.NoBody, 0
	default:
		return err //nolint:wrapcheck // the client's end
	}
	return nil
}

func rarelyWithBody(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodDelete, http.MethodTrace:
		return true
	}
	return false
}

// prefixedBody is a body of which the first bytes have been read.
type prefixedBody struct {
	io.ReadCloser
	first []byte
}

// Read implements [io.Reader].
func (b *prefixedBody) Read(p []byte) (int, error) {
	if len(b.first) > 0 && len(p) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	return b.ReadCloser.Read(p) //nolint:wrapcheck // as it is
}
