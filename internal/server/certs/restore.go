package certs

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/internal/server"
)

// This file puts back what a shared store has lost: a Redis that was restarted may be empty,
// while each machine has a copy in its folder.
//
// The store has a mark. Who finds another one than before, or none, compares its copies with
// what is stored. What is missing it writes, while it holds a lock that no certificate is
// ordered under. Of two certificates for a name the later one counts.
//
// Example: the store has been emptied, a machine starts and finds no certificate. It claims the
// lock for ordering one, and waits for settle. Within that, the others have found the
// mark missing and have claimed the lock for putting back. So the machine waits for
// them, and finds the certificate.

const (
	// lookEvery is how often the mark is read: well within settle.
	lookEvery = time.Second
	// compareEvery is after how long all is compared although the mark is there: a store may
	// lose one object alone.
	compareEvery = time.Hour
	markKey      = "mark"
	restoreLock  = "restore"
	// mostCompared is how many folders are compared at once.
	mostCompared = 16
)

// watch puts back what the store has lost, until ctx ends. It calls found after each
// comparison, with how many folders were put back and the names for which the store has a
// later certificate than this machine.
func (s *shared) watch(ctx context.Context, found func(restored int, later []string)) {
	var mark string
	var next time.Time // the next comparison at the latest
	for ctx.Err() == nil {
		now, err := s.get(ctx, markKey)
		lost := errors.Is(err, fs.ErrNotExist)
		if lost || err == nil && (string(now) != mark || time.Now().After(next)) {
			restored, later, done := s.restore(ctx)
			if done && lost {
				now = []byte(rand.Text())
				done = s.put(ctx, markKey, now) == nil
			}
			if done {
				mark, next = string(now), time.Now().Add(compareEvery)
			}
			found(restored, later)
		}
		_ = pause(ctx, lookEvery) // ctx is looked at above
	}
}

// restore writes what the store lacks. It is not done where the store failed, or where
// certificates are ordered at this moment.
func (s *shared) restore(ctx context.Context) (restored int, later []string, done bool) {
	lost, later, err := s.compare(ctx)
	if err != nil || len(lost) == 0 {
		return 0, later, err == nil
	}
	if err := s.Lock(ctx, restoreLock); err != nil {
		return 0, later, false
	}
	defer func() { _ = s.Unlock(ctx, restoreLock) }()  // it ends by itself
	if lost, later, err = s.compare(ctx); err != nil { // another machine may have been here
		return 0, later, false
	}
	done = true
	waited := false
	for _, c := range lost {
		if s.ordered(ctx, c.name) && !waited {
			waited = true
			_ = pause(ctx, callTime+settle) // who has only claimed the lock gives way meanwhile
		}
		if s.ordered(ctx, c.name) {
			done = false
			continue
		}
		for key, value := range c.files {
			if s.put(ctx, key, value) != nil {
				return restored, later, false
			}
		}
		restored++
	}
	return restored, later, done
}

// ordered reports whether somebody has the lock under which a name's certificate is ordered.
func (s *shared) ordered(ctx context.Context, name string) bool {
	if name == "" {
		return false
	}
	_, err := s.get(ctx, "locks/issue_cert_"+name)
	return !errors.Is(err, fs.ErrNotExist)
}

// files are the copies of a folder, by key: a certificate with its key, an account with its
// key, the root of the internal CA with its key. They belong together.
type files struct {
	name  string    // that a certificate is for; "": it is none
	cert  string    // the certificate's key in files
	from  time.Time // when it begins
	files map[string][]byte
}

// compare returns the copies that the store lacks, or has an earlier certificate of, and the
// names for which it has a later one.
func (s *shared) compare(ctx context.Context) (lost []files, later []string, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, mostCompared)
	for dir, keys := range s.copies() {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			c, ok := s.copyOf(ctx, dir, keys)
			if !ok {
				return
			}
			is, bad := s.compareOne(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case bad != nil:
				err = bad
			case is == storeLacks:
				lost = append(lost, c)
			case is == storeLater:
				later = append(later, c.name)
			}
		})
	}
	all.Wait()
	return lost, later, err
}

