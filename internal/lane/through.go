package lane

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"millrace/internal/observe/trace"
	"millrace/internal/wire/lean"
	"millrace/internal/wire/message"
)

// Through sets the server of simple requests that are not hot (package lean): the lane then
// calls its handler without net/http. base is the parent of their contexts. Through must
// be called before the first connection comes. Without it, and where there are no loops,
// net/http serves these requests.
func (l *Lane) Through(base context.Context, s *lean.Server) { l.baseCtx, l.through = base, s }

// handlerContext is the parent context of a connection's requests for which the lane calls
// the handler without net/http. It is made for the first of them.
type handlerContext struct {
	context.Context
	c      *Conn
	remote string             // http.Request.RemoteAddr
	cancel context.CancelFunc // of the request that is being answered; guarded by c.mu
	// loopMu is held while the loop's descriptor is used, and while the connection
	// leaves its loop: one goroutine may read the body while another one sends.
	loopMu sync.Mutex
}

// Value implements [context.Context].
func (g *handlerContext) Value(key any) any {
	switch key.(type) {
	case connKey:
		return g.c
	case trace.Key:
		return g.c.info.traceValue()
	}
	if key == http.LocalAddrContextKey {
		if g.c.wire != nil {
			return g.c.wire.LocalAddr()
		}
		return g.c.local
	}
	return g.Context.Value(key)
}

// answerer says who has sent the last answer on a connection.
type answerer uint8

const (
	byNetHTTP answerer = iota // or nobody has
	byLane
	byLanePost // to a POST, behind which net/http skips empty lines
)

// serveExchange calls the handler for a request, on this goroutine. Bytes behind its head
// are in readAhead.
func (c *Conn) serveExchange(x *lean.Exchange) lean.Outcome {
	g := c.handlerCtx
	if g == nil {
		g = &handlerContext{Context: c.lane.baseCtx, c: c, remote: c.peer.String()}
	}
	if tc, ok := c.nc.(*tls.Conn); ok {
		state := tc.ConnectionState()
		x.Secure(&state)
	}
	cancel := x.Begin(g, g.remote)
	c.setInputDeadline(0)
	c.headStarted, c.closeAfter, c.fault = false, false, ""
	c.pipelined = int64(len(c.readAhead)) > x.Length()
	c.pace = Pace{}
	c.state.set(stateActive)
	c.mu.Lock()
	c.handlerCtx, g.cancel = g, cancel
	cut := c.cutPending
	c.mu.Unlock()
	if cut {
		cancel()
	} else if c.halfClosed.Load() {
		c.cancelIfGone()
	}
	o := x.Serve(c.lane.through, (*link)(c))
	c.discardStarted()
	c.mu.Lock()
	g.cancel = nil
	c.mu.Unlock()
	if o == lean.Hijacked {
		return o
	}
	if c.answeredBy = byLane; x.Method() == http.MethodPost {
		c.answeredBy = byLanePost
	}
	c.stopWriteTimeout()
	c.state.set(stateReading) // before its deadline: see Lane.Drain
	c.awaitRequest(time.Now(), c.lane.settings.Load())
	return o
}

// discardStarted discards what a loop has begun and no handler has gone on with.
func (c *Conn) discardStarted() {
	discard(&c.started)
	discard(&c.info.started)
}

// closeIfLast closes the connection if the answer must be its last. It reports whether the
// connection is closed or hijacked.
func (c *Conn) closeIfLast(o lean.Outcome) bool {
	switch o {
	case lean.Keep:
		return false
	case lean.Linger:
		_ = c.CloseWrite()
		lean.AwaitLinger()
	}
	if o != lean.Hijacked {
		_ = c.Close()
	}
	return true
}

// directResult is the outcome of serveDirect.
type directResult uint8

const (
	notDirect directResult = iota // the request is for net/http
	lookAgain                     // it was served, or more of it has come: go on
	connOver                      // the connection was closed or hijacked
)

// serveDirect serves the request at the start of what was read without net/http, on the
// connection's goroutine.
func (c *Conn) serveDirect() directResult {
	t := &c.reading
	if !c.canServeDirect() {
		return notDirect
	}
	if c.skipEmptyLines(); c.tracker.lost {
		return notDirect
	}
	n, v := message.End(t.p[:t.n])
	if v == message.Short && t.n < len(t.p) {
		c.startHeadTimeout(t.n)
		m, err := c.read(t.p[t.n:])
		if t.n += m; err != nil {
			t.err = err
			return notDirect
		}
		return lookAgain
	}
	if v != message.Whole {
		return notDirect
	}
	x := lean.New(string(t.p[:n]))
	if x == nil {
		return notDirect
	}
	if n < t.n {
		c.readAhead = append([]byte(nil), t.p[n:t.n]...)
	}
	t.n = 0
	c.watchForClose()
	if c.closeIfLast(c.serveExchange(x)) {
		return connOver
	}
	t.n = c.unbuffer(t.p)
	return lookAgain
}

