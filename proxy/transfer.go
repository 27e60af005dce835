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
	queue   *spool.Queue          // where all of it was taken in before; nil: it comes from the client
	trailer http.Header           // of the outgoing request
	reading sync.Mutex            // held while queue is read
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

// Read implements io.Reader for the transport, where the body comes from the client.
func (u *upload) Read(p []byte) (int, error) {
	if u.over.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := u.in.Body.Read(p)
	if err != nil {
		u.err.Store(&err)
	}
	if errors.Is(err, io.EOF) {
		u.trail()
	}
	return n, err
}

// trail takes over the trailers of a body that was read to its end.
func (u *upload) trail() {
	for name := range u.trailer {
		if values := u.in.Trailer[name]; valid(values) {
			u.trailer[name] = values
		}
	}
}

// kept is an upload of which all was taken in. It writes itself to a connection.
type kept struct {
	*upload
	from interface {
		io.Reader
		io.WriterTo
	}
}

// Read implements io.Reader.
func (k *kept) Read(p []byte) (int, error) {
	k.reading.Lock()
	defer k.reading.Unlock()
	if k.over.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return k.from.Read(p)
}

// WriteTo implements io.WriterTo. The end of the connection ends it.
func (k *kept) WriteTo(w io.Writer) (int64, error) {
	k.reading.Lock()
	defer k.reading.Unlock()
	if k.over.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return k.from.WriteTo(w)
}

// again returns the body once more.
func (u *upload) again() (io.ReadCloser, error) { return &kept{u, u.queue.Reader()}, nil }

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
	if u == nil || u.queue != nil || r.ProtoMajor != 1 {
		return
	}
	if p := u.err.Load(); p == nil || *p != io.EOF { //nolint:errorlint // io.Reader says that io.EOF is not wrapped
		header["Connection"] = []string{"close"}
	}
}
