// Package engine puts a site on the net: one server that is built from a
// config, serves it, and takes a new config without dropping a connection. The
// commands of millrace use it, and package millrace for other programs.
//
//	srv, err := engine.New(cfg, engine.Options{Version: "1.0"})
//	…
//	err = srv.Run(ctx) // until ctx ends; then it drains
//
// New binds every address and builds every job, or fails and leaves nothing
// running. Reload builds a new graph beside the old one and swaps them; the old
// one closes when its last request has ended. build.go has the builder, and each
// job a file of its own.
package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/access/admit"
	"millrace/internal/config"
	"millrace/internal/lane"
	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/meter"
	"millrace/internal/observe/redact"
	"millrace/internal/ops/admin"
	"millrace/internal/ops/dashboard"
	"millrace/internal/ops/slow"
	"millrace/internal/process/gogc"
	"millrace/internal/process/handover"
	"millrace/internal/server"
	"millrace/internal/upstream/spool"
	"millrace/static/packfile"
)

// Options are what does not come from the config.
type Options struct {
	Version  string       // for the metrics; empty is "dev"
	Revision string       // the commit, if known
	ErrorLog *slog.Logger // nil is slog.Default(); tokens and passwords do not reach it
	// Worker starts a process that converts images: a program that calls
	// images/worker's Main, and its arguments. Empty: they are converted in
	// this process, which then needs the memory for it.
	Worker []string
	// Reload is called by POST /reload on the admin listener: it should read
	// the config again and call Server.Reload. Nil: there is no such route.
	Reload func() error
	// Upgrade is called by POST /upgrade: it should start this program anew, and
	// return when that has taken over. Nil: there is no such route.
	Upgrade func() error
	// Packed has the folders of a packed site, by the roots that the config
	// names. Nil: they are on disk.
	Packed *packfile.Site
	// Sockets listen already, as those of a systemd socket unit do: each is used
	// where the config listens at its address.
	Sockets []*os.File
	// Listeners are plain ones that the program has opened. They are closed with
	// the server, or by a reload that does not have them any more.
	Listeners []net.Listener
	// From is the process that this one replaces; nil: none.
	From *handover.Predecessor
}

// Server is a site being served.
type Server struct {
	options Options
	errors  *slog.Logger
	meters  *meter.Meters
	shared  *sharedStores
	admin   *admin.Admin // nil when off
	server  *server.Server
	garbage *gogc.Governor
	outside sync.Once            // counts the clients of ServeHTTP
	limits  *admit.Table         // what rate limits have counted
	proofs  []byte               // signs the proofs of clients, where a config has no secret for it
	recent  *accesslog.Recent    // the latest requests; nil without an admin listener
	slow    *slow.Store          // the same: requests that took long
	board   *dashboard.Dashboard // the same
	room    *spool.Room          // buffers of bodies that one side has sent and the other has not read

	mu              sync.RWMutex // held by Reload, ReopenLogs and the end of Run; for reading, while the operator works with a cache
	graph           *graph
	config          *config.Config         // of the graph
	freed           bool                   // the folders that only one process may open were closed for a successor
	closed          *Maintenance           // set by a command; nil: the config decides
	maintenanceSent bool                   // closed was sent to a successor
	unread          atomic.Pointer[string] // why the last reload failed; nil if it did not
	// predecessors is how many processes there were before this one, each of which
	// has handed over to the next.
	predecessors int
	successor    atomic.Pointer[handover.Successor] // gets the purges that this process gets; nil: there is none
	leaving      map[*graph]bool                    // replaced by a reload, and not closed yet
	serial       uint64                             // the last site number given out
	builds       int                                // graphs that were built, or failed to be
	retired      sync.WaitGroup
	ended        chan struct{} // closed when Run is over: nobody waits for requests any more
}

// New builds everything that cfg asks for and binds all of its addresses.
func New(cfg *config.Config, o Options) (*Server, error) {
	s := newServer(cfg, o)
	if cfg.Admin.Listen != config.Off {
		s.recent = accesslog.NewRecent()
		s.slow = s.keepSlow()
		s.board = s.dashboard()
	}
	s.inheritState()
	g, err := s.build(cfg, nil)
	if err != nil {
		return nil, err
	}
	s.server, err = server.New(g.setup, cfg.Lane, s.meters, s.errors)
	if err != nil {
		return nil, errors.Join(err, g.close(nil))
	}
	s.server.CollectSooner(s.garbage.CollectSooner)
	s.graph = g
	g.serves(s.errors)
	s.keep(cfg)
	if err := s.openAdmin(cfg); err != nil {
		s.server.Close()
		return nil, errors.Join(err, g.close(nil))
	}
	if err := s.manage(); err != nil {
		s.server.Close()
		return nil, errors.Join(err, s.admin.Close(), g.close(nil))
	}
	if from := o.From; from != nil {
		s.warmUp(from.State.Hot)
		from.Sockets.Close() // what is used has descriptors of its own
		s.options.Sockets, s.options.From = nil, nil
	}
	s.garbage.Budget(budget(cfg))
	s.meters.ConfigLoaded.Set(time.Now().Unix())
	cfg.Forget()
	returnMemory(cfg)
	return s, nil
}

// manySites is from how many sites on the garbage of reading and building a config,
// some 20 KiB for each site, is worth a collection of its own.
const manySites = 1000

// returnMemory gives the memory back to the system that building a large config took.
func returnMemory(cfg *config.Config) {
	if len(cfg.Sites) >= manySites {
		debug.FreeOSMemory()
	}
}

