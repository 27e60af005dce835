package lane

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/wire/h2"
	"millrace/internal/wire/proxyline"
	"millrace/internal/wire/send"
)

// Conn is a client's connection as net/http sees it. It has exactly the
// methods that are written here: nothing of the connection below is promoted
// that could let bytes pass by which the lane has read ahead.
//
// Its fields are grouped by who may touch them. Whoever serves the connection is one
// goroutine at a time: its loop, a worker, a goroutine of its own, or net/http's.
type Conn struct {
	connHot
	connShared
	connLocked
	connNet
	connFixed
	connRequest
	connForward
	connSweep
}

// connHot is what every hot request touches. It stands first and together: with many
// connections each further cache line is one from far away. Lane, scope and shard
// never change; the rest is for whoever serves the connection, but for the atomics.
type connHot struct {
	lane        *Lane
	scope       *Scope
	shard       uint32
	outcome     outcome
	headStarted bool          // a request's first byte has come
	answeredBy  answerer      // who has sent the last answer
	mode        atomic.Uint32 // a loopMode
	deadline    atomic.Int64  // Unix nanoseconds by which bytes must come; 0 is none; see idleMark
	reading     readState
	remote      string // the client's address as it is logged; made for the first line
}

// connShared is for everybody at any time.
type connShared struct {
	state      stateVar
	served     atomic.Bool             // something was answered
	halfClosed atomic.Bool             // the client sends no more: what is in the socket is all
	inputEnded atomic.Bool             // no more of the request's body is read
	writeBy    atomic.Int64            // like deadline, for bytes to go
	h2conn     atomic.Pointer[h2.Conn] // HTTP/2 only
	parking    atomic.Pointer[parking] // TLS only, and not net/http's
}

// connLocked changes with mu held. Whoever serves the connection may read fd without.
type connLocked struct {
	mu         sync.Mutex
	fd         int             // noFD when no loop owns the connection
	watchedFD  int             // what the loop watches for the end of one that it does not own; 0: nothing
	cutPending bool            // to be closed by whoever gets it next
	shed       bool            // was cut to make room
	handlerCtx *handlerContext // nil: no request went to the handler directly
}

// connNet is the network below. Whoever serves the connection replaces it with mu held,
// when the connection moves between a loop and package net.
type connNet struct {
	wire      *Wire        // TLS only, once a loop has had it
	nc        net.Conn     // TCP, UNIX or TLS; nil for a loop-owned one
	transport net.Conn     // what nc runs over: itself, or the TCP connection below TLS
	sock      *send.Socket // nil: use nc
	h2host    *h2Host      // HTTP/2 only, once a loop has had it
	readWaker *readWaker   // TLS only
	subject   string       // of a wire: who the client has proved to be; "": nobody
}

// connFixed is set before a second goroutine knows the connection, and by TLSConn.adopt
// before a loop does.
type connFixed struct {
	onReadable func(fd uintptr) bool // readable, bound once
	peer       net.Addr              // the client
	local      net.Addr              // of a loop-owned one
	onClose    func()                // called once, when the connection is closed
	onLeave    func(*Conn)           // called when its loop gives it up; nil: it has never had one
}

// connRequest is for the goroutine that reads: the lane's, net/http's own, or its
// background read while a handler runs; never two at once.
type connRequest struct {
	tracker    tracker
	readAhead  []byte // read from nc, not yet seen by net/http
	peek       [1]byte
	info       requestInfo
	pipelined  bool  // a request had come behind the one that is being answered
	posted     bool  // net/http's last request was a POST
	handled    bool  // a handler has it: net/http could read it
	closeAfter bool  // the request that is being answered must be the connection's last
	fault      fault // and has no other answer than this
	pace       Pace  // of its body
}

// connForward is a request that the loop has forwarded to an upstream.
type connForward struct {
	call    *call     // until its answer has come; for the loop alone
	started RoundTrip // what the handler is to go on with, until Begin
}

// connSweep is for the sweeper alone.
type connSweep struct {
	queueSample queueSample
	ackSample   ackSample
}

// noFD is the descriptor of a connection that no loop owns: it has a net.Conn.
const noFD = -1

// TLSConn is a Conn over TLS. It alone has ConnectionState: net/http fills
// Request.TLS from any connection that has such a method.
type TLSConn struct {
	*Conn
	tls *tls.Conn
}

