// Package s3 keeps objects in a bucket of an S3 server, for several machines
// that share what each has made.
//
// An object is one S3 object, written by one PUT, which S3 makes visible as a
// whole or not at all: a front of sizes, checksums, the key and the head, and
// behind it the body (frame.go). Its name is a hash of the key. README.md says
// what a bucket needs, and what happens while the server is down.
//
// An object is read as a whole, by one GET, before Get returns: into memory, or
// into a temporary file without a name when it is larger than inMemory. S3 keeps
// no object that was replaced, so reading a body piece by piece could not keep
// what package store promises: that it stays whole.
package s3

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"millrace/internal/bytesize"
	"millrace/internal/observe/meter"
	"millrace/store"
)

// Options of a Store.
type Options struct {
	// URL is s3://host[:port]/bucket[/prefix] for HTTPS, s3+http:// for plain
	// HTTP, with ?region=… where the server wants one. The access key and the
	// secret stand before the host as in other URLs. Otherwise they are those of
	// the environment, a profile or this machine's role: README.md. With TLS,
	// ?ca=FILE trusts the certificates in a PEM file instead of the system's,
	// and ?skip_verify=true trusts any.
	URL string
	// Largest is the size of the largest body taken, at most 1GiB. Default 64MiB.
	Largest bytesize.Size
	// Timeout is the longest that a call may wait for the server, plus a
	// second for each MiB that it moves. Default 2s.
	Timeout  time.Duration
	ErrorLog *slog.Logger // nil: slog.Default()
	// Meters returns the counters for a server and its bucket; nil: nothing is counted.
	Meters func(server string) *meter.Store
}

// Bounds and defaults.
const (
	defaultLargest = 64 << 20
	mostLargest    = 1 << 30 // one PUT may have 5 GiB
	defaultTimeout = 2 * time.Second
	// slowest is the rate, in bytes a second, below which a transfer is given up.
	slowest = 1 << 20
	// mostCalls is how many calls are under way at once, each with a connection.
	mostCalls = 32
	// inMemory is the largest body that is held in memory, when it is read and
	// when it is written. Larger ones go through temporary files.
	inMemory = 1 << 20
	// mostMemory is how many bytes of bodies all Writers hold in memory together.
	mostMemory = 64 << 20
	// mostSpooled is how many bytes may lie in temporary files at once.
	mostSpooled = 2 << 30
)

// Check reports what is wrong with the URL, without asking the server.
func (o Options) Check() error {
	if o.Largest < 0 || o.Largest > mostLargest {
		return fmt.Errorf("s3: the largest body may have %v, not %v", bytesize.Size(mostLargest), o.Largest)
	}
	_, err := parseURL(o.URL)
	return err
}

// Store is a store.Store in a bucket. It has no limit of its own: let a
// lifecycle rule of the bucket end what is old.
type Store struct {
	o         Options
	to        target
	log       *slog.Logger
	client    *client
	transport *http.Transport
	meters    *meter.Store
	health    *health
	refused   rate.Sometimes // log lines about writes that the server does not allow
	calls     chan struct{}
	memory    budget
	spooled   budget

	closing context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup // of the supervisor: Close waits
	once    sync.Once
}

var _ store.Store = (*Store)(nil)

// Open connects. A server that cannot be reached is not an error here: the methods
// return store.ErrDown until it can.
func Open(o Options) (*Store, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	to, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	to.environment()
	o.Largest = cmp.Or(o.Largest, defaultLargest)
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	s := &Store{o: o, to: to, log: o.ErrorLog, meters: new(meter.Store), health: newHealth(), calls: make(chan struct{}, mostCalls), refused: rate.Sometimes{Interval: betweenLines}}
	if s.log == nil {
		s.log = slog.Default()
	}
	if o.Meters != nil {
		s.meters = o.Meters(s.Server())
	}
	s.memory.most, s.spooled.most = mostMemory, mostSpooled
	if s.transport, err = to.transport(); err != nil {
		return nil, err
	}
	if s.client, err = newClient(to, s.transport); err != nil {
		return nil, err
	}
	s.closing, s.stop = context.WithCancel(context.Background())
	s.wg.Go(s.supervise)
	return s, nil
}

// name is the name in the bucket of a key's object: a hash, since keys may be
// of any bytes and lengths, and since names that spread evenly suit S3.
func (s *Store) name(key string) string {
	sum := sha256.Sum256([]byte(key))
	return s.to.prefix + hex.EncodeToString(sum[:16])
}

// Get implements store.Store. The object is in memory, or in a file of this
// machine.
func (s *Store) Get(ctx context.Context, key string) (*store.Object, error) {
	var o *store.Object
	err := s.call(ctx, 0, func(ctx context.Context, more func(int64)) error {
		body, size, err := s.client.get(ctx, s.name(key), 0)
		if err != nil {
			return err
		}
		defer body.Close()
		more(size)
		o, err = s.read(body, size, key)
		return err
	})
	if err == nil {
		s.meters.Look(true, o.Size)
	} else if errors.Is(err, store.ErrNotFound) {
		s.meters.Look(false, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("getting from s3: %w", err)
	}
	return o, nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	err := s.call(ctx, 0, func(ctx context.Context, _ func(int64)) error {
		return s.client.remove(ctx, s.name(key))
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("deleting from s3: %w", err)
	}
	return nil
}

// Stats implements store.Store. S3 has no figures: only Down is told.
func (s *Store) Stats() store.Stats { return store.Stats{Down: !s.health.up()} }

// Server names the server and the bucket, without the keys.
func (s *Store) Server() string { return s.to.host + "/" + s.to.bucket }

// Trouble is why the bucket cannot be used now; nil: it can.
func (s *Store) Trouble() error {
	if s.health.up() {
		return nil
	}
	return *s.health.cause.Load()
}

// Close breaks off all calls under way and waits for all goroutines.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.stop()
		s.wg.Wait()
		s.transport.CloseIdleConnections()
	})
	return nil
}

// budget is an amount of bytes that may be held at once.
type budget struct {
	most int64
	held atomic.Int64
}

// take reserves n bytes, or nothing.
func (b *budget) take(n int64) bool {
	if b.held.Add(n) > b.most {
		b.held.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.held.Add(-n) }
