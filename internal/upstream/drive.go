package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"millrace/internal/upstream/http1"
	"millrace/internal/wire/lookup"
)

// This file has what a goroutine does with an [Exchange], up to the head of the answer.

// brief is how long an exchange waits without a look at its request's context.
// Most answers have come by then, and listening to a context costs more than
// reading an answer. A client that goes away is noticed this much later.
const brief = 100 * time.Millisecond

// buffers are what heads and small bodies are written from and read into.
var buffers = sync.Pool{New: func() any { b := make([]byte, http1.BufferSize); return &b }}

// ask sends a request to the server of c over HTTP/1.1. It releases the place unless it
// returns an answer, whose body does that. A loop may have begun with it.
func (p *Pool) ask(k *call, c place, up *upload) (*Answer, *failure) {
	x := k.started
	if k.started = nil; x == nil {
		x = &Exchange{pool: p, server: c.server, step: placed}
	}
	x.place, x.caller, x.request, x.interim, x.upload = c, k.ctx, k.request, k.interim, up
	err := x.run()
	if errors.Is(err, errSpeaksHTTP2) {
		c.server.speaks.Store(speaksHTTP2)
		return p.pass(k, c, up)
	}
	if err == nil && x.head.Framing == http1.Switched && !k.request.Fields.Has("Upgrade") {
		err = errUnasked // RFC 9110, 15.2.2
	}
	if err == nil {
		return x.answer()
	}
	return nil, x.fail(err)
}

// fail ends an exchange without an answer.
func (x *Exchange) fail(err error) *failure {
	f := x.failure(err)
	x.abandon()
	x.pool.recordTry(x.place, f)
	x.place = place{}
	return f
}

// run gets a connection, sends the request and reads the head of the answer.
func (x *Exchange) run() error {
	if x.server.client == nil {
		return errNoSwitching // all other requests go by HTTP/2
	}
	x.first = x.server.proxyHeader(x.request)
	out, err := x.write()
	if err != nil {
		return err
	}
	defer out.release()
	for fresh := x.tunnels || x.server.distrusted(); ; fresh = true {
		if err := x.connect(fresh); err != nil {
			return err
		}
		if err := out.whole(x); err != nil {
			return err
		}
		if x.step == connected {
			err = x.try(out)
		} else {
			err = x.resume()
		}
		if err == nil {
			x.step = headed
			return nil
		}
		if !x.stale(err) {
			return err
		}
		x.drop()
		x.step, x.early = placed, false
	}
}

// stale reports whether a reused connection had already ended, so that the request
// may be sent again at once: the server closed it at the same moment, as it may,
// or had sent bytes without a request.
func (x *Exchange) stale(err error) bool {
	if x.wire.uses <= 1 || x.step >= answered || isTimeout(err) || x.caller.Err() != nil {
		return false
	}
	if x.step < sent {
		return x.sender == nil // nobody has seen anything of it
	}
	switch x.request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return x.upload == nil
	}
	return false
}

// connect takes the connection of a loop, one that is idle, or makes one.
func (x *Exchange) connect(fresh bool) error {
	switch {
	case x.lost != nil:
		err := x.lost
		x.lost, x.early = nil, errors.Is(err, errEarly)
		return err
	case x.line != nil:
		return x.takeOver()
	case x.step == connected: // for a loop
		x.reading.Store(x.wire)
		return nil
	}
	c := x.server.client
	if !fresh {
		x.wire = c.take(x.pool.now())
	}
	if x.wire == nil {
		w, err := c.dial(x.caller, x.first, x.tunnels)
		if err != nil {
			return err
		}
		if x.wire = w; !x.tunnels {
			x.server.speaks.Store(speaksHTTP1)
		}
	}
	x.wire.newcomer.begin()
	x.wire.uses++
	x.step = connected
	x.reading.Store(x.wire)
	return nil
}

