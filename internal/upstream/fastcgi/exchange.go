package fastcgi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Exchange is a request and its answer: what an application writes on its standard output
// (RFC 3875, 6), head and body. The zero one is ready for [Client.Do] and [Client.Begin],
// and so is a closed one.
//
// An event loop that has begun one calls Send, FD, TryRead and Complained; a goroutine goes
// on with it after [Client.Continue]. Both close it.
type Exchange struct {
	client   *Client
	conn     *conn
	ctx      context.Context // the request's; nil: an event loop has it
	stop     func() bool     // ends what is done at the end of ctx
	serial   uint32
	reused   bool // the connection had a request before
	received bool // something has come

	at      record
	err     error // how the answer has ended: io.EOF for done
	done    bool  // the application has said so
	trying  bool  // TryRead: nothing waits
	stderr  strings.Builder
	long    bool // the body is sent by a goroutine, sending
	sending sync.WaitGroup
	failure atomic.Pointer[error] // of sending
}

// maxStderr bounds what of an answer's standard error is logged, in bytes.
const maxStderr = 8 << 10

// errLater means that nothing has come yet.
var errLater = errors.New("nothing has come yet")

// Read implements [io.Reader]. It returns io.EOF only after the application has said that
// it is done.
func (x *Exchange) Read(p []byte) (int, error) {
	if err := x.advance(); err != nil {
		return 0, err
	}
	n, err := x.conn.in.Read(p[:min(len(p), x.at.content)])
	x.at.content -= n
	return n, x.ended(err)
}

// TryRead is Read for what has come already: ok is false where nothing has.
func (x *Exchange) TryRead(p []byte) (n int, ok bool, err error) {
	x.trying = true
	n, err = x.Read(p)
	x.trying = false
	if n == 0 && errors.Is(err, errLater) {
		return 0, false, nil
	}
	return n, true, err
}

// advance reads up to output, or to the end of the answer. After errLater it goes on where
// it was.
func (x *Exchange) advance() error {
	for x.err == nil {
		var err error
		switch at := &x.at; {
		case at.content > 0 && at.kind == kindStdout:
			return nil
		case at.content > 0 && at.kind == kindStderr:
			err = x.complain()
		case at.kind == kindEnd:
			err = x.end()
		case at.content+at.padding > 0:
			var n int
			n, err = x.conn.in.Discard(at.padding)
			at.padding -= n
		default:
			err = x.next()
		}
		if err != nil {
			return x.ended(err)
		}
	}
	return x.err
}

// next reads the header of a record.
func (x *Exchange) next() error {
	header, err := x.conn.in.Peek(headerLen)
	if err != nil {
		return err //nolint:wrapcheck // by ended
	}
	x.received = true
	x.at, err = recordOf(header)
	_, _ = x.conn.in.Discard(headerLen)
	return err
}

// complain collects what the application has written on its standard error.
func (x *Exchange) complain() error {
	in := x.conn.in
	if _, err := in.Peek(1); err != nil {
		return err //nolint:wrapcheck // by ended
	}
	text, _ := in.Peek(min(in.Buffered(), x.at.content)) // cannot fail
	x.stderr.Write(text[:min(len(text), maxStderr-min(maxStderr, x.stderr.Len()))])
	x.at.content -= len(text)
	_, _ = in.Discard(len(text))
	return nil
}

// end reads the last record.
func (x *Exchange) end() error {
	if x.at.content != 8 {
		return fmt.Errorf("%w: an end of %d bytes", ErrProtocol, x.at.content)
	}
	size := x.at.content + x.at.padding
	body, err := x.conn.in.Peek(size)
	if err != nil {
		return err //nolint:wrapcheck // by ended
	}
	if status := body[4]; status != 0 {
		return fmt.Errorf("the application takes no request now (status %d)", status)
	}
	if code := binary.BigEndian.Uint32(body); code != 0 {
		fmt.Fprintf(&x.stderr, "\nthe script ended with status %d", code)
	}
	x.done, x.err = true, io.EOF
	_, _ = x.conn.in.Discard(size)
	return nil
}

// ended notes that an error has ended the answer, and returns it with its reason.
func (x *Exchange) ended(err error) error {
	if err == nil || errors.Is(err, errLater) {
		return err
	}
	if failed := x.failure.Load(); failed != nil {
		err = *failed
	} else if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the answer ends too early: %w", io.ErrUnexpectedEOF)
	}
	x.err = err
	return err
}

// source is what an exchange reads, for a bufio.Reader.
type source Exchange

// Read implements [io.Reader]. Where it waits, the application has Options.Read to say
// something.
func (s *source) Read(p []byte) (int, error) {
	if s.trying {
		return tryRead(s.conn.fd, p)
	}
	nc := s.conn.nc
	if d := s.client.options.Read; d > 0 {
		_ = nc.SetReadDeadline(time.Now().Add(d))
		if s.ctx.Err() != nil || s.failure.Load() != nil { // which have set one in the past, maybe before that
			_ = nc.SetReadDeadline(past())
		}
	}
	return nc.Read(p) //nolint:wrapcheck // by ended
}

// past is a deadline that ends whoever waits.
func past() time.Time { return time.Unix(1, 0) }

// attach has a goroutine go on with the exchange, for as long as ctx is not done.
func (x *Exchange) attach(ctx context.Context) {
	nc := x.conn.nc
	x.ctx = ctx
	x.stop = context.AfterFunc(ctx, func() { _ = nc.SetDeadline(past()) })
}

// Stale reports whether the connection was kept and has ended before a word of the answer:
// nobody can tell whether an application has seen the request (RFC 9110, 9.2.2). One that
// is late is not stale.
func (x *Exchange) Stale() bool {
	return x.reused && !x.received && x.err != nil && !errors.Is(x.err, os.ErrDeadlineExceeded)
}

// Complained reports whether the application has complained on its standard error so far,
// which Close will report.
func (x *Exchange) Complained() bool { return x.stderr.Len() > 0 }

// Close keeps the connection for the next request if all of the answer was read. Otherwise
// it closes it, which ends the request. Closing twice is no error.
func (x *Exchange) Close() error {
	if x.conn == nil {
		return nil
	}
	inTime := x.stop == nil || x.stop()
	if x.done && inTime && !x.long {
		x.client.give(x.conn)
	} else {
		if x.long {
			_ = x.conn.nc.Close()
			x.sending.Wait()
		}
		x.conn.free()
	}
	if x.conn = nil; x.err == nil {
		x.err = net.ErrClosed
	}
	if report := x.client.options.Stderr; report != nil {
		for line := range strings.Lines(strings.TrimSpace(x.stderr.String())) {
			if line = strings.TrimSpace(line); line != "" {
				report(line)
			}
		}
	}
	return nil
}
