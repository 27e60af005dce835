package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"millrace/internal/process/handover"
)

// SetSuccessor says that another process serves at the same sockets. When Run's context
// ends, running requests, downloads, uploads, streams and WebSockets may go on for the
// timeout before the drain begins. stopped is called as soon as no new client can come
// to this process, timedOut after the timeout if clients are still connected: it closes
// the connections that never end by themselves.
func (s *Server) SetSuccessor(timeout time.Duration, stopped, timedOut func()) {
	drainNow := make(chan struct{})
	s.successor.Store(&successor{timeout, stopped, timedOut, drainNow, sync.OnceFunc(func() { close(drainNow) })})
}

// OwnTickets returns the keys of session tickets, so that the other process can resume
// the TLS sessions of this one's clients.
func (s *Server) OwnTickets() []byte { return s.tickets.save() }

// Answer asks the event loops whether they go round: see [lane.Lane.CheckLoops].
func (s *Server) Answer(ctx context.Context) error { return s.lane.CheckLoops(ctx) }

// DrainNow ends the timeout of SetSuccessor at once: the drain begins.
func (s *Server) DrainNow() {
	if h := s.successor.Load(); h != nil {
		h.startDrain()
	}
}

// successor has the arguments of SetSuccessor.
type successor struct {
	timeout    time.Duration
	stopped    func()
	timedOut   func()
	drainNow   <-chan struct{} // closed by startDrain
	startDrain func()
}

// Files returns descriptors of all sockets that the server listens on, for another
// process. From then on the paths of UNIX sockets belong to that process: they stay when
// this server ends. The caller closes the descriptors.
func (s *Server) Files() (files []*os.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(socket any) {
		c, ok := socket.(syscall.Conn)
		if !ok || err != nil {
			return
		}
		var file *os.File
		if file, err = handover.Duplicate(c); err == nil {
			files = append(files, file)
		}
	}
	for _, l := range s.reload.listeners {
		add(l.ln)
	}
	for _, l := range s.quic.all() {
		add(l.socket)
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, fmt.Errorf("passing the sockets on: %w", err)
	}
	s.keepPaths(true)
	return files, nil
}

// ReclaimPaths undoes what Files did to UNIX sockets: the other process has failed.
func (s *Server) ReclaimPaths() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepPaths(false)
}

// keepPaths sets whether the paths of UNIX sockets stay when the listeners are closed.
// s.mu must be held.
func (s *Server) keepPaths(stay bool) {
	for _, l := range s.reload.listeners {
		if u, ok := l.ln.(*net.UnixListener); ok && (stay || l.bound) {
			u.SetUnlinkOnClose(!stay)
		}
	}
}

// serveRemaining waits until what is under way has ended, or the timeout. Another process
// serves new clients meanwhile.
func (s *Server) serveRemaining(h *successor) {
	ctx, cancel := context.WithTimeout(context.Background(), h.timeout)
	defer cancel()
	s.mu.Lock()
	s.keepPaths(true) // also of what a reload has opened since Files
	s.mu.Unlock()
	accepted := s.stopAccepting(ctx)
	h.stopped()
	s.lane.DrainRequests()
	s.quic.drain()
	shut := make(chan struct{})
	go func() { // ends with ctx at the latest, and is waited for below
		defer close(shut)
		if s.http.laneH2 == nil {
			_ = s.http.h2.Shutdown(ctx) // the drain says what was cut off
		}
	}()
	defer func() { cancel(); <-shut }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for packets := true; ; {
		if packets && s.quic.open() == 0 {
			packets = false
			s.quic.close() // from now on all UDP packets are for the other process
		}
		if !packets && s.lane.Open() == 0 && s.sockets() == 0 && isClosed(accepted) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			h.timedOut()
			return
		case <-h.drainNow:
			h.timedOut()
			return
		case <-s.http.h1Conns.closed: // Close was called
			return
		}
	}
}

// sockets returns how many descriptors WebSockets use.
func (s *Server) sockets() int {
	s.slots.mu.Lock()
	count := s.slots.bound.sockets
	s.slots.mu.Unlock()
	if count == nil {
		return 0
	}
	return count()
}
