package proxy

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"millrace/internal/upstream"
	"millrace/internal/upstream/spool"
	"millrace/internal/wire/field"
)

// interim passes interim responses (103 Early Hints) on while a round trip
// lasts. The hook may run on another goroutine, and even later.
type interim struct {
	w    http.ResponseWriter
	mu   sync.Mutex
	over bool
}

// pass sends one to the client. A 100 is not sent: on it the pool reads the body, and that
// makes net/http send one.
func (i *interim) pass(code int, fields field.Lines) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over || code <= http.StatusSwitchingProtocols || code > 199 {
		return nil
	}
	if err := CheckHeader(fields); err != nil {
		return err
	}
	h := i.w.Header()
	kept := maps.Clone(h)
	clear(h)
	Strip(&fields)
	setFields(h, fields)
	i.w.WriteHeader(code)
	clear(h)
	maps.Copy(h, kept)
	return nil
}

func (i *interim) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = true
}

// upload is a request's body on its way to the upstream. The transport reads it on
// another goroutine, possibly even after the answer has come. When the handler
// returns, no further Read begins. A Read that waits for the client then ends by the
// server's timeout; net/http waits for that before it uses the connection again.
type upload struct {
	in      *http.Request
	kept    *spool.Queue          // where all of it was taken in before; nil: it comes from the client
	first   *spool.Reader         // of kept, if the request may be repeated; nil: it may not
	trailer http.Header           // of the outgoing request
	reading sync.Mutex            // held while kept is read
	over    atomic.Bool           // the handler has ended
	err     atomic.Pointer[error] // that ended it
}

// newUpload gives out the body of r; nil: it has none.
func (h *Handler) newUpload(r *http.Request, out *upstream.Request) *upload {
	if r.ContentLength == 0 || r.Body == nil {
		return nil // so that the request may be repeated
	}
	u := &upload{in: r}
	// Only trailers that were announced: they must be known before the body.
	for name := range r.Trailer {
		if !mayTrail(name) || h.ours(name) {
			continue
		}
		if u.trailer == nil {
			u.trailer = make(http.Header, len(r.Trailer))
		}
		u.trailer[name] = nil
	}
	out.Body, out.Trailer = u, u.trailer
	return u
}

// mayTrail reports whether a field may be a trailer. A field that decides how the
// message is framed, routed or trusted may not (RFC 9110, 6.5.1), in any spelling:
// some upstreams merge trailers into the header.
func mayTrail(name string) bool {
	canonical := http.CanonicalHeaderKey(field.Fold(name))
	return field.Token(name) && !isConnectionLevel(canonical) && !protected(canonical) && !field.Override(name)
}

// valid reports whether values may be those of a field.
func valid(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !field.Value(v) })
}

// Read implements io.Reader for the transport.
func (u *upload) Read(p []byte) (int, error) {
	if u.kept != nil {
		u.reading.Lock()
		defer u.reading.Unlock()
	}
	if u.over.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := u.source().Read(p)
	u.readTo(err)
	return n, err
}

// readTo notes what ended the body.
func (u *upload) readTo(err error) {
	if err != nil {
		u.err.Store(&err)
	}
	if errors.Is(err, io.EOF) && u.kept == nil { // else takeIn has: several tries may read at once
		u.trail()
	}
}

// trail takes over the trailers of a body that was read to its end.
func (u *upload) trail() {
	for name := range u.trailer {
		if values := u.in.Trailer[name]; valid(values) {
			u.trailer[name] = values
		}
	}
}

// repeated is an upload's body for another try.
type repeated struct {
	*upload
	from *spool.Reader
}

// Read implements io.Reader.
func (b *repeated) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.over.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.from.Read(p)
	b.readTo(err)
	return n, err
}

// repeat returns the body once more.
func (u *upload) repeat() (io.ReadCloser, error) { return &repeated{u, u.kept.Reader()}, nil }

// Close implements io.Closer. The body is the server's to close, which would
// wait here for a client that was told to wait for 100 (Continue).
func (u *upload) Close() error { return nil }

// fault is the status for an upload that failed on the client's side, 0 where
// it did not.
func (u *upload) fault() int {
	if u == nil {
		return 0
	}
	p := u.err.Load()
	if p == nil || *p == io.EOF { //nolint:errorlint // io.Reader says that io.EOF is not wrapped
		return 0
	}
	if _, large := errors.AsType[*http.MaxBytesError](*p); large {
		return http.StatusRequestEntityTooLarge
	}
	if timeout, ok := errors.AsType[net.Error](*p); ok && timeout.Timeout() {
		return http.StatusRequestTimeout
	}
	return http.StatusBadRequest
}

// forbid ends reading for good.
func (u *upload) forbid() { u.over.Store(true) }

// closeAfter has the client's connection closed behind an answer that comes
// before the whole upload: what is left of it must not be taken for the next
// request, and the transport may still be reading.
func (u *upload) closeAfter(header http.Header, r *http.Request) {
	if u == nil || u.kept != nil || r.ProtoMajor != 1 {
		return
	}
	if p := u.err.Load(); p == nil || *p != io.EOF { //nolint:errorlint // io.Reader says that io.EOF is not wrapped
		header["Connection"] = []string{"close"}
	}
}
