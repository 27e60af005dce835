package millrace

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"runtime/debug"
	"sync"

	"millrace/internal/engine"
)

// Server is a running server. It is an [http.Handler] as well: mounted in
// another server it answers with everything but the fast lane.
type Server struct {
	engine *engine.Server

	mu    sync.Mutex
	state state
	end   context.CancelFunc // of Run
	ended chan struct{}      // closed when Run has returned
}

type state int

const (
	fresh state = iota
	running
	over
)

// errClosed is what Run says of a server that has been closed.
var errClosed = errors.New("millrace: the server was closed, or is running already: make another one with New")

// New opens everything that c asks for, addresses included, or fails and leaves
// nothing open. The server must be closed, or run until its context ends.
func New(c Config) (*Server, error) {
	cfg, err := c.internal()
	if err != nil {
		return nil, err
	}
	version, revision := built()
	s, err := engine.New(cfg, engine.Options{
		Version:   version,
		Revision:  revision,
		ErrorLog:  c.ErrorLog,
		Worker:    c.ImageWorker,
		Listeners: c.Listeners,
	})
	if err != nil {
		return nil, err
	}
	return &Server{engine: s, ended: make(chan struct{})}, nil
}

// built is the version of this module in the program, and the program's commit.
func built() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", ""
	}
	self := reflect.TypeFor[Config]().PkgPath()
	for _, m := range info.Deps {
		if m.Path == self {
			version = m.Version
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return version, revision
}

// Run serves until ctx ends, and then drains: no new connections, running
// requests end, for as long as limits.drain_timeout says. The error says which
// requests were cut off. Everything is closed when it returns.
func (s *Server) Run(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	s.mu.Lock()
	if s.state != fresh {
		s.mu.Unlock()
		return errClosed
	}
	s.state, s.end = running, end
	s.mu.Unlock()
	defer close(s.ended)
	return s.engine.Run(ctx)
}

// Close ends the server at once: requests that are still being answered are cut
// off. It waits for Run, and closes what Run would have where that was never
// called. Then nobody may call ServeHTTP any more.
func (s *Server) Close() error {
	s.mu.Lock()
	before := s.state
	s.state = over
	s.mu.Unlock()
	switch before {
	case running:
		_ = s.engine.Close() // Run has its error
		<-s.ended
	case fresh:
		ctx, end := context.WithCancel(context.Background())
		end()
		return s.engine.Run(ctx)
	}
	return nil
}

// Reload puts another config into effect without dropping a connection. After an
// error the old one goes on. What the two have in common lives on: caches,
// WebSockets, finished answers of the fast lane. Listeners that c does not have
// any more are closed.
func (s *Server) Reload(c Config) error {
	cfg, err := c.internal()
	if err != nil {
		s.engine.ReloadFailed(err)
		return err
	}
	return s.engine.ReloadWith(cfg, c.Listeners)
}

// Addrs are the URLs under which the server answers, with the ports that the
// system has chosen for port 0. One that listens at every address of the machine
// is at localhost, or at 0.0.0.0 or [::] if that is for one family alone.
func (s *Server) Addrs() []string { return s.engine.Addrs() }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.engine.ServeHTTP(w, r) }
