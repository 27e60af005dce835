// Package h2 stands between a client's HTTP/2 connection and net/http's: it
// answers some streams itself and passes the others on.
//
// A [Conn] reads the client's frames in one goroutine. It decodes every header
// block, since HPACK has a state (RFC 7541, 2.2), and asks its [Host] for an
// answer. All answers of what one read has brought are written at once. A stream
// for which the host has none goes to net/http, under its own number, with its
// fields written as literals: net/http's decoder thus never holds a state.
// Answers of the host are literals as well, so the client's decoder keeps the
// state that net/http's encoder believes it has, and net/http's frames pass
// unchanged. net/http's side starts with the first stream that is for it.
//
// Requests that net/http would reset, or take for others, it gets as ones that a handler
// refuses (see [Refused]): so their answers are those of HTTP/1.1. A [Screen] does that
// much where there is no Conn.
//
// What both share is kept here: the connection's window (see [window]), the last
// stream for GOAWAY, and frames on streams that net/http has never heard of. What
// is malformed in a way that net/http would notice is left to it.
package h2

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/stall"
)

// Host is whom a Conn serves.
type Host interface {
	// The client's connection. Its writes have a timeout. Close may be called
	// more than once.
	net.Conn
	ConnectionState() tls.ConnectionState
	// Answer appends the frames of an answer to a request without a body, or
	// returns false if somebody else must answer. It appends no more DATA than
	// room has; sent is how much that is.
	Answer(dst []byte, id uint32, fields []hpack.HeaderField, room Room) (out []byte, sent int, ok bool)
	// Carry takes a request without a body, to answer it later by [Conn.Reply], or
	// somebody else must answer, who finds the request with [Mark] if marked is true.
	// fields are for this call, their strings for good.
	Carry(id uint32, fields []hpack.HeaderField) (taken, marked bool)
	// Drop says that the client wants no answer to a request that was taken.
	Drop(id uint32)
	// Surrender calls pass for each request that was taken, in the order in which
	// they came: net/http answers them.
	Surrender(pass func(id uint32, fields []hpack.HeaderField))
	// Leave says that the loop which has the connection must give it up, when Run has
	// returned: see [Conn.Rest].
	Leave()
	// Posted says that Run is to be called: see [Conn.Rest].
	Posted()
	// Kept adds to how many bytes of late answers are held.
	Kept(n int64)
	// Inner runs net/http's HTTP/2 on a connection whose preface was read, in
	// goroutines of its own.
	Inner(net.Conn)
	// Turn is told after each read what is awaited.
	Turn(Wait)
}

// Wait is what a Conn waits for.
type Wait uint8

// What a Conn waits for.
const (
	Request Wait = iota // the next one
	Rest                // of a frame or a header block
	Nothing             // net/http is answering
)

// Room is what a client takes.
type Room struct {
	Window int // bytes of DATA on a new stream
	Frame  int // bytes of a frame's payload
}

// Options of a Conn.
type Options struct {
	// Settings is the payload of the SETTINGS frame that net/http would send.
	Settings []byte
	// HeaderList is the largest header list that net/http takes, as it counts
	// (RFC 9113, 6.5.2). The field that exceeds it is passed on, what follows is not.
	HeaderList int
	// Stall is how long net/http's DATA waits for the client's window at most.
	Stall time.Duration
	// Budget counts the streams that net/http has; nil: nobody does.
	Budget *stall.Budget
	// Pause, if there is one, is asked after each frame. Where it is true, nothing
	// more is worked off, and Run returns [ErrPause].
	Pause func() bool
}

// Errors that end a connection. The client has been told.
var (
	ErrFlood    = errors.New("http2: the client sends frames that ask for nothing")
	ErrProtocol = errors.New("http2: the client broke the protocol")
	errGone     = errors.New("http2: the connection is closed")
)

