//go:build !small

package engine

import (
	"context"
	"io"
	"time"

	"millrace/internal/access/admit"
	"millrace/store"
	"millrace/store/redis"
)

// openShared opens the store that several machines share, whose messages go to l, and which
// know this one by its name.
func openShared(url, name string, l *relay, u *sharedUse) (sharedStore, error) {
	s, err := redis.Open(redis.Options{URL: url, Name: name, Message: l.message, Began: l.began, OnLag: l.lagging, ErrorLog: u.errorLog, Meters: u.counters("redis")})
	if err != nil {
		return nil, err
	}
	u.opened(s)
	return s, nil
}

// openRedis opens a Redis as a store alone, which keeps objects for ttl and whose
// calls take no longer than timeout; 0: its defaults.
func openRedis(url string, ttl, timeout time.Duration, u *sharedUse) (store.Store, error) {
	s, err := redis.Open(redis.Options{URL: url, TTL: ttl, Timeout: timeout, ErrorLog: u.errorLog, Meters: u.counters("redis")})
	if err != nil {
		return nil, err
	}
	u.opened(s)
	return s, nil
}

// openLimits opens a Redis that machines count together in.
func openLimits(url string, u *sharedUse) (admit.Together, io.Closer, error) {
	s, err := redis.Open(redis.Options{URL: url, Timeout: limitsTimeout, ErrorLog: u.errorLog, Meters: u.counters("redis")})
	if err != nil {
		return nil, nil, err
	}
	u.opened(s)
	return func(ctx context.Context, uses []admit.Use) ([]admit.Status, error) {
		counts := make([]redis.Count, len(uses))
		for i, u := range uses {
			counts[i] = redis.Count(u)
		}
		counted, err := s.Count(ctx, counts)
		standings := make([]admit.Status, len(counted))
		for i, c := range counted {
			standings[i] = admit.Status(c)
		}
		return standings, err
	}, u, nil
}

// limitsTimeout is how long an exchange may take; no request waits for it.
const limitsTimeout = time.Second
