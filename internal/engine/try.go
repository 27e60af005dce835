package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"millrace/internal/access/admit"
	"millrace/internal/config"
	"millrace/internal/lane"
	"millrace/internal/route/match"
	"millrace/internal/route/site"
	"millrace/internal/wire/netset"
	"millrace/internal/wire/pages"
	"millrace/internal/wire/urlpath"
)

// siteRef is the site of a route, once it is built.
type siteRef struct{ site *site.Site }

// candidates are the paths of a route's try.
type candidates struct {
	prefix string // of the route
	paths  []*match.Template
	last   string
	status int // instead of last; 0: none
}

func newCandidates(list []string, pattern string, in *match.Scope) (c candidates, err error) {
	c.last = list[len(list)-1]
	if before, ok := strings.CutSuffix(pattern, "/"); ok {
		c.prefix = before
	}
	for _, text := range list {
		p, err := match.NewTemplate(text, nil, in)
		if err != nil {
			return c, fmt.Errorf("try: %w", err)
		}
		c.paths = append(c.paths, p)
	}
	if code, is := strings.CutPrefix(c.last, "="); is {
		if c.status, err = strconv.Atoi(code); err != nil {
			return c, fmt.Errorf("try: %q is not a status", c.last)
		}
	}
	return c, nil
}

// find is the index of the first path that exists, or of the last one, which is not looked
// for. ok is false where that is no path.
func (c *candidates) find(r *http.Request, has func(below string) bool) (i int, path, query string, ok bool) {
	last, asked := len(c.paths)-1, match.Of(r)
	for i, p := range c.paths[:last] {
		var made bool
		if path, query, made = p.Path(asked, nil); !made {
			continue
		}
		if below, ok := strings.CutPrefix(path, c.prefix); ok && has(below) {
			if path == r.URL.Path+"/" {
				path = r.URL.Path // the job sends the client to the folder
			}
			return i, path, query, true
		}
	}
	if c.status != 0 || site.IsName(c.last) {
		return last, r.URL.Path, r.URL.RawQuery, true
	}
	path, query, ok = c.paths[last].Path(asked, nil)
	return last, path, query, ok
}

// end is the route for requests without a file, or nil. c.status must be 0. A path that
// some servers read as another one is not forwarded.
func (c *candidates) end(s *site.Site, u *url.URL) *site.Route {
	route := s.Named(c.last)
	if !site.IsName(c.last) {
		route = s.Route(u.Path)
	}
	if route != nil && route.RawPath && urlpath.Several(u.Path, u.RawPath) && s.OnlyRoute(u) == nil {
		return nil
	}
	return route
}

// try looks for files in turn.
type try struct {
	candidates
	has func(below string) bool
	job http.Handler
	on  *siteRef

	of      *site.Route
	own     *admit.Gate // of the route itself
	clients *netset.Finder
}

func (b *builder) try(rc config.Route, r *site.Route, on *siteRef) (*try, error) {
	if rc.Static == nil {
		return nil, errors.New("try needs static beside it")
	}
	files, err := b.static(rc)
	if err != nil {
		return nil, err
	}
	c, err := newCandidates(rc.Try, r.Pattern, b.scope)
	return &try{candidates: c, has: files.Has, job: r.Handler, on: on, of: r, own: r.OwnGate, clients: b.next.setup.Clients}, err
}

// maxTries bounds how often a path may be tried under another: each of them may
// have a try of its own.
const maxTries = 8

type triesKey struct{}

// ServeHTTP implements [http.Handler].
func (t *try) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i, path, query, ok := t.find(r, t.has)
	if !ok {
		lane.Decline(r)
		pages.Error(w, r, http.StatusNotFound, "")
		return
	}
	if i > 0 || path != r.URL.Path { // it holds only while those before it are not there
		lane.Decline(r)
	}
	if i < len(t.paths)-1 {
		t.job.ServeHTTP(w, site.WithPath(r, path, query))
		return
	}
	lane.Decline(r)
	if t.status != 0 {
		pages.Error(w, r, t.status, "")
		return
	}
	next := site.WithPath(r, path, query)
	route := t.end(t.on.site, next.URL)
	tries, _ := r.Context().Value(triesKey{}).(int)
	switch {
	case route == nil:
		pages.Error(w, r, http.StatusNotFound, "")
	case path == r.URL.Path && route == t.of:
		t.job.ServeHTTP(w, r) // its own 404
	case tries >= maxTries:
		pages.Error(w, r, http.StatusLoopDetected, "The rules of this site lead in a circle. Only its owner can change that.")
	default:
		if own := route.OwnGate; own != nil && own != t.own {
			if _, answered := own.At(r.URL.Path, r.URL.RawPath).Admit(w, r, t.clients.Of(r)); answered {
				return
			}
		}
		route.Handler.ServeHTTP(w, next.WithContext(context.WithValue(r.Context(), triesKey{}, tries+1)))
	}
}
