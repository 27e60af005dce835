package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// body is an answer's body. Its end, or Close, gives the place back.
type body struct {
	inner   io.ReadCloser
	try     *try
	timeout time.Duration // for each Read; 0: none
	stream  bool
	timer   *time.Timer
	reading atomic.Bool // a Read is under way
	late    atomic.Bool // the timer has closed inner
	mu      sync.Mutex  // of how the place is given back
	yielded bool        // it is a stream's by now; see Yield
	ended   atomic.Bool
	err     error // of the last Read
}

// Read implements io.Reader.
func (b *body) Read(to []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.timeout > 0 {
		b.reading.Store(true)
		switch {
		case b.timer != nil:
			b.timer.Reset(b.timeout)
		case b.try.upload == nil:
			b.timer = time.AfterFunc(b.timeout, b.stalls)
		default: // stalls looks at timer, which must be there before it is called
			b.timer = time.AfterFunc(longest, b.stalls)
			b.timer.Reset(b.timeout)
		}
	}
	n, err := b.inner.Read(to)
	if b.timer != nil {
		b.reading.Store(false)
		b.timer.Stop()
	}
	if err != nil {
		b.err = b.judge(err)
	}
	return n, b.err
}

// stalls is called when a Read takes too long.
func (b *body) stalls() {
	if !b.reading.Load() {
		return
	}
	if more := b.try.upload.timeLeft(b.timeout); more > 0 {
		b.timer.Reset(more) // the server may itself be waiting for the client's upload
		return
	}
	b.late.Store(true)
	b.inner.Close() // which ends the Read
}

// judge maps the error with which inner ended to the one that the caller gets.
func (b *body) judge(err error) error {
	t := b.try
	name := t.place.server.name
	switch caller := t.Context; {
	case errors.Is(err, io.EOF):
		b.end(undecided, nil)
		return err
	case b.late.Load():
		err = &upstreamError{ErrTimeout, name, errBodyStalls}
	case errors.Is(context.Cause(caller), errUploadStuck):
		err = &upstreamError{ErrTimeout, name, errUploadStuck}
	case caller.Err() != nil:
		err = interrupted(caller)
		b.end(undecided, nil)
		return err
	case b.ended.Load(): // read after Close
		return err
	case isTimeout(err):
		err = &upstreamError{ErrTimeout, name, err}
	default:
		err = &upstreamError{ErrProtocol, name, err}
	}
	b.end(failed, err)
	return err
}

// Yield is called by the reader of an answer's body that has to wait for somebody
// else, for example for a slow client. The answer then counts as one of Streams and no
// longer as one of Concurrency, if there is room for one more stream. It must not be
// called during a Read.
func Yield(answer io.ReadCloser) {
	if b, ok := answer.(interface{ yield() }); ok {
		b.yield()
	}
}

func (b *body) yield() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended.Load() && !b.stream && !b.yielded {
		b.yielded = b.try.pool.stream(b.try.place)
	}
}

// end gives the place back, once.
func (b *body) end(o outcome, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended.Swap(true) {
		return
	}
	t := b.try
	if b.stream || b.yielded {
		t.pool.streamEnded(t.place)
	} else {
		t.pool.recordEnd(t.place, o, err)
	}
}

// Close implements io.Closer. Closed before its end, an answer over HTTP/1
// costs its connection.
func (b *body) Close() error {
	b.end(undecided, nil)
	err := b.inner.Close()
	b.try.release()
	return err
}

// duplex is the body of an answer with status 101: the connection itself. It
// ends when it is closed, not when one direction does.
type duplex struct{ *body }

// Read implements io.Reader.
func (d *duplex) Read(to []byte) (int, error) { return d.inner.Read(to) }

// Write implements io.Writer.
func (d *duplex) Write(b []byte) (int, error) {
	w, ok := d.inner.(io.Writer)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return w.Write(b)
}

