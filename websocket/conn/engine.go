package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/observe/meter"
	"millrace/internal/process/gogc"
	"millrace/websocket/frame"
)

// ErrClosed is returned by Adopt and Serve after Close.
var ErrClosed = errors.New("the WebSockets of this server are closed")

// Engine drives all WebSockets of a process.
type Engine struct {
	loops   []*loop
	strand  *strand
	runners []*runner
	began   time.Time
	open    meter.Presence
	opened  atomic.Int64
	turn    atomic.Uint32 // which loop is next
	closed  atomic.Bool
	errors  *slog.Logger
	adopts  sync.RWMutex // held for reading by Adopt and Serve, for writing by Close
	stop    chan struct{}
	done    sync.WaitGroup // ticker, strand, loops
	// inflate has a place for each core: so many connections with goroutines
	// decompress large messages at once.
	inflate places
}

// NewEngine starts an engine: a loop for each core where the system has them, and one
// goroutine for all connections that have one of their own. Panics of Apps, which cost
// them a connection, go to errorLog; nil is slog.Default().
func NewEngine(errorLog *slog.Logger) *Engine {
	if errorLog == nil {
		errorLog = slog.Default()
	}
	e := &Engine{began: time.Now(), stop: make(chan struct{}), errors: errorLog}
	e.inflate.free = runtime.GOMAXPROCS(0)
	e.loops = startLoops(e, runtime.GOMAXPROCS(0))
	for i, lp := range e.loops {
		lp.base().index = i
		e.runners = append(e.runners, lp.base())
	}
	e.strand = newStrand(e, len(e.loops))
	e.runners = append(e.runners, &e.strand.runner)
	for _, lp := range e.loops {
		e.done.Go(lp.run)
	}
	e.done.Go(e.strand.run)
	e.done.Go(e.strand.parker.Run)
	e.done.Go(e.clock)
	return e
}

// Runners is how many runners there are: one for each loop, and the last one
// for all connections that have a goroutine.
func (e *Engine) Runners() int { return len(e.runners) }

// Post has f called on runner i, soon, in the order of the calls. It may be
// called from anywhere, never blocks, and does not call f itself. Code on a
// loop delays all of its connections: do a part, and post the rest again.
func (e *Engine) Post(i int, f func()) { e.runners[i].post(f) }

// Answer checks that the runners still run: it has each of them answer, and returns
// when all have. The error says which one has not by the end of ctx. A nil engine has
// none.
func (e *Engine) Answer(ctx context.Context) error {
	if e == nil || e.closed.Load() {
		return nil
	}
	for i := range e.runners {
		answered := make(chan struct{})
		e.Post(i, func() { close(answered) })
		select {
		case <-answered:
		case <-ctx.Done():
			return fmt.Errorf("the WebSockets' event loop %d does not answer: %w", i, ctx.Err())
		}
	}
	return nil
}

// clock turns the wheels as long as there are connections. It is started by NewEngine and
// ends with Close.
func (e *Engine) clock() {
	w := gogc.Wave{}
	e.open.Keep(e.stop, meter.Upkeep{
		Every: func() time.Duration { return tickTime },
		Turn: func(now time.Time) (more bool) {
			opened := e.opened.Load()
			if w.Over(opened, now) {
				e.done.Go(gogc.GiveBack)
			}
			if e.open.Load() > 0 {
				for _, lp := range e.loops {
					lp.base().post(lp.turnWheel)
				}
				e.strand.post(e.strand.turnWheel)
			}
			return w.Pending(opened)
		},
	})
}

// now is the tick of this moment.
func (e *Engine) now() uint32 { return uint32(time.Since(e.began) / tickTime) }

// Adopt takes over a connection that has done its handshake, with what was
// read from it already. state is for the App (see Conn.State). It returns at
// once. The connection is closed by the engine, also when Adopt fails.
func (e *Engine) Adopt(nc net.Conn, early []byte, s *Settings, p frame.Params, state any) error {
	e.adopts.RLock()
	defer e.adopts.RUnlock()
	if e.closed.Load() {
		_ = nc.Close()
		ended(state)
		return ErrClosed
	}
	s.prepare()
	if lp := e.nextLoop(); lp != nil {
		if fd, ok := detach(nc); ok {
			_ = nc.Close()
			e.count(s, 1)
			lp.base().post(func() { lp.adopt(fd, early, s, p, state) })
			return nil
		}
	}
	e.count(s, 1)
	c := e.strand.newConn(nc, s, p, state)
	go c.driver.serve(c, early) // Close waits until it is over
	return nil
}

// TakesDescriptors reports whether AdoptDescriptor may be called.
func (e *Engine) TakesDescriptors() bool { return len(e.loops) > 0 }

// AdoptDescriptor is Adopt for a descriptor of a plain connection, which nobody
// else has any more.
func (e *Engine) AdoptDescriptor(fd int, early []byte, s *Settings, p frame.Params, state any) error {
	e.adopts.RLock()
	defer e.adopts.RUnlock()
	if e.closed.Load() {
		shut(fd)
		ended(state)
		return ErrClosed
	}
	s.prepare()
	lp := e.nextLoop()
	e.count(s, 1)
	lp.base().post(func() { lp.adopt(fd, early, s, p, state) })
	return nil
}

