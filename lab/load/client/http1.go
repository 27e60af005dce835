package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// readBuffer holds a usual head. There is one for each connection.
const readBuffer = 4 << 10

// maxInterim is how many 1xx answers may come before the real one. Nobody
// sends more than two (100 and 103).
const maxInterim = 10

// errLongHead is what reading a head without an end gives.
var errLongHead = errors.New("the head of the answer is longer than 1 MB")

// An http1Dialer opens HTTP/1.1 connections over TCP, UNIX and TLS.
type http1Dialer struct {
	*target
	requests [][]byte // by path, ready to be sent
}

func newHTTP1Dialer(t *target) *http1Dialer {
	d := &http1Dialer{target: t}
	for _, p := range t.paths {
		d.requests = append(d.requests, t.text(Request{Method: http.MethodGet, Path: p, Header: t.header}))
	}
	return d
}

// text is a request as HTTP/1.1 has it.
func (t *target) text(r Request) []byte {
	host := t.host
	if h := r.Header.Get("Host"); h != "" {
		host = h
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.Path, host)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if name == "Host" {
			continue
		}
		for _, v := range r.Header[name] {
			fmt.Fprintf(&b, "%s: %s\r\n", name, v)
		}
	}
	if r.Body != nil {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.Body))
	}
	b.WriteString("\r\n")
	b.Write(r.Body)
	return b.Bytes()
}

func (d *http1Dialer) Dial(ctx context.Context) (Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := d.connect(ctx, "http/1.1")
	if err != nil {
		return nil, err
	}
	return d.over(conn), nil
}

// over asks through a connection that is open.
func (d *http1Dialer) over(conn net.Conn) *http1Conn {
	c := &http1Conn{dialer: d, guard: guard{conn: conn, timeout: d.timeout}}
	c.wire.conn = conn
	c.in = bufio.NewReaderSize(&c.wire, readBuffer)
	return c
}

func (d *http1Dialer) Close() error { return nil }

// An http1Conn is one HTTP/1.1 connection.
type http1Conn struct {
	dialer *http1Dialer
	guard  guard
	wire   wire
	in     *bufio.Reader
	ended  error // why no more can be asked
}

func (c *http1Conn) Do(ctx context.Context, path int, tee io.Writer) (Answer, error) {
	path, err := c.dialer.path(path)
	if err != nil {
		return Answer{}, err
	}
	return c.send(ctx, c.dialer.requests[path], http.MethodGet, c.dialer.paths[path], tee)
}

// Ask sends a request of its own.
func (c *http1Conn) Ask(ctx context.Context, r Request, tee io.Writer) (Answer, error) {
	return c.send(ctx, c.dialer.text(r), r.Method, r.Path, tee)
}

func (c *http1Conn) send(ctx context.Context, request []byte, method, path string, tee io.Writer) (Answer, error) {
	if c.ended != nil {
		return Answer{}, c.ended
	}
	a, err := c.exchange(ctx, request, method, tee)
	switch {
	case err != nil:
		err = classify(ctx, "asking for "+path, err)
		c.ended = fmt.Errorf("%w: an earlier request failed: %v", ErrClosed, err) //nolint:errorlint // the earlier kind must not be wrapped beside this one
	case a.Close:
		c.ended = fmt.Errorf("%w: the target said so in its last answer", ErrClosed)
	}
	return a, err
}

func (c *http1Conn) exchange(ctx context.Context, request []byte, method string, tee io.Writer) (Answer, error) {
	if err := c.guard.begin(ctx); err != nil {
		return Answer{}, err
	}
	if c.in.Buffered() > 0 {
		return Answer{}, fmt.Errorf("%w: %d bytes came that nobody asked for", ErrProtocol, c.in.Buffered())
	}
	from := c.wire.read
	if _, err := c.guard.conn.Write(request); err != nil {
		return Answer{}, err
	}
	resp, err := c.head(method)
	if err != nil && c.wire.over {
		// The parser would call half a line malformed.
		return Answer{}, io.ErrUnexpectedEOF
	}
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	var a Answer
	a.Status, a.Head, a.Close = resp.StatusCode, resp.Header, resp.Close
	a.Body, err = drain(resp.Body, tee)
	a.Bytes = c.wire.read - int64(c.in.Buffered()) - from
	return a, err
}

// head reads the head of the answer, past interim ones (RFC 9110, 15.2).
func (c *http1Conn) head(method string) (*http.Response, error) {
	c.wire.limit = c.wire.read + MaxHead
	for range maxInterim {
		resp, err := http.ReadResponse(c.in, &http.Request{Method: method})
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 {
			c.wire.limit = 0
			return resp, nil
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, fmt.Errorf("%w: it switched protocols, which nobody asked for", ErrProtocol)
		}
	}
	return nil, fmt.Errorf("%w: more than %d interim answers", ErrProtocol, maxInterim)
}

func (c *http1Conn) Close() error {
	c.guard.end()
	return c.guard.conn.Close()
}

// drain reads a body to its end.
func drain(body io.Reader, tee io.Writer) (int64, error) {
	if tee == nil {
		tee = io.Discard
	}
	return io.Copy(tee, body)
}

// A wire counts what is read from a connection.
type wire struct {
	conn  net.Conn
	read  int64
	limit int64  // of read; 0: none
	over  bool   // the other side has closed it
	early []byte // read by somebody else, and first in turn
}

func (w *wire) Read(p []byte) (int, error) {
	if w.limit > 0 && w.read >= w.limit {
		return 0, errLongHead
	}
	if len(w.early) > 0 {
		n := copy(p, w.early)
		w.early = w.early[n:]
		w.read += int64(n)
		return n, nil
	}
	n, err := w.conn.Read(p)
	w.read += int64(n)
	w.over = w.over || errors.Is(err, io.EOF)
	return n, err
}

// A guard ends the reads and writes of a connection when an answer takes too
// long, or when the context of a request ends.
type guard struct {
	conn    net.Conn
	timeout time.Duration
	ctx     context.Context // of the last request
	stop    func() bool     // of the watch over ctx

	// watched is ctx as its watch sees it: a watch over an earlier one that
	// goes off late must not end a request that is not its own.
	mu      sync.Mutex
	watched context.Context
}

// begin starts the clock of one request.
func (g *guard) begin(ctx context.Context) error {
	// Most callers bring the same context each time: one watch is enough.
	if ctx != g.ctx {
		g.end()
		g.watch(ctx)
		g.stop = context.AfterFunc(ctx, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.watched == ctx {
				_ = g.conn.SetDeadline(time.Unix(1, 0)) // fails on a closed connection only
			}
		})
	}
	if err := g.conn.SetDeadline(time.Now().Add(g.timeout)); err != nil {
		return err
	}
	// Only now: had ctx ended before the deadline was set, it would have
	// replaced the one that the watch sets.
	return ctx.Err()
}

func (g *guard) watch(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ctx, g.watched = ctx, ctx
}

// end stops watching.
func (g *guard) end() {
	if g.stop != nil {
		g.stop()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.ctx, g.watched = nil, nil
	}
}
