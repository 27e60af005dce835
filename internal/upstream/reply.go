package upstream

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"millrace/internal/upstream/http1"
)

// lastWrite is how long the end of an answer waits for the sender of a body of
// which all was read: it is about to return, and the connection is good then.
const lastWrite = 50 * time.Millisecond

// The states of a reply.
const (
	resting int32 = iota
	reading
	closedBody    // by Close
	closedReading // by Close, while a Read was under way, which cleans up
)

// reply is an Exchange as the body of its answer.
type reply Exchange

// answer returns the answer. Connection and place are released as soon as all of the
// body was read from the network: at once, if it came with the head.
func (x *Exchange) answer() (*Answer, *failure) {
	if x.head.Framing == http1.Switched {
		return x.switchProtocols()
	}
	a := x.reply()
	if x.wire == nil {
		x.pool.recordAnswer(x.place, x.pool.now(), true)
		x.place = place{}
		return a, nil
	}
	x.pool.recordAnswer(x.place, x.pool.now(), false)
	if isEventStream(a.Fields.First("Content-Type")) {
		if !x.pool.stream(x.place) {
			return nil, x.noStream()
		}
		x.stream = true
	}
	return a, nil
}

// given is the answer without a body.
func (x *Exchange) given() *Answer {
	x.gives = Answer{Status: x.head.Status, Major: 1, Minor: x.head.Minor, Fields: x.head.Fields, Length: x.head.Length, Trailer: x.head.Trailer}
	return &x.gives
}

// reply is the answer with its body. The connection is free if all of it came.
func (x *Exchange) reply() *Answer {
	x.setLimit(0, true)
	a := x.given()
	a.Body = (*reply)(x)
	if x.body.Whole() {
		x.free(true)
	}
	if x.head.Framing == http1.Empty {
		a.Body = http.NoBody
		x.forget()
	}
	return a
}

// noStream gives up an answer because all streams are taken.
func (x *Exchange) noStream() *failure {
	x.abandon()
	x.pool.recordEnd(x.place, undecided, nil)
	return &failure{err: &upstreamError{ErrBusy, x.server.name, errAllStreams}, final: true}
}

// setLimit sets the deadline of what is waited for. headed says that the header
// has come.
func (x *Exchange) setLimit(limit time.Duration, headed bool) {
	if s := x.sender; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.headed = headed
	}
	x.limit = limit
}

// Read implements io.Reader.
func (b *reply) Read(to []byte) (int, error) {
	x := (*Exchange)(b)
	if x.err != nil {
		return 0, x.err
	}
	if !x.state.CompareAndSwap(resting, reading) {
		return 0, http.ErrBodyReadAfterClose
	}
	if timeout := x.pool.options.BodyTimeout; x.wire != nil && !x.stream && x.in.Buffered() == 0 {
		x.setLimit(x.pool.now()+timeout, true)
	}
	n, err := x.body.Read(to)
	if err != nil {
		x.err = x.judge(err)
	}
	if !x.state.CompareAndSwap(reading, resting) {
		x.end(false, undecided, nil) // Close came meanwhile
	}
	return n, x.err
}

// Ready reports whether a Read of an answer's body would return at once. Where that
// cannot be known it reports false.
func Ready(answer io.Reader) bool {
	if answer == http.NoBody {
		return true
	}
	b, ok := answer.(interface{ ready() bool })
	return ok && b.ready()
}

func (b *reply) ready() bool {
	x := (*Exchange)(b)
	if x.err != nil || !x.state.CompareAndSwap(resting, reading) {
		return true // Read says why
	}
	// Over TLS nobody knows what the kernel's bytes hold.
	is := x.body.Ready() || x.wire != nil && x.wire.raw != nil && x.wire.peek() != noData
	if !x.state.CompareAndSwap(reading, resting) {
		x.end(false, undecided, nil) // Close came meanwhile
	}
	return is
}

// Close implements io.Closer. Closed before its end, an answer costs its
// connection. It may be called while a Read is under way, which ends then.
func (b *reply) Close() error {
	x := (*Exchange)(b)
	switch {
	case x.state.CompareAndSwap(resting, closedBody):
		x.end(false, undecided, nil)
	case x.state.CompareAndSwap(reading, closedReading):
		if w := x.reading.Load(); w != nil {
			w.close()
		}
	}
	return nil
}

