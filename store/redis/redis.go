// Package redis keeps objects in Redis or Valkey, a single server or a
// cluster, for several machines that share what they have fetched, and carries
// purges between them.
package redis

import (
	"context"
	"log/slog"
	"time"

	"millrace/internal/bytesize"
	"millrace/store"
)

// Options of a Redis store.
type Options struct {
	// URL is redis://[user:password@]host:port[,host:port…][/db][?…], rediss:// with TLS, or unix:///path.
	URL string
	// Prefix of all keys. Default "millrace:".
	Prefix string
	// Largest is the size of the largest body taken. Default 8MiB.
	Largest bytesize.Size
	// TTL after which Redis forgets an object. Default 24h.
	TTL time.Duration
	// Changed is called with the keys of objects that another machine has
	// replaced or deleted (client-side caching), nil when all may have
	// changed: after a connection was lost.
	Changed func(keys []string)
	// Message is called with every message that any machine has published,
	// this one included, in order. After a lost connection, what was
	// missed is caught up; lost is true when that is no longer possible.
	Message  func(message []byte, lost bool)
	ErrorLog *slog.Logger
}

// Open connects in the background: a server that is down is no error, the
// store answers ErrDown until it is there. A URL that cannot be read is one.
func Open(o Options) (*Redis, error) { panic("not built") }

// Redis is a store.Store.
type Redis struct{ store.Store }

// Publish sends a message to all machines. It returns once Redis has it, or ErrDown.
func (r *Redis) Publish(ctx context.Context, message []byte) error { panic("not built") }
