package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/lane"
	"millrace/internal/route/headers"
	"millrace/internal/route/site"
	"millrace/internal/wire/stall"
)

// writer is the only ResponseWriter between net/http and a job. Everything that all
// answers need is done here, so that no other code wraps it: a wrapper without ReadFrom
// silently loses sendfile.
type writer struct {
	rw           http.ResponseWriter
	visit        *visit
	r            *http.Request // net/http's
	lane         *lane.Lane
	copiers      *copiers
	h1           bool          // rw is HTTP/1's, and has ReadFrom
	deadline     writeDeadline // HTTP/3 only, where nothing else bounds slow clients
	writeTimeout time.Duration // for each piece, with deadline
	// waits counts writes that may wait for the client; nil: it is counted elsewhere.
	waits *stall.Handlers
	// warmUp: the answer is for no client, and is not counted.
	warmUp bool
	status int
	bytes  int64 // of the body
	abort  bool  // cut the connection

	pages    site.Pages
	appPages site.Pages // pages for errors of an application
	replaced string     // the error page that replaces the answer; what the job writes is dropped
	forced   int        // the status of that page

	notModifiedType []string // the Content-Type that a 304 stands for
}

// Shared by all answers; net/http only reads them.
var (
	serverHeader = []string{lane.ServerName}
	closeHeader  = []string{"close"}
)

// Header implements [http.ResponseWriter].
func (w *writer) Header() http.Header { return w.rw.Header() }

// WriteHeader implements [http.ResponseWriter].
func (w *writer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		if w.forced != 0 && w.status == 0 {
			if status != http.StatusOK {
				w.replaced = noPage
				return
			}
			status = w.forced
		} else if w.status == 0 && w.replaced == "" {
			w.replaced = w.pages.For(status)
		}
		if w.status == 0 {
			w.status = status
		}
		if w.replaced != "" {
			return
		}
		w.addFields()
	} else {
		w.interim(status)
		return
	}
	w.rw.WriteHeader(status)
}

// interim writes an interim answer, which has no Content-Length (RFC 9110, 8.6); quic-go
// would send one. Over HTTP/2, where the client resets the stream just then, net/http's
// WriteHeader returns while another goroutine of it still reads the header, which ends
// the process if the final answer's fields are put there meanwhile. A Content-Length,
// which it does not send, makes it read a copy.
func (w *writer) interim(status int) {
	h := w.rw.Header()
	length, had := h["Content-Length"]
	if delete(h, "Content-Length"); w.r.ProtoMajor == 2 {
		h["Content-Length"] = noLength
	}
	if w.deadline != nil {
		dropHop(h)
	}
	w.rw.WriteHeader(status)
	if delete(h, "Content-Length"); had {
		h["Content-Length"] = length
	}
}

var noLength = []string{"0"}

// addFields adds the header fields that every answer has. Whether the server drains is
// checked here rather than at the start of the request: a slow answer must end the
// connection, too.
func (w *writer) addFields() {
	v, h, kind := w.visit, w.rw.Header(), w.notModifiedType
	if v.trace.On() {
		v.headed = time.Since(v.began)
	}
	if own := h["Content-Type"]; own != nil || w.code() != http.StatusNotModified {
		kind = own
	}
	v.addFields(headers.Of(h), w.code(), first(kind))
	if !v.through { // else the lane adds it
		h["Server"] = serverHeader
	}
	if w.deadline != nil {
		dropHop(h)
	}
	if w.h1 && w.status != http.StatusSwitchingProtocols && w.lane.LastAnswer(w.r) {
		h["Connection"] = closeHeader
	}
}

// OwnPage says that the answer is not to be replaced by an error page, nor changed by the
// site's rules for header fields.
func (w *writer) OwnPage() { w.visit.ownPage, w.pages, w.appPages = true, nil, nil }

// RequestID is for [pages.Error].
func (w *writer) RequestID() string { return w.visit.id }

// PassOn notes that the answer comes from an application ([send.PassOn]).
func (w *writer) PassOn() { w.pages = w.appPages }

// StandsFor notes the Content-Type of the content that a 304 is about
// ([send.StandsFor]).
func (w *writer) StandsFor(contentType []string) { w.notModifiedType = contentType }