// yield implements the second half of [Yield].
func (b *reply) yield() {
	x := (*Exchange)(b)
	if !x.state.CompareAndSwap(resting, reading) {
		return
	}
	if x.place.server != nil && !x.stream && !x.late {
		x.late = x.pool.stream(x.place)
	}
	if !x.state.CompareAndSwap(reading, resting) {
		x.end(false, undecided, nil) // Close came meanwhile
	}
}

// judge maps the error with which the body ended to the one that the caller gets.
func (x *Exchange) judge(err error) error {
	name := x.server.name
	switch {
	case err == io.EOF: //nolint:errorlint // http1.Body does not wrap it
		x.end(true, undecided, nil)
		return err
	case x.stuck.Load():
		err = &upstreamError{ErrTimeout, name, errUploadStuck}
	case x.caller.Err() != nil:
		x.end(false, undecided, nil)
		return interrupted(x.caller)
	case x.state.Load() == closedReading:
		return err // Read cleans up
	case isTimeout(err):
		err = &upstreamError{ErrTimeout, name, errBodyStalls}
	default:
		err = &upstreamError{ErrProtocol, name, err}
	}
	x.end(false, failed, err)
	return err
}

// end gives back what the exchange still holds. whole says that the answer was
// read to its end.
func (x *Exchange) end(whole bool, o outcome, err error) {
	x.free(whole)
	x.forget()
	c := x.place
	switch x.place, x.step = (place{}), ended; {
	case c.server == nil:
	case x.stream || x.late:
		x.pool.streamEnded(c)
	default:
		x.pool.recordEnd(c, o, err)
	}
}

// free gives the connection back, or closes it. If whole is set, the answer
// was read to its end.
func (x *Exchange) free(whole bool) {
	w := x.wire
	if w == nil {
		return
	}
	x.wire = nil
	x.reading.Store(nil)
	sent := x.endSending(whole)
	alone := x.unlisten()
	keep := whole && x.head.Keep
	if keep && int64(x.in.Buffered()) > x.body.Left() {
		w.reportUnsolicited(x.server)
		keep = false
	}
	if !keep || !sent || !alone || x.server.distrusted() {
		w.close()
		return
	}
	x.server.client.put(w, x.pool.now())
}

// switchProtocols hands the connection over.
func (x *Exchange) switchProtocols() (*Answer, *failure) {
	early, f := x.detach()
	if f != nil {
		return nil, f
	}
	a := x.given()
	a.Body = &joined{Conn: x.wire.net, base: x.wire.base, early: early, pool: x.pool, place: x.place}
	x.wire = nil
	return a, nil
}

// detach ends the exchange after the head of its answer. The connection, and a stream,
// are the caller's; early came behind the head.
func (x *Exchange) detach() (early []byte, f *failure) {
	p := x.pool
	p.recordAnswer(x.place, p.now(), false)
	if !p.stream(x.place) {
		return nil, x.noStream()
	}
	x.endSending(false)
	if !x.unlisten() {
		x.abandon()
		p.streamEnded(x.place)
		return nil, &failure{err: interrupted(x.caller), final: true, outcome: undecided}
	}
	if n := x.in.Buffered(); n > 0 {
		early = make([]byte, n)
		_, _ = x.in.Read(early) // cannot fail: it is there
	}
	_ = x.wire.base.SetDeadline(time.Time{}) // one that cannot be set is broken, which is found out
	x.reading.Store(nil)
	x.forget()
	return early, nil
}

// joined is the body of an answer with status 101: the connection itself. It
// ends when it is closed, not when one direction does.
type joined struct {
	net.Conn
	base  net.Conn
	early []byte // what came behind the header
	pool  *Pool
	place place
	once  sync.Once
}

// Read implements io.Reader.
func (d *joined) Read(to []byte) (int, error) {
	if len(d.early) > 0 {
		n := copy(to, d.early)
		d.early = d.early[n:]
		return n, nil
	}
	return d.Conn.Read(to)
}

// Close implements io.Closer.
func (d *joined) Close() error {
	err := d.base.Close() // below TLS, whose close_notify might have to wait
	d.once.Do(func() { d.pool.streamEnded(d.place) })
	return err
}

// CloseWrite ends the sending side.
func (d *joined) CloseWrite() error {
	if half, ok := d.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
