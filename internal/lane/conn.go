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

	"millrace/internal/h2"
	"millrace/internal/proxyline"
	"millrace/internal/send"
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
	inputEnded atomic.Bool             // the rest of the request's body is not read
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
	wire       *Wire        // TLS only, once a loop has had it
	nc         net.Conn     // TCP, UNIX or TLS; nil for a loop-owned one
	transport  net.Conn     // what nc runs over: itself, or the TCP connection below TLS
	sock       *send.Socket // nil: use nc
	h2host     *h2Host      // HTTP/2 only, once a loop has had it
	readWaker  *readWaker   // TLS only
	clientCert bool         // of a wire: the client has proved who it is
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
	closeAfter bool  // the request that is being answered must be the connection's last
	fault      fault // and has no other answer than this
	pace       Pace  // of its body
}

// connForward is a request that the loop has forwarded to an upstream.
type connForward struct {
	call      *call     // until its answer has come; for the loop alone
	roundTrip RoundTrip // the handler is to go on with it
	prepared  any       // what a Forwarder that did not forward the request has left for its handler
}

// connSweep is for the sweeper alone.
type connSweep struct {
	queueSample queueSample
	ackSample   ackSample
}

// noFD is the descriptor of a connection that has a net.Conn.
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
	// Serve answers while the lane can (see Conn.Serve).
	Serve() (forNetHTTP bool)
}

// readWaker interrupts the wait for the end of a handler on connections without a
// raw socket.
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

// NewConn puts the lane in front of an accepted connection; a TLS connection
// must have done its handshake. gone is called once, when it is closed.
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
	}
	return nil, false
}

// OnState is the hook for http.Server.ConnState.
func OnState(nc net.Conn, state http.ConnState) {
	c, ok := FromNet(nc)
	if !ok {
		return
	}
	switch state {
	case http.StateActive:
		c.setInputDeadline(0)
		c.headStarted, c.answeredBy = false, byNetHTTP
		c.pipelined = len(c.readAhead) > 0
		c.closeAfter, c.fault = c.tracker.judge()
		c.pace = Pace{}
		c.state.set(stateActive)
	case http.StateIdle:
		c.discardRoundTrip()
		c.prepared = nil
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
		c.discardRoundTrip()
	}
}

// awaitRequest starts the wait for the next request. At the end of a drain it is a short
// one; Drain itself may come at any moment, so that is looked up after the store:
// either this sees the drain, or the drain sees this.
func (c *Conn) awaitRequest(now time.Time, s *Settings) {
	if !c.served.Load() {
		c.served.Store(true)
	}
	c.startIdleTimeout(now, s)
}

// awaitFirstRequest is setIdle for a connection on which nothing was asked yet.
func (c *Conn) awaitFirstRequest() { c.startIdleTimeout(time.Now(), c.lane.settings.Load()) }

func (c *Conn) startIdleTimeout(now time.Time, s *Settings) {
	c.setInputDeadline(now.Add(s.Idle).UnixNano() | idleMark)
	if c.lane.closing.Load() {
		c.deadline.Store(now.Add(min(s.Idle, drainLinger)).UnixNano() | idleMark)
	}
}

// idleMark is the bit of a deadline that says that the connection waits for the
// first byte of a request: not for the rest of one.
const idleMark = 1

// Deadlines of connections that were idle for too long, and whose goroutines are
// to look once more: see lookAgain.
const (
	recheckDue = idleMark
	rechecking = 2 | idleMark
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
		return 0, io.EOF // what comes now may be the middle of something
	}
	if c.lane.on() && !c.startedOnLoop() && c.tracker.clean() && len(c.readAhead) <= min(len(p), maxHead) {
		return c.readHot(p)
	}
	return c.readHead(p)
}

// startedOnLoop reports whether a loop has begun with the request over TLS that comes next:
// its handler goes on.
func (c *Conn) startedOnLoop() bool { return c.roundTrip != nil || c.prepared != nil && c.scope.Secure }

// readHead reads a request's head for net/http after it has begun to, or where
// the lane has lost count.
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

// deliverHead takes note that p[:n] goes to net/http and returns how much of it
// does: what belongs to a next request is held back until its turn.
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

// deliver passes b on to net/http, as far as it belongs to this request, and holds
// the rest.
func (c *Conn) deliver(b []byte) int {
	k := c.tracker.pass(b)
	if k < len(b) {
		c.readAhead = append(append(make([]byte, 0, len(b)-k+len(c.readAhead)), b[k:]...), c.readAhead...)
	}
	return k
}