// Write implements [http.ResponseWriter].
func (w *writer) Write(p []byte) (int, error) {
	w.begin()
	if w.replaced != "" {
		return len(p), nil
	}
	if w.deadline != nil {
		return w.writeTimed(p)
	}
	w.waits.Wait()
	n, err := w.rw.Write(p)
	w.waits.Go()
	w.bytes += int64(n)
	return n, err
}

// WriteString implements [io.StringWriter].
func (w *writer) WriteString(s string) (int, error) {
	w.begin()
	if w.replaced != "" {
		return len(s), nil
	}
	if w.deadline != nil || w.waits != nil {
		return w.Write([]byte(s))
	}
	n, err := io.WriteString(w.rw, s)
	w.bytes += int64(n)
	return n, err
}

func (w *writer) begin() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
}

// ReadFrom implements [io.ReaderFrom]. Over HTTP/1 it calls the connection's ReadFrom,
// which uses sendfile(2).
func (w *writer) ReadFrom(src io.Reader) (n int64, err error) {
	w.begin()
	if w.replaced != "" {
		return io.Copy(io.Discard, src)
	}
	if rf, ok := w.rw.(io.ReaderFrom); ok && w.h1 {
		n, err = rf.ReadFrom(src)
	} else {
		before := w.bytes
		n, err = w.copy(src)
		w.bytes = before // copy has counted
	}
	w.bytes += n
	return n, err
}

// copiers counts the answers over HTTP/2 that are being copied with large buffers.
type copiers struct {
	n      atomic.Int32
	budget *stall.Budget
}

const (
	// largeCopy is as much as net/http puts into one frame behind package h2; each
	// frame costs two changes of goroutine. A client that reads nothing keeps its
	// buffer, so an answer gets a large one only after warmCopy bytes, and at most
	// maxLarge answers have one at once: 32 MiB.
	largeCopy = 256 << 10
	maxLarge  = 128
	smallCopy = 16 << 10
	warmCopy  = 64 << 10
	// tinyCopy is the buffer for the beginning of an answer while many streams wait for
	// their clients: most of those have sent no more than that.
	tinyCopy = 4 << 10
)

var (
	largeBuffers = sync.Pool{New: func() any { b := make([]byte, largeCopy); return &b }}
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallCopy); return &b }}
	tinyBuffers  = sync.Pool{New: func() any { b := make([]byte, tinyCopy); return &b }}
)

// copy copies a body, for HTTP/2 and HTTP/3.
func (w *writer) copy(src io.Reader) (int64, error) {
	pool := &smallBuffers
	if w.copiers.budget.Pressed() {
		pool = &tinyBuffers
	}
	n, err := w.copyBy(pool, io.LimitReader(src, warmCopy))
	if err != nil || n < warmCopy {
		return n, err
	}
	pool = &smallBuffers
	if w.copiers.n.Add(1) <= maxLarge {
		pool = &largeBuffers
	}
	defer w.copiers.n.Add(-1)
	more, err := w.copyBy(pool, src)
	return n + more, err
}

func (w *writer) copyBy(pool *sync.Pool, src io.Reader) (int64, error) {
	buf := pool.Get().(*[]byte)
	defer pool.Put(buf)
	to := io.Writer(w.rw)
	if w.deadline != nil {
		to = timedWriter{w}
	} else if w.waits != nil {
		to = waitingWriter{w}
	}
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{src}, *buf)
}

// waitingWriter is a writer without ReadFrom that counts waits.
type waitingWriter struct{ w *writer }

// Write implements [io.Writer].
func (x waitingWriter) Write(p []byte) (int, error) {
	x.w.waits.Wait()
	defer x.w.waits.Go()
	return x.w.rw.Write(p)
}

// FlushError is what [http.ResponseController] looks for.
func (w *writer) FlushError() error {
	w.begin()
	if w.replaced != "" {
		return nil
	}
	w.waits.Wait()
	defer w.waits.Go()
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

// Switch implements [lane.Switcher].
func (w *writer) Switch(head []byte) (fd int, early []byte, ok bool) {
	s, can := w.rw.(lane.Switcher)
	if !can || w.status != 0 {
		return 0, nil, false
	}
	if fd, early, ok = s.Switch(head); ok {
		w.status = http.StatusSwitchingProtocols
	}
	return fd, early, ok
}

// Unwrap lets [http.ResponseController] reach the deadlines.
func (w *writer) Unwrap() http.ResponseWriter { return w.rw }

// code is the status as it was sent.
func (w *writer) code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}
