package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// An http2Dialer opens HTTP/2 connections, over TLS by ALPN, or over TCP with
// prior knowledge (RFC 9113, 3.2 and 3.3). Frames are net/http's: its own copy
// of golang.org/x/net/http2, whose client for single connections is deprecated
// in favour of http.ClientConn.
type http2Dialer struct {
	*target
	requests  []*http.Request // by path
	transport *http.Transport
	scheme    string
}

func newHTTP2Dialer(t *target) (*http2Dialer, error) {
	d := &http2Dialer{target: t, scheme: "http"}
	protocols := new(http.Protocols)
	if t.secure {
		d.scheme = "https"
		protocols.SetHTTP2(true)
	} else {
		protocols.SetUnencryptedHTTP2(true)
	}
	d.transport = &http.Transport{
		Protocols:              protocols,
		DisableCompression:     true,
		MaxResponseHeaderBytes: MaxHead,
		DialContext:            d.dial,
		DialTLSContext:         d.dial,
	}
	var err error
	d.requests, err = t.prepare(d.scheme)
	return d, err
}

// dial opens the connection under a ClientConn.
func (d *http2Dialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := d.connect(ctx, "h2")
	if err != nil {
		return nil, err
	}
	if c, ok := conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol != "h2" {
		conn.Close()
		return nil, &failure{text: ErrConnect.Error() + " to " + d.address + ": it speaks TLS but not this protocol over it", kind: ErrConnect}
	}
	return conn, nil
}

func (d *http2Dialer) Dial(ctx context.Context) (Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := d.transport.NewClientConn(ctx, d.scheme, d.address)
	if err != nil {
		return nil, d.connectError(err)
	}
	return &roundTripConn{
		target:   d.target,
		scheme:   d.scheme,
		requests: d.requests,
		trip:     conn.RoundTrip,
		close:    conn.Close,
		leaving: func() bool {
			return conn.Err() != nil || conn.Available() == 0 && conn.InFlight() == 0
		},
		kind: http2Kind,
	}, nil
}

func (d *http2Dialer) Close() error {
	d.transport.CloseIdleConnections() // there are none but by accident
	return nil
}

// prepare makes a request for each path.
func (t *target) prepare(scheme string) ([]*http.Request, error) {
	requests := make([]*http.Request, 0, len(t.paths))
	for _, p := range t.paths {
		r, err := t.request(scheme, Request{Method: http.MethodGet, Path: p, Header: t.header})
		if err != nil {
			return nil, err
		}
		requests = append(requests, r)
	}
	return requests, nil
}

// request is a request as net/http has it.
func (t *target) request(scheme string, r Request) (*http.Request, error) {
	header := maps.Clone(r.Header)
	if header == nil {
		header = http.Header{}
	}
	if header["User-Agent"] == nil {
		header["User-Agent"] = []string{""} // "" is none; without the entry there would be a default
	}
	host := t.host
	if h := header.Get("Host"); h != "" {
		host = h
		header.Del("Host")
	}
	header.Del("Connection") // there is none in these protocols
	u, err := url.ParseRequestURI(r.Path)
	if err != nil {
		return nil, fmt.Errorf("reading the path %q: %w", r.Path, err)
	}
	path, query, asked := strings.Cut(r.Path, "?")
	// RawPath: a path is asked for as it was written.
	request := &http.Request{
		Method:     r.Method,
		URL:        &url.URL{Scheme: scheme, Host: t.address, Path: u.Path, RawPath: path, RawQuery: query, ForceQuery: asked && query == ""},
		Host:       host,
		Header:     header,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
	}
	if r.Body != nil {
		request.ContentLength = int64(len(r.Body))
		request.Body = io.NopCloser(bytes.NewReader(r.Body))
	}
	return request, nil
}

// A roundTripConn is a connection whose protocol is behind a RoundTrip.
type roundTripConn struct {
	*target
	scheme   string
	requests []*http.Request
	trip     func(*http.Request) (*http.Response, error)
	close    func() error
	leaving  func() bool // the target wants no more requests here
	// kind says whether an error is ErrClosed, ErrProtocol or, nil, something
	// that all protocols have; and whether the target never took the request.
	kind   func(error) (untaken bool, kind error)
	closed atomic.Bool
}

func (c *roundTripConn) Do(ctx context.Context, path int, tee io.Writer) (Answer, error) {
	path, err := c.path(path)
	if err != nil {
		return Answer{}, err
	}
	timed, cancel := context.WithTimeoutCause(ctx, c.timeout, errTooLong)
	defer cancel()
	return c.send(ctx, timed, c.requests[path].WithContext(timed), tee)
}

// Ask sends a request of its own.
func (c *roundTripConn) Ask(ctx context.Context, r Request, tee io.Writer) (Answer, error) {
	timed, cancel := context.WithTimeoutCause(ctx, c.timeout, errTooLong)
	defer cancel()
	request, err := c.request(c.scheme, r)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return c.send(ctx, timed, request.WithContext(timed), tee)
}

// send sends a request whose context ends with timed.
func (c *roundTripConn) send(ctx, timed context.Context, request *http.Request, tee io.Writer) (Answer, error) {
	var a Answer
	resp, err := c.trip(request)
	if err == nil {
		a.Status, a.Head = resp.StatusCode, resp.Header
		a.Body, err = drain(resp.Body, tee)
		resp.Body.Close()
	}
	if err != nil {
		a.Close, err = c.failed(ctx, timed, "asking for "+request.URL.RequestURI(), err)
		return a, err
	}
	a.Close = c.leaving()
	return a, nil
}

// errTooLong is why a request's own context ends.
var errTooLong = errors.New("the request's time is over")

// failed tells our own ending of a request from the target's.
func (c *roundTripConn) failed(ctx, timed context.Context, doing string, err error) (untaken bool, failed error) {
	if ctx.Err() == nil && timed.Err() != nil {
		return false, fmt.Errorf("%w: %s: not complete within %v", ErrTimeout, doing, c.timeout)
	}
	if ctx.Err() == nil && c.closed.Load() {
		return false, fmt.Errorf("%w: %s: we closed it", ErrClosed, doing)
	}
	if untaken, kind := c.kind(err); kind != nil && ctx.Err() == nil {
		return untaken, fmt.Errorf("%w: %s: %w", kind, doing, err)
	}
	return false, classify(ctx, doing, err)
}

func (c *roundTripConn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.close()
}

// http2Kind tells the errors of HTTP/2 (RFC 9113, 7). net/http keeps some of
// them to itself, so that only their words are left to go by.
func http2Kind(err error) (untaken bool, kind error) {
	var stream http2.StreamError // net/http's own has an As for it
	if errors.As(err, &stream) {
		switch stream.Code {
		case http2.ErrCodeProtocol, http2.ErrCodeFlowControl, http2.ErrCodeFrameSize, http2.ErrCodeCompression, http2.ErrCodeStreamClosed:
			return false, ErrProtocol
		}
		return stream.Code == http2.ErrCodeRefusedStream, ErrClosed // RFC 9113, 8.7
	}
	switch text := err.Error(); {
	case strings.Contains(text, "graceful shutdown GOAWAY"), strings.Contains(text, "client conn not usable"):
		return true, ErrClosed
	case strings.Contains(text, "could not be established"): // ended before SETTINGS, RFC 9113, 3.4
		return false, ErrProtocol
	case strings.Contains(text, "http2: client conn"), strings.Contains(text, "GOAWAY"):
		return false, ErrClosed
	}
	return false, nil
}
