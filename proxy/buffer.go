package proxy

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strings"

	"millrace/internal/upstream"
	"millrace/internal/upstream/spool"
	"millrace/internal/wire/field"
	"millrace/internal/wire/send"
)

// normal is b with its defaults.
func (b Buffer) normal() Buffer {
	return Buffer{
		Request: cmp.Or(max(b.Request, 0), 1<<20),
		Answer:  cmp.Or(max(b.Answer, 0), 1<<20),
		File:    cmp.Or(max(b.File, 0), 1<<30),
	}
}

// discard gives the space of an upload back. The transport may still be reading
// it, so forbid comes first.
func (u *upload) discard() {
	u.forbid()
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.queue != nil {
		_ = u.queue.Close() // of a file that nobody needs any more
	}
}

// takeIn reads the whole upload before the request gets a place at the upstream,
// so that a slow client does not occupy one. It reports whether the request goes
// on; otherwise it was answered.
func (h *Handler) takeIn(w http.ResponseWriter, r *http.Request, out *upstream.Request, u *upload) bool {
	if h.stream || isGRPC(out.Fields) || out.Fields.Has("Upgrade") {
		return true
	}
	limit := int64(h.buffer.Request + h.buffer.File)
	if r.ContentLength > limit {
		u.closeAfter(w.Header(), r)
		refuse(w, r, http.StatusRequestEntityTooLarge)
		return false
	}
	q := h.room.NewQueue(int64(h.buffer.Request), limit)
	err := q.Fill(r.Body, false)
	if err == nil {
		u.trail()
		u.queue = q
		switch {
		case r.Method == http.MethodPut, r.Method == http.MethodDelete:
			out.Body, out.Again = &kept{u, q.Reader()}, u.again
		case h.copies != nil:
			out.Body = &kept{u, q.Reader()}
		default: // it is not repeated, and its space is free sooner
			out.Body = &kept{u, q}
		}
		out.Whole = true
		u.measured(out, q.Size())
		out.Fields.Delete("Expect") // the client has sent it
		return true
	}
	_ = q.Close() // of a file that nobody needs any more
	u.err.Store(&err)
	u.closeAfter(w.Header(), r)
	switch {
	case errors.Is(err, spool.ErrLong):
		refuse(w, r, http.StatusRequestEntityTooLarge)
	case errors.Is(err, spool.ErrFull):
		w.Header().Set("Retry-After", "5")
		refuse(w, r, http.StatusServiceUnavailable)
	case r.Context().Err() != nil:
		h.Fail(w, r, err)
	default:
		refuse(w, r, u.fault())
	}
	return false
}

// measured has a body that is there as a whole go on with its length: many
// applications know nothing of chunks, and take such a body for none. Only trailers need
// them.
func (u *upload) measured(out *upstream.Request, size int64) {
	for _, values := range u.trailer {
		if len(values) > 0 {
			return
		}
	}
	u.trailer, out.Trailer, out.Length = nil, nil, size
	if size == 0 {
		out.Body = http.NoBody
	}
}

func isGRPC(l field.Lines) bool {
	return strings.HasPrefix(strings.ToLower(l.First("Content-Type")), "application/grpc")
}

// passes reports whether an answer is passed on as it comes: an event stream has
// no end, and what it does not hold is not buffered.
func (h *Handler) passes(a *upstream.Answer) bool {
	kind, _, _ := strings.Cut(a.Fields.First("Content-Type"), ";")
	return h.stream || isGRPC(a.Fields) || strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") ||
		strings.EqualFold(a.Fields.First("X-Accel-Buffering"), "no")
}

// SendBody sends an answer's body, and returns how many bytes of it were sent. Unless it
// is passed on as it comes, it is read from the upstream as fast as that gives it, so that
// its place is free again however slowly the client reads. What is too much for the memory
// goes to a file; from then on it has no place, since the upstream may have to wait for the
// disk.
func (h *Handler) SendBody(w http.ResponseWriter, a *upstream.Answer) (sent int64, readErr, writeErr error) {
	if h.passes(a) || a.Length == 0 {
		return h.copyBody(w, a)
	}
	space := h.room.Space()
	n, err := 0, error(nil)
	if upstream.Ready(a.Body) { // else the header goes ahead, for which the client may have us wait
		n, err = a.Body.Read(*space)
		if err == nil && int64(n) == a.Length {
			_, err = a.Body.Read((*space)[n:cap(*space)]) // the end, which frees the place
		}
	}
	if err == nil {
		return h.drain(w, a, space, n)
	}
	// That was all of it, as mostly.
	defer h.room.Free(space)
	if n > 0 {
		if n, writeErr = w.Write((*space)[:n]); writeErr != nil {
			return int64(n), nil, writeErr
		}
	}
	if err == io.EOF { //nolint:errorlint // a wrapped one is not the body's end
		err = nil
	}
	return int64(n), err, nil
}

// drain sends an answer's body, whose first n bytes are in a space, while it is taken in.
func (h *Handler) drain(w http.ResponseWriter, a *upstream.Answer, space *[]byte, n int) (sent int64, readErr, writeErr error) {
	q := h.room.NewQueue(int64(h.buffer.Answer), int64(h.buffer.File))
	q.Begin(space, n)
	q.OnLate(func() { upstream.Yield(a.Body) })
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		_ = q.Fill(a.Body, true) // Drain tells
	}()
	sent, readErr, writeErr = q.Drain(w, func() error { return send.Flush(w) })
	_ = q.Close() // of a file that nobody needs any more
	if readErr != nil || writeErr != nil {
		a.Body.Close() // which ends a Read
	}
	<-filled
	return sent, readErr, writeErr
}

// copyBody sends an answer's body as it comes: before it waits for more, what has come
// goes to the client, and be it the header alone.
func (h *Handler) copyBody(w http.ResponseWriter, a *upstream.Answer) (sent int64, readErr, writeErr error) {
	space := h.room.Space()
	defer h.room.Free(space)
	for {
		if !upstream.Ready(a.Body) {
			if err := send.Flush(w); err != nil {
				return sent, nil, err
			}
		}
		n, err := a.Body.Read(*space)
		if n > 0 {
			m, werr := w.Write((*space)[:n])
			if sent += int64(m); werr != nil {
				return sent, nil, werr
			}
		}
		switch {
		case err == io.EOF:
			return sent, nil, nil
		case err != nil:
			return sent, err, nil
		}
	}
}
