package engine

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/cache/purge"
	"millrace/internal/ops/dashboard"
	"millrace/internal/server"
	"millrace/internal/upstream"
)

// dashboard makes the operator's page.
func (s *Server) dashboard() *dashboard.Dashboard {
	return dashboard.New(dashboard.Source{
		Meters: s.meters, Recent: s.recent, Version: cmp.Or(s.options.Version, "dev"), Started: time.Now(),
		Gather:       s.measure,
		Upstreams:    s.upstreams,
		Stores:       s.shared.list,
		Certificates: s.Certificates,
		Maintenance: func() (bool, time.Time) {
			m := s.Maintenance()
			return m.On, m.Since
		},
		Draining: func() bool { return s.server.Draining() },
		Addrs:    s.Addrs,
		Warning:  func() string { return s.admin.Warning() },
		Unread:   s.notReloaded,
		Panels:   s.slowPanels,
		Pages:    s.boardPages(),
		Troubles: s.troubles,
	}, dashboard.Actions{
		Purge: s.purge, Drain: s.drain, Maintenance: s.SetMaintenance, Reload: s.options.Reload,
	}, s.errors)
}

// profiled is Profiled for profiles that were taken by the admin listener.
func (s *Server) profiled(profile []byte) {
	if err := s.Profiled(profile); err != nil {
		s.errors.Warn("the dashboard does not show a profile", "err", err)
	}
}

// Profiled keeps a CPU profile of this process for the dashboard. An error says why
// it cannot.
func (s *Server) Profiled(profile []byte) error {
	if s.board == nil {
		return nil
	}
	return s.board.Profiled(profile)
}

// pools are the upstreams in use, by their names on the dashboard.
func (s *Server) pools() map[string]*upstream.Pool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pools := map[string]*upstream.Pool{}
	for _, key := range s.graph.opened {
		p, ok := s.graph.parts[key].what.(*upstream.Pool)
		if !ok {
			continue
		}
		var to []string
		for _, one := range p.Servers() {
			to = append(to, one.Address)
		}
		name := strings.Join(to, " ")
		for n := 2; pools[name] != nil; n++ { // the same servers with other options
			name = fmt.Sprintf("%s (%d)", strings.Join(to, " "), n)
		}
		pools[name] = p
	}
	return pools
}

func (s *Server) upstreams() []dashboard.Upstream {
	var list []dashboard.Upstream
	for name, p := range s.pools() {
		waiting := p.Waiting()
		for _, one := range p.Servers() {
			list = append(list, dashboard.Upstream{
				Pool: name, Address: one.Address, Healthy: one.Healthy, Drained: one.Drained, Open: one.Open,
				Running: one.Running, Streams: one.Streams, Waiting: waiting, Latency: one.Latency, Requests: one.Requests, Fails: one.Fails,
			})
		}
	}
	slices.SortStableFunc(list, func(a, b dashboard.Upstream) int { return strings.Compare(a.Pool, b.Pool) })
	return list
}

// drain takes a server out of its pool, or puts it back.
func (s *Server) drain(pool, address string, on bool) error {
	p := s.pools()[pool]
	if p == nil {
		return fmt.Errorf("there are no such upstreams any more: %s", pool)
	}
	return p.Drain(address, on)
}

// Certificates are the certificates from a CA, and those of files.
func (s *Server) Certificates() []dashboard.Certificate {
	var list []dashboard.Certificate
	for _, c := range s.server.FileCertificates() {
		shown := dashboard.Certificate{Name: certified(c.Leaf), Issuer: issuer(c.Leaf), File: c.Files.Cert, From: c.Leaf.NotBefore, Until: c.Leaf.NotAfter}
		if c.Failed {
			shown.Error = "the changed files cannot be used; see the server's messages"
		}
		list = append(list, shown)
	}
	for _, c := range s.certificates() {
		shown := dashboard.Certificate{Name: c.Name, Issuer: c.Issuer, Error: c.LastError, Attempts: c.Attempts, Failures: c.Failures}
		if c.To != nil {
			shown.Until = *c.To
		}
		if c.Renewal != nil {
			shown.Renewal = *c.Renewal
		}
		list = append(list, shown)
	}
	return list
}

// mostNames is how many names of a certificate are shown.
const mostNames = 3

// certified names what a certificate is for, in short.
func certified(leaf *x509.Certificate) string {
	names := server.CertificateNames(leaf)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if more := len(names) - mostNames; more > 0 {
		names = append(names[:mostNames:mostNames], fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(names, ", "), leaf.Subject.CommonName, "no name")
}

func issuer(leaf *x509.Certificate) string {
	return cmp.Or(leaf.Issuer.CommonName, strings.Join(leaf.Issuer.Organization, " "))
}

// errNoCache is why nothing can be purged.
var errNoCache = errors.New("no route here has a cache")

// purge removes from every cache what a pattern matches: a URL, one with stars, or a star
// for everything.
func (s *Server) purge(ctx context.Context, what string) error {
	selector := purge.Selector{URL: what}
	switch {
	case what == "*":
		selector = purge.Selector{All: true}
	case strings.Contains(what, "*"):
		selector = purge.Selector{Glob: what}
	}
	if err := selector.Check(); err != nil {
		return err //nolint:wrapcheck // says it all
	}
	all := s.controlled()
	if len(all) == 0 {
		return errNoCache
	}
	for _, c := range all {
		if err := c.Purge(ctx, selector); err != nil {
			return err
		}
	}
	return nil
}
