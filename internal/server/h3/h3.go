// Package h3 serves HTTP/3 (RFC 9114) on UDP sockets. It is the only package that imports
// quic-go, which implements QUIC and HTTP/3. The package itself does the rest of a
// listener: limits of clients, idle timeouts, and the drain.
package h3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"millrace/internal/observe/meter"
	"millrace/internal/process/steer"
	"millrace/internal/server"
	"millrace/internal/wire/stall"
)

const (
	// streams is how many requests a client may have under way on one connection,
	// mostRequests how many of its handlers may run, those among them whose
	// client has already gone: more is an attack (rapid reset).
	streams      = 100
	mostRequests = 2 * streams
	// fewStreams is how many a new connection may have while many are kept for clients
	// that do not take them: about as much memory as the connection itself.
	fewStreams = 10
	// mostHeaders is how many of the requests of one connection may be on their
	// way; further ones wait for these.
	mostHeaders = 16
	// control is how many streams a client may open beside its requests. Three
	// mean something (RFC 9114, 6.2, and RFC 9204, 4.2).
	control = 16
	// keepAlive is how often something is sent where nothing happens, so that a
	// request that waits for its answer does not lose its connection. It does not
	// keep an idle connection open: see sweep.
	keepAlive = 20 * time.Second
	// mostHandshakes is how many may be under way before further clients must
	// prove their address, which costs them one round trip (RFC 9000, 8.1.2).
	mostHandshakes = 100
	// linger is how long a connection in a drain stays open after its last
	// answer, which may still be on the way.
	linger = time.Second
	// sweepEvery and drainEvery are how often idle connections are looked for.
	sweepEvery = time.Second
	drainEvery = 20 * time.Millisecond
	// shedGrace is how long a connection without a request is safe from being
	// closed for another one.
	shedGrace = time.Second
)

// Listener serves HTTP/3 on one socket. Make it with [Open].
type Listener struct {
	host      server.HTTP3Host
	transport quic.Transport
	listener  *quic.Listener
	http      http3.Server

	handshakes atomic.Int64   // that are not complete
	running    sync.WaitGroup // accept, sweep, connections
	end        context.Context
	cut        context.CancelFunc // ends end, with Close
	drained    chan struct{}      // closed by Drain or Close
	open       meter.Presence     // of connections, whose idle timeout sweep sees to

	mu       sync.Mutex
	conns    map[*quic.Conn]*conn
	draining time.Time // when the drain began; zero: it has not
}

var _ server.HTTP3 = Open

type connKey struct{}

// noWarning keeps quic-go from writing about buffers to the standard log: see
// [Listener.checkBuffers].
const noWarning = "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING"

// Open serves on h.Socket from now on. It is a [server.HTTP3].
func Open(h server.HTTP3Host) (server.HTTP3Listener, error) {
	l := &Listener{host: h, conns: map[*quic.Conn]*conn{}, drained: make(chan struct{})}
	l.end, l.cut = context.WithCancel(context.Background())
	if err := os.Setenv(noWarning, "true"); err != nil {
		return nil, fmt.Errorf("start QUIC: %w", err)
	}
	l.http = http3.Server{
		Handler:        http.HandlerFunc(l.serve),
		MaxHeaderBytes: int(h.Limits().HeaderBytes),
		ConnContext:    l.context,
		Logger:         slog.New(slog.DiscardHandler), // the listener logs what matters itself
	}
	l.transport = quic.Transport{
		Conn:        h.Socket,
		ConnContext: l.admit,

		ConnectionIDGenerator: ids(h.Generation),

		VerifySourceAddress: func(net.Addr) bool { return l.handshakes.Load() >= mostHandshakes || h.HalfFull() },
	}
	var err error
	l.listener, err = l.transport.Listen(&tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{http3.NextProtoH3}, GetConfigForClient: h.TLS,
		GetEncryptedClientHelloKeys: func(hello *tls.ClientHelloInfo) ([]tls.EncryptedClientHelloKey, error) { // needed before GetConfigForClient
			config, err := h.TLS(hello)
			if err != nil {
				return nil, err
			}
			return config.EncryptedClientHelloKeys, nil
		},
	}, l.config())
	if err != nil {
		l.cut()
		return nil, fmt.Errorf("start QUIC: %w", err)
	}
	l.checkBuffers()
	l.running.Go(l.accept)
	l.running.Go(l.sweep)
	return l, nil
}

