package engine

import (
	"fmt"
	"io"
	"slices"
	"time"

	"millrace/internal/ops/admin"
	"millrace/internal/server"
	"millrace/store"
)

// certifier gets certificates from a CA. It is internal/server/certs' Manager, which a small
// build does not have.
type certifier interface {
	server.Certifier
	io.Closer
	Manage(names, addrs []string) error
	Status() []admin.Certificate
}

// keptFor is how long a Redis keeps certificates and the account with the CA: they
// are renewed long before. certificateCall is how long it may take for a call.
const (
	keptFor         = 2 * 365 * 24 * time.Hour
	certificateCall = time.Second
)

// certificates reuses the certifier of the old graph, or makes one.
func (b *builder) certificates() error {
	o := b.config.TLS.Auto
	if o == nil || len(b.config.TLS.Listen) == 0 {
		return nil
	}
	var hosts []string
	for _, s := range b.config.Sites {
		hosts = append(hosts, s.Hosts...)
	}
	slices.Sort(hosts)
	b.next.certified = o.Wanted(hosts)
	settings := *o
	settings.Hosts = nil // these may change without a loss
	var kept store.Store
	if o.Shared() {
		var err error
		kept, err = reuseOrOpen(b, keyOf("certificates' store", o.Storage), func() (store.Store, io.Closer, error) {
			u := b.shared("certificates")
			s, err := openStore(o.Storage, keptFor, certificateCall, u)
			return s, u, err
		})
		if err != nil {
			return fmt.Errorf("storage: %w", err)
		}
	}
	auto, err := reuseOrOpen(b, keyOf("certificates", settings), func() (certifier, io.Closer, error) {
		c, err := openCertifier(*o, kept, b.server.errors)
		return c, c, err
	})
	if err != nil {
		return err
	}
	b.next.auto, b.next.setup.Auto = auto, auto
	return nil
}

// manage tells the certifier the names of the graph that serves now.
func (s *Server) manage() error {
	if s.graph.auto == nil {
		return nil
	}
	return s.graph.auto.Manage(s.graph.certified, s.server.Addrs())
}

// certificates lists the certificates from a CA.
func (s *Server) certificates() []admin.Certificate {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.graph.auto == nil {
		return nil
	}
	return s.graph.auto.Status()
}

// ConnectionLimits returns how many connections there may be, of all clients and of one
// address, and how many file descriptors the process may have; 0: that is not known.
func (s *Server) ConnectionLimits() (all, each, descriptors int) { return s.server.ConnectionLimits() }