// ErrPause says that the host has asked for a pause. Run may be called again.
var ErrPause = errors.New("http2: the host takes no more for now")

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Conn is one connection. Run is called once; what net/http does comes from
// other goroutines.
type Conn struct {
	host Host
	o    Options

	// Of the goroutine that reads.
	dec      *hpack.Decoder
	list     headerList
	block    block
	settings clientSettings
	updates  updates
	hot      recent // streams that the host has answered
	declined recent // streams that were refused
	flood    flood
	met      bool   // the client's preface has come
	greeted  bool   // our SETTINGS are on their way
	opened   bool   // the client's have come
	leaving  bool   // the client sent GOAWAY, and net/http is not there to end the connection
	partial  []byte // the beginning of a frame
	put      bool   // in partial are whole frames: a pause has kept them
	carried  []carried
	late     []late  // in the order in which they are sent
	out      []byte  // answers of the host that were not written yet
	lease    *[]byte // its buffer, borrowed
	roused   bool    // it has rested, and goes to net/http
	later    []byte  // for net/http then
	rest     int     // how many bytes of a DATA frame have yet to come
	drop     bool    // nobody wants them

	mu     sync.Mutex
	warned bool   // a first GOAWAY has gone, after which streams still come
	away   bool   // the last GOAWAY has gone
	limit  uint32 // with this stream

	last   atomic.Uint32 // the highest stream of the client
	warm   atomic.Uint32 // the highest that the host has answered
	inner  atomic.Pointer[inner]
	window window
	resets ResetCount
	blamed atomic.Uint32 // a Reason

	evicted atomic.Bool
	kept    kept

	wmu    fair   // writing, in whole frames
	told   bool   // SETTINGS have gone; by wmu
	posted []byte // what net/http says to a connection that rests; by wmu
	// resting: only who calls Run writes. It changes with wmu held.
	resting atomic.Bool
}

// clientSettings are what the client has asked for.
type clientSettings struct {
	window, frame uint32
	// table is the smallest that the client has had. Net/http is told no other,
	// so its own only shrinks: see inner.table.
	table uint32
	raw   [8]uint32 // by number, as sent
	sent  uint8     // which of them were
}

// New returns a Conn.
func New(h Host, o Options) *Conn {
	c := &Conn{host: h, o: o, wmu: newFair(), settings: clientSettings{table: firstTable, window: defaultWindow, frame: 16 << 10}}
	c.window.init(defaultWindow)
	c.dec = hpack.NewDecoder(firstTable, nil)
	c.dec.SetEmitFunc(c.list.emit)
	c.dec.SetMaxStringLength(maxBlock)
	return c
}

// turn is what working off one read needs. It is borrowed: a quiet connection
// has none.
type turn struct {
	in     [frameHead + maxRead + 512]byte
	out    []byte
	fields []hpack.HeaderField
	pass   []byte // for net/http
	hot    []hot  // in out
}

// putBack has the turn used again, unless it has become large.
func (t *turn) putBack() {
	t.out, t.pass, t.hot = t.out[:0], t.pass[:0], t.hot[:0]
	clear(t.fields)
	t.fields = t.fields[:0]
	if cap(t.out) <= 2*maxOut && cap(t.pass) <= 2*maxOut {
		turns.Put(t)
	}
}

var turns = sync.Pool{New: func() any { return &turn{out: make([]byte, 0, 4<<10)} }}

// maxOut is how much is written at once, at least: the answers of one read are
// written together up to there, so that a client that asks and never reads makes
// the server stop reading with that much in memory.
const maxOut = 64 << 10

// small is the buffer in which a quiet connection waits.
const small = 512

// Run serves until the connection ends, and returns why: nil, [io.EOF], or an
// error. The caller closes the connection. After a read that has ended with
// [os.ErrDeadlineExceeded] it may be called again.
func (c *Conn) Run() (err error) {
	defer func() {
		if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, ErrPause) {
			c.stop()
		}
	}()
	if err := c.Greet(); err != nil {
		return err
	}
	if err := errors.Join(c.collect(), c.sendLate(), c.flushOut()); err != nil {
		return err
	}
	var wait [small]byte
	for {
		if c.paused() {
			return ErrPause
		}
		if c.put {
			c.put = false
			if err := c.work(nil); err != nil {
				return err
			}
			continue
		}
		n, err := c.host.Read(wait[:])
		if n > 0 {
			if e := c.work(wait[:n]); e != nil {
				return e
			}
		}
		if err != nil {
			return err
		}
	}
}

func (c *Conn) paused() bool { return c.o.Pause != nil && c.o.Pause() }

