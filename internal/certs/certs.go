// Package certs gets certificates by itself and renews them in time: from a CA
// that speaks ACME (RFC 8555), or from one of this machine's own. It is the only
// package that knows certmagic, which does the work.
package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
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
	shared  *shared // storage, where it is not a folder
	cache   *certmagic.Cache
	history history
	ctx     context.Context // of all that is under way; ends with Close
	cancel  context.CancelFunc

	mu    sync.Mutex // held by Manage and Close
	state atomic.Pointer[state]
}

// state is what Manage has decided last.
type state struct {
	config  *certmagic.Config
	issuers []*certmagic.ACMEIssuer // those of config that speak ACME
	names   map[string]bool
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
	roots, err := readRoots(o.CARoots)
	if err != nil {
		return nil, err
	}
	if err := checkDirectories(context.Background(), o, roots); err != nil {
		return nil, err
	}
	m := &Manager{options: o, errors: errorLog, storage: &certmagic.FileStorage{Path: folder}}
	if kept != nil {
		if m.shared, err = newShared(kept, o.StorageSecret, folder); err != nil {
			return nil, err
		}
		m.storage = m.shared
	}
	m.zap = newZap(errorLog)
	m.history.of = map[string]*Attempts{}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert:   func(certmagic.Certificate) (*certmagic.Config, error) { return m.state.Load().config, nil },
		RenewCheckInterval: renewEvery,
		Logger:             m.zap,
	})
	m.state.Store(&state{config: certmagic.New(m.cache, certmagic.Config{Storage: m.storage, Logger: m.zap})})
	return m, nil
}

// Close ends what is under way. Certificates that are kept stay where they are.
func (m *Manager) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancel()
	m.cache.Stop()
	certmagic.CleanUpOwnLocks(context.Background(), m.zap)
	if m.shared != nil {
		m.shared.release()
	}
	return nil
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
	old := m.state.Swap(next)
	var gone []certmagic.SubjectIssuer
	for name := range old.names {
		if !next.names[name] {
			gone = append(gone, certmagic.SubjectIssuer{Subject: name})
		}
	}
	m.cache.RemoveManaged(gone)
	if err := next.config.ManageAsync(m.ctx, names); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	return nil
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
		OnDemand:          m.onDemand(),
	})
	next.config.Issuers = nil
	roots, err := readRoots(m.options.CARoots)
	if err != nil {
		return nil, err
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
		next.issuers = append(next.issuers, one)
		next.config.Issuers = append(next.config.Issuers, one)
	}
	return next, nil
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
	cert, err := m.state.Load().config.GetCertificateWithContext(hello.Context(), hello)
	if err != nil || cert == nil || len(cert.Certificate) == 0 {
		return nil, nil // the client hears that the name is not known; what went wrong is in the log and in the status
	}
	return cert, nil
}

// Certifies implements [server.Certifier].
func (m *Manager) Certifies(host string) bool {
	now := m.state.Load()
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if now.names[host] {
		return true
	}
	if _, parent, ok := strings.Cut(host, "."); ok && now.names["*."+parent] {
		return true
	}
	return len(m.cache.AllMatchingCertificates(host)) > 0
}

// Challenge implements [server.Certifier].
func (m *Manager) Challenge(w http.ResponseWriter, r *http.Request) bool {
	return slices.ContainsFunc(m.state.Load().issuers, func(i *certmagic.ACMEIssuer) bool { return i.HandleHTTPChallenge(w, r) })
}
