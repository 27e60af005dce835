package millrace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"millrace/images"
	"millrace/images/remote"
	"millrace/internal/config"
	"millrace/internal/original"
	"millrace/store"
	"millrace/store/s3"
)

// engineTest bounds the self-test of the encoders at the start.
const engineTest = 20 * time.Second

// images is the handler of a route with pictures. Its parts are carried over by
// a reload one by one: an engine for all routes with the same settings, a
// folder for those that keep their variants in the same, the source, the handler.
func (g *graph) images(s *Server, name string, rc config.Route, old *graph) (*images.Handler, error) {
	o := *rc.Images
	eo := o.EngineOptions()
	engine, err := carry(g, old, keyOf("images engine", eo), func() (*images.Engine, io.Closer, error) {
		ctx, cancel := context.WithTimeout(context.Background(), engineTest)
		defer cancel()
		e, err := images.NewEngine(ctx, eo, s.options.Worker, s.errors)
		return e, e, err
	})
	if err != nil {
		return nil, err
	}
	d := images.Deps{Engine: engine, ErrorLog: s.errors, Meters: s.meters.Images(name), Scope: "remote"}
	if rc.Static != nil {
		if d.Scope, err = filepath.Abs(rc.Static.Root); err != nil {
			return nil, fmt.Errorf("the folder of the originals: %w", err)
		}
	} else {
		d.Scope = o.Remote.From
	}
	disk, err := g.variants(s, o, d.Scope, old)
	if err != nil {
		return nil, err
	}
	d.Store = disk
	if d.Source, err = g.originals(s, rc, disk, old); err != nil {
		return nil, err
	}
	if o.Shared != "" {
		if d.Shared, err = carry(g, old, keyOf("bucket", o.Shared), func() (*s3.Store, io.Closer, error) {
			b, err := s3.Open(s3.Options{URL: o.Shared, ErrorLog: s.errors})
			return b, b, err
		}); err != nil {
			return nil, err
		}
	}
	h, err := carry(g, old, keyOf("images "+name, []any{rc.Static, o}), func() (*images.Handler, io.Closer, error) {
		h, err := images.New(o, d)
		return h, h, err
	})
	if err == nil {
		g.photos[name] = h
	}
	return h, err
}

// variants is the folder that a route's variants are kept in. As a cache's, it is
// known by its folder alone, which can be open but once.
func (g *graph) variants(s *Server, o images.Options, scope string, old *graph) (*store.Disk, error) {
	dir, err := o.Folder(scope)
	if err != nil {
		return nil, err
	}
	options := keyOf("options", o.StoreSize)
	d, err := carry(g, old, keyOf("variants", dir), func() (diskStore, io.Closer, error) {
		d, err := images.OpenStore(o, scope)
		if errors.Is(err, store.ErrInUse) {
			err = fmt.Errorf("%w; another millrace converts the same folder: stop it, or give this one a folder of its own with images.store", err)
		}
		return diskStore{d, options}, d, err
	})
	if err != nil {
		return nil, err
	}
	if d.options != options {
		s.errors.Warn("the folder for variants is in use with another store_size; the new one takes effect at the next start", "folder", dir)
	}
	return d.Disk, nil
}

// originals is where a route's pictures come from.
func (g *graph) originals(s *Server, rc config.Route, keep store.Store, old *graph) (original.Source, error) {
	if rc.Static != nil {
		return g.static(*rc.Static, old)
	}
	return carry(g, old, keyOf("remote", []any{rc.Images.Remote, rc.Images.Store}), func() (*remote.Source, io.Closer, error) {
		r, err := remote.New(*rc.Images.Remote, keep, s.errors)
		return r, r, err
	})
}

// The operator's way to the pictures on the admin listener: GET for what each
// route has converted, and by what; POST …clean removes what has no original.
const (
	imagesPrefix = "/images/"
	// imagesTime bounds how long an answer may take: the folder is read for it.
	imagesTime = time.Minute
)

// controlImages answers below imagesPrefix.
func (s *Server) controlImages(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), imagesTime)
	defer cancel()
	switch {
	case r.Method == http.MethodGet && r.URL.Path == imagesPrefix:
		sayAll(w, s.photos(), func(h *images.Handler) (images.Stats, error) { return h.Stats(ctx) })
	case r.Method == http.MethodPost && r.URL.Path == imagesPrefix+"clean":
		sayAll(w, s.photos(), func(h *images.Handler) (images.Tidied, error) { return h.Tidy(ctx) })
	default:
		http.Error(w, "GET "+imagesPrefix+" or POST "+imagesPrefix+"clean", http.StatusNotFound)
	}
}

// Images are the handlers of the routes with pictures, by the routes' names.
func (s *Server) Images() map[string]*images.Handler { return s.photos() }

func (s *Server) photos() map[string]*images.Handler {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.graph.photos)
}

// sayAll asks each route's handler and answers with all they say.
func sayAll[T any](w http.ResponseWriter, photos map[string]*images.Handler, ask func(*images.Handler) (T, error)) {
	all := map[string]T{}
	for _, name := range slices.Sorted(maps.Keys(photos)) {
		said, err := ask(photos[name])
		if err != nil {
			http.Error(w, name+": "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		all[name] = said
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // whoever asked has gone
}