// try writes out on the connection and reads the header of the answer.
func (x *Exchange) try(out *outgoing) error {
	w := x.wire
	w.registerSuspect(x.request.OnSuspect)
	now := x.pool.now()
	x.limit = now + x.pool.options.HeaderTimeout
	if out.later != 0 {
		x.limit = 0 // until the body is sent
	}
	x.begin()
	into := x.in.Space()
	if out.later != 0 {
		into = nil // the body comes first
	}
	x.arm(now)
	a, err := w.ask(out.text, into)
	for err != nil && a.sent == 0 && errors.Is(err, os.ErrDeadlineExceeded) && !x.isLate() && x.caller.Err() == nil {
		x.arm(x.pool.now()) // this machine was too busy to send anything
		a, err = w.ask(out.text, into)
	}
	if a.sent > 0 {
		x.step = sent
	}
	x.in.Filled(a.got)
	switch {
	case a.found == unsolicited:
		x.early = true
		w.reportUnsolicited(x.server)
		return errEarly
	case a.found == gone:
		return errClosed
	case err != nil && (!a.wrote || !errors.Is(err, os.ErrDeadlineExceeded)):
		return err
	case !a.wrote:
		x.listen()
		x.step = sent
		if _, err := w.write(out.text[a.sent:], x.pool.options.BodyTimeout); err != nil {
			return err
		}
	}
	if err != nil { // it takes a while
		if err := x.caller.Err(); err != nil {
			return err
		}
		x.listen()
	}
	x.firstByte(a.got)
	if out.later != 0 {
		x.startSending(out)
	}
	return x.header()
}

// takeOver takes over the connection of a loop.
func (x *Exchange) takeOver() error {
	l := x.line
	x.line = nil
	if x.step == connecting {
		return x.awaitLine(l)
	}
	w, err := l.wire()
	if err != nil {
		x.Release()
		return err
	}
	x.wire = w
	x.reading.Store(w)
	return nil
}

// awaitLine waits for the connection that a loop has begun to make. Where it is to one of
// several addresses of a name, it has as long as any, and then they are all tried.
func (x *Exchange) awaitLine(l *line) error {
	way := x.server.client.way
	wait := way.timeout
	if l.dialed.others {
		wait = min(wait, lookup.Apart)
	}
	nc, err := l.await(x.caller, x.pool.started.Add(l.dialed.began+wait))
	switch {
	case err == nil:
		l.begin(x.pool.now())
		x.wire, x.step = l.wireOf(nc), connected
		x.reading.Store(x.wire)
		return nil
	case l.dialed.others && x.caller.Err() == nil:
		x.step = placed
		return x.connect(true)
	}
	x.step = placed
	return way.failed(err)
}

// resume reads the head of the answer to a request that a loop has sent. Some of it may
// have come already, and some of the time for it has passed.
func (x *Exchange) resume() error {
	x.limit = x.asked + x.pool.options.HeaderTimeout
	x.arm(x.pool.now())
	x.begin()
	if got := x.taken.got; len(got) > 0 {
		if len(got) > http1.BufferSize {
			x.in.Use(make([]byte, len(got)))
		}
		x.in.Filled(copy(x.in.Space(), got))
		x.firstByte(len(got))
	}
	x.Release()
	if err := x.caller.Err(); err != nil {
		return err
	}
	x.listen()
	return x.header()
}

// begin makes in read from the connection, into an empty buffer.
func (x *Exchange) begin() {
	if x.buffer == nil {
		x.buffer = buffers.Get().(*[]byte)
	}
	x.in.Source = (*source)(x)
	x.in.Use(*x.buffer)
}

// firstByte notes that n bytes of an answer came.
func (x *Exchange) firstByte(n int) {
	if n <= 0 || x.step >= answered {
		return
	}
	x.step = answered
	x.wire.newcomer.gotAnswer()
}

// header reads up to the head that is not an interim one's. All of them together
// are within HeaderBytes, unless the caller looks at each; then each is.
func (x *Exchange) header() error {
	left := int(x.pool.options.HeaderBytes)
	for interims := 0; ; interims++ {
		used, err := http1.ReadHead(&x.in, left, x.request.Method, &x.head)
		switch code := x.head.Status; {
		case err == io.EOF: //nolint:errorlint // ReadHead does not wrap it
			return errClosed
		case err != nil:
			return err
		case code < 100:
			return fmt.Errorf("%w: %d", errStatus, code)
		case code >= 200 || code == http.StatusSwitchingProtocols:
			x.body.Begin(&x.in, &x.head)
			if x.head.Framing != http1.Chunks {
				return nil
			}
			return x.body.Start()
		case interims == maxInterim:
			return errInterims
		case code == http.StatusContinue && x.sender != nil:
			x.sender.goAhead()
		}
		left -= used
		if x.interim != nil {
			if err := x.interim(x.head.Status, x.head.Fields); err != nil {
				return err
			}
			left = int(x.pool.options.HeaderBytes)
		}
		if left <= 0 {
			return http1.ErrTooMuch
		}
		x.head = http1.Head{} // the caller may keep what it had
	}
}

// source is what an exchange reads the answer from: its connection, until a timeout or
// the end of the request's context.
type source Exchange

