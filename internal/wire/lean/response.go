package lean

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Response is the [http.ResponseWriter] of an exchange. It sends what net/http would send.
//
// A body goes through two buffers, as in net/http: bodyBufBytes wait for the choice between
// Content-Length and chunks, and writeBufBytes, with the head, are sent by one call.
type Response struct {
	x      *Exchange
	server *Server
	link   Link
	frames FrameLink // link, over HTTP/2; else nil

	header  http.Header
	status  int // 0: WriteHeader was not called yet
	length  int64
	written int64
	snap    snapshot
	headed  bool // the head is complete: in out, or sent
	chunked bool
	closing bool // the connection is to be closed after this answer
	linger  bool // as Linger
	duplex  bool
	done    bool // the handler has returned
	over    bool // the answer has ended: nothing is sent any more
	timed   bool // deadlines were set

	hijacked bool
	trailers []string
	err      error // of the first write that failed

	buffers *buffers
	out     []byte // what was not sent yet: buffers.out, or larger
	n       int    // bytes in buffers.body

	bodyBytes int // how many it may have
}

// Header implements [http.ResponseWriter].
func (w *Response) Header() http.Header { return w.header }

// caller returns the function outside this package that has called it, for the log.
func caller() runtime.Frame {
	pc := make([]uintptr, 16)
	frames := runtime.CallersFrames(pc[:runtime.Callers(1, pc)])
	for {
		frame, more := frames.Next()
		if !more || !strings.Contains(frame.Function, "/lean.") && !strings.Contains(frame.Function, "/server.(*writer)") {
			return frame
		}
	}
}

// logMisuse logs a handler's mistake and where it was made.
func (w *Response) logMisuse(what string) {
	c := caller()
	w.server.Log("http: %s from %s (%s:%d)", what, c.Function, path.Base(c.File), c.Line)
}

// WriteHeader implements [http.ResponseWriter].
func (w *Response) WriteHeader(code int) {
	switch {
	case w.over:
		return
	case w.hijacked:
		w.logMisuse("response.WriteHeader on hijacked connection")
		return
	case w.status != 0:
		w.logMisuse("superfluous response.WriteHeader call")
		return
	case code < 100 || code > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", code))
	}
	w.borrow()
	if code <= 199 && code != http.StatusSwitchingProtocols {
		w.interim(code)
		return
	}
	w.status = code
	w.out = appendStatus(w.out, code)
	w.writeFields()
	if v := first(w.header, "Content-Length"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err == nil && n >= 0 {
			w.length = n
		} else {
			w.server.Log("http: invalid Content-Length of %q", v)
			delete(w.header, "Content-Length")
		}
	}
}

// borrow gets buffers from the pool.
func (w *Response) borrow() {
	if w.buffers == nil {
		w.buffers = bufferPool.Get().(*buffers)
		w.out = w.buffers.out[:0]
	}
}

// release gives the buffers back. Later writes fail.
func (w *Response) release() {
	w.over = true
	if w.buffers != nil {
		bufferPool.Put(w.buffers)
		w.buffers, w.out, w.n = nil, nil, 0
	}
}

// interim sends an informational answer (1xx).
func (w *Response) interim(code int) {
	w.out = appendStatus(w.out, code)
	var s snapshot
	w.out = s.appendFields(w.out, w.header, "")
	w.out = s.codings.cut(w.out)
	w.out = s.lengths.cut(w.out)
	w.out = append(w.out, "\r\n"...)
	w.headDone(true)
	_ = w.send(nil)
}

// headDone gives a complete head to the link, if that wants it apart from the body.
func (w *Response) headDone(interim bool) {
	if w.frames != nil {
		w.frames.Head(w.out, interim)
		w.out = w.buffers.out[:0]
	}
}

