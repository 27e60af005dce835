package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
)

// Bounds of the attempts to get first certificates. Renewals are certmagic's.
const (
	// mostAtOnce is how many attempts run at once, and how many certificates are read
	// at once. Certmagic asks a CA for at most 10 in 10 seconds.
	mostAtOnce = 100
	// spread is the time over which names that wait for the end of a rate limit are
	// spread, so that they do not all ask at once.
	spread = 30 * time.Second
	// closeTime is how long Close waits for attempts to end: a program that cleans
	// up the DNS may take longer.
	closeTime = 5 * time.Second
)

// retries are the times between failed attempts; the last one is repeated. Let's
// Encrypt takes five failed proofs of a name in an hour.
func retries() []time.Duration {
	return []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour}
}

// job gets the first certificate of a name. Its goroutine is started by Manage,
// which ends it when the name goes; Close waits for it.
type job struct {
	stop context.CancelFunc
	wake chan struct{} // a token: try soon, the cause of the failure may be gone
}

// read loads the certificates in the storage, and returns the names without a usable one
// there. It returns an error only where the operator must do something.
func (m *Manager) read(config *certmagic.Config, names []string) (missing []string, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, mostAtOnce)
	for _, name := range names {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			_, bad := config.CacheManagedCertificate(m.ctx, name)
			if bad == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			missing = append(missing, name)
			if errors.Is(bad, errOtherSecret) {
				err = bad
			}
		})
	}
	all.Wait()
	return missing, err
}

// start begins to get a name's certificate. m.mu must be held.
func (m *Manager) start(name string) {
	ctx, stop := context.WithCancel(m.ctx)
	j := &job{stop, make(chan struct{}, 1)}
	m.jobs[name] = j
	m.running.Go(func() {
		defer stop()
		m.obtain(ctx, name, j.wake)
		m.mu.Lock()
		if m.jobs[name] == j {
			delete(m.jobs, name)
		}
		m.mu.Unlock()
	})
}

// obtain tries until there is a certificate, or ctx ends.
func (m *Manager) obtain(ctx context.Context, name string, wake <-chan struct{}) {
	all := retries()
	for attempt := 0; ; attempt++ {
		err := m.try(ctx, name)
		if err == nil { // there is one, perhaps from another machine
			m.history.change(name, func(a *Attempts) { a.LastError, a.Next = "", time.Time{} })
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		failed := time.Now()
		next := failed.Add(all[min(attempt, len(all)-1)])
		for {
			if until := m.refusedUntil(name); until.After(next) {
				next = until.Add(rand.N(min(spread, time.Until(until)/10+1)))
			}
			m.history.change(name, func(a *Attempts) { a.Next = next })
			timer := time.NewTimer(time.Until(next))
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			case <-wake:
				timer.Stop()
				if soon := failed.Add(all[0]); soon.Before(next) {
					next = soon
				}
				continue
			}
			break
		}
	}
}

// attempt is in the context of one attempt, so that certmagic's events can end it:
// certmagic must not repeat it by itself.
type attempt struct {
	asked bool // a CA was asked
	stop  context.CancelFunc
	err   error // the failure, from Manager.happened
}

type attemptKey struct{}

// try reads the certificate, or asks once for one.
func (m *Manager) try(ctx context.Context, name string) error {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // for obtain
	}
	once, stop := context.WithCancel(ctx)
	defer stop()
	a := &attempt{stop: stop}
	once = context.WithValue(once, attemptKey{}, a)
	config := m.state.Load().config
	_, err := config.CacheManagedCertificate(once, name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = config.ObtainCertAsync(once, name); err == nil {
			_, err = config.CacheManagedCertificate(ctx, name)
		}
	}
	if a.err != nil {
		return a.err
	}
	if err != nil && ctx.Err() == nil { // an error of the storage
		m.failed(name, false, fmt.Errorf("%w; mend the storage, or if a file there is broken, delete the folder of %s in it", err, name))
	}
	return err //nolint:wrapcheck // for obtain, which has noted it
}

// refusedUntil returns when the first CA may be asked for a name again; zero: now.
func (m *Manager) refusedUntil(name string) time.Time {
	var cas []string
	for _, issuer := range m.state.Load().config.Issuers {
		cas = append(cas, issuer.IssuerKey())
	}
	return m.refused.everywhere(name, cas)
}

// has reports whether there is a certificate for exactly this name.
func (m *Manager) has(name string) bool {
	return slices.ContainsFunc(m.cache.AllMatchingCertificates(name), func(c certmagic.Certificate) bool {
		return slices.Contains(c.Names, name)
	})
}