// Read implements io.Reader.
func (s *source) Read(to []byte) (int, error) {
	x := (*Exchange)(s)
	for {
		x.arm(x.pool.now())
		n, err := x.wire.net.Read(to)
		if n > 0 {
			x.firstByte(n)
			return n, nil
		}
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || x.isLate() {
			return n, err
		}
		if err := x.caller.Err(); err != nil {
			return 0, err
		}
		x.listen()
	}
}

// arm sets a deadline for reads: the exact one if it is near or the context is
// listened to, else one after which there is time to look again. That one is
// moved only when it gets close, so that most reads set none.
func (x *Exchange) arm(now time.Duration) {
	if x.sender != nil {
		x.sender.mu.Lock()
		defer x.sender.mu.Unlock()
	}
	w, until := x.wire, x.limit
	if !x.listens && (until == 0 || until > now+brief) {
		if w.until > now+brief/2 && w.until <= now+2*brief {
			return
		}
		until = now + 2*brief
	}
	w.setUntil(x.pool.started, until)
}

// isLate reports whether the current timeout has run out.
func (x *Exchange) isLate() bool {
	s := x.sender
	if s == nil {
		return x.limit != 0 && x.pool.now() >= x.limit
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := x.pool.now()
	if x.limit == 0 || now < x.limit {
		return false
	}
	if !s.headed {
		return true
	}
	more := x.upload.timeLeft(x.pool.options.BodyTimeout)
	x.limit = now + more // the server may itself be waiting for the client's upload
	return more <= 0
}

// listen has the end of the request's context close the connection.
func (x *Exchange) listen() {
	if x.listens {
		return
	}
	x.listens = true
	if x.caller.Done() != nil {
		x.stop = context.AfterFunc(x.caller, x.wire.close) // waited for by nobody: it only closes
	}
}

// unlisten undoes listen, and reports whether the connection was left open.
func (x *Exchange) unlisten() bool {
	x.listens = false
	if x.stop == nil {
		return true
	}
	stopped := x.stop()
	x.stop = nil
	return stopped
}

// drop closes the connection and forgets it.
func (x *Exchange) drop() {
	x.unlisten()
	if x.line != nil {
		x.line.newcomer.end()
		x.line.close()
		x.line = nil
	}
	if x.wire != nil {
		x.wire.newcomer.end()
		x.wire.close()
		x.wire = nil
		x.reading.Store(nil)
	}
}

// forget gives the buffer back. Nothing may read from in any more.
func (x *Exchange) forget() {
	if x.buffer == nil {
		return
	}
	x.in.Release() // it may have grown, or be the pool's
	buffers.Put(x.buffer)
	x.buffer = nil
}

// abandon ends an exchange without an answer.
func (x *Exchange) abandon() {
	x.drop()
	x.endSending(false)
	x.forget()
	x.Release()
}

// failure returns what an error of run means, as [try.failure] does for the errors
// of net/http.
func (x *Exchange) failure(err error) *failure {
	name := x.server.name
	f := &failure{outcome: outcomeOf(err), sent: x.step >= sent}
	wrap := func(kind, cause error) *failure {
		f.err = &upstreamError{kind, name, cause}
		return f
	}
	dial, connecting := errors.AsType[*dialError](err)
	switch {
	case x.early:
		return wrap(ErrProtocol, errEarly)
	case x.stuck.Load():
		f.final = true
		return wrap(ErrTimeout, errUploadStuck)
	case x.caller.Err() != nil:
		f.err, f.final, f.outcome = interrupted(x.caller), true, undecided
		return f
	case x.upload.failed() != nil:
		f.err, f.final, f.outcome = fmt.Errorf("reading the request's body: %w", x.upload.failed()), true, undecided
		return f
	case errors.Is(err, http1.ErrRequest):
		f.err, f.final, f.outcome = fmt.Errorf("sending the request to %s: %w", name, err), true, undecided
		return f
	case errors.Is(err, errNoSwitching):
		f.err, f.outcome = fmt.Errorf("asking %s to switch protocols: %w", name, err), undecided
		return f
	case connecting && isTimeout(dial.error):
		return wrap(ErrTimeout, dial)
	case connecting:
		return wrap(ErrUnreachable, dial)
	case isTimeout(err):
		f.final = f.sent // the server is still busy with it: do not send it again
		return wrap(ErrTimeout, err)
	case x.step >= answered:
		f.final = true
		return wrap(ErrProtocol, err)
	}
	if x.wire != nil && x.wire.uses > 1 {
		f.outcome = undecided // a server may close an idle connection at any moment
	}
	if x.tunnels && x.step < sent && strings.Contains(err.Error(), "no application protocol") {
		f.outcome = undecided // it speaks HTTP/2 alone, and is well
	}
	return wrap(ErrUnreachable, err)
}
