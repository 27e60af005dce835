package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

const (
	// socketBuffer holds the frames of a short message. There is one for each
	// of very many connections; what is longer is read past it.
	socketBuffer = 1 << 10
	// compareBuffer is how much of a message is read and compared at once.
	compareBuffer = 4 << 10
	// maxControl is how many pings and pongs may come within one answer: more
	// is a flood, not a sign of life.
	maxControl = 1000
)

// A webSocketDialer opens WebSocket connections (RFC 6455).
type webSocketDialer struct {
	*target
	next   atomic.Uint64 // path to upgrade at
	opcode ws.OpCode
}

func newWebSocketDialer(t *target) *webSocketDialer {
	d := &webSocketDialer{target: t, opcode: ws.OpText}
	if !utf8.Valid(t.message) {
		d.opcode = ws.OpBinary
	}
	return d
}

func (d *webSocketDialer) Dial(ctx context.Context) (Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := d.connect(ctx, "http/1.1")
	if err != nil {
		return nil, err
	}
	c := d.over(conn)
	err = c.upgrade(ctx)
	c.guard.end()
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// over talks through a connection that is open.
func (d *webSocketDialer) over(conn net.Conn) *webSocketConn {
	c := &webSocketConn{dialer: d, guard: guard{conn: conn, timeout: d.timeout}}
	c.wire.conn = conn
	c.in = bufio.NewReaderSize(&c.wire, socketBuffer)
	return c
}

func (d *webSocketDialer) Close() error { return nil }

// A webSocketConn is one connection after its upgrade.
type webSocketConn struct {
	dialer *webSocketDialer
	guard  guard
	wire   wire
	in     *bufio.Reader
	frame  []byte // what is sent: kept for the next time, 14 bytes longer than the message
	ended  error
}

// upgrade does the opening handshake (RFC 6455, 4.1).
func (c *webSocketConn) upgrade(ctx context.Context) error {
	d := c.dialer
	path := d.paths[(d.next.Add(1)-1)%uint64(len(d.paths))]
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return d.connectError(fmt.Errorf("reading the path %q: %w", path, err))
	}
	if err := c.guard.begin(ctx); err != nil {
		return d.connectError(err)
	}
	status := 0
	up := ws.Dialer{
		Host:           d.host,
		Header:         ws.HandshakeHeaderHTTP(d.header),
		ReadBufferSize: readBuffer,
		OnStatusError:  func(code int, _ []byte, _ io.Reader) { status = code },
	}
	c.wire.limit = MaxHead
	early, _, err := up.Upgrade(readWriter{&c.wire, c.guard.conn}, u)
	if early != nil {
		defer ws.PutReader(early)
	}
	if err != nil {
		return c.refused(status, err)
	}
	c.wire.limit = 0
	if early != nil { // the first frames came with the head
		first, err := early.Peek(early.Buffered())
		if err != nil {
			return d.connectError(err)
		}
		c.wire.early = slices.Clone(first)
		c.wire.read -= int64(len(first))
	}
	return nil
}

// refused says why there was no upgrade.
func (c *webSocketConn) refused(status int, err error) error {
	d := c.dialer
	if status == 0 || isTimeout(err) {
		return d.connectError(fmt.Errorf("upgrade to WebSocket: %w", err))
	}
	return &failure{
		text:  fmt.Sprintf("%v to %s: it answered %d %s to the upgrade: is there a WebSocket at this path?", ErrConnect, d.address, status, http.StatusText(status)),
		kind:  ErrConnect,
		cause: err,
	}
}

// A readWriter reads from one and writes to the other.
type readWriter struct {
	io.Reader
	io.Writer
}

func (c *webSocketConn) Do(ctx context.Context, path int, tee io.Writer) (Answer, error) {
	if _, err := c.dialer.path(path); err != nil {
		return Answer{}, err
	}
	if c.ended != nil {
		return Answer{}, c.ended
	}
	a, err := c.echo(ctx, tee)
	if err != nil {
		err = classify(ctx, "awaiting the echo of a message", err)
		c.ended = fmt.Errorf("%w: an earlier message failed: %v", ErrClosed, err) //nolint:errorlint // the earlier kind must not be wrapped beside this one
	}
	return a, err
}

func (c *webSocketConn) echo(ctx context.Context, tee io.Writer) (Answer, error) {
	if err := c.guard.begin(ctx); err != nil {
		return Answer{}, err
	}
	from := c.wire.read - int64(c.in.Buffered())
	if err := c.send(c.dialer.opcode, c.dialer.message); err != nil {
		return Answer{}, err
	}
	a := Answer{Status: http.StatusSwitchingProtocols}
	err := c.message(tee, &a)
	a.Bytes = c.wire.read - int64(c.in.Buffered()) - from
	return a, err
}

// send writes one frame, masked anew as RFC 6455, 5.3 demands.
func (c *webSocketConn) send(op ws.OpCode, payload []byte) error {
	h := ws.Header{Fin: true, OpCode: op, Masked: true, Length: int64(len(payload))}
	binary.NativeEndian.PutUint32(h.Mask[:], rand.Uint32())
	out := bytes.NewBuffer(c.frame[:0])
	if err := ws.WriteHeader(out, h); err != nil {
		return err
	}
	out.Write(payload)
	c.frame = out.Bytes()
	ws.Cipher(c.frame[len(c.frame)-len(payload):], h.Mask, 0)
	_, err := c.guard.conn.Write(c.frame)
	return err
}