// maxEmptyLineBytes is how many CR and LF before a request net/http skips.
const maxEmptyLineBytes = 4

// skipEmptyLines skips empty lines behind a POST, as net/http does. A client that sends them
// may see the end of the request elsewhere than the server, so the next request is for
// net/http, as the connection's last.
func (c *Conn) skipEmptyLines() {
	t := &c.reading
	n := 0
	for c.answeredBy == byLanePost && n < min(t.n, maxEmptyLineBytes) && (t.p[n] == '\r' || t.p[n] == '\n') {
		n++
	}
	if n > 0 {
		t.n = copy(t.p, t.p[n:t.n])
		c.tracker.lost = true
	}
}

// startsWithEmptyLine reports whether the bytes behind a request that the lane has answered
// begin with an empty line.
func (c *Conn) startsWithEmptyLine() bool {
	return c.answeredBy != byNetHTTP && c.reading.n > 0 && (c.reading.p[0] == '\r' || c.reading.p[0] == '\n')
}

// link implements [lean.Link] for a Conn.
type link Conn

// Read reads the body of the request.
func (l *link) Read(p []byte) (int, error) {
	c := (*Conn)(l)
	if c.inputEnded.Load() {
		return 0, io.EOF
	}
	if len(c.readAhead) > 0 {
		return c.unbuffer(p), nil
	}
	n, err := c.readBody(p)
	if c.halfClosed.Load() {
		c.cancelIfGone()
	}
	return n, err
}

// readBodyBlocking reads a part of a body and waits for it, for as long as the pace allows.
func (c *Conn) readBodyBlocking(p []byte) (int, error) {
	s, began := c.lane.settings.Load(), time.Now()
	c.deadline.Store(began.Add(c.pace.Left(s.Body)).UnixNano() &^ idleMark)
	defer c.deadline.Store(0)
	n, err := c.read(p)
	c.pace.Took(time.Since(began), n, s.Body, s.BodyRate)
	return n, err
}

// Send implements [lean.Link].
func (l *link) Send(head, body []byte) error {
	c := (*Conn)(l)
	n, err := c.trySend(head, body)
	if err == nil && n < len(head)+len(body) {
		skip := min(n, len(head))
		var m int64
		m, err = c.transmit(head[skip:], body[n-skip:])
		n += int(m)
	}
	c.lane.meters.Sent.Copied.Add(c.shard, uint64(n))
	return err
}

// ReadFrom implements [io.ReaderFrom].
func (l *link) ReadFrom(src io.Reader) (int64, error) {
	c := (*Conn)(l)
	if c.wire != nil { // there is no sendfile(2) for it
		return copyTo(src, func(p []byte) error { return l.Send(nil, p) })
	}
	if err := c.leaveLoop(); err != nil {
		return 0, err
	}
	return c.ReadFrom(src)
}

// copyTo gives all that a reader has to send.
func copyTo(src io.Reader, send func([]byte) error) (n int64, err error) {
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	for {
		m, err := src.Read(*buf)
		if m > 0 {
			if err := send((*buf)[:m]); err != nil {
				return n, err
			}
			n += int64(m)
		}
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// Hijack implements [lean.Link].
func (l *link) Hijack() (net.Conn, error) {
	c := (*Conn)(l)
	if err := c.leaveLoop(); err != nil {
		return nil, err
	}
	c.stopWatching()
	_ = c.nc.SetDeadline(time.Time{})
	c.onState(http.StateHijacked)
	return c, nil
}

// SetReadDeadline implements [lean.Link].
func (l *link) SetReadDeadline(t time.Time) error {
	c := (*Conn)(l)
	if err := c.leaveLoop(); err != nil {
		return err
	}
	return c.nc.SetReadDeadline(t)
}

// SetWriteDeadline implements [lean.Link].
func (l *link) SetWriteDeadline(t time.Time) error {
	c := (*Conn)(l)
	if err := c.leaveLoop(); err != nil {
		return err
	}
	return c.nc.SetWriteDeadline(t)
}
