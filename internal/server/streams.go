package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"millrace/internal/wire/stall"
)

// streams has the HTTP/2 connections of a server without a lane.
type streams struct {
	mu   sync.Mutex
	idle map[net.Conn]time.Time
	open map[net.Conn]*h2Conn
}

// h2Conn is a connection of HTTP/2 without a lane.
type h2Conn struct {
	net.Conn
	stall.Handlers
	server *Server
}

// Client implements [stall.Conn].
func (a *h2Conn) Client() netip.Addr { return a.server.slots.client(a.RemoteAddr()) }

// Evict implements [stall.Conn].
func (a *h2Conn) Evict() {
	a.server.meters.HTTP2Refused.TooMany.Add(0, 1)
	a.server.streams.forget(a.Conn)
	closeBelow(a.Conn)
}

// trackH2 is http.Server.ConnContext: it notes a new connection.
func (s *Server) trackH2(ctx context.Context, nc net.Conn) context.Context {
	a := &h2Conn{Conn: nc, server: s}
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	if s.streams.open == nil {
		s.streams.open = map[net.Conn]*h2Conn{}
	}
	s.streams.open[nc] = a
	return stall.With(ctx, &a.Handlers)
}

// serveH2 is ServeHTTP without a lane, and counts the stream. It flushes the answer before
// it returns: net/http would do that later, and its wait for the client would not be
// counted.
func (s *Server) serveH2(w http.ResponseWriter, r *http.Request) {
	h := stall.Of(r.Context())
	if s.budget.Pressed() && h.Streams(time.Now()).Waiting > stall.Few {
		s.budget.Refuse()
		w.Header()["Retry-After"] = []string{"1"}
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h.Begin()
	s.budget.Add(1)
	context.AfterFunc(r.Context(), func() { // also when the client goes before the handler has returned
		h.End()
		s.budget.Add(-1)
	})
	s.ServeHTTP(w, r)
	if w.Header()["Content-Length"] != nil { // else net/http sets it from the buffered body
		h.Wait()
		_ = http.NewResponseController(w).Flush() // an error: the client has gone
		h.Go()
	}
}

// onState is http.Server.ConnState: it notes which connections are idle.
func (s *streams) onState(nc net.Conn, state http.ConnState) {
	if behind, ok := nc.(*screenedConn); ok {
		nc = behind.tls
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateClosed {
		delete(s.open, nc)
	}
	if state != http.StateIdle {
		delete(s.idle, nc)
		return
	}
	if s.idle == nil {
		s.idle = map[net.Conn]time.Time{}
	}
	s.idle[nc] = time.Now()
}

func (s *streams) forget(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, nc)
}

// shedGrace is how long a connection without a stream is not closed: its next request may
// be on its way.
const shedGrace = time.Second

// shedIdle closes the connection that has been idle for longest, among those of
// the given clients, and reports whether there was one.
func (s *streams) shedIdle(which func(net.Addr) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest net.Conn
	for nc, since := range s.idle {
		if time.Since(since) < shedGrace || which != nil && !which(nc.RemoteAddr()) {
			continue
		}
		if oldest == nil || since.Before(s.idle[oldest]) {
			oldest = nc
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.idle, oldest)
	closeBelow(oldest)
	return true
}

// closeBelow closes the TCP connection below TLS: the close of a TLS connection may wait
// for the client.
func closeBelow(nc net.Conn) {
	if tc, ok := nc.(*tls.Conn); ok {
		nc = tc.NetConn()
	}
	_ = nc.Close()
}

// leastStreams is the smallest bound on open streams, where limits.connections is smaller.
const leastStreams = 1024

// budgets returns the bounds on streams. A request that is being answered needs about as
// much memory as a connection, so there may be as many of them.
func (o Options) budgets() stall.Budgets {
	share := func(all int) stall.Limits { return stall.Limits{All: all, Each: max(1, all/2)} }
	return stall.Budgets{
		Open:    share(max(o.Connections, leastStreams)),
		Waiting: share(o.StalledStreams), Kept: share(o.StalledStreams * stall.KeptShare),
	}
}

// CollectSooner says how garbage is collected sooner while connections are evicted for their
// streams. Call it before Run.
func (s *Server) CollectSooner(sooner func() (done func())) { s.budget.CollectSooner(sooner) }

// watchStreams enforces the budget until stop is called.
func (s *Server) watchStreams() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { s.budget.Watch(ctx, s.streamConns, s.evicted) })
	watching.Go(func() { s.budget.WatchKept(ctx, s.streamConns, s.evicted) })
	return func() {
		cancel()
		watching.Wait()
	}
}

// streamConns returns the connections that may have streams.
func (s *Server) streamConns() []stall.Conn {
	all := s.lane.WithStreams(nil, s.slots.client)
	s.streams.mu.Lock()
	for _, a := range s.streams.open {
		all = append(all, a)
	}
	s.streams.mu.Unlock()
	s.quic.every(func(l *quicListener) { all = l.WithStreams(all) })
	return all
}

func (s *Server) evicted(c stall.Conn) {
	s.warn.evicted.warn(s.errors, "more streams of HTTP/2 and HTTP/3 wait for their clients than may be, and connections with most of them are closed: see limits.stalled_streams and limits.connections", "address", c.Client())
}

// Measure sets the gauges of streams.
func (s *Server) Measure() {
	now, waiting := time.Now(), 0
	for _, c := range s.streamConns() {
		waiting += c.Streams(now).Waiting
	}
	s.meters.Streams.Set(int64(s.budget.Open()))
	s.meters.BufferedStreams.Set(int64(waiting)*stall.Cost + int64(s.budget.Kept())*stall.KeptCost + s.lane.Unsent())
}
