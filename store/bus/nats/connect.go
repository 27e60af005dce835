package nats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/store/bus"
)

const (
	// firstPause and longestPause lie between attempts to reach a server.
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
	// firstLook is how long the server may take to tell of the stream, for the first
	// shortLooks times: while a cluster chooses another leader, nobody answers, not even
	// late. Then it may take longer each time.
	firstLook  = 500 * time.Millisecond
	shortLooks = 20
)

// pause is the time before an attempt: growing, and random by half, so that
// many machines do not come back all at once.
func pause(attempts int) time.Duration {
	d := longestPause
	if attempts < 16 {
		d = min(firstPause<<max(attempts, 0), longestPause)
	}
	return d/2 + rand.N(d/2+1)
}

// phase is how far the connection is.
type phase int

const (
	starting phase = iota // nobody has looked yet
	down                  // nothing goes
	syncing               // connected; what was missed is being caught up
	up
)

// link is the state of the connection as the supervisor sees it.
type link struct {
	mu      sync.Mutex
	phase   phase
	changed chan struct{} // closed at the next change of phase
	trouble error         // the last State that the listener got, or errStarting
	since   time.Time     // up

	// dials counts connections, and is ahead of caughtUp while nothing is known
	// about what was missed before the latest. What comes meanwhile is held back.
	dials    atomic.Uint64
	caughtUp atomic.Uint64

	wake    chan struct{} // something has happened: look
	missed  bool          // messages were dropped
	suspect bool          // a request failed that should not have
}

func (l *link) init() {
	l.changed = make(chan struct{})
	l.wake = make(chan struct{}, 1)
	l.trouble = errStarting
}

// errStarting is the state before anybody has looked.
var errStarting = errors.New("it has not answered yet")

