package fastcgi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/wire/lookup"
)

// Options of a Client.
type Options struct {
	// To are the application's addresses: unix:/path, /path or host:port. They
	// take turns.
	To []string
	// Connect bounds the time for a connection, Read that between two pieces of
	// an answer, Write that of a piece of a request.
	Connect, Read, Write time.Duration
	// Keep is how many idle connections are kept. Each takes a worker of
	// php-fpm's away from others, so 0 is the best default.
	Keep int
	// Stderr gets what the application complains about, a line at a time.
	Stderr func(line string)
}

// Client talks to one application. Its methods may be called at once by many
// goroutines.
type Client struct {
	options Options
	dialer  lookup.Dialer
	next    atomic.Uint64
	mu      sync.Mutex
	idle    []*conn
	closed  bool
}

// New makes a client; nothing is connected yet.
func New(o Options) *Client {
	return &Client{options: o, dialer: lookup.Dialer{Dialer: net.Dialer{Timeout: o.Connect}}}
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, one := range c.idle {
		one.free()
	}
	c.idle = nil
	return nil
}

// ErrConnect is what Do returns when no address could be connected to.
var ErrConnect = errors.New("the application cannot be reached")

// Request is what an application is asked.
type Request struct {
	Params []byte    // made with [AppendParam]
	Body   io.Reader // nil for none
	Length int64     // of the body
	// Repeat says that the request may be made twice (RFC 9110, 9.2.2): nobody can
	// tell whether a connection ended before an application saw a request on it.
	Repeat bool
}

// small is the longest body that is written before the answer is read. With a longer
// one both sides could wait: this one to write the body, and an application that does
// not read it to write its answer.
const small = 32 << 10

// Do sends a request. The answer must be read to its end or closed.
func (c *Client) Do(ctx context.Context, r Request) (*Answer, error) {
	for {
		nc, reused, err := c.connect(ctx)
		if err != nil {
			return nil, err
		}
		a, err := c.ask(ctx, nc, r)
		if err == nil {
			return a, nil
		}
		// A connection that was kept may have ended meanwhile. One that is late has not.
		if !reused || !r.Repeat || r.Length > 0 || ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
	}
}

// Resume continues a request that was sent with [AppendRequest] on nc, which it takes
// over. came are the bytes of the answer that were read already.
func (c *Client) Resume(ctx context.Context, nc net.Conn, came []byte) (*Answer, error) {
	one := newConn(nc, &c.options)
	a := &Answer{client: c, ctx: ctx, conn: one, alone: true}
	a.prefix.Reset(came)
	one.in.Reset(io.MultiReader(&a.prefix, nc))
	a.stop = context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	if err := a.advance(); err != nil {
		a.giveUp()
		return nil, a.cause(ctx, err)
	}
	return a, nil
}

// ask writes the request and waits for the first record of the answer.
func (c *Client) ask(ctx context.Context, nc *conn, r Request) (*Answer, error) {
	a := &Answer{client: c, ctx: ctx, conn: nc}
	a.stop = context.AfterFunc(ctx, func() { _ = nc.nc.SetDeadline(time.Unix(1, 0)) }) // whoever reads or writes ends
	head := appendBegin(nc.out[:0], c.options.Keep > 0)
	head = appendStream(head, kindParams, r.Params)
	head = appendHeader(head, kindParams, 0)
	nc.out = head[:0]
	if r.Length <= small {
		var err error
		if head, err = appendBody(head, r); err == nil {
			err = nc.write(head)
		}
		nc.out = head[:0]
		if err != nil {
			a.giveUp()
			return nil, err
		}
	} else {
		if err := nc.write(head); err != nil {
			a.giveUp()
			return nil, err
		}
		a.long = true
		a.sending.Go(func() { // ends with the body, or when the connection is closed
			if err := nc.writeBody(r.Body); err != nil {
				_ = nc.nc.SetReadDeadline(time.Unix(1, 0))
				a.sendFailed.Store(&err)
			}
		})
	}
	if err := a.advance(); err != nil {
		a.giveUp()
		return nil, a.cause(ctx, err)
	}
	return a, nil
}

func appendBody(b []byte, r Request) ([]byte, error) {
	if r.Length > 0 {
		body := make([]byte, r.Length)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return nil, fmt.Errorf("read the request's body: %w", err)
		}
		b = appendStream(b, kindStdin, body)
	}
	return appendHeader(b, kindStdin, 0), nil
}

// connect takes a connection that is kept, or makes one.
func (c *Client) connect(ctx context.Context) (nc *conn, reused bool, err error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		nc = c.idle[n-1]
		c.idle = c.idle[:n-1]
	}
	c.mu.Unlock()
	if nc != nil {
		_ = nc.nc.SetDeadline(time.Time{})
		return nc, true, nil
	}
	first := c.next.Add(1)
	var errs []error
	for i := range c.options.To {
		network, addr := split(c.options.To[(int(first%1024)+i)%len(c.options.To)])
		one, err := c.dialer.DialContext(ctx, network, addr)
		if err == nil {
			return newConn(one, &c.options), false, nil
		}
		errs = append(errs, err)
	}
	return nil, false, fmt.Errorf("%w: %w", ErrConnect, errors.Join(errs...))
}

// split tells UNIX sockets from others.
func split(to string) (network, addr string) {
	if path, ok := strings.CutPrefix(to, "unix:"); ok {
		return "unix", path
	}
	if strings.HasPrefix(to, "/") {
		return "unix", to
	}
	return "tcp", to
}

// give keeps a connection after a whole answer, or closes it.
func (c *Client) give(nc *conn) {
	c.mu.Lock()
	keep := !c.closed && len(c.idle) < c.options.Keep && nc.in.Buffered() == 0
	if keep {
		c.idle = append(c.idle, nc)
	}
	c.mu.Unlock()
	if !keep {
		nc.free()
	}
}

// conn is a connection to an application. Its buffers are used again once it is
// closed: most connections carry one request.
type conn struct {
	nc      net.Conn
	in      *bufio.Reader
	out     []byte // scratch
	options *Options
	scratch [headerLen]byte
}

// conns are closed connections, whose buffers are used again.
var conns = sync.Pool{New: func() any { return &conn{in: bufio.NewReaderSize(nil, 16<<10)} }}

func newConn(nc net.Conn, o *Options) *conn {
	c := conns.Get().(*conn)
	c.nc, c.options = nc, o
	c.in.Reset(nc)
	return c
}

// free closes the connection. Nobody may use it any more.
func (c *conn) free() {
	_ = c.nc.Close()
	c.nc = nil
	c.in.Reset(nil)
	conns.Put(c)
}

func (c *conn) write(b []byte) error {
	if c.options.Write > 0 {
		_ = c.nc.SetWriteDeadline(time.Now().Add(c.options.Write))
	}
	if _, err := c.nc.Write(b); err != nil {
		return fmt.Errorf("send the request to the application: %w", err)
	}
	return nil
}

// writeBody sends a body in records.
func (c *conn) writeBody(body io.Reader) error {
	buf := make([]byte, headerLen+maxContent)
	for {
		n, err := io.ReadFull(body, buf[headerLen:])
		if n > 0 {
			appendHeader(buf[:0], kindStdin, n)
			if err := c.write(buf[:headerLen+n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return c.write(appendHeader(buf[:0], kindStdin, 0))
		}
		if err != nil {
			return fmt.Errorf("read the request's body: %w", err)
		}
	}
}
