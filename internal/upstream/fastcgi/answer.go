package fastcgi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxStderr bounds what of an answer's standard error is logged, in bytes.
const maxStderr = 8 << 10

// Answer is what an application writes on its standard output: a CGI answer
// (RFC 3875, 6), head and body. Read returns io.EOF only after the application
// has said that it is done.
type Answer struct {
	client     *Client
	ctx        context.Context // the request's
	conn       *conn
	at         record
	done       bool // the last record came
	closed     bool
	stop       func() bool
	alone      bool         // the connection was for this request only
	prefix     bytes.Reader // what was read of it before there was this Answer
	long       bool         // the body is sent by a goroutine, sending
	sending    sync.WaitGroup
	sendFailed atomic.Pointer[error]
	stderr     strings.Builder
}

// Read implements [io.Reader].
func (a *Answer) Read(p []byte) (int, error) {
	for {
		if a.done {
			return 0, io.EOF
		}
		if a.at.kind == kindStdout && a.at.content > 0 {
			a.extendDeadline()
			n, err := a.conn.in.Read(p[:min(len(p), a.at.content)])
			a.at.content -= n
			if err != nil {
				return n, a.cause(context.Background(), unexpected(err))
			}
			return n, nil
		}
		if err := a.advance(); err != nil {
			return 0, a.cause(context.Background(), err)
		}
	}
}

// Ready reports whether a Read would return without waiting.
func (a *Answer) Ready() bool {
	in := a.conn.in
	for !a.done {
		have, _ := in.Peek(in.Buffered()) // never fails
		switch {
		case a.tells(have):
			return true
		case len(have) == in.Size(), a.prefix.Len() == 0 && !unread(a.conn.nc):
			return false
		}
		if _, err := in.Peek(len(have) + 1); err != nil {
			return true // Read says why
		}
	}
	return true
}

// tells reports whether have, all that is buffered, suffices for a Read to return
// output or the end.
func (a *Answer) tells(have []byte) bool {
	at := a.at
	for at.kind != kindStdout || at.content == 0 {
		if len(have) < at.content+at.padding+headerLen {
			return false
		}
		have = have[at.content+at.padding:]
		at = record{have[1], int(binary.BigEndian.Uint16(have[4:])), int(have[6])}
		have = have[headerLen:]
		if at.kind != kindStdout && at.kind != kindStderr { // the end: all of it, or something odd
			return len(have) >= at.content+at.padding
		}
	}
	return len(have) > 0
}

// extendDeadline gives the application Options.Read more time for its next bytes.
func (a *Answer) extendDeadline() {
	if d := a.conn.options.Read; d > 0 && a.conn.in.Buffered() == 0 {
		_ = a.conn.nc.SetReadDeadline(time.Now().Add(d))
		if a.ctx.Err() != nil { // which has set one in the past, maybe before that
			_ = a.conn.nc.SetDeadline(time.Unix(1, 0))
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// advance reads up to the content of the next record with output, or to the end of the
// answer.
func (a *Answer) advance() error {
	in := a.conn.in
	for {
		if _, err := in.Discard(a.at.content + a.at.padding); err != nil {
			return unexpected(err)
		}
		a.extendDeadline()
		var err error
		if a.at, err = readRecord(in, &a.conn.scratch); err != nil {
			return unexpected(err)
		}
		switch a.at.kind {
		case kindStdout:
			if a.at.content > 0 {
				return nil
			}
		case kindStderr:
			if err := a.complain(); err != nil {
				return err
			}
		case kindEnd:
			return a.end()
		default:
			return fmt.Errorf("%w: a record of kind %d", ErrProtocol, a.at.kind)
		}
	}
}

// complain collects what the application wrote on its standard error.
func (a *Answer) complain() error {
	text := make([]byte, min(a.at.content, max(0, maxStderr-a.stderr.Len())))
	n, err := io.ReadFull(a.conn.in, text)
	a.at.content -= n
	a.stderr.Write(text[:n])
	if err != nil {
		return unexpected(err)
	}
	return nil
}

// end reads the last record.
func (a *Answer) end() error {
	var body [8]byte
	if a.at.content != len(body) {
		return fmt.Errorf("%w: an end of %d bytes", ErrProtocol, a.at.content)
	}
	if _, err := io.ReadFull(a.conn.in, body[:]); err != nil {
		return unexpected(err)
	}
	a.at.content = 0
	if _, err := a.conn.in.Discard(a.at.padding); err != nil {
		return unexpected(err)
	}
	a.at.padding = 0
	if body[4] != 0 {
		return fmt.Errorf("the application takes no request now (status %d)", body[4])
	}
	a.status(binary.BigEndian.Uint32(body[:]))
	a.done = true
	return nil
}

// status logs that a program ended with an error; under php-fpm all end with 0.
func (a *Answer) status(code uint32) {
	if code != 0 {
		fmt.Fprintf(&a.stderr, "\nthe script ended with status %d", code)
	}
}

// cause returns why the request could not be sent, or was given up, where there is
// such a reason; else err, which the reading of the answer met.
func (a *Answer) cause(ctx context.Context, err error) error {
	if failed := a.sendFailed.Load(); failed != nil {
		return *failed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// giveUp closes the connection of a request that has failed.
func (a *Answer) giveUp() { a.discard(a.stop()) }

// discard closes the connection once nobody writes the body on it any more. idle says
// that the context's end has not set the connection's deadline and never will.
func (a *Answer) discard(idle bool) {
	_ = a.conn.nc.Close()
	a.sending.Wait()
	if idle {
		a.conn.free()
	}
}

// Close keeps the connection for the next request if all of the answer was read.
// Otherwise it closes it, which ends the request. Closing twice is no error.
func (a *Answer) Close() error {
	if a.closed {
		return nil
	}
	a.closed = true
	inTime := a.stop()
	if a.done && inTime && !a.long && !a.alone {
		a.client.give(a.conn)
	} else {
		a.discard(inTime)
	}
	if report := a.client.options.Stderr; report != nil {
		for line := range strings.Lines(strings.TrimSpace(a.stderr.String())) {
			if line = strings.TrimSpace(line); line != "" {
				report(line)
			}
		}
	}
	return nil
}
