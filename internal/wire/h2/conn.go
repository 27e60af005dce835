// Package h2 stands between a client's HTTP/2 connection and net/http's: it
// answers some streams itself and passes the others on.
//
// A [Conn] reads the client's frames in one goroutine. It decodes every header
// block, since HPACK has a state (RFC 7541, 2.2), and asks its [Host] for an
// answer. All answers of what one read has brought are written at once. What the
// host cannot answer at once it may answer later, from the same goroutine
// (carry.go) or from others (stream.go). A stream that the host does not take
// goes to net/http, under its own number, with its fields written as literals:
// net/http's decoder thus never holds a state. Answers of the host are literals
// as well, so the client's decoder keeps the state that net/http's encoder
// believes it has, and net/http's frames pass unchanged. net/http's side starts
// with a stream that is for it, and ends when none is open any more (inner.go).
//
// A request that net/http would reset, or take for another one, is rewritten to one that
// a handler refuses (see [Refused]), so that its answer is that of HTTP/1.1. A [Screen]
// does the same where there is no Conn.
//
// What the host and net/http share is kept here: the connection's window (see
// [window]), the last stream for GOAWAY, and frames on streams that net/http never got.
// What is malformed in a way that net/http would notice is left to it.
package h2

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/wire/stall"
)

// Host is the server behind a Conn: internal/lane.
type Host interface {
	// The client's connection. Its writes have a timeout. Close may be called
	// more than once.
	net.Conn
	ConnectionState() tls.ConnectionState
	// Answer appends the frames of an answer to a request without a body, or
	// returns false if it has no answer at hand. It appends no more DATA than
	// room has; sent is how much that is.
	Answer(dst []byte, id uint32, fields []hpack.HeaderField, room Room) (out []byte, sent int, ok bool)
	// Forward takes a request without a body, for instance to ask an upstream, and
	// answers it later by [Conn.Reply], or by the [Stream] that it gets from
	// [Conn.Beside]. Where it returns false net/http answers. fields may be used during
	// this call only, their strings also after it.
	Forward(id uint32, fields []hpack.HeaderField) (taken bool)
	// Cancel says that nobody wants an answer to a request that Forward has taken and
	// for which there is no Stream.
	Cancel(id uint32)
	// OnLoop reports whether an event loop calls Run. Then nothing in Run may wait, and
	// Write keeps what the client does not take.
	OnLoop() bool
	// Full returns nil if the client takes what is written. Otherwise the channel is
	// closed when it does, or has gone; only on a loop.
	Full() <-chan struct{}
	// Wake asks the event loop to call Run.
	Wake()
	// Buffered adds n to the number of bytes of answers that wait for the client.
	Buffered(n int64)
	// Inner runs net/http's HTTP/2 on a connection whose preface was read, in
	// goroutines of its own.
	Inner(net.Conn)
	// Awaits is called after each read with what the connection waits for now.
	Awaits(Wait)
}

// Wait is what a Conn waits for.
type Wait uint8

// What a Conn waits for.
const (
	WaitRequest Wait = iota // the next one
	WaitFrame               // the remaining bytes of a frame or a header block
	WaitNothing             // an answer is under way
)

// Room is how much of an answer the client takes.
type Room struct {
	Window int // bytes of DATA on a new stream
	Frame  int // bytes of a frame's payload
}

// Options of a Conn.
type Options struct {
	// Settings is the payload of the SETTINGS frame that net/http would send.
	Settings []byte
	// HeaderList is the largest header list that net/http takes, as it counts
	// (RFC 9113, 6.5.2). The field that exceeds it is passed on, cut; what follows it
	// is not.
	HeaderList int
	// Stall is how long net/http's DATA waits for the client's window at most.
	Stall time.Duration
	// Budget counts the streams that net/http has; nil: they are not counted.
	Budget *stall.Budget
}

// Errors that end a connection. The client has got a GOAWAY frame.
var (
	ErrFlood    = errors.New("http2: the client sends frames that ask for nothing")
	ErrProtocol = errors.New("http2: the client broke the protocol")
	errGone     = errors.New("http2: the connection is closed")
	errStalled  = errors.New("http2: the client takes nothing of the answer")
)

