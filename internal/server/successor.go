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

// HandOver says that another process serves at the same sockets. When Run's
// context ends, running requests, downloads, uploads, streams and WebSockets go
// on for as long as patience says before the drain begins. stopped is called as soon
// as no client comes here any more, and leave at the end of the patience, with
// clients still connected, to send away those that never end.
func (s *Server) SetSuccessor(patience time.Duration, stopped, leave func()) {
	hurry := make(chan struct{})
	s.successor.Store(&successor{patience, stopped, leave, hurry, sync.OnceFunc(func() { close(hurry) })})
}

// OwnTickets are the keys of session tickets, with which the other process can go
// on with the sessions of this one's clients: they need no full handshake.
func (s *Server) OwnTickets() []byte { return s.tickets.save() }

// Answer asks the event loops whether they go round: see [lane.Lane.CheckLoops].
func (s *Server) Answer(ctx context.Context) error { return s.lane.CheckLoops(ctx) }

// Hurry ends the patience of HandOver: the drain begins.
func (s *Server) DrainNow() {
	if h := s.successor.Load(); h != nil {
		h.startDrain()
	}
}

// successor is what HandOver was told.
type successor struct {
	timeout    time.Duration
	stopped    func()
	timedOut   func()
	drainNow   <-chan struct{} // closed by end
	startDrain func()
}

// Files are descriptors of all sockets that the server listens on, for another
// process, to which the paths of UNIX sockets belong from now on: they stay when
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

// TakePathsBack says that the other process has failed.
func (s *Server) ReclaimPaths() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepPaths(false)
}

// leavePaths says whether the paths of UNIX sockets stay when the listeners are
// closed. s.mu must be held.
func (s *Server) keepPaths(stay bool) {
	for _, l := range s.reload.listeners {
		if u, ok := l.ln.(*net.UnixListener); ok && (stay || l.bound) {
			u.SetUnlinkOnClose(!stay)
		}
	}
}

// linger lets go on what is under way, while another process serves who comes.
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
			s.quic.close() // what comes on UDP is all for the other process from now on
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

// sockets is how many descriptors WebSockets have.
func (s *Server) sockets() int {
	s.slots.mu.Lock()
	count := s.slots.bound.sockets
	s.slots.mu.Unlock()
	if count == nil {
		return 0
	}
	return count()
}