// Write implements [http.ResponseWriter].
func (w *Response) Write(p []byte) (int, error) {
	if err := w.begin(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	total := len(p)
	for len(p) > w.bodyBytes-w.n && w.err == nil {
		if w.n == 0 {
			w.chunk(p)
			p = nil
			break
		}
		n := copy(w.buffers.body[w.n:w.bodyBytes], p)
		w.n += n
		p = p[n:]
		w.flushBody()
	}
	if w.err != nil {
		return total - len(p), w.err
	}
	w.n += copy(w.buffers.body[w.n:], p)
	return total, nil
}

// WriteString implements [io.StringWriter].
func (w *Response) WriteString(s string) (int, error) {
	if err := w.begin(len(s)); err != nil || len(s) == 0 {
		return 0, err
	}
	total := len(s)
	for len(s) > w.bodyBytes-w.n && w.err == nil { // never past the buffer, as in package bufio
		n := copy(w.buffers.body[w.n:w.bodyBytes], s)
		w.n += n
		s = s[n:]
		w.flushBody()
	}
	if w.err != nil {
		return total - len(s), w.err
	}
	w.n += copy(w.buffers.body[w.n:], s)
	return total, nil
}

// begin checks whether n bytes of the body may be written, and writes the header before the
// first.
func (w *Response) begin(n int) error {
	if w.hijacked {
		if n > 0 {
			w.logMisuse("response.Write on hijacked connection")
		}
		return http.ErrHijacked
	}
	if w.over {
		return http.ErrHandlerTimeout
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if n == 0 {
		return nil
	}
	if !hasBody(w.status) {
		return http.ErrBodyNotAllowed
	}
	w.written += int64(n)
	if w.length != -1 && w.written > w.length {
		return http.ErrContentLength
	}
	return w.err
}

// flushBody moves the buffered part of the body to out.
func (w *Response) flushBody() {
	if n := w.n; n > 0 && w.err == nil {
		w.n = 0
		w.chunk(w.buffers.body[:n])
	}
}

// chunk appends p to out, as a chunk if the answer is chunked, after the head. It sends out
// if it becomes too long.
func (w *Response) chunk(p []byte) {
	if !w.headed {
		w.finishHead(p)
	}
	if w.x.method == http.MethodHead {
		return
	}
	if w.chunked {
		w.reserve(20)
		w.out = append(strconv.AppendInt(w.out, int64(len(p)), 16), "\r\n"...)
	}
	if len(w.out)+len(p) <= writeBufBytes {
		w.out = append(w.out, p...)
	} else {
		_ = w.send(p)
	}
	if w.chunked {
		w.reserve(2)
		w.out = append(w.out, "\r\n"...)
	}
}

// reserve sends out if n more bytes do not fit behind it.
func (w *Response) reserve(n int) {
	if len(w.out)+n > len(w.buffers.out) {
		_ = w.send(nil)
	}
}

// send sends out, and p.
func (w *Response) send(p []byte) error {
	if w.err == nil && (len(w.out)+len(p) > 0 || w.frames != nil) {
		if w.err = w.link.Send(w.out, p); w.err != nil {
			w.x.cancel()
		}
	}
	w.out = w.buffers.out[:0]
	return w.err
}

// ReadFrom implements [io.ReaderFrom].
func (w *Response) ReadFrom(src io.Reader) (n int64, err error) {
	const sniffed = 512
	if !w.headed {
		n, err = w.copyFrom(io.LimitReader(src, sniffed))
		if err != nil || n < sniffed {
			return n, err
		}
	}
	if w.over {
		return n, http.ErrHandlerTimeout
	}
	w.flushBody()
	if !w.headed {
		w.finishHead(nil)
	}
	if err := w.send(nil); err != nil {
		return n, err
	}
	var more int64
	if !w.chunked && hasBody(w.status) && w.x.method != http.MethodHead {
		more, err = w.link.ReadFrom(src)
		w.written += more
		if err != nil && w.err == nil {
			w.err = err
		}
	} else {
		more, err = w.copyFrom(src)
	}
	return n + more, err
}

// copyFrom writes all that a reader has.
func (w *Response) copyFrom(src io.Reader) (int64, error) {
	buf := copyPool.Get().(*[32 << 10]byte)
	defer copyPool.Put(buf)
	return io.CopyBuffer(onlyWriter{w}, src, buf[:])
}

// onlyWriter hides ReadFrom from io.Copy.
type onlyWriter struct{ io.Writer }

// FlushError sends what was written so far. It is what [http.ResponseController] looks for.
func (w *Response) FlushError() error {
	if w.over {
		return w.err
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.flushBody()
	if !w.headed {
		w.finishHead(nil)
	}
	return w.send(nil)
}

// Flush implements [http.Flusher].
func (w *Response) Flush() { _ = w.FlushError() }

// Hijack implements [http.Hijacker].
func (w *Response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.done {
		panic("net/http: Hijack called after ServeHTTP finished")
	}
	if w.hijacked {
		return nil, nil, http.ErrHijacked
	}
	if w.frames != nil {
		return nil, nil, http.ErrNotSupported
	}
	if w.status != 0 {
		if !w.headed {
			w.finishHead(nil)
		}
		_ = w.send(nil)
	}
	nc, err := w.link.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.hijacked = true
	w.release()
	return nc, bufio.NewReadWriter(bufio.NewReader(nc), bufio.NewWriter(nc)), nil
}

// Switch is Hijack for an answer with the status 101, for which the caller passes the whole
// head. The caller gets the connection's descriptor. ok is false, and nothing was done,
// where only Hijack is possible.
func (w *Response) Switch(head []byte) (fd int, early []byte, ok bool) {
	if w.done || w.hijacked || w.status != 0 {
		return 0, nil, false
	}
	if fd, early, ok = w.link.Switch(head); ok {
		w.hijacked = true
		w.release()
	}
	return fd, early, ok
}

// SetReadDeadline is what [http.ResponseController] looks for.
func (w *Response) SetReadDeadline(t time.Time) error {
	w.timed = true
	return w.link.SetReadDeadline(t)
}

// SetWriteDeadline is what [http.ResponseController] looks for.
func (w *Response) SetWriteDeadline(t time.Time) error {
	w.timed = true
	return w.link.SetWriteDeadline(t)
}

// EnableFullDuplex is what [http.ResponseController] looks for.
func (w *Response) EnableFullDuplex() error {
	w.duplex = true
	return nil
}

// finish ends the answer after the handler has returned.
func (w *Response) finish() Outcome {
	w.done = true
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.flushBody()
	if !w.headed {
		w.finishHead(nil)
	}
	switch {
	case w.frames != nil:
		w.endFrames()
	case w.chunked && w.x.method != http.MethodHead:
		w.reserve(len("0\r\n\r\n"))
		w.out = w.appendTrailers(append(w.out, "0\r\n"...))
		w.out = append(w.out, "\r\n"...)
	}
	_ = w.send(nil)
	w.release()
	x := w.x
	if x.length > 0 {
		_ = x.body.Close()
	}
	if f := x.request.MultipartForm; f != nil {
		_ = f.RemoveAll()
	}
	w.resetDeadlines()
	short := x.method != http.MethodHead && w.length != -1 && hasBody(w.status) && w.length != w.written
	early := x.length > 0 && x.body.closedEarly()
	switch {
	case w.linger || early:
		return Linger
	case w.closing || short || w.err != nil:
		return Close
	}
	return Keep
}

// endFrames ends the answer over HTTP/2. net/http sends no trailers with an answer to HEAD.
func (w *Response) endFrames() {
	var trailers []byte
	if w.x.method != http.MethodHead {
		trailers = w.appendTrailers(nil)
	}
	if w.err == nil {
		w.err = w.frames.End(w.out, trailers)
	}
	w.out, w.frames = w.out[:0], nil
}

// abandon ends an answer whose handler has panicked. What it has written is sent.
func (w *Response) abandon() {
	w.done = true
	switch {
	case w.frames != nil:
		w.frames.Reset()
	case w.headed:
		_ = w.send(nil)
	}
	w.release()
	w.resetDeadlines()
	if w.x.length > 0 {
		_ = w.x.body.Close()
	}
}

// resetDeadlines removes the deadlines that the handler has set.
func (w *Response) resetDeadlines() {
	if w.timed {
		_ = w.link.SetReadDeadline(time.Time{})
		_ = w.link.SetWriteDeadline(time.Time{})
	}
}