// ErrPause says that the client must take what was written, or net/http what was read, before
// more is handled: see [Conn.InnerFull]. Only a loop gets it.
var ErrPause = errors.New("http2: no more for now")

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// task is the memory for handling one read. It comes from a pool: an idle connection
// has none.
type task struct {
	in      [frameHead + maxRead + 512]byte
	out     []byte
	fields  []hpack.HeaderField
	toInner []byte          // for net/http
	answers []pendingAnswer // in out
}

// release puts the task back into the pool, unless it has become large.
func (t *task) release() {
	t.out, t.toInner, t.answers = t.out[:0], t.toInner[:0], t.answers[:0]
	clear(t.fields)
	t.fields = t.fields[:0]
	if cap(t.out) <= 2*maxOut && cap(t.toInner) <= 2*maxOut {
		tasks.Put(t)
	}
}

var tasks = sync.Pool{New: func() any { return &task{out: make([]byte, 0, 4<<10)} }}

// maxOut is how many bytes of answers are collected before they are written. It bounds
// the memory for a client that sends requests and never reads: with that much in memory
// the server writes, waits, and so stops reading.
const maxOut = 64 << 10

// waitBuffer is the size of the buffer in which an idle connection waits for bytes.
const waitBuffer = 512

// Run serves until the connection ends, and returns why: nil, [io.EOF], or an
// error. The caller closes the connection. After a read that has ended with
// [os.ErrDeadlineExceeded] it may be called again.
func (c *Conn) Run() (err error) {
	defer func() {
		if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, ErrPause) {
			c.stop()
		}
	}()
	if err := c.ReadPreface(); err != nil {
		return err
	}
	if err := errors.Join(c.sendPending(), c.flushOut()); err != nil {
		return err
	}
	var wait [waitBuffer]byte
	for {
		if c.paused() {
			return ErrPause
		}
		if c.run.backlog {
			c.run.backlog = false
			if err := c.handleRead(nil); err != nil {
				return err
			}
			continue
		}
		n, err := c.host.Read(wait[:])
		if n > 0 {
			if e := c.handleRead(wait[:n]); e != nil {
				return e
			}
		}
		if err != nil {
			return err
		}
	}
}

// paused reports whether no further frame must be handled now.
func (c *Conn) paused() bool {
	if !c.host.OnLoop() {
		return false
	}
	in := c.inner.Load()
	return c.host.Full() != nil || in != nil && in.pipe.full()
}

// InnerFull reports whether net/http must read before Run may go on. The host's Wake is
// called when it has.
func (c *Conn) InnerFull() bool {
	in := c.inner.Load()
	return in != nil && in.pipe.awaitRoom()
}

// ReadPreface reads the client's preface (RFC 9113, 3.4), unless that was done. Run
// calls it.
// After an error the connection is to be closed.
func (c *Conn) ReadPreface() error {
	if c.run.phase >= phasePreface {
		return nil
	}
	var b [len(preface)]byte
	c.host.Awaits(WaitFrame)
	if _, err := io.ReadFull(c.host, b[:]); err != nil {
		return err
	}
	if string(b[:]) != preface {
		return c.fail(nil, codeProtocol)
	}
	c.run.phase = phasePreface
	return nil
}

// handleRead handles what was read. Where the read has filled its buffer, it reads on
// into a larger one.
func (c *Conn) handleRead(read []byte) error {
	t := tasks.Get().(*task)
	defer t.release()
	n := copy(t.in[:], c.run.partial)
	n += copy(t.in[n:], read)
	if c.run.phase < phaseSettingsSent {
		c.run.phase = phaseSettingsSent
		t.out = appendHead(t.out, head{length: len(c.o.Settings), kind: frameSettings})
		t.out = append(t.out, c.o.Settings...)
	}
	for more := len(read) == waitBuffer; ; more = false {
		used, err := c.handleFrames(t, t.in[:n])
		n = copy(t.in[:], t.in[used:n])
		if errors.Is(err, ErrPause) {
			c.run.backlog = n > 0
			break
		}
		if err != nil {
			return err
		}
		if !more || n == len(t.in) {
			break
		}
		// The TLS record was longer than the small buffer, as a rule, so the next read
		// returns at once. In case it does not, the client gets its answers first.
		if err := c.flush(t); err != nil {
			return err
		}
		m, err := c.host.Read(t.in[n:])
		if n += m; errors.Is(err, os.ErrDeadlineExceeded) {
			break // the sweeper took the connection for idle just now
		} else if err != nil {
			return err
		}
	}
	if err := c.flush(t); err != nil {
		return err
	}
	c.run.partial = append(c.run.partial[:0], t.in[:n]...)
	if n == 0 {
		c.run.partial = nil
	}
	c.retireInner()
	c.ReportWait()
	return nil
}

