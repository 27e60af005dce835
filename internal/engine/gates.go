package engine

import (
	"fmt"
	"io"

	"millrace/internal/admit"
	"millrace/internal/config"
)

// gates are who may ask a route: all of it, and what the route says itself.
func (b *builder) gates(sc config.Site, rc config.Route, name string) (all, own *admit.Gate, err error) {
	access := rc.Access
	if access == nil {
		access = sc.Access
	}
	var lists *admit.Lists
	if access != nil && !access.Off {
		lists, err = carry(b, keyOf("access", access), func() (*admit.Lists, io.Closer, error) {
			l, err := admit.Open(*access, b.server.errors)
			return l, l, err
		})
		if err != nil {
			return nil, nil, fmt.Errorf("access: %w", err)
		}
	}
	var rates []*admit.Limit
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
		if rates = append(rates, l); at.rate == rc.RateLimit {
			own = admit.New(nil, l)
		}
	}
	if lists != nil { // the site's as well: a route that tries this one may have others
		if own = admit.New(lists); rc.RateLimit != nil {
			own = admit.New(lists, rates[0])
		}
	}
	return admit.New(lists, rates...), own, nil
}
