package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"millrace/images"
	"millrace/images/remote"
	"millrace/internal/config"
	"millrace/static/original"
	"millrace/store"
	"millrace/store/disk"
	"millrace/store/s3"
)

// engineTest bounds the self-test of the encoders at the start.
const engineTest = 20 * time.Second

// images is the handler of a route with images. A reload reuses its parts one by one: the
// engine (one for all routes with the same settings), the store (one for each folder), the
// source, the handler.
func (b *builder) images(name string, rc config.Route) (*images.Handler, error) {
	o := *rc.Images
	eo := o.EngineOptions()
	engine, err := reuseOrOpen(b, keyOf("images engine", eo), func() (*images.Engine, io.Closer, error) {
		ctx, cancel := context.WithTimeout(context.Background(), engineTest)
		defer cancel()
		e, err := images.NewEngine(ctx, eo, b.server.options.Worker, b.server.errors)
		return e, e, err
	})
	if err != nil {
		return nil, err
	}
	d := images.Deps{Engine: engine, ErrorLog: b.server.errors, Meters: b.server.meters.Images(name), Scope: "remote"}
	if rc.Static != nil {
		if d.Scope, err = rc.Static.Scope(); err != nil {
			return nil, fmt.Errorf("the folder of the originals: %w", err)
		}
	} else {
		d.Scope = o.Remote.From
	}
	disk, err := b.variants(o, d.Scope)
	if err != nil {
		return nil, err
	}
	d.Store = disk
	if d.Source, err = b.originals(rc, disk); err != nil {
		return nil, err
	}
	if o.Shared != "" {
		if d.Shared, err = reuseOrOpen(b, keyOf("bucket", o.Shared), func() (*s3.Store, io.Closer, error) {
			u := b.shared("images")
			bucket, err := s3.Open(s3.Options{URL: o.Shared, ErrorLog: u.errorLog, Meters: u.counters("s3")})
			if err != nil {
				return nil, nil, err
			}
			u.opened(bucket)
			return bucket, u, nil
		}); err != nil {
			return nil, err
		}
	}
	h, err := reuseOrOpen(b, keyOf("images "+name, []any{rc.Static, o}), func() (*images.Handler, io.Closer, error) {
		h, err := images.New(o, d)
		return h, h, err
	})
	if err == nil {
		b.next.images[name] = h
	}
	return h, err
}

// variants is the folder that a route's variants are kept in. As a cache's, it is
// identified by its folder alone, which can be opened only once.
func (b *builder) variants(o images.Options, scope string) (*disk.Store, error) {
	dir, err := o.Folder(scope)
	if err != nil {
		return nil, err
	}
	options := keyOf("options", o.StoreSize)
	d, err := reuseOrOpen(b, keyOf("variants", dir), func() (diskStore, io.Closer, error) {
		d, err := images.OpenStore(o, scope)
		if errors.Is(err, disk.ErrInUse) {
			err = fmt.Errorf("%w with images.store", err)
		}
		return diskStore{d, options}, d, err
	})
	if err != nil {
		return nil, err
	}
	if d.options != options {
		b.server.errors.Warn("the folder for variants is in use with another store_size; the new one takes effect at the next start", "folder", dir)
	}
	return d.Store, nil
}

// originals is where a route's images come from.
func (b *builder) originals(rc config.Route, keep store.Store) (original.Source, error) {
	if rc.Static != nil {
		return b.static(rc)
	}
	return reuseOrOpen(b, keyOf("remote", []any{rc.Images.Remote, rc.Images.Store}), func() (*remote.Source, io.Closer, error) {
		r, err := remote.New(*rc.Images.Remote, keep, &b.server.meters.Clients, b.server.errors)
		return r, r, err
	})
}

// Images are the handlers of the routes with images, by the routes' names.
func (s *Server) Images() map[string]*images.Handler {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.graph.images)
}