// handleFrames handles the frames at the start of b, and returns how many bytes these are.
func (c *Conn) handleFrames(t *task, b []byte) (used int, err error) {
	for {
		if c.run.dataLeft > 0 {
			n := min(c.run.dataLeft, len(b)-used)
			if !c.run.discard {
				t.toInner = append(t.toInner, b[used:used+n]...)
			}
			used, c.run.dataLeft = used+n, c.run.dataLeft-n
		}
		if len(b)-used < frameHead {
			return used, c.deliver(t)
		}
		h := parseHead(b[used:])
		switch {
		case h.length > maxRead:
			return used, c.fail(t, codeFrameSize)
		case c.run.phase < phaseOpen && h.kind != frameSettings: // RFC 9113, 3.4
			return used, c.fail(t, codeProtocol)
		}
		c.run.phase = max(c.run.phase, phaseOpen)
		if h.kind == frameData && !c.run.block.open {
			if err := c.data(t, h, b[used:used+frameHead]); err != nil {
				return used, err
			}
			used, c.run.dataLeft = used+frameHead, h.length
			continue
		}
		if len(b)-used < frameHead+h.length {
			return used, c.deliver(t)
		}
		payload := b[used+frameHead : used+frameHead+h.length]
		if err := c.handleFrame(t, h, payload); err != nil {
			return used, err
		}
		used += frameHead + h.length
		if err := c.flushLarge(t); err != nil {
			return used, err
		}
		if c.paused() {
			if err := c.deliver(t); err != nil {
				return used, err
			}
			return used, ErrPause
		}
	}
}

// flushLarge writes what has become large: a few bytes of a client may be many fields,
// or many bytes of answers.
func (c *Conn) flushLarge(t *task) error {
	switch {
	case len(t.toInner) >= maxOut, len(t.answers) >= maxPendingAnswers && len(t.toInner) > 0:
		return c.deliver(t)
	case len(t.out) >= maxOut, len(t.answers) >= maxPendingAnswers:
		return c.flush(t)
	}
	return nil
}

// handleFrame handles one frame that is not DATA.
func (c *Conn) handleFrame(t *task, h head, p []byte) error {
	if c.run.block.open && (h.kind != frameContinuation || h.id != c.run.block.id) {
		return c.fail(t, codeProtocol)
	}
	switch h.kind {
	case frameHeaders:
		c.flood.countUseful(frameHead + h.length)
		return c.headers(t, h, p)
	case frameContinuation:
		return c.continuation(t, h, p)
	}
	if c.flood.countControl(frameHead + h.length) {
		return c.flooded(t, ControlFrames)
	}
	switch h.kind {
	case framePriority:
		return c.priority(t, h, p)
	case frameRSTStream:
		return c.rstStream(t, h, p)
	case frameSettings:
		return c.settingsFrame(t, h, p)
	case framePushPromise:
		return c.fail(t, codeProtocol)
	case framePing:
		return c.ping(t, h, p)
	case frameGoAway:
		return c.goawayFrame(t, h, p)
	case frameWindowUpdate:
		return c.windowUpdate(t, h, p)
	case framePriorityUpdate:
		c.priorityUpdate(t, h, p)
	}
	return nil // unknown types are ignored (RFC 9113, 4.1)
}

// data passes the head of a DATA frame to net/http. Its payload follows.
func (c *Conn) data(t *task, h head, raw []byte) error {
	c.run.discard = c.afterGoaway(h.id) || c.run.declined.has(h.id)
	switch {
	case c.run.discard:
		if c.flood.countControl(frameHead) {
			return c.flooded(t, ControlFrames)
		}
		if h.length > 0 { // it used some of the connection's window, which other uploads need
			t.out = appendWindowUpdate(t.out, 0, int64(h.length))
		}
		return nil
	case c.unopened(h.id):
		return c.fail(t, codeProtocol)
	case h.id > c.run.lastPassed:
		return c.fail(t, codeStreamClosed)
	}
	if h.length > 0 && !c.flows.wasCutOff(h.id) {
		c.flood.countUseful(frameHead + h.length)
	} else if c.flood.countControl(frameHead) {
		return c.flooded(t, ControlFrames)
	}
	if !c.received.take(int64(h.length)) {
		return c.fail(t, codeFlowControl)
	}
	if !c.flows.bodyReceived(h.id, h.has(flagEndStream)) { // as net/http does it
		c.run.discard = true
		if h.length > 0 {
			c.received.giveBack(int64(h.length))
			t.out = appendWindowUpdate(t.out, 0, int64(h.length))
		}
		if c.flows.wasCutOff(h.id) {
			return nil
		}
		return c.reset(t, h.id, codeStreamClosed)
	}
	t.toInner = append(t.toInner, raw...)
	return nil
}

