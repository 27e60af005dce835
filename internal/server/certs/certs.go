// Package certs gets certificates by itself and renews them in time: from a CA
// that speaks ACME (RFC 8555), or from one of this machine's own. It is the only
// package that knows certmagic, which does the work.
package certs

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"millrace/internal/server"
	"millrace/store"
)

// renewEvery is how often it is looked for certificates to renew. For those of
// days certmagic's 10 minutes would do; a look costs microseconds, and so those
// of a minute are renewed in time as well.
const renewEvery = 10 * time.Second

// Manager gets certificates for names, keeps them in a folder, and renews them.
// Make it with [Open].
type Manager struct {
	options server.AutoOptions
	errors  *slog.Logger
	zap     *zap.Logger
	storage certmagic.Storage
	folder  *certmagic.FileStorage // storage, or the copy of what is shared
	shared  *shared                // storage, where it is not a folder
	cache   *certmagic.Cache
	history history
	refused refusals
	slots   chan struct{}   // one for each attempt under way
	lookups chan struct{}   // one for each challenge that is looked for
	ctx     context.Context // of all that is under way; ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup                                 // of jobs
	issuers func(next *state, names, addrs []string) error // gives a state those to ask in turn

	mu    sync.Mutex      // held by Manage and Close
	jobs  map[string]*job // by name
	state atomic.Pointer[state]
}

// state is what Manage has decided last.
type state struct {
	config  *certmagic.Config     // of names
	demand  *certmagic.Config     // of all others, nil where nothing is on demand
	prover  *certmagic.ACMEIssuer // answers challenges; nil without a CA that asks any over HTTP
	clients []*http.Client        // of the CAs
	names   map[string]bool
}

// configOf is what a name's certificate comes by.
func (s *state) configOf(name string) *certmagic.Config {
	if s.demand == nil || s.knows(name) {
		return s.config
	}
	return s.demand
}

// knows reports whether there is to be a certificate for a name in any case.
func (s *state) knows(name string) bool {
	_, parent, ok := strings.Cut(name, ".")
	return s.names[name] || ok && s.names["*."+parent]
}

// Open makes a Manager. It gets no certificate before Manage. It fails when the
// folder for them cannot be used. Certificates are in kept, too, where that is not
// nil: several machines share it. It is the caller's to close, after Close.
func Open(o server.AutoOptions, kept store.Store, errorLog *slog.Logger) (*Manager, error) {
	named := o.Storage
	if kept != nil {
		named = "" // a URL
	}
	folder, err := server.CertificateFolder(named)
	if err != nil {
		return nil, err
	}
	if err := usable(folder); err != nil {
		return nil, err
	}
	dropDeadLocks(folder, errorLog)
	roots, err := readRoots(o.CARoots)
	if err != nil {
		return nil, err
	}
	if err := checkDirectories(context.Background(), o, roots); err != nil {
		return nil, err
	}
	m := &Manager{
		options: o, errors: errorLog, zap: newZap(errorLog), folder: &certmagic.FileStorage{Path: folder},
		slots: make(chan struct{}, mostAtOnce), lookups: make(chan struct{}, mostLookups), jobs: map[string]*job{},
	}
	m.issuers, m.storage = m.askCAs, m.folder
	if kept != nil {
		if m.shared, err = newShared(kept, o.StorageSecret, m.folder); err != nil {
			return nil, err
		}
		m.storage = m.shared
	}
	m.history.of = map[string]*Attempts{}
	m.refused.of = map[string]map[string]refusal{}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.cache = certmagic.NewCache(m.cacheOptions(0))
	m.state.Store(&state{config: certmagic.New(m.cache, certmagic.Config{Storage: m.storage, Logger: m.zap})})
	if m.shared != nil {
		m.running.Go(m.watchStore)
	}
	return m, nil
}

// mostOnDemand is how many certificates on demand are in memory; further ones are
// read when a client wants them. One has about 10 KB.
const mostOnDemand = 10000

// cacheOptions are those for so many names that are known beforehand.
func (m *Manager) cacheOptions(names int) certmagic.CacheOptions {
	o := certmagic.CacheOptions{
		GetConfigForCert: func(c certmagic.Certificate) (*certmagic.Config, error) {
			return m.state.Load().configOf(c.Names[0]), nil // it has one
		},
		RenewCheckInterval: renewEvery,
		Logger:             m.zap,
	}
	if m.options.OnDemand.Ask != "" {
		o.Capacity = names + mostOnDemand
	}
	return o
}

// Close ends what is under way. Certificates that are kept stay where they are.
func (m *Manager) Close() error {
	m.mu.Lock()
	closed := m.ctx.Err() != nil
	m.cancel()
	m.mu.Unlock() // jobs take it at their end
	if closed {
		return nil
	}
	m.cache.Stop()
	done := make(chan struct{})
	go func() { // ends with the jobs
		m.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeTime):
	}
	m.state.Load().leave()
	certmagic.CleanUpOwnLocks(context.Background(), m.zap)
	if m.shared != nil {
		m.shared.release()
	}
	return nil
}

// leave closes connections to CAs.
func (s *state) leave() {
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
}