// Serve is Adopt for a stream that ends with the caller's function (HTTP/2):
// it returns when the connection is over.
func (e *Engine) Serve(rw io.ReadWriteCloser, s *Settings, p frame.Params, state any) error {
	e.adopts.RLock()
	if e.closed.Load() {
		e.adopts.RUnlock()
		_ = rw.Close()
		ended(state)
		return ErrClosed
	}
	s.prepare()
	e.count(s, 1)
	c := e.strand.newConn(rw, s, p, state)
	e.adopts.RUnlock()
	c.driver.serve(c, nil)
	return nil
}

func (e *Engine) nextLoop() *loop {
	if len(e.loops) == 0 {
		return nil
	}
	return e.loops[int(e.turn.Add(1))%len(e.loops)]
}

// Open is how many connections there are; a proxied one with its upstream is one.
func (e *Engine) Open() int { return int(e.open.Load()) }

func (e *Engine) count(s *Settings, n int64) {
	e.open.Add(n)
	s.open.Add(n)
	s.Meters.Open.Add(n)
	s.Meters.Clients.Add(n)
	if n > 0 {
		e.opened.Add(n)
		s.Meters.Opened.Add(e.turn.Load(), 1)
	}
}

const (
	// leavePoll is how often Leave looks whether all have gone.
	leavePoll = 10 * time.Millisecond
	// cutEvery is after how many looks it cuts those that are still there, again:
	// some may have come meanwhile.
	cutEvery = 10
)

// leaveOrder is what Leave has ordered: with which code, and within what time clients
// are to come back.
type leaveOrder struct {
	code   frame.Code
	within time.Duration
}

// hint is the reason for one connection's close frame.
func (a *leaveOrder) hint() string { return reconnectHint(drawn(a.within)) }

// Leave ends all connections with these settings in good order: Leaver is
// called, a close frame is sent whose reason says after how many seconds to
// come back, drawn for each between 0 and within; and after grace they are
// cut. It returns when all are closed. Those that are adopted from now on go, too,
// at once.
func (e *Engine) Leave(s *Settings, code frame.Code, within, grace time.Duration) {
	a := &leaveOrder{code, within}
	s.leaving.Store(a)
	e.Each(s, func(c *Conn) { c.leave(a) })
	for _, o := range e.strand.eachPipe(s) {
		e.sendOff(o, code, a.hint())
	}
	deadline := time.Now().Add(grace)
	for s.Open() > 0 && time.Now().Before(deadline) {
		time.Sleep(leavePoll)
	}
	for i := 0; s.Open() > 0 && !e.closed.Load(); i++ {
		if i%cutEvery == 0 {
			e.Each(s, func(c *Conn) { c.put(doomed) })
			e.cutPipes(s)
		}
		time.Sleep(leavePoll)
	}
}

// sendOff has a pipe leave, on a goroutine, for which Close waits.
func (e *Engine) sendOff(o *goroutinePipe, code frame.Code, hint string) {
	e.adopts.RLock()
	defer e.adopts.RUnlock()
	if !e.closed.Load() {
		e.strand.writers.Go(func() { o.leave(code, hint) })
	}
}

// Each calls f in the turn of every connection with these settings, soon.
func (e *Engine) Each(s *Settings, f func(c *Conn)) {
	for _, lp := range e.loops {
		lp.base().post(func() { lp.each(s, f, 0) })
	}
	e.strand.post(func() { e.strand.each(s, f) })
}

// leave ends a connection for Leave.
func (c *Conn) leave(a *leaveOrder) {
	if c.is(closeSent | dead | doomed) {
		return
	}
	back := drawn(a.within)
	if c.is(pipeEnd) {
		c.leavePipe(a.code, reconnectHint(back))
		return
	}
	if l, ok := c.set.App.(Leaver); ok {
		l.Leaving(c, a.code, back)
	}
	c.Close(a.code, reconnectHint(back))
}

// leaveToo ends a connection that comes after Leave was called for its settings.
func (c *Conn) leaveToo() {
	if a := c.set.leaving.Load(); a != nil {
		c.leave(a)
	}
}

// cutPipes cuts the proxied connections that have goroutines.
func (e *Engine) cutPipes(s *Settings) {
	for _, o := range e.strand.eachPipe(s) {
		o.cut()
	}
}

// drawn draws when one client is to come back, so that not all come at once.
func drawn(within time.Duration) time.Duration {
	if within <= 0 {
		return 0
	}
	return rand.N(within)
}

// reconnectHint is the reason in a close frame whose client is to come back after d.
func reconnectHint(d time.Duration) string {
	return "reconnect in " + strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
}

// Close cuts what is still open, waits for it, and stops the loops.
func (e *Engine) Close() error {
	e.adopts.Lock()
	already := e.closed.Swap(true)
	e.adopts.Unlock()
	if already {
		return nil
	}
	for _, lp := range e.loops {
		lp.base().post(lp.end)
	}
	e.strand.post(func() { e.strand.each(nil, func(c *Conn) { c.put(doomed) }) })
	e.cutPipes(nil)
	e.strand.readers.Wait()
	e.strand.writers.Wait()
	close(e.stop)
	e.strand.parker.Close()
	e.strand.post(func() { e.strand.ended = true })
	e.done.Wait()
	return nil
}

// mistake logs that a posted function has panicked.
func (e *Engine) mistake(cause any) {
	e.errors.Error("a task of the WebSockets failed", "cause", cause, "stack", string(debug.Stack()))
}

// guard ends the connection, and not the process, when an App panics.
func (e *Engine) guard(c *Conn) {
	if cause := recover(); cause != nil {
		c.put(doomed)
		e.errors.Error("a WebSocket failed", "cause", cause, "stack", string(debug.Stack()))
	}
}
