// Package client is a connection to a server: one that behaves badly on purpose
// (file abuse.go), or one with one request under way at a time, in the
// protocols that the generator's own loop does not have: HTTP/1.1 over TLS,
// HTTP/2, HTTP/3 and WebSocket. HTTP/1.1 over plain TCP and UNIX sockets is here
// too, so that both ways of sending can be compared.
//
// It does nothing that would make the server's work easier than stated: a
// connection is never shared, replaced or retried without the caller knowing, no
// redirect is followed, no cookie kept, no body decompressed, and no TLS session
// is resumed unless [Options].TLS has a cache: each Dial does a full handshake.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// A Conn is one connection. HTTP/1.1 and WebSocket connections do one request
// at a time; HTTP/2 and HTTP/3 ones as many as [Options].Streams, each called
// from a goroutine of its own. After an error it is of no more use: close it
// and dial anew.
type Conn interface {
	// Do asks for the path with that index in [Options].Paths and waits for
	// the complete answer. The body is discarded, or written to tee where that
	// is not nil. A WebSocket connection sends its message instead, and the
	// answer must be the same message.
	//
	// Errors wrap ErrClosed, ErrTimeout or ErrProtocol. When ctx ended, they
	// wrap its error too.
	Do(ctx context.Context, path int, tee io.Writer) (Answer, error)
	// Close ends the connection and whatever is in flight on it. A WebSocket
	// is asked to close first, and given CloseWait to agree.
	Close() error
}

// An Asker is what the Conn of HTTP is, too: for requests that are made one by one.
type Asker interface {
	// Ask sends a request and waits for the complete answer, as Do does.
	Ask(ctx context.Context, r Request, tee io.Writer) (Answer, error)
}

// A Request is one for [Asker]. Its Header is all that is sent beside what the
// protocol demands; Host in it replaces the URL's.
type Request struct {
	Method, Path string
	Header       http.Header
	Body         []byte // nil: none
}

// A Messenger is what the Conn of a WebSocket is, too: for those that receive
// what they have not sent. Calls must not overlap.
type Messenger interface {
	// Send sends a message as text.
	Send(ctx context.Context, message []byte) error
	// Receive waits for a whole message, at most [Options].Timeout, and appends
	// it to into[:0]. Errors are those of Do.
	Receive(ctx context.Context, into []byte) ([]byte, error)
}

// An Answer is what came back, complete.
type Answer struct {
	Status int         // of HTTP; 101, the upgrade's, for each WebSocket message
	Body   int64       // bytes of the body, or of the message
	Bytes  int64       // on the wire, with head and framing but without TLS; 0 where the protocol hides it
	Head   http.Header // not to be changed; nil for WebSocket messages
	// Close says that the target ends the connection after this answer: dial
	// anew for the next. That is the target's right and no error. Beside an
	// ErrClosed it says that the target was already leaving in good order and
	// never took the request (GOAWAY in HTTP/2 and 3): dial anew and ask again.
	Close bool
}

// A Dialer opens connections to one target. It may be used from several
// goroutines.
type Dialer interface {
	// Dial connects, shakes hands and upgrades. Errors wrap ErrConnect and
	// none of the others.
	Dial(ctx context.Context) (Conn, error)
	// Close gives back what connections share; those still open are the
	// caller's to close, before.
	Close() error
}

// Options say what to ask, and how.
type Options struct {
	// Protocol is "http1", "http2", "http3" or "websocket".
	Protocol string
	// URL is http:, https:, unix:/path/of.sock (http1 only), or ws: and wss:.
	// http: with http2 is spoken with prior knowledge (RFC 9113, 3.3).
	URL string
	// Paths are origin-form targets ("/a?b=c"). Empty: the URL's own, as the
	// only one. Each WebSocket connection upgrades at the next of them.
	Paths []string
	// Header is sent with each request or upgrade. Host in it replaces the
	// URL's. Nothing else is added but what the protocol demands.
	Header http.Header
	// Insecure accepts any certificate.
	Insecure bool
	// TLS is what handshakes are made with, beside the name of the server, the ALPN and
	// Insecure; nil: the defaults of crypto/tls without sessions to resume.
	TLS *tls.Config
	// Message is what WebSockets send, as text if it is UTF-8, else binary.
	// Empty: "Hello, echod!\n". At most MaxMessage bytes.
	Message []byte
	// Streams is how many requests may be in flight on one HTTP/2 or HTTP/3
	// connection. 0: 1.
	Streams int
	// Timeout is for one Dial, and for one Do. 0: 10 s.
	Timeout time.Duration
	// Address is the host:port to connect to; empty: the URL's.
	Address string
	// LocalAddr names the address a connection comes from, anew for each; its
	// port should be 0. nil, or an answer of nil: the system chooses.
	LocalAddr func() net.Addr
	// Within runs what opens a socket, for one that must be in a network of its
	// own ([millrace/lab/subject]). nil: in this one.
	Within func(open func() error) error
}

// The limits of what is sent and accepted.
const (
	// MaxStreams is the most requests in flight on one connection: servers
	// allow some 100 to 250, and none is known that allows more than this.
	MaxStreams = 1000
	// MaxMessage is the longest WebSocket message: a copy of it is held by
	// each connection.
	MaxMessage = 16 << 20
	// MaxHead is the longest head of an answer. It is what net/http allows.
	MaxHead = 1 << 20
	// CloseWait is how long Close waits for the other side of a WebSocket to
	// agree (RFC 6455, 7.1.1). One that is alive needs a round trip.
	CloseWait = 250 * time.Millisecond
)

const (
	defaultTimeout = 10 * time.Second
	defaultMessage = "Hello, echod!\n" // of the published measurement
)

// What can go wrong. Each error of this package wraps exactly one of them.
var (
	ErrConnect  = errors.New("cannot connect")           // refused, unreachable, handshake or upgrade failed
	ErrClosed   = errors.New("connection closed")        // by the target in mid-answer, or by the end of the context
	ErrTimeout  = errors.New("no answer in time")        // complete within Options.Timeout
	ErrProtocol = errors.New("not a correct answer")     // by the rules of the protocol; or another message than was sent
	errOptions  = errors.New("cannot make a connection") // New: what was asked for cannot be
)

// New checks the options and makes ready what all connections share. It does
// not connect.
func New(o Options) (Dialer, error) {
	t, err := parseTarget(&o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOptions, err)
	}
	var d Dialer
	switch o.Protocol {
	case "http1":
		d = newHTTP1Dialer(t)
	case "http2":
		d, err = newHTTP2Dialer(t)
	case "http3":
		d, err = newHTTP3Dialer(t)
	default: // parseTarget lets no other through
		d = newWebSocketDialer(t)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOptions, err)
	}
	return d, nil
}
