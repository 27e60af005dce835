package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/observe/trace"
	"millrace/internal/upstream/http1"
)

var (
	errSwitched    = errors.New("it switched protocols")
	errHeaderBytes = errors.New("its header is too large")
)

// heads are what the answers to Upgrade are read through, 4 KiB each, which is
// also the most that a Tunnel's Early holds.
var heads = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

// handshake is one request to one server to switch protocols.
type handshake struct {
	pool  *Pool
	place place

	raw         net.Conn    // what was dialled; nil: not connected
	conn        net.Conn    // the same, or TLS over it
	stop        func() bool // detaches the context from raw
	reader      *bufio.Reader
	left        int64 // bytes that the header may still have
	inBody      bool  // after it: no limit
	sent        bool  // bytes of the request may have reached the server
	answerBegan bool  // a byte of an answer came
	broke       error // why no more comes

	newcomer *newcomer // nil: no connection
}

// exchange sends r and reads the header of the answer.
func (h *handshake) exchange(r *http.Request, target string) (*http.Response, error) {
	s, ctx := h.place.server, r.Context()
	if s.scheme == "h2c" {
		return nil, errNoSwitching
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	out := s.lines(r, target)
	head, err := out.Append((*buffer)[:0])
	if err != nil {
		return nil, err
	}
	step, began := trace.Begin(ctx, trace.Connect), time.Now()
	if h.raw, err = s.way.connect(ctx, "tcp", s.way.target, s.proxyHeader(r)); err != nil {
		step.End(s.way.target, err)
		return nil, err
	}
	if s.client != nil {
		h.newcomer = &newcomer{client: s.client, connecting: time.Since(began)}
		h.newcomer.begin()
	}
	// Only closes: nobody has to wait for it.
	h.stop = context.AfterFunc(ctx, func() { h.raw.Close() })
	h.conn, err = s.way.secure(ctx, h.raw)
	if step.End(s.way.target, err); err != nil {
		return nil, err
	}
	// One that cannot be set is broken, which the next line will say.
	_ = h.conn.SetDeadline(time.Now().Add(h.pool.options.HeaderTimeout))
	h.sent = true
	if _, err := h.conn.Write(head); err != nil {
		return nil, err
	}
	h.reader = heads.Get().(*bufio.Reader)
	h.reader.Reset(h)
	resp, err := h.read(r)
	if err != nil && h.broke != nil {
		return nil, h.broke // net/http may have seen in it no more than half a line
	}
	if err != nil {
		return nil, err
	}
	_ = h.conn.SetDeadline(time.Time{})
	if resp.StatusCode == http.StatusSwitchingProtocols && !h.stop() {
		return nil, context.Cause(ctx) // it is closed already
	}
	return resp, nil
}

// Read implements io.Reader: the connection, as far as the header may reach.
func (h *handshake) Read(b []byte) (int, error) {
	switch {
	case h.inBody:
		return h.conn.Read(b)
	case h.left <= 0:
		h.broke = errHeaderBytes
		return 0, h.broke
	}
	n, err := h.conn.Read(b[:min(int64(len(b)), h.left)])
	h.left -= int64(n)
	if n > 0 && !h.answerBegan {
		h.answerBegan = true
		h.newcomer.gotAnswer()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		h.broke = err
	}
	return n, err
}

// read reads up to the header that is not an interim one's. All of them together are
// within HeaderBytes, unless the caller looks at each; then each is.
func (h *handshake) read(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	h.left = int64(h.pool.options.HeaderBytes)
	for interims := 0; ; interims++ {
		resp, err := http.ReadResponse(h.reader, r)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode < 100:
			return nil, fmt.Errorf("%w: %s", errStatus, resp.Status)
		case resp.StatusCode == http.StatusSwitchingProtocols:
			err = switched(r.Header, resp.Header)
		case resp.StatusCode < 200 && interims == maxInterim:
			return nil, errInterims
		case resp.StatusCode < 200:
			if trace != nil && trace.Got1xxResponse != nil {
				if err := trace.Got1xxResponse(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
					return nil, err
				}
				h.left = int64(h.pool.options.HeaderBytes)
			}
			continue
		}
		if err == nil {
			err = repairNames(resp.Header)
		}
		h.inBody = true
		return resp, err
	}
}

// early returns the bytes that came behind the header, and puts the reader back into
// its pool.
func (h *handshake) early() []byte {
	var early []byte
	if n := h.reader.Buffered(); n > 0 {
		b, _ := h.reader.Peek(n) // cannot fail: it is there
		early = bytes.Clone(b)
	}
	h.reader.Reset(nil)
	heads.Put(h.reader)
	h.reader = nil
	return early
}

// abandon closes the connection, if there is one.
func (h *handshake) abandon() {
	h.newcomer.end()
	if h.raw != nil {
		h.stop()
		h.raw.Close() // below TLS, which would first send close_notify
	}
	if h.reader != nil {
		h.early()
	}
}

// answer hands over a response that switches nothing. Its body ends with the
// connection, and gives the place back as that of RoundTrip does.
func (h *handshake) answer(r *http.Request, resp *http.Response) (*http.Response, *failure) {
	if resp.Body == http.NoBody {
		h.abandon()
	} else {
		resp.Body = &lastBody{inner: resp.Body, h: h}
	}
	return (&try{Context: r.Context(), pool: h.pool, place: h.place}).answer(resp)
}

// lastBody is the body of an answer after which there is no other.
type lastBody struct {
	inner io.Reader
	h     *handshake
	ended atomic.Bool
}

// Read implements io.Reader.
func (b *lastBody) Read(to []byte) (int, error) {
	n, err := b.inner.Read(to)
	if err != nil {
		_ = b.Close() // what counts is err
	}
	return n, err
}

// Close implements io.Closer. The rest of the body is not read, as
// the connection is not used again.
func (b *lastBody) Close() error {
	if b.ended.Swap(true) {
		return nil
	}
	b.h.stop()
	return b.h.raw.Close()
}

// failure says what an error of exchange means, as [try.failure] does for the
// errors of net/http.
func (h *handshake) failure(caller context.Context, err error) *failure {
	name := h.place.server.name
	f := &failure{outcome: outcomeOf(err), sent: h.sent}
	wrap := func(kind error) *failure {
		f.err = &upstreamError{kind, name, err}
		return f
	}
	dial, connecting := errors.AsType[*dialError](err)
	switch {
	case errors.Is(err, errNoSwitching):
		f.err, f.outcome = fmt.Errorf("asking %s to switch protocols: %w", name, err), undecided
		return f
	case errors.Is(err, http1.ErrRequest):
		f.err, f.outcome, f.final = fmt.Errorf("sending the request to %s: %w", name, err), undecided, true
		return f
	case caller.Err() != nil:
		f.err, f.outcome, f.final = interrupted(caller), undecided, true
		return f
	case connecting:
		if err = dial; isTimeout(dial.error) {
			return wrap(ErrTimeout)
		}
		return wrap(ErrUnreachable)
	case isTimeout(err):
		f.final = f.sent // the server is still busy with it: do not send it again
		return wrap(ErrTimeout)
	case !h.sent && strings.Contains(err.Error(), "no application protocol"):
		f.outcome = undecided // it speaks HTTP/2 alone, and is well
		return wrap(ErrUnreachable)
	case h.answerBegan:
		f.final = true
		return wrap(ErrProtocol)
	}
	return wrap(ErrUnreachable)
}
