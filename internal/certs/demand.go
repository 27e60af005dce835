package certs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/caddyserver/certmagic"
	"golang.org/x/time/rate"
)

// Bounds of certificates on demand: anybody can ask for any name.
const (
	askTime    = 5 * time.Second
	asksAtOnce = 20
	asksEvery  = time.Second // one more
)

// onDemand is nil unless the options have somebody who decides.
func (m *Manager) onDemand() *certmagic.OnDemandConfig {
	ask := m.options.OnDemand.Ask
	if ask == "" {
		return nil
	}
	client := &http.Client{Timeout: askTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	limit := rate.NewLimiter(rate.Every(asksEvery), asksAtOnce)
	return &certmagic.OnDemandConfig{DecisionFunc: func(ctx context.Context, name string) error {
		if m.state.Load().names[name] {
			return nil
		}
		if !limit.Allow() {
			return errors.New("too many names at once")
		}
		return allowed(ctx, client, ask, name)
	}}
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
