package fastcgi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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

// Small is the longest body that is written before the answer is read, in bytes. With a
// longer one both sides could wait: this one to write the body, and an application that
// does not read it to write its answer.
const Small = 32 << 10

// Do sends a request, and waits until the application says something. The answer must be
// read to its end or closed. After an error there is nothing to close.
func (c *Client) Do(ctx context.Context, x *Exchange, r Request) error {
	for {
		*x = Exchange{client: c}
		if err := x.dial(ctx); err != nil {
			return err
		}
		x.attach(ctx)
		err := x.send(&r)
		if err == nil {
			if err = x.advance(); err == nil || x.done {
				return nil
			}
		}
		stale := x.Stale()
		_ = x.Close() // it reports what the application has complained about
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !stale || !r.Repeat || r.Length > 0 {
			return err
		}
	}
}

// Begin takes a connection for an event loop, if one can be had at once: one that is kept,
// or a new one to a UNIX socket whose turn it is. Send sends the request.
func (c *Client) Begin(x *Exchange) bool {
	*x = Exchange{client: c, serial: rand.Uint32()}
	if x.takeKept() {
		return true
	}
	network, path := split(c.options.To[c.turn()])
	if network != "unix" {
		return false
	}
	fd, ok := connect(path)
	if ok {
		x.use(c.newConn(nil, fd))
	}
	return ok
}

// Send sends a request, with a body of up to Small bytes. If it reports false, no
// application has seen the whole request, and the exchange is closed.
func (x *Exchange) Send(r *Request) bool {
	text, err := x.conn.whole(r)
	if err == nil && write(x.conn.fd, text) {
		return true
	}
	_ = x.Close()
	return false
}

// FD returns the descriptor on which the answer comes, and a random number that tells it
// from who had it before.
func (x *Exchange) FD() (fd int, serial uint32) { return x.conn.fd, x.serial }

// Continue has a goroutine go on with what a loop has begun, for as long as ctx is not
// done. After an error there is nothing to close.
func (c *Client) Continue(ctx context.Context, x *Exchange) error {
	if err := x.conn.toPoller(); err != nil {
		_ = x.Close()
		return err
	}
	x.attach(ctx)
	return nil
}

// send sends a request, and waits until the application has taken it. A body that is not
// Small goes on by itself.
func (x *Exchange) send(r *Request) (err error) {
	one := x.conn
	if r.Length <= Small {
		var text []byte
		if text, err = one.whole(r); err == nil {
			err = one.write(text)
		}
	} else if err = one.write(one.head(r)); err == nil {
		body := r.Body
		x.long = true
		x.sending.Go(func() { // ends with the body, or when the connection is closed
			if err := one.writeBody(body); err != nil {
				x.failure.Store(&err)
				_ = one.nc.SetReadDeadline(past())
			}
		})
	}
	x.err = err
	return err
}

// dial takes a connection that is kept, or makes one.
func (x *Exchange) dial(ctx context.Context) error {
	for x.takeKept() {
		if x.conn.toPoller() == nil {
			return nil
		}
		x.conn.free()
	}
	c := x.client
	first := c.turn()
	var errs []error
	for i := range c.options.To {
		network, addr := split(c.options.To[(first+i)%len(c.options.To)])
		nc, err := c.dialer.DialContext(ctx, network, addr)
		if err == nil {
			x.use(c.newConn(nc, fdOf(nc)))
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("%w: %w", ErrConnect, errors.Join(errs...))
}

// turn is the address that is tried first this time.
func (c *Client) turn() int { return int(c.next.Add(1) % uint64(len(c.options.To))) }

// use has the exchange go over a connection.
func (x *Exchange) use(one *conn) {
	x.conn = one
	one.in.Reset((*source)(x))
}

// takeKept takes a connection that is kept, if there is one that has not ended.
func (x *Exchange) takeKept() bool {
	c := x.client
	for {
		c.mu.Lock()
		n := len(c.idle)
		if n == 0 {
			c.mu.Unlock()
			x.reused = false
			return false
		}
		one := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		if unread(one.fd) {
			one.free()
			continue
		}
		x.use(one)
		x.reused = true
		return true
	}
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
func (c *Client) give(one *conn) {
	c.mu.Lock()
	keep := !c.closed && len(c.idle) < c.options.Keep && one.in.Buffered() == 0
	if keep {
		c.idle = append(c.idle, one)
	}
	c.mu.Unlock()
	if !keep {
		one.free()
	}
}