// Greet reads the client's preface, if that was not done: Run does so as well.
// After an error the connection is to be closed.
func (c *Conn) Greet() error {
	if c.met {
		return nil
	}
	var b [len(preface)]byte
	c.host.Turn(Rest)
	if _, err := io.ReadFull(c.host, b[:]); err != nil {
		return err
	}
	if string(b[:]) != preface {
		return c.fail(nil, codeProtocol)
	}
	c.met = true
	return nil
}

// work works off what was read, and everything that comes with it.
func (c *Conn) work(read []byte) error {
	t := turns.Get().(*turn)
	defer t.putBack()
	n := copy(t.in[:], c.partial)
	n += copy(t.in[n:], read)
	if !c.greeted {
		c.greeted = true
		t.out = appendHead(t.out, head{length: len(c.o.Settings), kind: frameSettings})
		t.out = append(t.out, c.o.Settings...)
	}
	for more := len(read) == small; ; more = false {
		used, err := c.frames(t, t.in[:n])
		n = copy(t.in[:], t.in[used:n])
		if errors.Is(err, ErrPause) {
			c.put = n > 0
			break
		}
		if err != nil {
			return err
		}
		if !more || n == len(t.in) {
			break
		}
		// The record that has come was longer than the buffer, as a rule: else
		// this waits, and so does the client for what was answered.
		if err := c.flush(t); err != nil {
			return err
		}
		m, err := c.host.Read(t.in[n:])
		if n += m; errors.Is(err, os.ErrDeadlineExceeded) {
			break // somebody took the connection for quiet, just now
		} else if err != nil {
			return err
		}
	}
	if err := c.flush(t); err != nil {
		return err
	}
	c.partial = append(c.partial[:0], t.in[:n]...)
	if n == 0 {
		c.partial = nil
	}
	if c.leaving && !c.busy() {
		return io.EOF
	}
	c.turned(n > 0 || c.block.open)
	return nil
}

