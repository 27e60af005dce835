package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"millrace/cache"
	"millrace/cache/fetch"
	"millrace/cache/purge"
	"millrace/internal/config"
	"millrace/internal/route/site"
	"millrace/store"
	"millrace/store/disk"
)

// cache is the cache of a route. Routes with the same options share one, under
// the first route's name.
func (b *builder) cache(name string, o cache.Options) (*cache.Handler, error) {
	pool, err := b.pool(o.Options.Options)
	if err != nil {
		return nil, err
	}
	d := cache.Deps{Transport: pool, ErrorLog: b.server.errors, Room: b.server.room}
	if o.Disk != "" {
		disk, err := b.disk(o)
		if err != nil {
			return nil, err
		}
		d.Disk = disk
	}
	k := keyOf("cache", o)
	_, twice := b.next.parts[k]
	s := b.server // the cache outlives the builder
	h, err := reuseOrOpen(b, k, func() (*cache.Handler, io.Closer, error) {
		d.Meters = s.meters.Cache(name)
		d.Purged = func(what purge.Selector) error { return s.forwardPurge(name, what) }
		return openCache(b.machineName(), o, d, b.shared("cache of "+name))
	})
	if err == nil && !twice {
		b.next.caches[name] = h
	}
	return h, err
}

// machineName is what operators know this process by, among those of other machines: its
// host and where it listens.
func (b *builder) machineName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "a machine without a name"
	}
	return strings.Join(append([]string{host}, b.config.Listen...), " ")
}

// cacheNotes says what auth does to the cache of a route.
func cacheNotes(sc config.Site, pattern string, rc config.Route) []string {
	o := signInOf(sc, rc)
	if o == nil {
		return nil
	}
	path := pattern
	if site.IsName(path) {
		path = "/"
	}
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, Header: http.Header{}}).WithContext(context.Background())
	reason, hint := rc.Cache.Caveat(o.Presume(r))
	if reason == "" {
		return nil
	}
	return []string{fmt.Sprintf("the cache of the route %s, for %s: %s; %s", routeName(sc.Hosts, pattern), path, reason, hint)}
}

// openCache opens a cache and, if it is shared, its connection to other machines, which call
// this one by its name.
func openCache(name string, o cache.Options, d cache.Deps, u *sharedUse) (*cache.Handler, io.Closer, error) {
	if o.Shared.URL == "" {
		h, err := cache.New(o, d)
		return h, h, err
	}
	l := &relay{ready: make(chan struct{})}
	url := o.Shared.Address()
	shared, err := openShared(url, name, l, u)
	if err != nil {
		return nil, nil, err
	}
	d.Meters.Shared.Store(u.meters)
	d.Shared, d.Leases, d.Publish, d.Announce, d.Line, d.Ahead, d.Outbox = shared, shared, shared.Publish, shared.Announce, shared, shared.ClockAhead, outboxOf(url)
	h, err := cache.New(o, d)
	l.connect(h, err)
	if err != nil {
		return nil, nil, errors.Join(err, u.Close())
	}
	u.waits(h.WaitingPurges)
	return h, closing(func() error {
		l.cut() // first: what comes from now on finds a cache that is being closed
		return errors.Join(h.Close(), u.Close())
	}), nil
}

// sharedStore is a store that several machines share. They also send each other
// messages through it.
type sharedStore interface {
	store.Store
	fetch.Leases
	purge.Line
	Publish(ctx context.Context, message []byte) error
	Announce(ctx context.Context, message []byte) (await func(context.Context) (missing []string, err error), err error)
	ClockAhead() time.Duration
}

// outboxOf is the folder for purges that could not be sent to the other machines
// yet, used when the cache has no disk. It is "" when the user has no cache folder.
func outboxOf(shared string) string {
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(shared)) // it may hold a password
	return filepath.Join(base, "millrace", "outbox", hex.EncodeToString(sum[:8]))
}

// closing makes a function an [io.Closer].
type closing func() error

// Close calls it.
func (c closing) Close() error { return c() }

// relay delivers messages of other machines, such as purges, to a cache. The shared store
// is opened before the cache that uses it, and receives messages at once: they wait until
// connect, since no purge may be lost.
type relay struct {
	ready chan struct{} // closed by connect
	mu    sync.RWMutex  // held for reading while the cache is told something
	to    *cache.Handler
}

func (l *relay) connect(h *cache.Handler, err error) {
	if err == nil {
		l.to = h
	}
	close(l.ready)
}

// cut ends the delivery: when it returns, no message is being delivered, and none will be.
func (l *relay) cut() {
	l.mu.Lock()
	l.to = nil
	l.mu.Unlock()
}

func (l *relay) message(m []byte, lost bool) {
	l.deliver(func(h *cache.Handler) { h.Message(m, lost) })
}

func (l *relay) began(run string) {
	l.deliver(func(h *cache.Handler) { h.Began(run) })
}

func (l *relay) lagging() {
	l.deliver((*cache.Handler).Lagging)
}

func (l *relay) deliver(f func(*cache.Handler)) {
	<-l.ready
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.to != nil {
		f(l.to)
	}
}

// diskStore is an open folder, and the options that it was opened with.
type diskStore struct {
	*disk.Store
	options string
}

// disk is the tier on disk. It is a part of its own, identified by its folder
// alone: a folder can be opened only once, and during a reload the old and the
// new handler both use it.
func (b *builder) disk(o cache.Options) (store.Store, error) {
	dir, err := filepath.Abs(o.Disk)
	if err != nil {
		return nil, fmt.Errorf("finding the cache's folder %s: %w", o.Disk, err)
	}
	with := disk.Options{Dir: o.Disk, Limit: o.DiskSize}
	options := keyOf("options", with)
	d, err := reuseOrOpen(b, "disk "+dir, func() (diskStore, io.Closer, error) {
		d, err := disk.Open(with)
		return diskStore{d, options}, d, err
	})
	if err != nil {
		return nil, err
	}
	if d.options != options {
		b.server.errors.Warn("the cache's folder is in use with other limits; the new ones take effect at the next start", "folder", o.Disk)
	}
	return d.Store, nil
}
