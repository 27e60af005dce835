package engine

import (
	"errors"
	"fmt"
	"io"

	"millrace/internal/access/admit"
	"millrace/internal/config"
	"millrace/store"
)

// gates are the access, traps, challenge and rate limits of a route. all is for requests
// to the route; own, without those of the site that have been applied by then, for requests
// that the try of another route leads to it.
func (b *builder) gates(sc config.Site, rc config.Route, name string) (all, own *admit.Gate, err error) {
	var of, alone admit.Rules
	if of.Lists, err = b.lists(sc, rc); err != nil {
		return nil, nil, fmt.Errorf("access: %w", err)
	}
	alone.Lists = of.Lists // the site's as well: a route that tries this one may have others
	if of.Trap, err = b.trap(sc); err != nil {
		return nil, nil, fmt.Errorf("traps: %w", err)
	}
	if of.Suspects, err = b.suspects(sc, rc); err != nil {
		return nil, nil, fmt.Errorf("challenge: %w", err)
	}
	if rc.Challenge != nil {
		alone.Suspects = of.Suspects
	}
	for _, at := range []struct {
		rate *admit.Rate
		key  string
	}{{rc.RateLimit, name}, {sc.RateLimit, "a site " + keyOf("", sc.Hosts)}} {
		if at.rate == nil {
			continue
		}
		l, err := b.server.limits.Limit(*at.rate, keyOf(at.key, at.rate))
		if err != nil {
			return nil, nil, fmt.Errorf("rate_limit: %w", err)
		}
		if err := b.share(l, *at.rate, at.key); err != nil {
			return nil, nil, fmt.Errorf("rate_limit.shared: %w", err)
		}
		if of.Rates = append(of.Rates, l); at.rate == rc.RateLimit {
			alone.Rates = []*admit.Limit{l}
		}
	}
	return admit.New(of), admit.New(alone), nil
}

// share makes a rate limit common to all machines that name the same Redis.
func (b *builder) share(l *admit.Limit, o admit.Rate, key string) error {
	if o.Shared.URL == "" {
		return nil
	}
	url := o.Shared.Address()
	s, err := reuseOrOpen(b, keyOf("limits", url), func() (*sharedLimits, io.Closer, error) {
		ask, closer, err := openLimits(url, b.shared("rate limits"))
		if err != nil {
			return nil, nil, err
		}
		s := &sharedLimits{b.server.limits.Share(ask), closer}
		return s, s, nil
	})
	if err != nil {
		return err
	}
	o.Shared = store.Shared{} // as each machine spells it
	l.Share(s.Shared, keyOf(key, o))
	return nil
}

// sharedLimits are limits and the exchange that makes them common.
type sharedLimits struct {
	*admit.Shared
	store io.Closer
}

// Close ends the exchange.
func (s *sharedLimits) Close() error {
	return errors.Join(s.Shared.Close(), s.store.Close())
}

// Stats are those of the store that the exchange goes over.
func (s *sharedLimits) Stats() store.Stats {
	if st, ok := s.store.(interface{ Stats() store.Stats }); ok {
		return st.Stats()
	}
	return store.Stats{}
}

// lists are those of a route, or of its site; nil for none.
func (b *builder) lists(sc config.Site, rc config.Route) (*admit.Lists, error) {
	o := rc.Access
	if o == nil {
		o = sc.Access
	}
	if o == nil || o.Off {
		return nil, nil
	}
	return reuseOrOpen(b, keyOf("access", o), func() (*admit.Lists, io.Closer, error) {
		l, err := admit.Open(*o, b.server.errors)
		return l, l, err
	})
}

// trap is that of a site; nil for none.
func (b *builder) trap(sc config.Site) (*admit.Trap, error) {
	if sc.Traps == nil {
		return nil, nil
	}
	return b.server.limits.Trap(*sc.Traps) //nolint:wrapcheck // the caller says of what
}

// suspects are those of a route, or of its site; nil for none.
func (b *builder) suspects(sc config.Site, rc config.Route) (*admit.Suspects, error) {
	o := rc.Challenge
	if o == nil {
		o = sc.Challenge
	}
	if o == nil || o.Off {
		return nil, nil
	}
	return b.server.limits.Suspects(*o, b.server.proofs, keyOf("", sc.Hosts), keyOf("", []any{sc.Hosts, o})) //nolint:wrapcheck // the caller says of what
}