// newServer is a server without a graph: nothing is open.
func newServer(cfg *config.Config, o Options) *Server {
	s := &Server{options: o, errors: o.ErrorLog, meters: meter.New(), garbage: gogc.New(), limits: admit.NewTable(), ended: make(chan struct{}), leaving: map[*graph]bool{}}
	if s.errors == nil {
		s.errors = slog.Default()
	}
	s.errors = slog.New(redact.Handler(s.errors.Handler()))
	s.shared = &sharedStores{meters: s.meters}
	s.room = spool.NewRoom(cfg.Buffers, s.errors)
	s.proofs = []byte(rand.Text()) // 130 bits
	s.config = cfg
	return s
}

// Clients are all that are connected.
func (s *Server) Clients() *meter.Presence { return &s.meters.Clients }

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
	watched, unwatch := context.WithCancel(context.Background())
	if s.board != nil && s.AdminAddr() != "" {
		adminDone.Go(func() { s.board.Run(watched) })
		adminDone.Go(func() { s.slow.Run(watched) })
	}
	err := s.server.Run(ctx)
	close(s.ended)
	unwatch()
	err = errors.Join(err, s.admin.Close())
	adminDone.Wait()
	s.retired.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.garbage.Budget(0)
	return errors.Join(err, s.graph.close(nil))
}

// Close ends Run at once: requests that are still being answered are cut off.
func (s *Server) Close() error {
	s.server.Close()
	return nil
}

// ServeHTTP answers a request that came to another server. The fast lane has no
// part in it, nor has that of a Millrace around this one. It must not be called
// any more when Run or Close is.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.outside.Do(func() { s.meters.Clients.Add(1) }) // it is not known when they connect
	s.server.ServeHTTP(w, lane.Outside(r))
}

// ReloadWith is Reload with other listeners of the program's own.
func (s *Server) ReloadWith(cfg *config.Config, listeners []net.Listener) error {
	s.mu.Lock()
	old := s.options.Listeners
	s.options.Listeners = listeners
	s.mu.Unlock()
	err := s.Reload(cfg)
	if err != nil {
		s.mu.Lock()
		s.options.Listeners = old
		s.mu.Unlock()
	}
	return err
}

// Reload puts a new config into effect. When it cannot be built, or an address
// cannot be bound, the old one goes on unchanged. No connection is dropped;
// lane.memory, lane.off, limits.header_bytes, admin.listen
// and the size of a cache's folder take effect at the next start.
func (s *Server) Reload(cfg *config.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reload(cfg)
}

// reload is Reload. s.mu must be held.
func (s *Server) reload(cfg *config.Config) error {
	returnMemory(cfg) // what reading it took
	next, err := s.build(cfg, s.graph)
	if err == nil {
		if err = s.server.Reload(next.setup); err != nil {
			err = errors.Join(err, next.close(s.graph))
		}
	}
	if err != nil {
		s.ReloadFailed(err)
		return fmt.Errorf("the old config goes on serving: %w", err)
	}
	s.room.Limit(cfg.Buffers)
	old := s.graph
	s.graph = next
	next.serves(s.errors)
	s.keep(cfg)
	s.retire(old, next, cfg)
	if err := s.manage(); err != nil { // the files it reads have changed between two moments
		s.errors.Warn("new names get no certificates", "err", err)
	}
	if old.auto != nil && old.auto != next.auto {
		_ = old.auto.Manage(nil, nil) // it may be long until it is closed
	}
	s.garbage.Budget(budget(cfg))
	s.slow.Set(slowOptions(cfg))
	s.unread.Store(nil)
	s.meters.ConfigReloads.Add(0, 1)
	s.meters.ConfigLoaded.Set(time.Now().Unix())
	cfg.Forget()
	return nil
}

// Loading has garbage collected sooner until done is called: a config of many sites that is
// read and built takes as much memory as the one that serves, and makes much garbage.
func (s *Server) Loading() (done func()) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.collectSooner(s.config)
}

// collectSooner has garbage collected sooner until done is called, if a config is large.
func (s *Server) collectSooner(cfg *config.Config) (done func()) {
	if len(cfg.Sites) < manySites {
		return func() {}
	}
	return s.garbage.CollectSooner()
}

// ReloadFailed counts a reload that ended before Reload, with a config that
// could not be read. The dashboard shows why, until one succeeds.
func (s *Server) ReloadFailed(why error) {
	s.meters.ConfigReloadFailures.Add(0, 1)
	text := why.Error()
	s.unread.Store(&text)
}

// notReloaded is why the last reload failed; empty if it did not.
func (s *Server) notReloaded() string {
	if text := s.unread.Load(); text != nil {
		return *text
	}
	return ""
}

// retire closes the parts that only the old graph has, after its last request. Graphs are
// closed in their order, since a part that the next one reuses is in use by both. The
// goroutine ends with the last request or with Run, which waits.
func (s *Server) retire(old, next *graph, cfg *config.Config) {
	old.setup.Plain.Retire()
	old.setup.Secure.Retire()
	s.leaving[old] = true
	for _, r := range old.websockets {
		if !next.hasWebSocket(r.handler) {
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
		old = nil
		returnMemory(cfg)
	})
}

// ReopenLogs opens the log file again by its name, after it has been rotated.
func (s *Server) ReopenLogs() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.setup.Log.Reopen()
}

// ListenError says why an address cannot be served at.
type ListenError = server.ListenError

// InheritedSockets are what systemd has opened for this process by a socket
// unit, for [Options].Sockets.
func InheritedSockets() ([]*os.File, error) { return server.Inherited(os.Getenv) }

// TryAddress reports whether an address can be served at now, as a
// [*ListenError], without doing so.
func TryAddress(addr string) error { return server.Try(addr) }

// Addrs are the URLs under which the site is served.
func (s *Server) Addrs() []string { return s.server.Addrs() }
