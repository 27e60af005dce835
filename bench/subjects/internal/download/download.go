// Package download fetches a large file and throws it away, over and over on
// one connection. It is as plain as can be, so that the server's cost is what
// is measured: one read after another into one buffer.
package download

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	// bufferSize is what one read may take: large enough that the number of
	// reads is set by what the socket holds.
	bufferSize = 1 << 20
	// headerLimit is more than any of the servers sends before a body.
	headerLimit = 16 << 10
	// readTimeout is how long a server may send nothing.
	readTimeout = 10 * time.Second
)

// Request is what is asked of the server, Times after each other.
type Request struct {
	Host, Path string
	Size       int64 // what the body must have
	Times      int
	Checksum   bool // take the CRC of what comes; costs the client time
}

// Result is what came.
type Result struct {
	Bytes    int64         // of bodies
	Duration time.Duration // from the first request to the last byte
	CRC      uint32        // CRC-32C of all bodies after each other, if asked for
}

// Run makes the downloads on conn. Any answer but a 200 of r.Size bytes is an
// error.
func Run(conn net.Conn, r Request) (Result, error) {
	c := client{conn: conn, buf: make([]byte, bufferSize)}
	if r.Checksum {
		c.table = crc32.MakeTable(crc32.Castagnoli)
	}
	head := "GET " + r.Path + " HTTP/1.1\r\nHost: " + r.Host + "\r\n\r\n"
	start := time.Now()
	for range r.Times {
		if _, err := conn.Write([]byte(head)); err != nil {
			return Result{}, fmt.Errorf("asking for %s: %w", r.Path, err)
		}
		if err := c.answer(r.Size); err != nil {
			return Result{}, fmt.Errorf("downloading %s: %w", r.Path, err)
		}
	}
	return Result{Bytes: r.Size * int64(r.Times), Duration: time.Since(start), CRC: c.crc}, nil
}

type client struct {
	conn  net.Conn
	buf   []byte
	table *crc32.Table // nil: no checksum
	crc   uint32
}

// answer reads one answer to its last byte.
func (c *client) answer(size int64) error {
	held, bodyAt := 0, 0
	for bodyAt == 0 {
		n, err := c.read(c.buf[held:headerLimit])
		if err != nil {
			return fmt.Errorf("reading the header: %w", err)
		}
		held += n
		if i := bytes.Index(c.buf[:held], []byte("\r\n\r\n")); i >= 0 {
			bodyAt = i + 4
		} else if held == headerLimit {
			return fmt.Errorf("the header is longer than %d bytes", headerLimit)
		}
	}
	length, err := parseHead(string(c.buf[:bodyAt]))
	if err != nil {
		return err
	}
	if length != size {
		return fmt.Errorf("its length is %d bytes, not %d", length, size)
	}
	if int64(held-bodyAt) > size {
		return errors.New("there are bytes behind the body")
	}
	c.sum(c.buf[bodyAt:held])
	return c.body(size - int64(held-bodyAt))
}

// body reads left bytes and forgets them.
func (c *client) body(left int64) error {
	for left > 0 {
		n, err := c.read(c.buf[:min(left, bufferSize)])
		if err != nil {
			return fmt.Errorf("reading the body, %d bytes before its end: %w", left, err)
		}
		c.sum(c.buf[:n])
		left -= int64(n)
	}
	return nil
}

func (c *client) read(p []byte) (int, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return 0, err
	}
	n, err := c.conn.Read(p)
	if n > 0 {
		return n, nil // an error comes again with the next read
	}
	return 0, err
}

func (c *client) sum(p []byte) {
	if c.table != nil {
		c.crc = crc32.Update(c.crc, c.table, p)
	}
}

// parseHead reads the length of the body from an answer's header.
func parseHead(head string) (int64, error) {
	status, fields, _ := strings.Cut(head, "\r\n")
	if !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		return 0, fmt.Errorf("the server answers %q", status)
	}
	for line := range strings.SplitSeq(fields, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(name, "Content-Length") {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, errors.New("the answer has no Content-Length")
}