// What the store has of a copy.
type stored int

const (
	storeSame stored = iota
	storeLacks
	storeLater
)

func (s *shared) compareOne(ctx context.Context, c files) (stored, error) {
	missing := false
	for key, mine := range c.files {
		value, err := s.get(ctx, key)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = true
		case err != nil:
			return storeSame, err
		case bytes.Equal(value, mine):
		case c.name == "":
			return storeSame, nil // others have made another account, which counts
		case key == c.cert:
			_, from, ok := validFrom(value, nil)
			if ok && from.After(c.from) {
				return storeLater, nil
			}
			missing = true // it is earlier, or damaged
		}
	}
	if missing {
		return storeLacks, nil
	}
	return storeSame, nil
}

// copies are the keys of the local folder, by the folders below it.
func (s *shared) copies() map[string][]string {
	found := map[string][]string{}
	for _, top := range []string{"certificates", "acme", server.CAInternal} {
		root := filepath.Join(s.folder.Path, top)
		_ = filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil //nolint:nilerr // what cannot be read is no copy
			}
			rel, err := filepath.Rel(s.folder.Path, file)
			if key := filepath.ToSlash(rel); err == nil && copied(key) {
				found[path.Dir(key)] = append(found[path.Dir(key)], key)
			}
			return nil
		})
	}
	return found
}

// copyOf reads the copies of a folder, and reports whether they are of use: certificates that
// have ended, or have lost their keys, are not.
func (s *shared) copyOf(ctx context.Context, dir string, keys []string) (files, bool) {
	c := files{files: map[string][]byte{}}
	var cert, key []byte
	for _, k := range keys {
		value, err := s.folder.Load(ctx, k)
		if err != nil || len(value) == 0 {
			return c, false
		}
		c.files[k] = value
		switch {
		case !strings.HasPrefix(dir, "certificates/"):
		case strings.HasSuffix(k, ".crt"):
			c.cert, cert = k, value
		case strings.HasSuffix(k, ".key"):
			key = value
		}
	}
	if !strings.HasPrefix(dir, "certificates/") {
		return c, len(c.files) > 0
	}
	if cert == nil || key == nil {
		return c, false
	}
	var ok bool
	c.name, c.from, ok = validFrom(cert, key)
	return c, ok
}

// validFrom reads a certificate, with its key if that is not nil: the name that it is for, and when
// it begins. It reports false for one that has ended.
func validFrom(cert, key []byte) (name string, from time.Time, ok bool) {
	if key != nil {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			return "", time.Time{}, false
		}
	}
	block, _ := pem.Decode(cert)
	if block == nil {
		return "", time.Time{}, false
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil || time.Now().After(leaf.NotAfter) {
		return "", time.Time{}, false
	}
	switch {
	case len(leaf.DNSNames) > 0:
		name = leaf.DNSNames[0]
	case len(leaf.IPAddresses) > 0:
		name = leaf.IPAddresses[0].String()
	}
	return name, leaf.NotBefore, name != ""
}

// watchStore puts back what the shared store has lost, until Close.
func (m *Manager) watchStore() {
	m.shared.watch(m.ctx, func(restored int, later []string) {
		if restored > 0 {
			m.errors.Warn("the store of the certificates has lost some; what this machine has was put back", "folders", restored)
		}
		for _, name := range later {
			m.adopt(name)
		}
	})
}

// adopt takes the stored certificate of a name instead of what is in memory.
func (m *Manager) adopt(name string) {
	if !m.has(name) {
		return
	}
	before := m.cache.AllMatchingCertificates(name)
	fresh, err := m.state.Load().configOf(name).CacheManagedCertificate(m.ctx, name)
	if err != nil {
		return // what is in memory is valid, too
	}
	var gone []string
	for _, c := range before {
		if c.Hash() != fresh.Hash() && slices.Contains(c.Names, name) {
			gone = append(gone, c.Hash())
		}
	}
	m.cache.Remove(gone)
}