// ConnectionState returns what the handshake agreed on.
func (c *TLSConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// NetConn is a connection behind the lane: a *Conn or a *TLSConn.
type NetConn interface {
	net.Conn
	// Serve answers requests until one is for net/http (see Conn.Serve).
	Serve() (forNetHTTP bool)
}

// readWaker ends the background read of net/http on a connection without a raw socket:
// see Conn.awaitGone.
type readWaker struct {
	mu   sync.Mutex
	cond sync.Cond
	past bool // the read deadline has passed, or the connection is closed
}

func newReadWaker() *readWaker {
	w := &readWaker{}
	w.cond.L = &w.mu
	return w
}

// NewConn returns an accepted connection with the lane before net/http. A TLS
// connection must have completed its handshake. gone is called once, when the
// connection is closed.
func (l *Lane) NewConn(nc net.Conn, scope *Scope, gone func()) NetConn {
	peer := nc.RemoteAddr()
	nc = unwrapNamed(nc)
	c := &Conn{
		connHot:    connHot{lane: l, scope: scope, shard: l.serial.Add(1)},
		connLocked: connLocked{fd: noFD},
		connNet:    connNet{nc: nc, transport: nc},
		connFixed:  connFixed{peer: peer, onClose: gone},
	}
	tc, secure := nc.(*tls.Conn)
	if secure {
		c.transport = tc.NetConn()
		l.handshakes.Add(1)
	} else {
		c.onReadable = c.readable
		c.sock = send.NewSocket(nc, c.startWriteTimeout)
	}
	if c.sock == nil {
		c.readWaker = newReadWaker()
	}
	l.track(c) // complete: from here on the sweeper sees it
	c.awaitFirstRequest()
	if secure {
		return &TLSConn{c, tc}
	}
	return c
}

// FromNet finds the Conn behind what net/http calls its connection.
func FromNet(nc net.Conn) (*Conn, bool) {
	switch c := nc.(type) {
	case *Conn:
		return c, true
	case *TLSConn:
		return c.Conn, true
	case *session:
		return c.Conn, true
	case *tlsSession:
		return c.Conn, true
	}
	return nil, false
}

// onState notes what net/http does with the connection.
func (c *Conn) onState(state http.ConnState) {
	switch state {
	case http.StateActive:
		c.setInputDeadline(0)
		c.headStarted, c.answeredBy, c.posted = false, byNetHTTP, false
		c.pipelined = len(c.readAhead) > 0
		c.closeAfter, c.fault = c.tracker.judge()
		c.pace = Pace{}
		c.state.set(stateActive)
	case http.StateIdle:
		c.discardStarted()
		c.handled = false // not when the next one begins: net/http does not say so of one that it has read ahead
		c.tracker.reset()
		c.state.set(stateReading) // before its deadline: see Lane.Drain
		c.awaitRequest(time.Now(), c.lane.settings.Load())
	case http.StateHijacked:
		if tcp, ok := c.transport.(*net.TCPConn); ok {
			_ = tcp.SetKeepAlive(true) // nobody else notices a dead peer from here on
		}
		c.deadline.Store(0)
		c.writeBy.Store(0)
		c.state.set(stateHijacked)
	case http.StateClosed:
		c.discardStarted()
	}
}

// awaitRequest starts the idle timeout after an answer.
func (c *Conn) awaitRequest(now time.Time, s *Settings) {
	if !c.served.Load() {
		c.served.Store(true)
	}
	c.startIdleTimeout(now, s)
}

// awaitFirstRequest starts the idle timeout of a new connection.
func (c *Conn) awaitFirstRequest() { c.startIdleTimeout(time.Now(), c.lane.settings.Load()) }

// startIdleTimeout sets the deadline of an idle connection; it is a short one while the
// server drains. Drain, which shortens deadlines, may be called at any moment: closing is
// read after the deadline was stored, so that one of the two sees the other.
func (c *Conn) startIdleTimeout(now time.Time, s *Settings) {
	c.setInputDeadline(now.Add(s.Idle).UnixNano() | idleMark)
	if c.lane.closing.Load() {
		c.deadline.Store(now.Add(min(s.Idle, drainLinger)).UnixNano() | idleMark)
	}
}

// idleMark is the bit of a deadline that says that the connection is idle: it waits for
// the first byte of a request, and not for the remaining ones.
const idleMark = 1

// Deadlines of a connection that was idle for too long, and whose goroutine must read
// once more before it closes it: see recheckIdle.
const (
	recheckDue = idleMark     // the sweeper has asked for it
	rechecking = 2 | idleMark // the goroutine reads
)

// deadlineIn returns the deadline that ends d from now.
func (c *Conn) deadlineIn(d time.Duration) int64 { return time.Now().Add(d).UnixNano() &^ idleMark }

// Read implements [net.Conn] for net/http.
func (c *Conn) Read(p []byte) (int, error) {
	switch c.state.load() {
	case stateClosed:
		return 0, net.ErrClosed
	case stateActive:
		return c.readActive(p)
	case stateHijacked, stateReleased:
		if len(c.readAhead) > 0 {
			return c.unbuffer(p), nil
		}
		return c.nc.Read(p)
	}
	if c.tracker.lostBefore {
		return 0, io.EOF // what comes now may be the middle of a request
	}
	if c.lane.on() && !c.startedOnLoop() && c.tracker.clean() && len(c.readAhead) <= min(len(p), maxHead) {
		return c.readHot(p)
	}
	return c.readHead(p)
}

// startedOnLoop reports whether a loop has begun the request that comes next. A handler must
// serve it then.
func (c *Conn) startedOnLoop() bool { return c.started != nil }

// readHead reads for net/http what the lane must not look at: the remaining bytes of a
// head of which net/http has the first, and everything where the lane has lost count.
func (c *Conn) readHead(p []byte) (int, error) {
	if len(c.readAhead) > 0 {
		return c.deliverHead(p, c.unbuffer(p)), nil
	}
	n, err := c.read(p)
	for n == 0 && c.isRecheck(err) {
		n, err = c.read(p)
	}
	return c.deliverHead(p, n), err
}

// deliverHead passes bytes of a head, which stand in p[:n], to net/http, and starts the
// header timeout with the first. It returns how many go: those of a pipelined request
// stay in readAhead until net/http has answered this one.
func (c *Conn) deliverHead(p []byte, n int) int {
	if n == 0 {
		return 0
	}
	if !c.served.Load() && proxyline.Begins(p[:n]) { // net/http says 400
		if tell := c.lane.settings.Load().Announced; tell != nil {
			tell(c.peer)
		}
	}
	if !c.headStarted {
		c.headStarted = true
		c.setInputDeadline(c.deadlineIn(c.lane.settings.Load().Header))
	}
	return c.deliver(p[:n])
}

// deliver tells the tracker that b goes to net/http, and returns how much of b belongs
// to this request. The remaining bytes are put back before readAhead.
func (c *Conn) deliver(b []byte) int {
	k := c.tracker.pass(b)
	if k < len(b) {
		c.readAhead = append(append(make([]byte, 0, len(b)-k+len(c.readAhead)), b[k:]...), c.readAhead...)
	}
	return k
}

// readActive reads while net/http's handler runs: first the request's body. After that
// net/http makes its background read, to notice that the client leaves. It gets no byte
// of the next request, or the lane could not read that one.
func (c *Conn) readActive(p []byte) (int, error) {
	if c.inputEnded.Load() {
		return 0, io.EOF
	}
	if c.tracker.exact() {
		return 0, c.awaitGone()
	}
	if c.tracker.done && !c.tracker.lost && !c.tracker.chunked && int64(len(p)) > c.tracker.body {
		p = p[:c.tracker.body]
	}
	if len(c.readAhead) > 0 {
		return c.deliver(p[:c.unbuffer(p)]), nil
	}
	// Where the tracker has lost count: the background read asks for one byte, and
	// may wait as long as the handler runs, so it has no timeout.
	if len(p) <= 1 {
		n, err := c.read(p)
		if n == 0 && errors.Is(err, io.EOF) {
			if gone := send.AwaitGone(c.transport); !errors.Is(gone, errors.ErrUnsupported) {
				err = gone
			}
		}
		return c.deliver(p[:n]), err
	}
	n, err := c.readBodyBlocking(p)
	return c.deliver(p[:n]), err
}

// unbuffer moves bytes from readAhead to p.
func (c *Conn) unbuffer(p []byte) int {
	n := copy(p, c.readAhead)
	if c.readAhead = c.readAhead[n:]; len(c.readAhead) == 0 {
		c.readAhead = nil
	}
	return n
}

func (c *Conn) read(p []byte) (int, error) {
	if c.sock != nil {
		return c.sock.Read(p)
	}
	return c.nc.Read(p)
}

// awaitGone is the background read of net/http after the whole request was read. It
// returns when the client leaves, or when net/http ends it by a deadline in the past. A
// client that has only closed its sending side still waits for the answer
// (docs/decisions/0049).
func (c *Conn) awaitGone() error {
	if c.sock != nil {
		return c.sock.AwaitGone()
	}
	var end error
	if len(c.readAhead) == 0 {
		n, err := c.nc.Read(c.peek[:])
		if n == 1 {
			c.readAhead = append(c.readAhead, c.peek[0])
		}
		if err != nil && !errors.Is(err, io.EOF) { // that is close_notify, or an end without it (RFC 9112, 9.8)
			return err
		}
		end = err
	}
	if err := send.AwaitGone(c.transport); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if end != nil {
		return end
	}
	c.readWaker.mu.Lock()
	defer c.readWaker.mu.Unlock()
	for !c.readWaker.past {
		c.readWaker.cond.Wait()
	}
	return os.ErrDeadlineExceeded
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	if !c.state.end(stateClosed) {
		return net.ErrClosed
	}
	c.stopWatching()
	var err error
	if c.wire != nil && c.isOwned() {
		_ = c.nc.Close() // tells the client, as far as it takes it; the descriptor is still open
	}
	if !c.closeOwned() && c.nc != nil {
		err = c.nc.Close()
		c.wakeReader(true)
		c.parking.Load().wakeClosed()
	}
	if h2conn := c.h2conn.Load(); h2conn != nil {
		h2conn.Release()
		if c.h2host != nil { // else its goroutine counts
			c.h2host.countRefusal(h2conn.Reason())
		}
	}
	c.lane.untrack(c)
	if c.onClose != nil {
		c.onClose()
	}
	return err
}

// cut ends the connection from any goroutine. Whoever serves it gets an error and calls
// Close. It closes what is below TLS, since the close of TLS may wait for the client.
func (c *Conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handlerCtx != nil && c.handlerCtx.cancel != nil {
		c.handlerCtx.cancel()
	}
	switch {
	case c.state.load() == stateReleased: // it is somebody else's
	case c.fd != noFD:
		c.cutPending = true
		shutdown(c.fd)
	case c.transport != nil:
		c.stopWatchingLocked()
		_ = c.transport.Close()
		c.parking.Load().wakeClosed()
	default:
		c.cutPending = true
	}
}

// beingCut reports whether the connection was cut to make room, or was released.
func (c *Conn) beingCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shed || c.state.load() == stateReleased
}

