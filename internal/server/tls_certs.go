package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// certEvery is how often a handshake looks whether the files have changed.
const certEvery = time.Second

// certificates are pairs of files, each read again when it changes. A pair that
// cannot be used leaves the old one in place.
type certificates struct {
	errors *slog.Logger
	auto   atomic.Pointer[Certifier] // holds nil where certificates come from files alone
	looked atomic.Int64              // when the files were looked at, in Unix nanoseconds
	choice atomic.Pointer[choice]

	mu    sync.Mutex // held for the files
	pairs []*certificate
}

// certificate is one of them, as it was last read.
type certificate struct {
	files  KeyPair
	stamp  [2]fileStamp
	failed bool // the last try
	pair   *tls.Certificate
}

type fileStamp struct {
	size  int64
	mtime time.Time
}

// load reads the files, each of which must fit to its key.
func (c *certificates) load(files []KeyPair) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pairs := make([]*certificate, len(files))
	for i, f := range files {
		stamp := f.stamp()
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return fmt.Errorf("read the TLS certificate %s with the key %s: %w", f.Cert, f.Key, err)
		}
		for _, old := range c.pairs { // of the same certificate the staple is the same
			if old.files == f && bytes.Equal(old.pair.Certificate[0], pair.Certificate[0]) {
				pair.OCSPStaple = old.pair.OCSPStaple
			}
		}
		pairs[i] = &certificate{files: f, stamp: stamp, pair: &pair}
		c.warnOpen(f.Key)
	}
	c.pairs = pairs
	c.looked.Store(time.Now().UnixNano())
	c.choice.Store(newChoice(pairs))
	return nil
}

// othersRead is the permission that a private key should not have.
const othersRead = 0o004

// warnOpen says when every user of the machine can read a key.
func (c *certificates) warnOpen(key string) {
	if info, err := os.Stat(key); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&othersRead != 0 {
		c.errors.Warn("every user of this machine can read the key of a certificate: run `chmod 600 "+key+"`, as the user that owns it", "key", key, "mode", info.Mode().Perm())
	}
}

func (c *certificates) setCertifier(auto Certifier) {
	if auto == nil {
		c.auto.Store(nil)
		return
	}
	c.auto.Store(&auto)
}

// certifier has the certificates that come by themselves, nil for none.
func (c *certificates) certifier() Certifier {
	if p := c.auto.Load(); p != nil {
		return *p
	}
	return nil
}

func (f KeyPair) stamp() [2]fileStamp { return [2]fileStamp{stat(f.Cert), stat(f.Key)} }

func stat(path string) fileStamp {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info.Size(), info.ModTime()}
}

// get is for tls.Config.GetCertificate.
func (c *certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := time.Now().UnixNano()
	if last := c.looked.Load(); now-last >= int64(certEvery) && c.looked.CompareAndSwap(last, now) {
		c.look()
	}
	ch, auto := c.choice.Load(), c.certifier()
	if isChallenge(hello) {
		if auto == nil {
			return nil, errNoChallenge
		}
		return auto.Certificate(hello)
	}
	if cert := ch.forName(hello); cert != nil {
		return cert, nil
	}
	if auto != nil {
		if cert, err := auto.Certificate(hello); cert != nil || err != nil {
			return cert, err
		}
	}
	return ch.anyFor(hello), nil // nil: the client is told that the name is not known here
}

var errNoChallenge = errors.New("a CA asks for proof of a name, and no certificate was asked for here")

// look reads what has changed.
func (c *certificates) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := false
	for _, p := range c.pairs {
		if p.look(c.errors) {
			changed = true
		}
	}
	if changed {
		c.choice.Store(newChoice(c.pairs))
	}
}

