// Package lean serves requests of HTTP/1.1 without net/http's server: the
// through road. It understands a strict subset, which is nearly all of what
// clients send, and calls the same [http.Handler] with a request and a writer
// that nobody can tell from net/http's.
//
//	End        is the head complete, and could it be one of ours? (parse.go)
//	New        a head becomes a request; any doubt is for net/http (parse.go)
//	Serve      the handler is called, and its answer ends (exchange.go)
//	Response   the writer: head and small body in one write (response.go)
//	body       the request's body, by Content-Length alone (body.go)
//
// What an answer looks like is net/http's choice in every detail: which fields
// are added, when it is chunked, when the connection ends. The code follows
// net/http's server.go step by step, and the oracle of internal/server holds
// the bytes of both against each other.
//
// The package knows neither connections nor the lane: a [Link] is all that it
// has of them.
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
	// Read reads what follows the head on the connection, and waits for it.
	io.Reader
	// Send sends head and then body, either of which may be empty, and waits
	// until all of it has gone.
	Send(head, body []byte) error
	// ReadFrom sends what a reader has, files without a copy.
	io.ReaderFrom
	// Hijack gives the connection up. What was read of it and is not yet used
	// comes first when it is read.
	Hijack() (net.Conn, error)
	// Switch sends head, and gives the connection's descriptor up, which then is the
	// caller's, with what was read of it and not yet used. It reports false, and has
	// sent nothing, where there is no descriptor, or where sending would have to wait.
	Switch(head []byte) (fd int, early []byte, ok bool)
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Server is what all exchanges share.
type Server struct {
	Handler http.Handler
	// Name is what the field Server says in every final answer, whatever the
	// handler says. Empty: what the handler says.
	Name string
	// Log gets a handler's mistakes, as net/http words them.
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
	// sniffed is how much of a body net/http keeps back before it decides
	// between a Content-Length and chunks.
	bodyBufBytes = 2048
	// writeBufBytes is how much is collected before it is sent: the head, and what
	// follows it as long as it is small.
	writeBufBytes = 4096
	// maxUnread is how much of a body that no handler has read is read for the
	// sake of the next request, as net/http has it.
	maxUnread = 256 << 10
	// lingerTime is for how long the client of an unread body may read its answer
	// before the connection is closed, as net/http has it.
	lingerTime = 500 * time.Millisecond
)

// buffers are what an answer is put together in.
type buffers struct {
	out  [writeBufBytes + 256]byte // with room for a chunk's line and for the end
	body [bodyBufBytes]byte
}

var bufferPool = sync.Pool{New: func() any { return new(buffers) }}

var copyPool = sync.Pool{New: func() any { return new([32 << 10]byte) }}