// frames works off the frames at the start of b.
func (c *Conn) frames(t *turn, b []byte) (used int, err error) {
	for {
		if c.rest > 0 {
			n := min(c.rest, len(b)-used)
			if !c.drop {
				t.pass = append(t.pass, b[used:used+n]...)
			}
			used, c.rest = used+n, c.rest-n
		}
		if len(b)-used < frameHead {
			return used, c.deliver(t)
		}
		h := parseHead(b[used:])
		switch {
		case h.length > maxRead:
			return used, c.fail(t, codeFrameSize)
		case !c.opened && h.kind != frameSettings: // RFC 9113, 3.4
			return used, c.fail(t, codeProtocol)
		}
		c.opened = true
		if h.kind == frameData && !c.block.open {
			if err := c.data(t, h, b[used:used+frameHead]); err != nil {
				return used, err
			}
			used, c.rest = used+frameHead, h.length
			continue
		}
		if len(b)-used < frameHead+h.length {
			return used, c.deliver(t)
		}
		payload := b[used+frameHead : used+frameHead+h.length]
		if err := c.frame(t, h, payload); err != nil {
			return used, err
		}
		used += frameHead + h.length
		if err := c.spill(t); err != nil {
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

// spill sends on what has become much: a few bytes of a client may be many
// fields, and many bytes of an answer.
func (c *Conn) spill(t *turn) error {
	switch {
	case len(t.pass) >= maxOut, len(t.hot) >= maxHot && len(t.pass) > 0:
		return c.deliver(t)
	case len(t.out) >= maxOut, len(t.hot) >= maxHot:
		return c.flush(t)
	}
	return nil
}

// frame works off one frame that is not DATA.
func (c *Conn) frame(t *turn, h head, p []byte) error {
	if c.block.open && (h.kind != frameContinuation || h.id != c.block.id) {
		return c.fail(t, codeProtocol)
	}
	switch h.kind {
	case frameHeaders:
		c.flood.useful(frameHead + h.length)
		return c.headers(t, h, p)
	case frameContinuation:
		return c.continuation(t, h, p)
	}
	if c.flood.idle(frameHead + h.length) {
		return c.flooded(t, Idle)
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
		return c.goAway(t, h, p)
	case frameWindowUpdate:
		return c.windowUpdate(t, h, p)
	case framePriorityUpdate:
		c.priorityUpdate(t, h, p)
	}
	return nil // or of a kind nobody knows (RFC 9113, 4.1)
}

// data passes the head of a DATA frame on; its payload follows.
func (c *Conn) data(t *turn, h head, raw []byte) error {
	c.drop = c.refused(h.id) || c.declined.has(h.id)
	switch in := c.inner.Load(); {
	case c.drop:
		if c.flood.idle(frameHead) {
			return c.flooded(t, Idle)
		}
		if h.length > 0 { // other uploads need what it took of the window
			t.out = appendWindowUpdate(t.out, 0, int64(h.length))
		}
		return nil
	case c.unused(h.id):
		return c.fail(t, codeProtocol)
	case in == nil || h.id > in.last:
		return c.fail(t, codeStreamClosed)
	}
	if h.length > 0 {
		c.flood.useful(frameHead + h.length)
	} else if c.flood.idle(frameHead) {
		return c.flooded(t, Idle)
	}
	c.inner.Load().fed(h.id, h.has(flagEndStream))
	t.pass = append(t.pass, raw...)
	return nil
}

// forward passes a frame on as it came.
func (c *Conn) forward(t *turn, h head, p []byte) error {
	in, err := c.cold(t)
	if err != nil {
		return err
	}
	if !c.resting.Load() { // the connection leaves its loop, if this has started net/http
		c.surrender(t, in)
	}
	t.pass = append(appendHead(t.pass, h), p...)
	return nil
}

// deliver gives net/http what is for it, after what the host has answered.
func (c *Conn) deliver(t *turn) error {
	if len(t.pass) == 0 {
		return nil
	}
	if in := c.inner.Load(); c.resting.Load() && in.in.crowded() {
		c.rouse(t, in) // the loop must not wait for net/http to read
	}
	if c.roused {
		c.later, t.pass = append(c.later, t.pass...), t.pass[:0]
		return nil
	}
	err := c.flush(t)
	if err == nil {
		err = c.inner.Load().in.write(t.pass, c.rest > 0 && !c.drop)
	}
	t.pass = t.pass[:0]
	return err
}

// flush writes what this turn has to say.
func (c *Conn) flush(t *turn) error {
	if err := c.flushOut(); err != nil {
		return err
	}
	if len(t.out) == 0 {
		return nil
	}
	t.order()
	c.wmu.lock()
	c.told = true
	_, err := c.host.Write(t.out)
	c.wmu.unlock()
	t.out, t.hot = t.out[:0], t.hot[:0]
	return err
}

// fail tells the client why the connection ends. What was answered goes first.
func (c *Conn) fail(t *turn, why code) error {
	c.blame(Malformed) // if nothing else is
	if t == nil {      // who reads has its own answers
		c.wmu.lock()
		defer c.wmu.unlock()
		_, _ = c.putOut(appendGoAway(nil, c.lastAnswered(), why))
		return ErrProtocol
	}
	t.out = appendGoAway(t.out, c.lastAnswered(), why)
	_ = c.flush(t) // the connection ends anyway
	return ErrProtocol
}

// unused reports whether the client has opened no such stream.
func (c *Conn) unused(id uint32) bool { return id&1 == 0 || id > c.last.Load() }

// refuses takes note of a stream, and reports whether it came after GOAWAY.
func (c *Conn) refuses(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last.Store(max(id, c.last.Load()))
	return c.away && id > c.limit
}

func (c *Conn) refused(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away && id > c.limit && id <= c.last.Load()
}

// lastAnswered is the last stream that was answered, or will be.
func (c *Conn) lastAnswered() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return c.limit
	}
	return c.last.Load()
}

// stop ends net/http's side.
func (c *Conn) stop() {
	c.window.close()
	if in := c.inner.Load(); in != nil {
		in.in.close()
		in.endAll()
	}
}

// recent remembers the last streams that were answered here.
type recent struct {
	ids [64]uint32
	n   int
}

func (r *recent) add(id uint32) {
	r.ids[r.n%len(r.ids)] = id
	r.n++
}

func (r *recent) has(id uint32) bool {
	if r.n == 0 {
		return false
	}
	for _, other := range r.ids {
		if other == id {
			return true
		}
	}
	return false
}
