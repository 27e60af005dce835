package engine

import (
	"errors"
	"io"
	"slices"

	"millrace/cache"
	"millrace/images"
	"millrace/internal/access/signin"
	"millrace/internal/route/site"
	"millrace/internal/server"
)

// graph is everything that is built from one config. It does not change once it serves.
// Parts whose options stay the same are reused by the next graph; their keys identify
// their options.
type graph struct {
	setup  server.Setup
	ids    map[string]uint64 // sites: listener, hosts and routes → number
	parts  map[string]part   // what has a state, by its options
	opened []string          // keys of parts: each after those that it uses
	caches map[string]*cache.Handler
	cached map[*site.Route]cachedRoute // whose job is a cache
	images map[string]*images.Handler  // routes with images, by name
	logKey string

	auto      certifier // gets certificates by itself; nil where all are in files
	certified []string  // names that it is to get them for

	websockets map[string]*webSocketRoute // routes with WebSockets, by name
	sockets    *webSocketLimits           // of them all; nil: there are none

	before <-chan struct{} // closed when the graph before this one is
	closed chan struct{}   // closed when this one is
}

// cachedRoute is the cache of a route, and who may use that.
type cachedRoute struct {
	cache *cache.Handler
	auth  *signin.Options // nil: everybody
}

// part is something with state that must be closed: a cache, a pool of connections, a bus.
type part struct {
	what   any
	closer io.Closer
	id     *byte // its own: what has the same key may be another one
}

func newGraph() *graph {
	return &graph{
		ids:        map[string]uint64{},
		parts:      map[string]part{},
		caches:     map[string]*cache.Handler{},
		cached:     map[*site.Route]cachedRoute{},
		images:     map[string]*images.Handler{},
		websockets: map[string]*webSocketRoute{},
		closed:     make(chan struct{}),
	}
}

// close closes what this graph has and keep (which may be nil) does not.
func (g *graph) close(keep *graph) error {
	if keep == nil {
		keep = &graph{}
	}
	var errs []error
	for _, k := range slices.Backward(g.opened) {
		if kept, ok := keep.parts[k]; !ok || kept.id != g.parts[k].id {
			errs = append(errs, g.parts[k].closer.Close())
		}
	}
	if g.setup.Log != keep.setup.Log {
		errs = append(errs, g.setup.Log.Close())
	}
	return errors.Join(errs...)
}