// ids makes the ids of connections. By these the kernel finds the process that has the
// connection: see package steer.
type ids steer.Generation

// GenerateConnectionID implements [quic.ConnectionIDGenerator].
func (g ids) GenerateConnectionID() (quic.ConnectionID, error) {
	return quic.ConnectionIDFromBytes(steer.Generation(g).ID()), nil
}

// ConnectionIDLen implements [quic.ConnectionIDGenerator].
func (ids) ConnectionIDLen() int { return steer.IDBytes }

// config is called for each new client, as limits may change. There is no 0-RTT, whose
// requests can be replayed (RFC 9001, 9.2).
func (l *Listener) config() *quic.Config {
	limits, streams := l.host.Limits(), int64(streams)
	if l.host.Budget.Keeps() {
		streams = fewStreams
	}
	return &quic.Config{
		HandshakeIdleTimeout:  limits.HandshakeTimeout / 2, // all of it may take twice that
		MaxIdleTimeout:        limits.IdleTimeout,
		KeepAlivePeriod:       keepAlive,
		MaxIncomingStreams:    streams,
		MaxIncomingUniStreams: control,
		GetConfigForClient: func(*quic.ClientInfo) (*quic.Config, error) {
			c := l.config()
			c.GetConfigForClient = nil
			return c, nil
		},
	}
}

// errRefused makes quic-go send CONNECTION_REFUSED: the client then connects over TCP.
var errRefused = errors.New("no place for this connection")

// admit is called for each new client, before its handshake.
func (l *Listener) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	l.mu.Lock()
	late := !l.draining.IsZero()
	l.mu.Unlock()
	if late {
		return nil, errRefused
	}
	gone, ok := l.host.Admit(info.RemoteAddr)
	if !ok {
		return nil, errRefused
	}
	l.handshakes.Add(1)
	ready := sync.OnceFunc(func() { l.handshakes.Add(-1) })
	context.AfterFunc(ctx, func() {
		ready()
		gone()
	})
	return context.WithValue(ctx, readyKey{}, ready), nil
}

// readyKey finds the function to call when a connection's handshake is complete.
type readyKey struct{}

// accept serves the connections whose handshake is complete. It ends with Close.
func (l *Listener) accept() {
	for {
		qc, err := l.listener.Accept(l.end)
		if err != nil {
			return
		}
		if ready, ok := qc.Context().Value(readyKey{}).(func()); ok {
			ready()
		}
		c := &conn{listener: l, quic: qc, roomFreed: make(chan struct{}, 1), kept: l.host.Budget.NewKept()}
		c.since.Store(time.Now().UnixNano())
		l.mu.Lock()
		if !l.draining.IsZero() {
			l.mu.Unlock()
			l.running.Go(func() { c.close(http3.ErrCodeNoError) })
			continue
		}
		l.conns[qc] = c
		l.mu.Unlock()
		l.open.Add(1)
		l.running.Go(func() {
			defer l.open.Add(-1)
			c.serve()
			c.close(http3.ErrCodeNoError)
			l.mu.Lock()
			delete(l.conns, qc)
			l.mu.Unlock()
		})
	}
}

// context returns the context for the requests of a new connection.
func (l *Listener) context(ctx context.Context, qc *quic.Conn) context.Context {
	l.mu.Lock()
	c := l.conns[qc]
	l.mu.Unlock()
	ctx = stall.With(context.WithValue(ctx, connKey{}, c), &c.handlers)
	return l.host.Context(ctx, qc.RemoteAddr())
}

