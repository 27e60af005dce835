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
func (l *Lane) Through(base context.Context, s *lean.Server) { l.base, l.through = base, s }

// direct is the context of the requests of a connection that the lane gives to the
// handler directly, without net/http. It is made with the first of them.
type direct struct {
	context.Context
	c      *Conn
	remote string             // http.Request.RemoteAddr
	cancel context.CancelFunc // of the request that is being answered; by c.mu
	// moving is held where the connection may leave its loop, or is used as one of
	// a loop: one goroutine may read the body while another one sends.
	moving sync.Mutex
}

// Value implements [context.Context].
func (g *direct) Value(key any) any {
	switch key.(type) {
	case connKey:
		return g.c
	case trace.Key:
		return g.c.ticket.followed()
	}
	if key == http.LocalAddrContextKey {
		return g.c.local
	}
	return g.Context.Value(key)
}

// answerer says what answered last on a connection.
type answerer uint8

const (
	netHTTP answerer = iota // or nobody
	theLane
	thePost // the through road, to a POST: net/http forgives empty lines behind it
)

// exchange answers one request by the handler, on this goroutine. What was read
// behind its head is held.
func (c *Conn) exchange(x *lean.Exchange) lean.Outcome {
	g := c.direct
	if g == nil {
		g = &direct{Context: c.lane.base, c: c, remote: c.peer.String()}
	}
	cancel := x.Begin(g, g.remote)
	c.until(0)
	c.headBegun, c.last, c.fault = false, false, ""
	c.more = int64(len(c.held)) > x.Length()
	c.pace = Pace{}
	c.phase.Store(uint32(active))
	c.mu.Lock()
	c.direct, g.cancel = g, cancel
	cut := c.doomed
	c.mu.Unlock()
	if cut {
		cancel()
	} else if c.shut.Load() {
		c.lookForEnd()
	}
	o := x.Serve(c.lane.through, (*link)(c))
	c.drop()
	c.mu.Lock()
	g.cancel = nil
	c.mu.Unlock()
	if o == lean.Hijacked {
		return o
	}
	if c.answered = theLane; x.Method() == http.MethodPost {
		c.answered = thePost
	}
	c.unstall()
	c.phase.Store(uint32(between)) // before its deadline: see Lane.Drain
	c.setIdle(time.Now(), c.lane.settings.Load())
	return o
}

// drop gives up a request that was sent, and that nobody went on with.
func (c *Conn) drop() {
	if p := c.passage; p != nil {
		c.passage = nil
		p.Discard()
	}
}

// ends closes a connection after an answer that must be its last, if it is one.
func (c *Conn) ends(o lean.Outcome) bool {
	switch o {
	case lean.Keep:
		return false
	case lean.Linger:
		_ = c.CloseWrite()
		lean.Rest()
	}
	if o != lean.Hijacked {
		_ = c.Close()
	}
	return true
}

// meeting says what became of the bytes that are not hot.
type meeting uint8

const (
	forOthers meeting = iota // they are net/http's
	again                    // look at them once more, and at what has come behind them
	over                     // the connection has ended, or is somebody else's
)

// meet serves the request at the start of what was read, on the connection's
// goroutine.
func (c *Conn) meet() meeting {
	t := &c.reading
	if !c.leanable() {
		return forOthers
	}
	if c.forgive(); c.tracker.lost {
		return forOthers
	}
	n, v := lean.End(t.p[:t.n])
	if v == lean.Short && t.n < len(t.p) {
		c.beginHead(t.n)
		m, err := c.read(t.p[t.n:])
		if t.n += m; err != nil {
			t.err = err
			return forOthers
		}
		return again
	}
	if v != lean.Whole {
		return forOthers
	}
	x := lean.New(string(t.p[:n]))
	if x == nil {
		return forOthers
	}
	if n < t.n {
		c.held = append([]byte(nil), t.p[n:t.n]...)
	}
	t.n = 0
	c.watchEnd()
	if c.ends(c.exchange(x)) {
		return over
	}
	t.n = c.unhold(t.p)
	return again
}

// mostForgiven is how many bytes before a request may be the ends of lines
// where net/http forgives them.
const mostForgiven = 4

// forgive leaves out empty lines behind a POST, as net/http does. Who sends them
// may count bytes otherwise than we do: what follows is for net/http, as the
// last request.
func (c *Conn) forgive() {
	t := &c.reading
	n := 0
	for c.answered == thePost && n < min(t.n, mostForgiven) && (t.p[n] == '\r' || t.p[n] == '\n') {
		n++
	}
	if n > 0 {
		t.n = copy(t.p, t.p[n:t.n])
		c.tracker.lost = true
	}
}

// emptyLine reports whether what follows answers of the lane begins with the
// end of a line.
func (c *Conn) emptyLine() bool {
	return c.answered != netHTTP && c.reading.n > 0 && (c.reading.p[0] == '\r' || c.reading.p[0] == '\n')
}

// link is a Conn as package lean sees it.
type link Conn

// Read reads the body of the request.
func (l *link) Read(p []byte) (int, error) {
	c := (*Conn)(l)
	if c.deaf.Load() {
		return 0, io.EOF
	}
	if len(c.held) > 0 {
		return c.unhold(p), nil
	}
	n, err := c.readBody(p)
	if c.shut.Load() {
		c.lookForEnd()
	}
	return n, err
}

// waitBody reads a body, at its pace.
func (c *Conn) waitBody(p []byte) (int, error) {
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
	n, err := c.sendNow(head, body)
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
	if err := c.unloop(); err != nil {
		return 0, err
	}
	return c.ReadFrom(src)
}

// Hijack implements [lean.Link].
func (l *link) Hijack() (net.Conn, error) {
	c := (*Conn)(l)
	if err := c.unloop(); err != nil {
		return nil, err
	}
	c.unwatch()
	_ = c.nc.SetDeadline(time.Time{})
	OnState(c, http.StateHijacked)
	return c, nil
}

// SetReadDeadline implements [lean.Link].
func (l *link) SetReadDeadline(t time.Time) error {
	c := (*Conn)(l)
	if err := c.unloop(); err != nil {
		return err
	}
	return c.nc.SetReadDeadline(t)
}

// SetWriteDeadline implements [lean.Link].
func (l *link) SetWriteDeadline(t time.Time) error {
	c := (*Conn)(l)
	if err := c.unloop(); err != nil {
		return err
	}
	return c.nc.SetWriteDeadline(t)
}