// passFrame passes a frame to net/http, unchanged.
func (c *Conn) passFrame(t *task, h head, p []byte) {
	t.toInner = append(appendHead(t.toInner, h), p...)
}

// deliver writes to net/http what is for it, after the answers of the host. If net/http's
// side has ended, the frames are for streams that have, too.
func (c *Conn) deliver(t *task) error {
	if len(t.toInner) == 0 {
		return nil
	}
	err := c.flush(t)
	if in := c.inner.Load(); err == nil && in != nil {
		in.pipe.write(t.toInner, c.run.dataLeft > 0 && !c.run.discard, !c.host.OnLoop())
	}
	t.toInner = t.toInner[:0]
	return err
}

// flush writes the answers that the task has collected.
func (c *Conn) flush(t *task) error {
	if err := c.flushOut(); err != nil {
		return err
	}
	if len(t.out) == 0 {
		return nil
	}
	t.order()
	c.w.mu.lock()
	c.w.settingsSent = true
	_, err := c.host.Write(t.out)
	c.w.mu.unlock()
	c.run.greeted = true
	t.out, t.answers = t.out[:0], t.answers[:0]
	return err
}

// fail sends GOAWAY with the reason, after the answers that were collected, and returns
// [ErrProtocol]. t is nil where the reading goroutine is not the caller.
func (c *Conn) fail(t *task, why code) error {
	c.setReason(Malformed) // unless there is another one already
	if t == nil {
		_ = c.writeBeside(appendGoaway(nil, c.goawayLast(), why)) // the connection ends anyway
		return ErrProtocol
	}
	t.out = appendGoaway(t.out, c.goawayLast(), why)
	_ = c.flush(t) // the connection ends anyway
	return ErrProtocol
}

// unopened reports whether the client has not opened this stream.
func (c *Conn) unopened(id uint32) bool { return id&1 == 0 || id > c.lastOpened.Load() }

// openStream notes a new stream, and reports whether it came after the last GOAWAY.
func (c *Conn) openStream(id uint32) bool {
	c.goaway.mu.Lock()
	defer c.goaway.mu.Unlock()
	c.lastOpened.Store(max(id, c.lastOpened.Load()))
	return c.goaway.final && id > c.goaway.limit
}

// afterGoaway reports whether a stream that was opened came after the last GOAWAY.
func (c *Conn) afterGoaway(id uint32) bool {
	c.goaway.mu.Lock()
	defer c.goaway.mu.Unlock()
	return c.goaway.final && id > c.goaway.limit && id <= c.lastOpened.Load()
}

// goawayLast is the stream for GOAWAY: the last that was answered, or will be.
func (c *Conn) goawayLast() uint32 {
	c.goaway.mu.Lock()
	defer c.goaway.mu.Unlock()
	if c.goaway.final {
		return c.goaway.limit
	}
	return c.lastOpened.Load()
}

// writeBeside writes whole frames from another goroutine than Run's.
func (c *Conn) writeBeside(b []byte) error {
	c.lockToWrite()
	defer c.w.mu.unlock()
	return c.writeLocked(b)
}

// lockToWrite takes the lock for writing, for another goroutine than Run's. On a loop it waits
// for the client without the lock, which the loop needs.
func (c *Conn) lockToWrite() {
	for {
		c.w.mu.lock()
		room := c.host.Full()
		if room == nil {
			return
		}
		c.w.mu.unlock()
		<-room
	}
}

// writeLocked writes whole frames after lockToWrite.
func (c *Conn) writeLocked(b []byte) error {
	_, err := c.host.Write(b)
	if err == nil && c.host.Full() != nil {
		c.host.Wake() // the loop writes the rest
	}
	return err
}

// stop ends net/http's side, and the streams that are answered.
func (c *Conn) stop() {
	c.window.close()
	if in := c.inner.Load(); in != nil {
		in.pipe.close()
	}
	c.flows.endAll()
}