// Manage sees to it that there are certificates for these names from now on, and
// returns at once. addrs is where this process listens, as URLs: a CA's requests
// arrive there.
func (m *Manager) Manage(names, addrs []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return nil
	}
	next, err := m.newState(names, addrs)
	if err != nil {
		return err
	}
	m.cache.SetOptions(m.cacheOptions(len(names)))
	old := m.state.Swap(next)
	old.leave()
	var gone []certmagic.SubjectIssuer
	for name := range old.names {
		if next.names[name] {
			continue
		}
		gone = append(gone, certmagic.SubjectIssuer{Subject: name})
		m.history.forget(name)
		if j := m.jobs[name]; j != nil {
			j.stop()
			delete(m.jobs, name)
		}
	}
	m.cache.RemoveManaged(gone)
	var wanted []string
	for _, name := range names {
		switch j := m.jobs[name]; {
		case j != nil:
			select {
			case j.wake <- struct{}{}:
			default:
			}
		case !m.has(name):
			wanted = append(wanted, name)
		}
	}
	missing, err := m.read(next.config, wanted)
	for _, name := range missing {
		m.start(name)
	}
	return err
}

func (m *Manager) newState(names, addrs []string) (*state, error) {
	next := &state{names: map[string]bool{}}
	for _, name := range names {
		next.names[name] = true
	}
	next.config = certmagic.New(m.cache, certmagic.Config{
		Storage:           m.storage,
		Logger:            m.zap,
		OnEvent:           m.happened,
		DefaultServerName: first(names),
	})
	next.config.Issuers = nil
	if err := m.issuers(next, names, addrs); err != nil {
		return nil, err
	}
	if ask := m.onDemand(); ask != nil {
		demand := *next.config
		demand.OnDemand = ask
		next.demand = &demand
	}
	return next, nil
}

// askCAs gives a state the issuers of the options.
func (m *Manager) askCAs(next *state, names, addrs []string) error {
	roots, err := readRoots(m.options.CARoots)
	if err != nil {
		return err
	}
	for _, ca := range authorities(m.options.CA) {
		if ca == server.CAInternal {
			next.config.Issuers = append(next.config.Issuers, &local{storage: m.storage})
			continue
		}
		issuer := m.newACME(ca, listening(addrs))
		issuer.Profile = m.options.ProfileFor(ca, names)
		issuer.TrustedRoots = roots
		one := certmagic.NewACMEIssuer(next.config, issuer)
		client, err := throttle(one, &m.refused)
		if err != nil {
			return err
		}
		next.clients = append(next.clients, client)
		next.config.Issuers = append(next.config.Issuers, one)
		if next.prover == nil && !one.DisableHTTPChallenge {
			next.prover = one
		}
	}
	return nil
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// ports is where CAs reach this process. A port that is 0 is none of ours.
type ports struct {
	host        string
	http, https int
}

// listening reads the URLs of listeners. Of several, the first of a kind is
// where a challenge is expected; certmagic only looks whether somebody answers.
func listening(addrs []string) ports {
	var p ports
	for _, a := range addrs {
		u, err := url.Parse(a)
		if err != nil {
			continue
		}
		host, text, err := net.SplitHostPort(u.Host)
		port, bad := strconv.Atoi(text)
		if err != nil || bad != nil {
			continue
		}
		if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
			host = ""
		}
		switch {
		case u.Scheme == "http" && p.http == 0:
			p.host, p.http = host, port
		case u.Scheme == "https" && p.https == 0:
			p.host, p.https = host, port
		}
	}
	return p
}

// newACME is what certmagic needs to know of a CA.
func (m *Manager) newACME(ca string, at ports) certmagic.ACMEIssuer {
	o := m.options
	issuer := certmagic.ACMEIssuer{
		CA:     directoryOf(ca),
		TestCA: directoryOf(ca), // a second opinion of another CA would cost a second proof
		Email:  o.Email,
		Agreed: true, // docs/tls.md says that using it means that
		Logger: m.zap,
		// Its own listeners would be in the way of ours, which answer.
		ListenHost:     at.host,
		AltHTTPPort:    at.http,
		AltTLSALPNPort: at.https,

		DisableHTTPChallenge:    at.http == 0,
		DisableTLSALPNChallenge: at.https == 0,
	}
	if o.Account.KeyID != "" {
		issuer.ExternalAccount = externalAccount(o.Account)
	}
	if o.DNS != "" {
		issuer.DNS01Solver = &program{path: o.DNS}
	}
	return issuer
}

// Certificate implements [server.Certifier].
func (m *Manager) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	config := m.state.Load().configOf(normal(hello.ServerName))
	cert, err := config.GetCertificateWithContext(hello.Context(), hello)
	if err != nil || cert == nil || len(cert.Certificate) == 0 {
		return nil, nil // the client hears that the name is not known; what went wrong is in the log and in the status
	}
	return cert, nil
}

// normal is a host as it is in a list of names.
func normal(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// Certifies implements [server.Certifier].
func (m *Manager) Certifies(host string) bool {
	host = normal(host)
	return m.state.Load().knows(host) || len(m.cache.AllMatchingCertificates(host)) > 0
}

// mostLookups is how many challenges are looked for in the storage at once, where
// another machine may have left one: anybody can ask for some.
const mostLookups = 16

// Challenge implements [server.Certifier].
func (m *Manager) Challenge(w http.ResponseWriter, r *http.Request) bool {
	now := m.state.Load()
	if now.prover == nil || !certmagic.LooksLikeHTTPChallenge(r) {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if now.demand == nil && !now.names[normal(strings.Trim(host, "[]"))] {
		return false // nobody has asked for a certificate
	}
	select {
	case m.lookups <- struct{}{}:
		defer func() { <-m.lookups }()
	case <-r.Context().Done():
		return false
	}
	return now.prover.HandleHTTPChallenge(w, r)
}
