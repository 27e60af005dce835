package lane

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"millrace/internal/lean"
	"millrace/internal/trace"
)

// Through has the lane call a handler itself, without net/http, for requests
// that are not hot but simple (package lean); base is below their contexts. It
// must be called before the first connection comes. Without it, and where there
// are no loops, net/http has all of them.
func (l *Lane) Through(base context.Context, s *lean.Server) { l.baseCtx, l.through = base, s }

// handlerContext is the context of the requests of a connection that the lane gives to the
// handler directly, without net/http. It is made with the first of them.
type handlerContext struct {
	context.Context
	c      *Conn
	remote string             // http.Request.RemoteAddr
	cancel context.CancelFunc // of the request that is being answered; by c.mu
	// loopMu is held where the connection may leave its loop, or is used as one of
	// a loop: one goroutine may read the body while another one sends.
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
		return g.c.local
	}
	return g.Context.Value(key)
}

// answerer says what answered last on a connection.
type answerer uint8

const (
	byNetHTTP answerer = iota // or nobody
	byLane
	byLanePost // the through road, to a POST: net/http forgives empty lines behind it
)

// serveExchange answers one request by the handler, on this goroutine. What was read
// behind its head is held.
func (c *Conn) serveExchange(x *lean.Exchange) lean.Outcome {
	g := c.handlerCtx
	if g == nil {
		g = &handlerContext{Context: c.lane.baseCtx, c: c, remote: c.peer.String()}
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
	c.discardRoundTrip()
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

// discardRoundTrip gives up a request that was sent, and that nobody went on with.
func (c *Conn) discardRoundTrip() {
	if p := c.roundTrip; p != nil {
		c.roundTrip = nil
		p.Discard()
	}
}

// closeIfLast closes a connection after an answer that must be its last, if it is one.
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

// directResult says what became of the bytes that are not hot.
type directResult uint8

const (
	notDirect directResult = iota // they are net/http's
	lookAgain                     // look at them once more, and at what has come behind them
	connOver                      // the connection has ended, or is somebody else's
)

// serveDirect serves the request at the start of what was read, on the connection's
// goroutine.
func (c *Conn) serveDirect() directResult {
	t := &c.reading
	if !c.canServeDirect() {
		return notDirect
	}
	if c.skipEmptyLines(); c.tracker.lost {
		return notDirect
	}
	n, v := lean.End(t.p[:t.n])
	if v == lean.Short && t.n < len(t.p) {
		c.startHeadTimeout(t.n)
		m, err := c.read(t.p[t.n:])
		if t.n += m; err != nil {
			t.err = err
			return notDirect
		}
		return lookAgain
	}
	if v != lean.Whole {
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

// maxEmptyLineBytes is how many bytes before a request may be the ends of lines
// where net/http forgives them.
const maxEmptyLineBytes = 4

// skipEmptyLines leaves out empty lines behind a POST, as net/http does. Who sends them
// may count bytes otherwise than we do: what follows is for net/http, as the
// last request.
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

// startsWithEmptyLine reports whether what follows answers of the lane begins with the
// end of a line.
func (c *Conn) startsWithEmptyLine() bool {
	return c.answeredBy != byNetHTTP && c.reading.n > 0 && (c.reading.p[0] == '\r' || c.reading.p[0] == '\n')
}

// link is a Conn as package lean sees it.
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

// readBodyBlocking reads a body, at its pace.
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
	if err := c.leaveLoop(); err != nil {
		return 0, err
	}
	return c.ReadFrom(src)
}

// Hijack implements [lean.Link].
func (l *link) Hijack() (net.Conn, error) {
	c := (*Conn)(l)
	if err := c.leaveLoop(); err != nil {
		return nil, err
	}
	c.stopWatching()
	_ = c.nc.SetDeadline(time.Time{})
	OnState(c, http.StateHijacked)
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
