package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// streams knows which HTTP/2 connections have no stream open, and since when:
// the lane does not see them.
type streams struct {
	mu   sync.Mutex
	idle map[net.Conn]time.Time
}

// onState is for http.Server.ConnState.
func (s *streams) onState(nc net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateIdle {
		delete(s.idle, nc)
		return
	}
	if s.idle == nil {
		s.idle = map[net.Conn]time.Time{}
	}
	s.idle[nc] = time.Now()
}

// shedGrace is how long a connection without a stream is safe from being closed:
// the next request may be on its way.
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
	if tc, ok := oldest.(*tls.Conn); ok {
		oldest = tc.NetConn() // below TLS: its own close may wait for the client
	}
	_ = oldest.Close()
	return true
}
