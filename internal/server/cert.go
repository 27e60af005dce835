package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
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
	c.cert, c.key, c.stamp, c.pair, c.looked = cert, key, stamp, &pair, time.Now()
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
	if stamp == c.stamp {
		return c.pair, nil
	}
	c.stamp = stamp
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		c.errors.Warn("the changed TLS certificate cannot be used; the old one stays", "cert", c.cert, "key", c.key, "err", err)
		return c.pair, nil
	}
	c.pair = &pair
	c.errors.Info("read the changed TLS certificate", "cert", c.cert)
	return c.pair, nil
}
