// Package s3 keeps objects in a bucket of an S3 server, for several machines
// that share what each has made.
package s3

import (
	"context"
	"log/slog"

	"millrace/store"
)

// Options of a Store.
type Options struct {
	// URL is s3://host[:port]/bucket[/prefix] for HTTPS, s3+http:// for plain
	// HTTP, with ?region=… where the server wants one. The access key and the
	// secret stand before the host as in other URLs, or in the environment
	// (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY).
	URL      string
	ErrorLog *slog.Logger
}

// Check reports what is wrong with the URL, without asking the server.
func (o Options) Check() error { return nil }

// Store is a store.Store in a bucket. It has no limit of its own: let a
// lifecycle rule of the bucket end what is old.
type Store struct{}

var _ store.Store = (*Store)(nil)

// Open connects. A server that cannot be reached is no error here: the methods
// return store.ErrDown until it can.
func Open(o Options) (*Store, error) { panic("not built") }

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (*store.Object, error) { panic("not built") }

// Create implements store.Store.
func (s *Store) Create(ctx context.Context, key string, size int64) (store.Writer, error) {
	panic("not built")
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string) error { panic("not built") }

// Walk calls fn with every object's key, head and size until it returns an
// error, which Walk returns.
func (s *Store) Walk(ctx context.Context, fn func(key string, head []byte, size int64) error) error {
	panic("not built")
}

// Stats implements store.Store.
func (s *Store) Stats() store.Stats { panic("not built") }

// Close implements store.Store.
func (s *Store) Close() error { panic("not built") }
