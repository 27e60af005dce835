package fastcgi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// conn is a connection to an application. Its buffers are used again once it is closed:
// most connections carry one request.
type conn struct {
	nc      net.Conn // nil: an event loop has made it, and Go's poller does not know it
	fd      int
	in      *bufio.Reader // of an Exchange's source
	out     []byte        // scratch
	options *Options
}

// noFD is the descriptor of a connection that has none, or none that is known.
const noFD = -1

// conns are closed connections, whose buffers are used again.
var conns = sync.Pool{New: func() any { return &conn{in: bufio.NewReaderSize(nil, 16<<10)} }}

func (c *Client) newConn(nc net.Conn, fd int) *conn {
	one := conns.Get().(*conn)
	one.nc, one.fd, one.options = nc, fd, &c.options
	return one
}

// toPoller gives the connection to Go's poller, so that goroutines can wait for it.
func (c *conn) toPoller() error {
	if c.nc != nil {
		return c.nc.SetDeadline(time.Time{}) //nolint:wrapcheck // it is closed
	}
	f := os.NewFile(uintptr(c.fd), "connection")
	nc, err := net.FileConn(f) // which has a descriptor of its own
	_ = f.Close()
	if c.fd = noFD; err != nil {
		return fmt.Errorf("wait for the application: %w", err)
	}
	c.nc, c.fd = nc, fdOf(nc)
	return nil
}

// free closes the connection. Nobody may use it any more.
func (c *conn) free() {
	if c.nc != nil {
		_ = c.nc.Close()
	} else if c.fd != noFD {
		closeFD(c.fd)
	}
	c.nc, c.fd = nil, noFD
	c.in.Reset(nil)
	conns.Put(c)
}

// head makes what of a request stands before its body.
func (c *conn) head(r *Request) []byte {
	b := appendBegin(c.out[:0], c.options.Keep > 0)
	b = appendStream(b, kindParams, r.Params)
	c.out = appendHeader(b, kindParams, 0)
	return c.out
}

// whole makes a request with its body, which is Small.
func (c *conn) whole(r *Request) ([]byte, error) {
	b := c.head(r)
	if n := int(r.Length); n > 0 {
		b = appendHeader(b, kindStdin, n)
		at := len(b)
		b = slices.Grow(b, n)[:at+n]
		if _, err := io.ReadFull(r.Body, b[at:]); err != nil {
			return nil, errBody(err)
		}
	}
	c.out = appendHeader(b, kindStdin, 0)
	return c.out, nil
}

func errBody(err error) error { return fmt.Errorf("read the request's body: %w", err) }

// write waits until the application has taken b.
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
			return errBody(err)
		}
	}
}
