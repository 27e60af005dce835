package certs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"golang.org/x/time/rate"
)

// Bounds of certificates on demand: anybody can ask for any name.
const (
	askTime    = 5 * time.Second
	asksAtOnce = 20
	asksEvery  = time.Second // one more
	// asksUnderWay bounds those about names that have a certificate, too: after a
	// restart all of them are asked about as their clients come.
	asksUnderWay = 50
)

// onDemand is nil unless the options have somebody who decides.
func (m *Manager) onDemand() *certmagic.OnDemandConfig {
	ask := m.options.OnDemand.Ask
	if ask == "" {
		return nil
	}
	asking := make(chan struct{}, asksUnderWay)
	client := &http.Client{Timeout: askTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	limit, each := rate.NewLimiter(rate.Every(asksEvery), asksAtOnce), newLimits()
	return &certmagic.OnDemandConfig{DecisionFunc: func(ctx context.Context, name string) error {
		if m.state.Load().names[name] {
			return nil
		}
		if !m.stored(ctx, name) {
			switch {
			case !m.refusedUntil(name).IsZero():
				return errRefused
			case !each.allow(name, time.Now()):
				return errors.New("too many names of one domain")
			case !limit.Allow():
				return errors.New("too many names at once")
			}
		}
		select {
		case asking <- struct{}{}:
			defer func() { <-asking }()
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // the handshake's
		}
		return allowed(ctx, client, ask, name)
	}}
}

// stored reports whether this machine has a certificate for a name: there are no
// more of those than there have been answers of yes.
func (m *Manager) stored(ctx context.Context, name string) bool {
	return slices.ContainsFunc(m.state.Load().config.Issuers, func(i certmagic.Issuer) bool {
		return m.folder.Exists(ctx, certmagic.StorageKeys.SiteCert(i.IssuerKey(), name))
	})
}

// Bounds of one domain's share of the asks, so that who goes through the names of
// one does not keep the others from getting theirs.
const (
	domainAtOnce = 10
	domainEvery  = 5 * time.Second // one more
	mostDomains  = 4096
)

// limits are those of the domains that were asked about of late.
type limits struct {
	mu    sync.Mutex
	of    map[string]*rate.Limiter
	swept time.Time // when those that have their whole share were forgotten
}

func newLimits() *limits { return &limits{of: map[string]*rate.Limiter{}} }

// allow reports whether a name may be asked about. Its domain is what is behind
// its first label, or the name itself where that has two: shop.example.org is of
// example.org.
func (l *limits) allow(name string, now time.Time) bool {
	domain := strings.ToLower(strings.TrimSuffix(name, "."))
	if _, parent, ok := strings.Cut(domain, "."); ok && strings.Contains(parent, ".") {
		domain = parent
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of[domain]
	if one == nil {
		if len(l.of) >= mostDomains && now.Sub(l.swept) >= domainEvery {
			l.swept = now
			maps.DeleteFunc(l.of, func(_ string, r *rate.Limiter) bool { return r.TokensAt(now) >= domainAtOnce })
		}
		if len(l.of) >= mostDomains {
			return true // the limit of all holds
		}
		one = rate.NewLimiter(rate.Every(domainEvery), domainAtOnce)
		l.of[domain] = one
	}
	return one.AllowN(now, 1)
}

// allowed asks whether a name may have a certificate.
func allowed(ctx context.Context, client *http.Client, ask, name string) error {
	u, err := url.Parse(ask)
	if err != nil {
		return fmt.Errorf("on_demand.ask: %w", err)
	}
	q := u.Query()
	q.Set("domain", name)
	u.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("on_demand.ask: %w", err)
	}
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("on_demand.ask: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("on_demand.ask says %s for %s", resp.Status, name)
	}
	return nil
}
