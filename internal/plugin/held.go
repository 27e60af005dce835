//go:build !small

package plugin

import (
	"bufio"
	"errors"
	"maps"
	"net"
	"net/http"

	"millrace/internal/lane"
	"millrace/internal/wire/send"
)

// held is the ResponseWriter of a job whose answer a guest is to see before it is sent, or
// whose answer may be a connection. Such an answer passes, and its guest is free for other
// requests from then on.
type held struct {
	http.ResponseWriter
	r      *http.Request
	hold   bool // else everything passes
	most   int  // bytes of the body
	free   func()
	passed bool // the connection is the job's

	status int
	header http.Header // as it was with the status
	body   []byte
	over   bool // there was more
}

// errLarge tells a job that its answer is too large to be held.
var errLarge = errors.New("the answer is too large for a plugin to see it")

// pass has the job have the connection.
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
	case !x.hold || x.passed || status < 200:
		x.ResponseWriter.WriteHeader(status)
	case x.status == 0:
		x.status, x.header = status, x.Header().Clone()
	}
}

// Write implements [http.ResponseWriter].
func (x *held) Write(p []byte) (int, error) {
	if x.status == 0 && !x.passed {
		x.WriteHeader(http.StatusOK)
	}
	if !x.hold || x.passed {
		return x.ResponseWriter.Write(p) //nolint:wrapcheck // as it stands for it
	}
	if x.over || len(p) > x.most-len(x.body) {
		x.over, x.body = true, nil
		return 0, errLarge
	}
	x.body = append(x.body, p...)
	return len(p), nil
}

// FlushError is what [http.ResponseController] looks for. What is held is not sent early.
func (x *held) FlushError() error {
	if !x.hold || x.passed {
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