// Send implements [Messenger].
func (c *webSocketConn) Send(ctx context.Context, message []byte) error {
	if c.ended != nil {
		return c.ended
	}
	if err := c.guard.begin(ctx); err != nil {
		return classify(ctx, "sending a message", err)
	}
	if err := c.send(ws.OpText, message); err != nil {
		return classify(ctx, "sending a message", err)
	}
	return nil
}

// Receive implements [Messenger].
func (c *webSocketConn) Receive(ctx context.Context, into []byte) ([]byte, error) {
	if c.ended != nil {
		return nil, c.ended
	}
	into = into[:0]
	err := c.guard.begin(ctx)
	if err == nil {
		err = c.frames(func(_ ws.OpCode, n int64) error {
			if n > MaxMessage-int64(len(into)) {
				return fmt.Errorf("%w: a message of more than %d bytes", ErrProtocol, MaxMessage)
			}
			from := len(into)
			into = slices.Grow(into, int(n))[:from+int(n)]
			_, err := io.ReadFull(c.in, into[from:])
			return err
		})
	}
	if err != nil {
		return nil, classify(ctx, "awaiting a message", err)
	}
	return into, nil
}

// message reads one whole message and holds it against what was sent.
func (c *webSocketConn) message(tee io.Writer, a *Answer) error {
	want := c.dialer.message
	err := c.frames(func(op ws.OpCode, n int64) error {
		if op != ws.OpContinuation && op != c.dialer.opcode {
			return fmt.Errorf("%w: the message came back as another kind, opcode %d instead of %d", ErrProtocol, op, c.dialer.opcode)
		}
		if n > int64(len(want))-a.Body {
			return fmt.Errorf("%w: another message came back: longer than the %d bytes sent", ErrProtocol, len(want))
		}
		return c.compare(n, tee, a)
	})
	if err == nil && a.Body != int64(len(want)) {
		err = fmt.Errorf("%w: another message came back: %d bytes instead of %d", ErrProtocol, a.Body, len(want))
	}
	return err
}

// frames has the n bytes of each frame of one whole message read by take, whatever
// control frames come between its fragments (RFC 6455, 5.4). The first has the
// message's opcode, the others that of a continuation.
func (c *webSocketConn) frames(take func(op ws.OpCode, n int64) error) error {
	fragmented, controls := false, 0
	for {
		h, err := ws.ReadHeader(c.in)
		if err != nil {
			return err
		}
		state := ws.StateClientSide
		if fragmented {
			state = state.Set(ws.StateFragmented)
		}
		if err := ws.CheckHeader(h, state); err != nil {
			return fmt.Errorf("%w: a frame: %w", ErrProtocol, err)
		}
		if h.Masked { // RFC 6455, 5.1
			return fmt.Errorf("%w: a masked frame from the server", ErrProtocol)
		}
		if h.OpCode.IsControl() {
			if controls++; controls > maxControl {
				return fmt.Errorf("%w: more than %d control frames within one message", ErrProtocol, maxControl)
			}
			if err := c.control(h); err != nil {
				return err
			}
			continue
		}
		if err := take(h.OpCode, h.Length); err != nil {
			return err
		}
		if h.Fin {
			return nil
		}
		fragmented = true
	}
}

// compare reads n bytes of the message, which is never longer than the one
// sent.
func (c *webSocketConn) compare(n int64, tee io.Writer, a *Answer) error {
	var buffer [compareBuffer]byte
	for n > 0 {
		piece := buffer[:min(n, compareBuffer)]
		if _, err := io.ReadFull(c.in, piece); err != nil {
			return err
		}
		if !bytes.Equal(piece, c.dialer.message[a.Body:a.Body+int64(len(piece))]) {
			return fmt.Errorf("%w: another message came back: different after byte %d", ErrProtocol, a.Body)
		}
		if tee != nil {
			if _, err := tee.Write(piece); err != nil {
				return err
			}
		}
		n -= int64(len(piece))
		a.Body += int64(len(piece))
	}
	return nil
}

// control answers a control frame. ws.CheckHeader has seen to its length.
func (c *webSocketConn) control(h ws.Header) error {
	var buffer [ws.MaxControlFramePayloadSize]byte
	payload := buffer[:h.Length]
	if _, err := io.ReadFull(c.in, payload); err != nil {
		return err
	}
	switch h.OpCode {
	case ws.OpPing:
		return c.send(ws.OpPong, payload)
	case ws.OpClose:
		code, reason := ws.ParseCloseFrameData(payload)
		if code.Empty() {
			return fmt.Errorf("%w: by the target, without a reason", ErrClosed)
		}
		return fmt.Errorf("%w: by the target, with code %d %q", ErrClosed, code, reason)
	}
	return nil
}

// Close does the closing handshake where the connection is still in order
// (RFC 6455, 7.1.2).
func (c *webSocketConn) Close() error {
	c.guard.end()
	if c.ended == nil {
		c.ended = fmt.Errorf("%w: by us", ErrClosed)
		c.goodbye()
	}
	return c.guard.conn.Close()
}

// goodbye says that we close and waits for the other side to agree, so that
// the target sees an orderly end and not a reset.
func (c *webSocketConn) goodbye() {
	if err := c.guard.conn.SetDeadline(time.Now().Add(CloseWait)); err != nil {
		return
	}
	if err := c.send(ws.OpClose, ws.NewCloseFrameBody(ws.StatusNormalClosure, "")); err != nil {
		return
	}
	for range maxControl {
		h, err := ws.ReadHeader(c.in)
		if err != nil || h.OpCode == ws.OpClose {
			return
		}
		if _, err := io.CopyN(io.Discard, c.in, h.Length); err != nil {
			return
		}
	}
}