// serve answers a request.
func (l *Listener) serve(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*conn)
	c.handlers.Go()
	defer func() {
		c.since.Store(time.Now().UnixNano())
		c.requests.Add(-1)
		c.handlers.Wait() // until the client has taken the remaining answer
	}()
	if c.requests.Add(1) > mostRequests {
		c.refuse(&l.host.Refused.Requests)
		return
	}
	c.signalRoom()
	if !expects(r) {
		l.settle(w, r, &c.handlers)
		l.host.Handler.ServeHTTP(w, r)
		return
	}
	p := withContinue(w, r)
	l.settle(p, r, &c.handlers)
	l.host.Handler.ServeHTTP(p, r)
	p.finish()
}

// settle ends the header timeout, and finds out whether the request has a body: quic-go
// says of every request without Content-Length that it may have one.
func (l *Listener) settle(w http.ResponseWriter, r *http.Request, waits *stall.Handlers) {
	rc := http.NewResponseController(w) // its deadlines are those of a stream, which never fail
	if r.ContentLength == 0 {
		r.Body = http.NoBody
	} else {
		_ = rc.SetReadDeadline(time.Now().Add(l.host.Limits().BodyTimeout))
		waits.Wait()
		err := server.LookForBody(r)
		waits.Go()
		switch {
		case err != nil:
			panic(http.ErrAbortHandler) // the client has gone, or sends half a request
		case r.ContentLength == 0:
			return
		}
	}
	_ = rc.SetReadDeadline(time.Time{})
}

// sweep closes connections that have had no request for too long. It ends with
// Close.
func (l *Listener) sweep() {
	l.open.Keep(l.drained, meter.Upkeep{
		Every: func() time.Duration { return sweepEvery },
		Turn:  func(now time.Time) (more bool) { l.closeIdle(now); return false },
	})
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.end.Done():
			return
		case now := <-tick.C:
			l.closeIdle(now)
		}
	}
}

func (l *Listener) closeIdle(now time.Time) {
	for _, c := range l.idle(now) {
		c.close(http3.ErrCodeNoError)
	}
}

// idle returns the connections whose idle timeout is over.
func (l *Listener) idle(now time.Time) (over []*conn) {
	limit := l.host.Limits().IdleTimeout
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.draining.IsZero() {
		if limit = linger; now.Sub(l.draining) < linger {
			return nil
		}
	}
	for _, c := range l.conns {
		if c.requests.Load() == 0 && now.UnixNano()-c.since.Load() >= int64(limit) {
			over = append(over, c)
		}
	}
	return over
}

// ShedIdle implements [server.HTTP3Listener].
func (l *Listener) ShedIdle(which func(net.Addr) bool) bool {
	latest := time.Now().Add(-shedGrace).UnixNano()
	var oldest *conn
	l.mu.Lock()
	for _, c := range l.conns {
		since := c.since.Load()
		if c.requests.Load() > 0 || since > latest || which != nil && !which(c.quic.RemoteAddr()) {
			continue
		}
		if oldest == nil || since < oldest.since.Load() {
			oldest = c
		}
	}
	l.mu.Unlock()
	if oldest == nil {
		return false
	}
	oldest.close(http3.ErrCodeNoError)
	return true
}

// WithStreams implements [server.HTTP3Listener].
func (l *Listener) WithStreams(to []stall.Conn) []stall.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		to = append(to, c)
	}
	return to
}

// Open implements [server.HTTP3Listener].
func (l *Listener) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns) + int(l.handshakes.Load())
}

// Drain implements [server.HTTP3Listener].
func (l *Listener) Drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.draining.IsZero() {
		return
	}
	l.draining = time.Now()
	close(l.drained) // the connections are closed by sweep
}

func (l *Listener) drains() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.draining.IsZero()
}

// Close implements [server.HTTP3Listener].
func (l *Listener) Close() {
	if l.end.Err() != nil {
		return
	}
	l.cut()
	l.mu.Lock()
	if l.draining.IsZero() {
		l.draining = time.Now()
		close(l.drained)
	}
	all := slices.Collect(maps.Values(l.conns))
	l.mu.Unlock()
	for _, c := range all {
		c.close(http3.ErrCodeNoError)
	}
	_ = l.listener.Close()    // the socket is closed anyway
	_ = l.transport.Close()   // likewise
	_ = l.host.Socket.Close() // likewise
}

// Wait implements [server.HTTP3Listener].
func (l *Listener) Wait() { l.running.Wait() }
