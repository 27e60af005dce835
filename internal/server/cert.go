package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// certEvery is how often a handshake looks whether the files have changed.
const certEvery = time.Second

// certificate is a pair of files, read again when they change. A pair that
// cannot be used leaves the old one in place.
type certificate struct {
	errors *slog.Logger

	mu        sync.Mutex
	cert, key string
	stamp     [2]fileStamp
	looked    time.Time
	failed    bool // the last try
	pair      *tls.Certificate
}

type fileStamp struct {
	size  int64
	mtime time.Time
}

// load reads the files, which must fit together.
func (c *certificate) load(cert, key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp := [2]fileStamp{stat(cert), stat(key)}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("read the TLS certificate %s with the key %s: %w", cert, key, err)
	}
	c.cert, c.key, c.stamp, c.pair, c.looked, c.failed = cert, key, stamp, &pair, time.Now(), false
	return nil
}

func stat(path string) fileStamp {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info.Size(), info.ModTime()}
}

// get is for tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < certEvery {
		return c.pair, nil
	}
	c.looked = time.Now()
	stamp := [2]fileStamp{stat(c.cert), stat(c.key)}
	if stamp == c.stamp && !c.failed {
		return c.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		// Tried again at the next look: the reason may go without a change of
		// the files. It is told once.
		if !c.failed || stamp != c.stamp {
			c.errors.Warn("the changed TLS certificate cannot be used; the old one stays", "cert", c.cert, "key", c.key, "err", err)
		}
		c.stamp, c.failed = stamp, true
		return c.pair, nil
	}
	c.stamp, c.failed, c.pair = stamp, false, &pair
	c.errors.Info("read the changed TLS certificate", "cert", c.cert)
	return c.pair, nil
}

// names reports whether the certificate is for a host, given without a port.
func (c *certificate) names(host string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pair != nil && c.pair.Leaf != nil && c.pair.Leaf.VerifyHostname(strings.TrimSuffix(host, ".")) == nil
}

// Certifies reports whether the certificate in use is for a host.
func (s *Server) Certifies(host string) bool { return s.certs.names(host) }

// tlsVersions are what tls.min_version may say.
var tlsVersions = map[string]uint16{"": tls.VersionTLS12, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o TLSOptions) Check() map[string]error {
	if tlsVersions[o.MinVersion] == 0 {
		return map[string]error{"min_version": fmt.Errorf("%q is no version of TLS that is spoken here: write \"1.2\" or \"1.3\"", o.MinVersion)}
	}
	return nil
}

// newTLS is what the TLS listeners agree to: of TLS 1.2 only forward secrecy
// with authenticated encryption, as RFC 9325 wants it, and no curve that nobody
// uses but who wants to see us compute.
func newTLS(o TLSOptions, certs *certificate) *tls.Config {
	return &tls.Config{
		MinVersion:     tlsVersions[o.MinVersion],
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: certs.get,
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256, tls.CurveP384},
	}
}
