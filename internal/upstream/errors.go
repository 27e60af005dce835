package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
)

// The errors, possibly wrapped. Status maps them to the status for the client.
var (
	ErrUnreachable = errors.New("the upstream cannot be reached")
	ErrTimeout     = errors.New("the upstream is too slow")
	ErrBusy        = errors.New("too many requests wait for the upstream")
	ErrUnhealthy   = errors.New("no upstream is healthy")
	ErrProtocol    = errors.New("the upstream breaks the protocol")
)

// Causes that net/http has no error for.
var (
	errEarly       = errors.New("it sent bytes before it was asked")
	errInterims    = errors.New("too many interim responses")
	errStatus      = errors.New("a status below 200 is not a final answer")
	errName        = errors.New("a field's name contains a space")
	errUnasked     = errors.New("it switched protocols without being asked to")
	errBodyStalls  = errors.New("the body makes no progress")
	errUploadStuck = errors.New("it does not take the request's body")
	errAllStreams  = errors.New("all its streams are taken")
	errQueueFull   = errors.New("the queue is full")
	errQueueWait   = errors.New("no place became free in time")
	errConnect     = errors.New("CONNECT cannot be passed on")
	errTarget      = errors.New("the request's target contains a space or a control character")
	errGivenUp     = errors.New("the request was given up")
	errClosed      = errors.New("it closed the connection without an answer")
)

// Status is the status for an error of Do: 502 for a server that cannot be
// reached or breaks the protocol, 504 for one that is too slow, 503 if all places
// were taken or no server is healthy. A 503 needs a Retry-After.
//
// For [context.Canceled] it is 503, too. The client that went away does not see
// it (499 is for log files and never sent), and clients that shared its request
// may try again. Anything else is 502.
func Status(err error) int {
	switch {
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, ErrBusy), errors.Is(err, ErrUnhealthy), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}

// upstreamError is a sentinel with the server and the cause.
type upstreamError struct {
	kind   error
	server string // "": none was chosen
	cause  error  // nil: none but the kind
}

// Error implements error.
func (e *upstreamError) Error() string {
	text := e.kind.Error()
	if e.server != "" {
		text += ": " + e.server
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap lets errors.Is find the sentinel and the cause.
func (e *upstreamError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.kind}
	}
	return []error{e.kind, e.cause}
}

// interrupted is the error of a request whose context is done.
func interrupted(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &upstreamError{kind: ErrTimeout, cause: context.DeadlineExceeded}
	case errors.Is(cause, context.Canceled):
		return cause
	}
	return &upstreamError{kind: context.Canceled, cause: cause}
}

// Unreachable reports whether an error of Do means that the servers are down:
// none could be connected to, or none answered at all. A server that is too slow, or
// answers something that is not HTTP, is not down.
func Unreachable(err error) bool {
	_, connecting := errors.AsType[*dialError](err)
	return connecting || errors.Is(err, ErrUnreachable) || errors.Is(err, ErrUnhealthy)
}

// exhausted reports whether this machine, or this process, has no file descriptors
// left. The server is not to blame for that.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// outcomeOf is the outcome, for the server's record, of a try that ended in an error.
func outcomeOf(err error) outcome {
	if exhausted(err) {
		return undecided
	}
	return failed
}

// isTimeout reports whether an error is a timeout.
func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// dialError is a failed connect. The type tells it from errors on a connection that
// was made.
type dialError struct{ error }

// Unwrap returns what [net.Dialer] said.
func (e *dialError) Unwrap() error { return e.error }