// note changes something that the supervisor has to look at, and wakes it.
func (l *link) note(f func()) {
	l.mu.Lock()
	f()
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) set(p phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == p {
		return
	}
	l.phase = p
	if p == up {
		l.since = time.Now()
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// now returns the phase, and what is closed when it changes.
func (l *link) now() (phase, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase, l.changed
}

// wait waits until the connection is up or down, and returns the phase then.
func (l *link) wait(ctx context.Context, most time.Duration) phase {
	t := time.NewTimer(most)
	defer t.Stop()
	for {
		p, changed := l.now()
		if p == up || p == down {
			return p
		}
		select {
		case <-changed:
		case <-t.C:
			return p
		case <-ctx.Done():
			return p
		}
	}
}

// connect makes the connection, which looks for a server for ever.
func (b *Bus) connect() error {
	nc, err := nats.Connect(
		b.o.URL,
		nats.Name("millrace "+b.id),
		nats.Timeout(connectTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(pause),
		nats.ReconnectBufSize(-1), // what is not sent must fail at once: the outbox keeps it
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(pingsMissed),
		nats.SetCustomDialer(&dialer{b: b}),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { b.link.note(func() {}) }),
		nats.ConnectHandler(func(*nats.Conn) { b.link.note(func() {}) }),
		nats.ReconnectHandler(func(*nats.Conn) { b.link.note(func() {}) }),
		nats.ErrorHandler(b.failed),
	)
	if err != nil {
		return fmt.Errorf("connecting to NATS at %s: %w", b.Server(), err)
	}
	b.nc = nc
	b.js, err = jetstream.New(nc, jetstream.WithPublishAsyncTimeout(ackTimeout), jetstream.WithDefaultTimeout(askTimeout))
	if err != nil {
		nc.Close()
		return fmt.Errorf("using JetStream at %s: %w", b.Server(), err)
	}
	return nil
}

// dialer counts connections before anything can come from them. The library's
// own events come when they come.
type dialer struct {
	net.Dialer
	b *Bus
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.b.link.dials.Add(1)
	ctx, cancel := context.WithTimeout(d.b.ctx, connectTimeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// inStep reports whether what was missed before the present connection is
// delivered.
func (l *link) inStep() bool { return l.dials.Load() == l.caughtUp.Load() }

// Server names the servers, without passwords.
func (b *Bus) Server() string {
	var all []string
	for part := range strings.SplitSeq(b.o.URL, ",") {
		if u, err := url.Parse(strings.TrimSpace(part)); err == nil {
			all = append(all, u.Host)
		}
	}
	return strings.Join(all, ", ")
}

// failed is called by the library with errors that no call returns.
func (b *Bus) failed(_ *nats.Conn, _ *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) {
		b.link.note(func() { b.link.missed = true })
		return
	}
	b.log.Warn("nats", "servers", b.Server(), "error", err)
}

// run supervises: it brings the connection into step, again after every
// interruption, until Close.
func (b *Bus) run() {
	failures := 0
	for b.ctx.Err() == nil {
		dials := b.link.dials.Load()
		b.link.mu.Lock()
		b.link.missed, b.link.suspect = false, false
		b.link.mu.Unlock()
		if !b.nc.IsConnected() {
			b.isDown(b.noServer())
			b.sleep(beat)
			continue
		}
		b.link.set(syncing)
		if err := b.sync(dials, min(firstLook<<min(max(failures-shortLooks, 0), 8), askTimeout)); err != nil {
			b.isDown(err)
			if !errors.Is(err, context.DeadlineExceeded) { // else it has taken time enough
				b.sleep(pause(failures))
			}
			failures++
			continue
		}
		failures = 0
		b.watch(dials)
	}
	b.link.set(down)
}

func (b *Bus) noServer() error {
	switch err := b.nc.LastError(); {
	case err == nil:
	case errors.Is(err, nats.ErrNoInfoReceived), strings.Contains(err.Error(), "HTTP/1."), strings.Contains(err.Error(), "protocol"):
		return fmt.Errorf("%w: what is at %s is no NATS server", bus.ErrDown, b.Server())
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: what is at %s closes the connection: is it a NATS server, and does it want TLS (tls://)?", bus.ErrDown, b.Server())
	case os.IsTimeout(err), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%w: what is at %s takes connections and says nothing: is it a NATS server, and not stopped?", bus.ErrDown, b.Server())
	default:
		return fmt.Errorf("%w: NATS at %s: %w", bus.ErrDown, b.Server(), err)
	}
	return fmt.Errorf("%w: NATS at %s does not answer; does nats-server -js run there?", bus.ErrDown, b.Server())
}

// isDown tells the listener and the log that the others cannot be reached, unless they
// know.
func (b *Bus) isDown(err error) {
	if b.ctx.Err() != nil {
		return
	}
	b.notifyState(err)
	b.link.set(down)
}

func (b *Bus) notifyState(err error) {
	b.link.mu.Lock()
	last := b.link.trouble
	b.link.trouble = err
	b.link.mu.Unlock()
	if err == nil && last == nil || err != nil && last != nil && err.Error() == last.Error() {
		return
	}
	if err != nil {
		b.log.Warn("channels of other machines are not reached; local delivery goes on", "servers", b.Server(), "error", err)
	} else {
		b.log.Info("channels of other machines are reached", "servers", b.Server())
	}
	b.listener.State(err)
}

// sleep waits until something has happened, or for d.
func (b *Bus) sleep(d time.Duration) {
	select {
	case <-b.link.wake:
	case <-time.After(d):
	case <-b.ctx.Done():
	}
}

// sync brings this machine into step with the stream: makes the stream if need
// be, catches up, empties the outbox, and then says that all is well. look is how long the
// server may take to tell of the stream.
func (b *Bus) sync(dials uint64, look time.Duration) error {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	before := b.order.highest()
	info, err := b.ensure(ctx, look)
	if err != nil {
		return err
	}
	if err := b.enter(ctx, &info, before); err != nil {
		return err
	}
	if err := b.catchUp(ctx, info, dials); err != nil {
		return err
	}
	for {
		if err := b.flush(ctx); err != nil {
			return err
		}
		if b.outbox.settle(func() { b.link.set(up) }) {
			break
		}
	}
	b.notifyState(nil)
	return nil
}

// enter notes which order the stream has. If it is another one than before, positions
// begin anew. before is the highest number that was seen before the stream was looked
// at.
func (b *Bus) enter(ctx context.Context, info *info, before uint64) error {
	if b.order.current() == info.epoch && info.last < before {
		// The server has lost its latest writes (it syncs to disk every two
		// minutes, and may have lost its power): numbers would come twice.
		b.log.Warn("the stream has lost its latest messages; its order begins anew", "stream", b.o.Name, "last", info.last)
		renewed, err := b.renew(ctx, *info)
		if err != nil {
			return err
		}
		*info = renewed
	}
	if !b.order.enter(info.epoch) {
		return nil
	}
	for _, w := range b.workers {
		w.await(w.reset)
	}
	b.listener.Reset("")
	return nil
}

// watch runs while the connection is up. It returns when it is not any more.
func (b *Bus) watch(dials uint64) {
	t := time.NewTicker(beat)
	defer t.Stop()
	tick := false
	for {
		b.link.mu.Lock()
		missed, failed := b.link.missed, b.link.suspect
		b.link.missed, b.link.suspect = false, false
		b.link.mu.Unlock()
		if b.link.dials.Load() != dials || !b.nc.IsConnected() {
			b.isDown(b.noServer())
			return
		}
		if missed || failed || tick {
			if err := b.look(missed, tick, dials); err != nil {
				b.isDown(err)
				return
			}
		}
		if err := b.flush(b.ctx); err != nil { // what just missed the last one
			b.isDown(err)
			return
		}
		tick = false
		select {
		case <-b.link.wake:
		case <-t.C:
			tick = true
		case <-b.ctx.Done():
			return
		}
	}
}

// look asks the stream for its last number, and catches up or reports the connection
// as down if it does not fit.
func (b *Bus) look(missed, tick bool, dials uint64) error {
	ctx, cancel := context.WithTimeout(b.ctx, ackTimeout)
	defer cancel()
	before := b.order.highest()
	info, err := b.info(ctx, "")
	if err != nil {
		if b.nc.FlushTimeout(ackTimeout) != nil {
			// Nothing comes back, and the connection has not noticed.
			_ = b.nc.ForceReconnect() // fails when it is closed
		}
		return fmt.Errorf("%w: asking for the stream %s: %w", bus.ErrDown, b.o.Name, err)
	}
	if b.order.current() != info.epoch || info.last < before {
		return fmt.Errorf("%w: the stream %s was made anew", bus.ErrDown, b.o.Name)
	}
	if missed {
		return b.catchUp(b.ctx, info, dials)
	}
	if tick {
		settled := b.order.settle(info.last)
		for _, w := range b.workers {
			w.mark(settled)
		}
	}
	return nil
}