// look reports whether there is a new certificate.
func (c *certificate) look(l *slog.Logger) bool {
	stamp := c.files.stamp()
	if stamp == c.stamp && !c.failed {
		return false
	}
	pair, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil {
		// Tried again at the next look: the reason may go without a change of
		// the files. It is told once.
		if !c.failed || stamp != c.stamp {
			l.Warn("the changed TLS certificate cannot be used; the old one stays", "cert", c.files.Cert, "key", c.files.Key, "err", err)
		}
		c.stamp, c.failed = stamp, true
		return false
	}
	c.stamp, c.failed, c.pair = stamp, false, &pair
	l.Info("read the changed TLS certificate", "cert", c.files.Cert)
	return true
}

// choice decides which client gets which certificate. It is immutable.
type choice struct {
	all []*tls.Certificate // the first is the default
	// named are the certificates for a name in lower case, which may begin with
	// "*.", the one to prefer in front.
	named map[string][]*tls.Certificate
}

func newChoice(pairs []*certificate) *choice {
	ch := &choice{named: map[string][]*tls.Certificate{}}
	for _, p := range pairs {
		ch.all = append(ch.all, p.pair)
		for _, name := range CertificateNames(p.pair.Leaf) {
			ch.named[name] = append(ch.named[name], p.pair)
		}
	}
	for _, those := range ch.named {
		slices.SortStableFunc(those, func(a, b *tls.Certificate) int { return costOf(a) - costOf(b) })
	}
	return ch
}

// CertificateNames are the names that a certificate is chosen for: those of its
// SAN extension, in lower case.
func CertificateNames(leaf *x509.Certificate) []string {
	var names []string
	for _, name := range leaf.DNSNames {
		if name = strings.ToLower(name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// costOf puts the signatures that cost us less first: ECDSA with P-256 takes a
// twentieth of what RSA with 2048 bits takes.
func costOf(c *tls.Certificate) int {
	if c.Leaf.PublicKeyAlgorithm == x509.RSA {
		return 1
	}
	return 0
}

// forName is the certificate for the name that a client asks for, nil if none is.
func (ch *choice) forName(hello *tls.ClientHelloInfo) *tls.Certificate {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	exact := ch.named[name]
	var wild []*tls.Certificate
	if _, parent, ok := strings.Cut(name, "."); ok {
		wild = ch.named["*."+parent]
	}
	if fitting := slices.Concat(exact, wild); len(fitting) > 0 {
		for _, c := range fitting {
			if len(fitting) == 1 || hello.SupportsCertificate(c) == nil {
				return c
			}
		}
		return fitting[0]
	}
	return nil
}

// anyFor is the certificate for a client that sends no name, or one that no
// certificate is for; nil if there are no certificates. If there is only one, it
// does not check what the client supports: the handshake will tell.
func (ch *choice) anyFor(hello *tls.ClientHelloInfo) *tls.Certificate {
	switch len(ch.all) {
	case 0:
		return nil
	case 1:
		return ch.all[0]
	}
	anyName := *hello
	anyName.ServerName = ""
	for _, c := range ch.all {
		if anyName.SupportsCertificate(c) == nil {
			return c
		}
	}
	return ch.all[0]
}

// names reports whether a certificate is for a host, given without a port.
func (c *certificates) names(host string) bool {
	if auto := c.certifier(); auto != nil && auto.Certifies(host) {
		return true
	}
	ch := c.choice.Load()
	if ch == nil {
		return false
	}
	host = strings.TrimSuffix(host, ".")
	return slices.ContainsFunc(ch.all, func(pair *tls.Certificate) bool { return pair.Leaf.VerifyHostname(host) == nil })
}

// FileCertificate is a certificate in use that was read from files.
type FileCertificate struct {
	Files  KeyPair
	Leaf   *x509.Certificate
	Failed bool // the files have changed since, and cannot be used
}

// FileCertificates lists the certificates in use that were read from files.
func (s *Server) FileCertificates() []FileCertificate {
	s.certs.mu.Lock()
	defer s.certs.mu.Unlock()
	list := make([]FileCertificate, 0, len(s.certs.pairs))
	for _, p := range s.certs.pairs {
		list = append(list, FileCertificate{p.files, p.pair.Leaf, p.failed})
	}
	return list
}

// Certifies reports whether a certificate in use is for a host.
func (s *Server) Certifies(host string) bool { return s.certs.names(host) }