// CloseWrite ends the sending side.
func (d *duplex) CloseWrite() error {
	if half, ok := d.inner.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// upload is a request's body on its way to a server. It knows whether the
// server is slow to take it, and keeps the body open while it is unread, so that
// another server may get it. A nil upload is no body.
type upload struct {
	inner   io.ReadCloser
	timeout time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	stall   func()
	started bool      // something was read
	reading bool      // waiting for the client
	last    time.Time // when that ended
	gone    bool      // net/http has closed it, or it was taken back
	settled bool      // no further try will want inner
	closed  bool      // inner is closed, or another upload's
	err     error
}

func newUpload(inner io.ReadCloser, timeout time.Duration) *upload {
	if inner == nil || inner == http.NoBody {
		return nil
	}
	return &upload{inner: inner, timeout: timeout}
}

// onStall sets what is called when the server does not take what was read for it.
func (u *upload) onStall(f func()) { u.stall = f }

// Read implements io.Reader. net/http reads when the server has taken what was
// read before; so the time between two Reads is the server's, that in a Read the client's.
func (u *upload) Read(to []byte) (int, error) {
	u.mu.Lock()
	if u.gone {
		u.mu.Unlock()
		return 0, errGivenUp
	}
	u.started, u.reading = true, true
	if u.timer != nil {
		u.timer.Stop()
	}
	u.mu.Unlock()
	n, err := u.inner.Read(to)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reading = false
	switch {
	case errors.Is(err, io.EOF):
		u.last = time.Now()
	case err != nil:
		u.last, u.err = time.Now(), err
	default:
		u.given()
	}
	return n, err
}

// giveOut notes that the server gets a part of a body that is there as a whole.
func (u *upload) giveOut() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gone {
		return errGivenUp
	}
	u.started = true
	u.given()
	return nil
}

// given has the server's time begin, with u.mu held.
func (u *upload) given() {
	u.last = time.Now()
	switch {
	case u.gone:
	case u.timer == nil:
		u.timer = time.AfterFunc(u.timeout, u.stall)
	default:
		u.timer.Reset(u.timeout)
	}
}

// Close implements io.Closer; it is net/http that calls it.
func (u *upload) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gone = true
	if u.timer != nil {
		u.timer.Stop()
	}
	if u.started || u.settled {
		u.closeInner()
	}
	return nil
}

// closeInner closes the client's body, which has nothing to say about that.
func (u *upload) closeInner() {
	if !u.closed {
		u.closed = true
		u.inner.Close()
	}
}

// again is the body for another try: nil for none, the same if it is unread, a
// new one if there is a way to get it.
func (u *upload) again(getBody func() (io.ReadCloser, error)) (*upload, bool) {
	if u == nil {
		return nil, true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gone = true
	if !u.started {
		u.closed = true // it is the next one's
		return newUpload(u.inner, u.timeout), true
	}
	u.closeInner()
	if getBody == nil {
		return nil, false
	}
	inner, err := getBody()
	if err != nil {
		return nil, false
	}
	return newUpload(inner, u.timeout), true
}

// settle says that no further try will come. It closes inner if net/http has already
// closed the upload; otherwise net/http's Close will.
func (u *upload) settle() {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.settled = true
	if u.gone {
		u.closeInner()
	}
}

// abandon closes the body, whoever may still hold it.
func (u *upload) abandon() {
	if u == nil {
		return
	}
	u.settle()
	_ = u.Close() // never fails
}

// failed is why the client's side of the body broke off; nil: it did not.
func (u *upload) failed() error {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// timeLeft is how much of a timeout the server still has while it may be waiting for
// the client's body: all of it while the client is sending, and afterwards what is
// left since the client last sent something.
func (u *upload) timeLeft(timeout time.Duration) time.Duration {
	if u == nil {
		return 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.reading && !u.gone:
		return timeout
	case u.last.IsZero():
		return 0
	}
	return timeout - time.Since(u.last)
}
