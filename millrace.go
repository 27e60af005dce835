// Package millrace puts a site on the net: one server that is built from a
// config, serves it, and takes a new config without dropping a connection.
//
//	srv, err := millrace.New(cfg, millrace.Options{Version: "1.0"})
//	…
//	err = srv.Run(ctx) // until ctx ends; then it drains
//
// New binds every address and builds every job (build.go), or fails with
// nothing half-started. Reload builds the new graph beside the old one and
// swaps; the old one closes when its last request has ended.
package millrace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"millrace/internal/admin"
	"millrace/internal/config"
	"millrace/internal/meter"
	"millrace/internal/server"
)

// Options are what does not come from the config.
type Options struct {
	Version  string       // for the metrics; empty is "dev"
	Revision string       // the commit, if known
	ErrorLog *slog.Logger // nil is slog.Default()
	// Worker starts a process that converts pictures: a program that calls
	// images/worker's Main, and its arguments. Empty: they are converted in
	// this process, with what that means for its memory.
	Worker []string
	// Reload is called by POST /reload on the admin listener: it should read
	// the config again and call Server.Reload. Nil: there is no such route.
	Reload func() error
}

// Server is a site being served.
type Server struct {
	options Options
	errors  *slog.Logger
	meters  *meter.Meters
	admin   *admin.Admin // nil when off
	server  *server.Server
	garbage *collector

	mu      sync.RWMutex // held by Reload, ReopenLogs and the end of Run; for reading, while the operator works with a cache
	graph   *graph
	leaving map[*graph]bool // left by a reload, and not closed yet
	serial  uint64          // the last site number given out
	retired sync.WaitGroup
	ended   chan struct{} // closed when Run is over: nobody waits for requests any more
}

// New builds everything that cfg asks for and binds all of its addresses.
func New(cfg *config.Config, o Options) (*Server, error) {
	s := &Server{options: o, errors: o.ErrorLog, meters: meter.New(), garbage: newCollector(), ended: make(chan struct{}), leaving: map[*graph]bool{}}
	if s.errors == nil {
		s.errors = slog.Default()
	}
	g, err := s.build(cfg, nil)
	if err != nil {
		return nil, err
	}
	s.server, err = server.New(g.setup, cfg.Lane, s.meters, s.errors)
	if err != nil {
		return nil, errors.Join(err, g.close(nil))
	}
	s.graph = g
	if err := s.openAdmin(cfg); err != nil {
		s.server.Close()
		return nil, errors.Join(err, g.close(nil))
	}
	s.garbage.set(budget(cfg))
	s.meters.ConfigLoaded.Set(time.Now().Unix())
	return s, nil
}

func (s *Server) openAdmin(cfg *config.Config) error {
	var err error
	s.admin, err = admin.New(admin.Options{Listen: cfg.Admin.Listen}, admin.Deps{
		Meters:   s.meters,
		Version:  s.options.Version,
		Revision: s.options.Revision,
		Ready:    func() bool { return !s.server.Draining() },
		Reload:   s.options.Reload,
		Routes:   s.controls(),
		Addrs:    s.Addrs,
		Gather:   []func(){s.measure},
		ErrorLog: s.errors,
	})
	return err
}

// Run serves until ctx ends, and then drains: no new connections, running
// requests end, the logs are written out. It returns an error when requests
// had to be cut off.
func (s *Server) Run(ctx context.Context) error {
	var adminDone sync.WaitGroup
	adminDone.Go(func() {
		if err := s.admin.Serve(); err != nil {
			s.errors.Error("the admin listener has ended", "err", err)
		}
	})
	err := s.server.Run(ctx)
	close(s.ended)
	err = errors.Join(err, s.admin.Close())
	adminDone.Wait()
	s.retired.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.garbage.set(0)
	return errors.Join(err, s.graph.close(nil))
}

// Close ends Run at once: requests that are still being answered are cut off.
func (s *Server) Close() error {
	s.server.Close()
	return nil
}

// Reload puts a new config into effect. When it cannot be built, or an address
// cannot be bound, the old one goes on unchanged. No connection is dropped;
// lane.memory, lane.off, limits.connections, limits.header_bytes, admin.listen
// and the size of a cache's folder take effect at the next start.
func (s *Server) Reload(cfg *config.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.build(cfg, s.graph)
	if err == nil {
		if err = s.server.Reload(next.setup); err != nil {
			err = errors.Join(err, next.close(s.graph))
		}
	}
	if err != nil {
		s.ReloadFailed()
		return fmt.Errorf("the old config goes on serving: %w", err)
	}
	old := s.graph
	s.graph = next
	s.retire(old, next)
	s.garbage.set(budget(cfg))
	s.meters.ConfigReloads.Add(0, 1)
	s.meters.ConfigLoaded.Set(time.Now().Unix())
	return nil
}

// ReloadFailed counts a reload that ended before Reload, with a config that
// could not be read.
func (s *Server) ReloadFailed() { s.meters.ConfigReloadFailures.Add(0, 1) }

// retire closes what only the old graph has, after its last request. Graphs
// are closed in their order: a part that went from one to the next is in use
// by both. The goroutine ends with the last request or with Run, which waits.
func (s *Server) retire(old, next *graph) {
	old.setup.Plain.Retire()
	old.setup.Secure.Retire()
	s.leaving[old] = true
	for _, r := range old.sockets {
		if !next.hasSocket(r.handler) {
			// At once: its event streams and the WebSockets over HTTP/2 are
			// requests that would keep the old graph for as long as they like.
			s.retired.Go(r.handler.Leave)
		}
	}
	s.retired.Go(func() {
		defer close(old.closed)
		for _, idle := range []<-chan struct{}{old.before, old.setup.Plain.Idle(), old.setup.Secure.Idle()} {
			select {
			case <-idle:
			case <-s.ended:
			}
		}
		s.mu.Lock()
		delete(s.leaving, old)
		s.mu.Unlock()
		if err := old.close(next); err != nil {
			s.errors.Warn("closing what the old config had open", "err", err)
		}
	})
}

// ReopenLogs opens the log file again by its name, after it has been rotated.
func (s *Server) ReopenLogs() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.setup.Log.Reopen()
}

// Addrs are the URLs under which the site is served.
func (s *Server) Addrs() []string { return s.server.Addrs() }

// AdminAddr is where the admin listener is, empty when it is off.
func (s *Server) AdminAddr() string { return s.admin.Addr() }

// Warning is what the operator should know about the addresses in use, empty
// when there is nothing.
func (s *Server) Warning() string { return s.admin.Warning() }