// readActive reads while a handler runs: the request's body, or, once there is
// nothing left of it, net/http's background read, which waits for the client
// to go away. That one takes no byte of the next request, so that the lane
// stays in step.
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
	// Where the tracker has lost count, one byte is what the background read
	// asks for, and it may wait for as long as the handler runs.
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

// awaitGone waits for the client to leave, or for net/http to call the background
// read off by a deadline in the past. A client that sends no more has not left: it
// has asked, and waits for the answer (docs/decisions/0049).
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

// Write implements [net.Conn] for net/http.
func (c *Conn) Write(p []byte) (int, error) {
	if c.state.load().givenAway() {
		return c.nc.Write(p)
	}
	n, err := c.transmit(p, nil)
	c.lane.meters.Sent.Copied.Add(c.shard, uint64(n))
	return int(n), err
}

// maxWrite is how much is written at once where no raw socket tells of
// progress: a slow client has the write timeout for each such piece.
const maxWrite = 64 << 10

// transmit writes head and body and returns how many bytes went.
func (c *Conn) transmit(head, body []byte) (total int64, err error) {
	if c.sock != nil {
		total, err = c.sock.Write(head, body)
		c.stopWriteTimeout()
		return total, err
	}
	defer c.writeBy.Store(0)
	for _, b := range [2][]byte{head, body} {
		for len(b) > 0 {
			c.startWriteTimeout()
			n, err := c.nc.Write(b[:min(len(b), maxWrite)])
			total += int64(n)
			if err != nil {
				return total, err
			}
			b = b[n:]
		}
	}
	return total, nil
}

// startWriteTimeout starts the clock for a client that takes nothing. While the lane
// itself answers, nothing is waited for from the client meanwhile: a slow
// download may take longer than a connection may be idle.
func (c *Conn) startWriteTimeout() {
	if c.state.load() == stateReading {
		c.setInputDeadline(0)
	}
	c.writeBy.Store(c.deadlineIn(c.lane.settings.Load().Write))
}

func (c *Conn) stopWriteTimeout() {
	if c.writeBy.Load() != 0 {
		c.writeBy.Store(0)
	}
}

// ReadFrom implements [io.ReaderFrom]: it is how net/http hands a file over.
// Files go by sendfile(2), over TCP and UNIX sockets alike.
func (c *Conn) ReadFrom(src io.Reader) (int64, error) {
	if c.state.load().givenAway() {
		return io.Copy(struct{ io.Writer }{c.nc}, src)
	}
	if sec, moved, ok := send.SectionOf(src); ok && c.sock != nil {
		n, err := c.sendFile(nil, sec)
		moved(n)
		return n, err
	}
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{c}, src, *buf)
}

// sendFile sends head and the section and returns the section's bytes.
func (c *Conn) sendFile(head []byte, sec *send.Section) (int64, error) {
	if c.sock != nil && sec.HasDescriptor() {
		nHead, n, err := c.sock.SendFile(head, sec)
		c.stopWriteTimeout()
		c.lane.meters.Sent.Writev.Add(c.shard, uint64(nHead))
		c.lane.meters.Sent.Sendfile.Add(c.shard, uint64(n))
		return n, err
	}
	if _, err := c.Write(head); err != nil {
		return 0, err
	}
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	want := sec.Remaining()
	n, err := io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{sec}, *buf)
	if err == nil && n < want {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// bufferPool holds the buffers for pipelined answers and copied files.
var bufferPool = sync.Pool{New: func() any { b := make([]byte, maxWrite); return &b }}

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
	if front := c.h2conn.Load(); front != nil {
		front.Release()
	}
	if c.h2host != nil {
		c.h2host.handoffs.discardUnclaimed()
	}
	c.lane.untrack(c)
	if c.onClose != nil {
		c.onClose()
	}
	return err
}

// cut ends the connection from outside, below TLS: the close of a TLS
// connection may wait for its client. Whoever reads or writes finds out, and
// closes it.
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

// beingCut reports whether the connection is being cut, or has been released.
func (c *Conn) beingCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shed || c.state.load() == stateReleased
}

// cutToMakeRoom cuts the connection and reports whether it was the first to do so.
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

// wakeReader wakes a Read that waits (see quiet) and tells it whether the read
// deadline has passed.
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

// SetReadDeadline implements [net.Conn]. net/http uses it to call its
// background read off; its timeouts are the lane's.
func (c *Conn) SetReadDeadline(t time.Time) error {
	err := c.nc.SetReadDeadline(t)
	c.wakeReader(!t.IsZero() && !t.After(time.Now()))
	return err
}

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.nc.SetWriteDeadline(t) }
