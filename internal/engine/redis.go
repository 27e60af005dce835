//go:build !small

package engine

import (
	"log/slog"
	"time"

	"millrace/store"
	"millrace/store/redis"
)

// openShared opens the store that several machines share, whose messages go to l.
func openShared(url string, l *relay, errorLog *slog.Logger) (sharedStore, error) {
	s, err := redis.Open(redis.Options{URL: url, From: redis.Beginning, Changed: l.changed, Message: l.message, ErrorLog: errorLog})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openRedis opens a Redis as a store alone, which keeps objects for ttl and whose
// calls take no longer than timeout; 0: its defaults.
func openRedis(url string, ttl, timeout time.Duration, errorLog *slog.Logger) (store.Store, error) {
	s, err := redis.Open(redis.Options{URL: url, TTL: ttl, Timeout: timeout, ErrorLog: errorLog})
	if err != nil {
		return nil, err
	}
	return s, nil
}
