package millrace

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"millrace/cache"
	"millrace/store"
	"millrace/store/redis"
)

// cache is the cache of a route, which goes by name in the metrics and for the
// operator. Routes with the same options have one, by the first one's name.
func (g *graph) cache(s *Server, name string, o cache.Options, old *graph) (*cache.Handler, error) {
	d := cache.Deps{ErrorLog: s.errors}
	if o.Disk != "" {
		disk, err := g.disk(s, o, old)
		if err != nil {
			return nil, err
		}
		d.Disk = disk
	}
	k := keyOf("cache", o)
	_, twice := g.parts[k]
	h, err := carry(g, old, k, func() (*cache.Handler, io.Closer, error) {
		d.Meters = s.meters.Cache(name)
		return openCache(o, d)
	})
	if err == nil && !twice {
		g.caches[name] = h
	}
	return h, err
}

// openCache opens a cache and its line to other machines.
func openCache(o cache.Options, d cache.Deps) (*cache.Handler, io.Closer, error) {
	if o.Shared == "" {
		h, err := cache.New(o, d)
		return h, h, err
	}
	l := &line{ready: make(chan struct{})}
	shared, err := redis.Open(redis.Options{URL: o.Shared, From: redis.Beginning, Changed: l.changed, Message: l.message, ErrorLog: d.ErrorLog})
	if err != nil {
		return nil, nil, err
	}
	d.Shared, d.Publish = shared, shared.Publish
	h, err := cache.New(o, d)
	l.connect(h, err)
	if err != nil {
		return nil, nil, errors.Join(err, shared.Close())
	}
	return h, closing(func() error {
		l.cut() // first: what comes from now on finds a cache that is being closed
		return errors.Join(h.Close(), shared.Close())
	}), nil
}

// closing is an io.Closer.
type closing func() error

// Close calls it.
func (c closing) Close() error { return c() }

// line brings what other machines say to a cache. The shared store has to be
// there before the cache that works with it, and begins to listen at once:
// until connect, what comes waits, since a purge must not be lost.
type line struct {
	ready chan struct{} // closed by connect
	mu    sync.RWMutex  // held for reading while the cache is told something
	to    *cache.Handler
}

func (l *line) connect(h *cache.Handler, err error) {
	if err == nil {
		l.to = h
	}
	close(l.ready)
}

// cut returns when the cache is not being told anything, and never will be.
func (l *line) cut() {
	l.mu.Lock()
	l.to = nil
	l.mu.Unlock()
}

func (l *line) message(m []byte, lost bool) {
	l.tell(func(h *cache.Handler) { h.Message(m, lost) })
}

func (l *line) changed(keys []string) {
	l.tell(func(h *cache.Handler) { h.Changed(keys) })
}

func (l *line) tell(f func(*cache.Handler)) {
	<-l.ready
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.to != nil {
		f(l.to)
	}
}

// diskStore is an open folder, and the options that it was opened with.
type diskStore struct {
	*store.Disk
	options string
}

// disk is the tier on disk. It is a part of its own, known by its folder
// alone: a folder can be open but once, and while a reload changes the options
// of a cache, the old handler and the new one both work with it.
func (g *graph) disk(s *Server, o cache.Options, old *graph) (store.Store, error) {
	dir, err := filepath.Abs(o.Disk)
	if err != nil {
		return nil, fmt.Errorf("finding the cache's folder %s: %w", o.Disk, err)
	}
	with := store.DiskOptions{Dir: o.Disk, Limit: o.DiskSize}
	options := keyOf("options", with)
	d, err := carry(g, old, "disk "+dir, func() (diskStore, io.Closer, error) {
		d, err := store.OpenDisk(with)
		return diskStore{d, options}, d, err
	})
	if err != nil {
		return nil, err
	}
	if d.options != options {
		s.errors.Warn("the cache's folder is in use with other limits; the new ones take effect at the next start", "folder", o.Disk)
	}
	return d.Disk, nil
}
