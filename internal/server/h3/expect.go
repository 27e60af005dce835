package h3

import (
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"millrace/internal/wire/field"
)

// expects reports whether a client waits for 100 (Continue) before it sends its
// body (RFC 9110, 10.1.1). quic-go sends none.
func expects(r *http.Request) bool {
	return r.ContentLength != 0 && r.Header["Expect"] != nil && field.Has(r.Header["Expect"], "100-continue")
}

// continueWriter answers a client that waits for 100 before it sends its body. The first
// read of the body sends 100. That may be in another goroutine than the handler's, so the
// handler's fields are kept apart from quic-go's header until the answer begins.
type continueWriter struct {
	http.ResponseWriter
	header http.Header
	body   io.ReadCloser

	mu        sync.Mutex
	continued bool // 100 was sent
	answered  bool // the answer has begun: no 100 may follow
}

// withContinue returns a writer for the answer, and gives r a body whose first read sends
// 100 (Continue).
func withContinue(w http.ResponseWriter, r *http.Request) *continueWriter {
	p := &continueWriter{ResponseWriter: w, header: http.Header{}, body: r.Body}
	r.Body = continueBody{p}
	return p
}

// Header implements [http.ResponseWriter].
func (p *continueWriter) Header() http.Header { return p.header }

// Unwrap lets [http.ResponseController] reach the deadlines.
func (p *continueWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// SetReadDeadline is what [http.ResponseController] looks for.
func (p *continueWriter) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(p.ResponseWriter).SetReadDeadline(t)
}

// SetWriteDeadline is what internal/server looks for.
func (p *continueWriter) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(p.ResponseWriter).SetWriteDeadline(t)
}

// WriteHeader implements [http.ResponseWriter].
func (p *continueWriter) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answered {
		return
	}
	fields := p.ResponseWriter.Header()
	maps.Copy(fields, p.header)
	p.ResponseWriter.WriteHeader(status)
	if p.answered = status >= http.StatusOK; !p.answered {
		clear(fields)
	}
}

// Write implements [http.ResponseWriter].
func (p *continueWriter) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK) // unless the handler has
	return p.ResponseWriter.Write(b)
}

// FlushError is what [http.ResponseController] looks for.
func (p *continueWriter) FlushError() error {
	p.WriteHeader(http.StatusOK) // unless the handler has
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// finish begins the answer if the handler has not, and gives quic-go the trailers.
func (p *continueWriter) finish() {
	p.WriteHeader(http.StatusOK)                   // unless the handler has
	maps.Copy(p.ResponseWriter.Header(), p.header) // trailers
}

// continueBody is the body that such a client sends after 100.
type continueBody struct{ w *continueWriter }

// Read implements [io.Reader].
func (b continueBody) Read(to []byte) (int, error) {
	p := b.w
	p.mu.Lock()
	if !p.continued && !p.answered {
		p.ResponseWriter.WriteHeader(http.StatusContinue)
	}
	p.continued = true
	p.mu.Unlock()
	return p.body.Read(to) //nolint:wrapcheck // as it is
}

// Close implements [io.Closer].
func (b continueBody) Close() error { return b.w.body.Close() } //nolint:wrapcheck // as it is
