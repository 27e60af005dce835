package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"

	"millrace/internal/lane"
)

// writer is the only ResponseWriter between net/http and a job. Whatever must
// be done to every answer is done here, so that nobody else wraps it: a wrapper
// that forgets ReadFrom silently loses sendfile.
type writer struct {
	rw     http.ResponseWriter
	h1     bool // rw is HTTP/1's, and has ReadFrom
	last   func() bool
	status int
	bytes  int64 // of the body
	abort  bool  // cut the connection
}

// These are shared by all answers; net/http only reads them.
var (
	serverHeader = []string{lane.ServerName}
	closeHeader  = []string{"close"}
)

// Header implements [http.ResponseWriter].
func (w *writer) Header() http.Header { return w.rw.Header() }

// WriteHeader implements [http.ResponseWriter].
func (w *writer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		if w.status == 0 {
			w.status = status
		}
		w.stamp()
	}
	w.rw.WriteHeader(status)
}

// stamp adds what every answer has. A drain is looked for here rather than when
// the request came: what took long must end the connection too.
func (w *writer) stamp() {
	w.rw.Header()["Server"] = serverHeader
	if w.h1 && w.status != http.StatusSwitchingProtocols && w.last() {
		w.rw.Header()["Connection"] = closeHeader
	}
}

// Write implements [http.ResponseWriter].
func (w *writer) Write(p []byte) (int, error) {
	w.begin()
	n, err := w.rw.Write(p)
	w.bytes += int64(n)
	return n, err
}

// WriteString implements [io.StringWriter].
func (w *writer) WriteString(s string) (int, error) {
	w.begin()
	n, err := io.WriteString(w.rw, s)
	w.bytes += int64(n)
	return n, err
}

func (w *writer) begin() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
}

// ReadFrom implements [io.ReaderFrom]. Over HTTP/1 it reaches the connection's
// own, and by that sendfile(2).
func (w *writer) ReadFrom(src io.Reader) (n int64, err error) {
	w.begin()
	if rf, ok := w.rw.(io.ReaderFrom); ok && w.h1 {
		n, err = rf.ReadFrom(src)
	} else {
		buf := copyBuffers.Get().(*[]byte)
		defer copyBuffers.Put(buf)
		n, err = io.CopyBuffer(struct{ io.Writer }{w.rw}, src, *buf)
	}
	w.bytes += n
	return n, err
}

// copyBuffers are for bodies over HTTP/2: as much as the lane has net/http put
// into one frame (h2), each of which costs two changes of goroutine.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// FlushError is what [http.ResponseController] looks for.
func (w *writer) FlushError() error {
	w.begin()
	return http.NewResponseController(w.rw).Flush()
}

// Flush implements [http.Flusher].
func (w *writer) Flush() { _ = w.FlushError() }

// Hijack implements [http.Hijacker].
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return http.NewResponseController(w.rw).Hijack()
}

// Unwrap lets [http.ResponseController] reach the deadlines.
func (w *writer) Unwrap() http.ResponseWriter { return w.rw }

// code is the status as it went out.
func (w *writer) code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}
