//go:build !small

package plugin

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"

	"millrace/internal/lane"
	"millrace/internal/wire/send"
)

// held is the ResponseWriter of a job. It holds an answer that a guest is to see before it is
// sent. Any other answer passes, such as a WebSocket, and the guest is free for other
// requests from its head on.
type held struct {
	http.ResponseWriter
	r      *http.Request
	hold   bool   // else everything passes
	most   int    // bytes of the body
	seen   func() // shows the guest the head of an answer that was sent
	free   func()
	passed bool // the guest has no part in it any more

	headOnly bool // the job answers a HEAD that was another request: it sends no body
	bare     bool // the status that was sent has no body

	status int
	header http.Header // as it was with the status
	body   []byte
	over   bool // there was more
}

// errLarge tells a job that its answer is too large to be held.
var errLarge = errors.New("the answer is too large for a plugin to see it")

// pass has the job go on without the guest.
func (x *held) pass() {
	if !x.passed {
		x.passed = true
		x.free()
	}
}

// WriteHeader implements [http.ResponseWriter].
func (x *held) WriteHeader(status int) {
	tunnel := status == http.StatusSwitchingProtocols || x.r.Method == http.MethodConnect && status/100 == 2
	switch {
	case tunnel && x.status == 0:
		x.pass()
		x.ResponseWriter.WriteHeader(status)
	case x.passed || status < 200:
		x.ResponseWriter.WriteHeader(status)
	case !x.hold:
		if x.headOnly { // its length is that of a body that does not come
			x.Header().Del("Content-Length")
		}
		x.ResponseWriter.WriteHeader(status)
		x.seen()
		x.pass()
	case x.status == 0:
		x.status, x.header = status, x.Header().Clone()
	}
}

// Write implements [http.ResponseWriter].
func (x *held) Write(p []byte) (int, error) {
	if x.status == 0 && !x.passed {
		x.WriteHeader(http.StatusOK)
	}
	switch {
	case x.bare:
		return len(p), nil
	case x.passed:
		return x.ResponseWriter.Write(p) //nolint:wrapcheck // as it stands for it
	}
	if x.over || len(p) > x.most-len(x.body) {
		x.over, x.body = true, nil
		return 0, errLarge
	}
	x.body = append(x.body, p...)
	return len(p), nil
}

// ReadFrom implements [io.ReaderFrom], by which files are sent.
func (x *held) ReadFrom(r io.Reader) (int64, error) {
	if x.status == 0 && !x.passed {
		x.WriteHeader(http.StatusOK)
	}
	to := x.ResponseWriter
	if x.passed && !x.bare {
		return io.Copy(to, r) //nolint:wrapcheck // as it stands for it
	}
	return io.Copy(struct{ io.Writer }{x}, r) //nolint:wrapcheck // as above
}

// FlushError is what [http.ResponseController] looks for. What is held is not sent early.
func (x *held) FlushError() error {
	if !x.hold && !x.passed {
		x.WriteHeader(http.StatusOK)
	}
	if x.passed {
		return http.NewResponseController(x.ResponseWriter).Flush() //nolint:wrapcheck // as it stands for it
	}
	return nil
}

// Flush implements [http.Flusher].
func (x *held) Flush() { _ = x.FlushError() }

// Hijack implements [http.Hijacker].
func (x *held) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, buf, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil {
		x.pass()
	}
	return nc, buf, err //nolint:wrapcheck // as it stands for it
}

// Switch implements [lane.Switcher].
func (x *held) Switch(head []byte) (fd int, early []byte, ok bool) {
	s, can := x.ResponseWriter.(lane.Switcher)
	if !can {
		return 0, nil, false
	}
	if fd, early, ok = s.Switch(head); ok {
		x.pass()
	}
	return fd, early, ok
}

// PassOn says that an application has answered.
func (x *held) PassOn() { send.PassOn(x.ResponseWriter) }

// StandsFor is for [send.StandsFor].
func (x *held) StandsFor(contentType []string) { send.StandsFor(x.ResponseWriter, contentType) }

// OwnPage says that the answer keeps its header.
func (x *held) OwnPage() {
	if o, ok := x.ResponseWriter.(interface{ OwnPage() }); ok {
		o.OwnPage()
	}
}

// Unwrap lets [http.ResponseController] reach the deadlines.
func (x *held) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// restore makes the header what it was when the job named the status: what came later were
// trailers.
func (x *held) restore() {
	if x.header != nil {
		clear(x.Header())
		maps.Copy(x.Header(), x.header)
	}
}