// cutToMakeRoom cuts the connection. It reports false if that was done before, or if the
// connection was released.
func (c *Conn) cutToMakeRoom() bool {
	c.mu.Lock()
	again := c.shed || c.state.load() == stateReleased
	c.shed = true
	c.mu.Unlock()
	if !again {
		c.cut()
	}
	return !again
}

// CloseWrite tells the client that nothing more will come; net/http does so
// before it closes a connection on which a request is still arriving.
func (c *Conn) CloseWrite() error {
	if c.isOwned() {
		return c.shutWrite()
	}
	if cw, ok := c.nc.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return errors.ErrUnsupported
}

// wakeReader wakes the wait of awaitGone, which ends if the read deadline has passed.
func (c *Conn) wakeReader(past bool) {
	if c.readWaker == nil {
		return
	}
	c.readWaker.mu.Lock()
	c.readWaker.past = past || c.state.load().ended()
	c.readWaker.mu.Unlock()
	c.readWaker.cond.Broadcast()
}

// LocalAddr implements [net.Conn].
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// RemoteAddr implements [net.Conn].
func (c *Conn) RemoteAddr() net.Addr { return c.peer }

// SetDeadline implements [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.Conn]. net/http uses it only to end its background
// read: the lane has the timeouts.
func (c *Conn) SetReadDeadline(t time.Time) error {
	err := c.nc.SetReadDeadline(t)
	c.wakeReader(!t.IsZero() && !t.After(time.Now()))
	return err
}

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.nc.SetWriteDeadline(t) }
