// Package lean serves requests of HTTP/1.1 and HTTP/2 without net/http's server, for less CPU.
// It accepts a strict subset of HTTP, which covers nearly all requests, and calls an
// [http.Handler] with a request and a writer that behave like net/http's.
//
//	End        is the head complete, and may it be in the subset? (parse.go)
//	New        parses a head, or refuses it: then net/http must serve it (parse.go)
//	Serve      calls the handler, and ends the answer (exchange.go)
//	Response   the writer: head and small body in one write (response.go)
//	body       the request's body, with a Content-Length only (body.go)
//
// An answer is what net/http would send, byte for byte: which fields are added, when it is
// chunked, when the connection ends. The code follows net/http's server.go step by step, and
// tests of internal/server compare the bytes of both. Over HTTP/2 the rules for fields are
// the same; a [FrameLink] gets head, body and trailers apart from each other.
//
// The package does not depend on the lane: a [Link] is all that it needs of a connection.
package lean

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Link is the connection of an exchange.
type Link interface {
	// Read reads the bytes behind the head, and waits for them.
	io.Reader
	// Send sends head and then body, either of which may be empty, and waits until the
	// socket has taken them.
	Send(head, body []byte) error
	// ReadFrom sends all that a reader has, a file without a copy.
	io.ReaderFrom
	// Hijack hands the connection off. Its Read first returns what was read ahead.
	Hijack() (net.Conn, error)
	// Switch sends head, and hands the connection off as a descriptor, with what was
	// read ahead. ok is false, and nothing was sent, where there is no descriptor or
	// sending would have to wait.
	Switch(head []byte) (fd int, early []byte, ok bool)
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// FrameLink is the Link of an exchange over HTTP/2. Send and ReadFrom send a part of the body,
// behind the head; head is the first part of it.
type FrameLink interface {
	Link
	// Head takes a head in the form of HTTP/1.1, before anything else. It need not be
	// sent before the next call. interim: another one follows it.
	Head(text []byte, interim bool)
	// End sends the last part of the body, and the lines of trailers, in the form of
	// HTTP/1.1.
	End(body, trailers []byte) error
	// Reset ends an answer that is not complete.
	Reset()
}

// Server has what all exchanges share.
type Server struct {
	Handler http.Handler
	// Name is the field Server of every final answer, in place of the handler's.
	// Empty: the handler's stays.
	Name string
	// Log logs a handler's mistakes, in net/http's words.
	Log func(format string, args ...any)

	date atomic.Pointer[date]
}

// date is the value of the Date field within one second.
type date struct {
	second int64
	text   string
}

// now returns the value of the Date field. It is made once a second.
func (s *Server) now() string {
	t := time.Now()
	if d := s.date.Load(); d != nil && d.second == t.Unix() {
		return d.text
	}
	d := &date{t.Unix(), t.UTC().Format(http.TimeFormat)}
	s.date.Store(d)
	return d.text
}

const (
	// bodyBufBytes and frameBodyBytes are how much of a body is buffered before it is
	// decided whether the answer has a Content-Length, over HTTP/1.1 and HTTP/2, as in
	// net/http.
	bodyBufBytes   = 2048
	frameBodyBytes = 4096
	// writeBufBytes is how much is buffered before it is sent: the head, and what
	// fits behind it.
	writeBufBytes = 4096
	// maxUnread is the most that is read and discarded of a body which the handler
	// has not read, so that the next request can follow, as in net/http.
	maxUnread = 256 << 10
	// lingerTime is how long a connection with an unread body stays open after the
	// answer, so that the client can read that, as in net/http.
	lingerTime = 500 * time.Millisecond
)

// buffers are those of one Response.
type buffers struct {
	out  [writeBufBytes + 256]byte // and the line of a chunk and the last chunk
	body [frameBodyBytes]byte
}

var bufferPool = sync.Pool{New: func() any { return new(buffers) }}

var copyPool = sync.Pool{New: func() any { return new([32 << 10]byte) }}
