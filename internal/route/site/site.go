// Package site finds the handler for a request: host, then path. A Table is
// immutable; a reload puts a new one in its place and retires the old one.
package site

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"millrace/internal/access/admit"
	"millrace/internal/observe/meter"
	"millrace/internal/route/headers"
	"millrace/internal/route/match"
)

// Route is a path of a site and its handler.
type Route struct {
	// Pattern is a path. One that ends in a slash stands for everything
	// below it, and for itself without that slash.
	Pattern string
	Handler http.Handler
	Job     *meter.Job
	// RawPath is for jobs that pass the path on, such as proxies: they also get a path
	// that is not clean, if no reading of it leads to another route. For other jobs the
	// client is redirected to the clean path, without dot segments in any spelling.
	RawPath bool
	// Open answers without a sign-in, for error pages that the site names by their
	// paths. nil: Handler does.
	Open http.Handler
	// Private: an answer is for the client that has asked for it, and not repeated.
	Private bool
	// Passes: event loops may forward requests for the handler, without a goroutine.
	Passes bool
	// Foreign: the handler comes from another program, and may wrap a job.
	Foreign bool
	// BodyBytes bounds the body of a request; 0: the server's limit.
	BodyBytes int64
	// Gate decides which clients may ask, and how often; nil: all. OwnGate is the part
	// of it that the route itself sets, without the site's: for requests that another
	// route hands to this one.
	Gate, OwnGate *admit.Gate
	// Pages replace answers with error statuses. Intercepted replace those that an
	// application has sent; nil: these are passed on.
	Pages, Intercepted Pages
	// NoLog: requests are not in the access log.
	NoLog bool
	// Headers are rules for the header of every answer; nil: none.
	Headers *headers.AnswerRules
	// CORS says which scripts may read answers; nil: the job decides.
	CORS *headers.CORS

	glob *match.Path // nil: the pattern has no stars
}

// Site is what is served under some host names.
type Site struct {
	// ID is the same as long as nothing about the site has changed, its
	// listener included, and is never used again for anything else. Never 0.
	ID uint64
	// Pages are for paths that no route answers.
	Pages Pages
	// Gate is for paths that no route answers.
	Gate *admit.Gate
	// Trap catches clients that request what only attackers do; nil: none.
	Trap *admit.Trap
	// Headers and CORS are for paths that no route answers.
	Headers *headers.AnswerRules
	CORS    *headers.CORS

	exact  map[string]*Route
	globs  []*Route // the one with the most literal characters first
	prefix []*Route // longest first
	named  map[string]*Route
	rules  []Rule
	passes bool // a route does
}

// New returns a site with these routes, and rules that come before them. A
// pattern with stars that cannot be compiled is no route: check it before.
func New(id uint64, routes []*Route, rules ...Rule) *Site {
	s := &Site{ID: id, exact: map[string]*Route{}, named: map[string]*Route{}, rules: rules}
	for i := range rules {
		rules[i].captures = rules[i].Rewrite != nil && rules[i].Rewrite.Captures()
	}
	for _, r := range routes {
		s.named[r.Pattern] = r
		s.passes = s.passes || r.Passes
		switch {
		case IsName(r.Pattern):
		case match.IsGlob(r.Pattern):
			if p, err := match.NewPath(r.Pattern); err == nil {
				r.glob = p
				s.globs = append(s.globs, r)
			}
		case strings.HasSuffix(r.Pattern, "/"):
			s.prefix = append(s.prefix, r)
		default:
			s.exact[r.Pattern] = r
		}
	}
	literal := func(r *Route) int { return len(r.Pattern) - strings.Count(r.Pattern, "*") }
	slices.SortStableFunc(s.globs, func(a, b *Route) int { return literal(b) - literal(a) })
	slices.SortStableFunc(s.prefix, func(a, b *Route) int { return len(b.Pattern) - len(a.Pattern) })
	return s
}

// Route returns the route for a clean path (see [urlpath.Clean]), or nil.
func (s *Site) Route(path string) *Route {
	if r := s.exact[path]; r != nil {
		return r
	}
	for _, r := range s.globs {
		if r.glob.Matches(path) {
			return r
		}
	}
	for _, r := range s.prefix {
		if strings.HasPrefix(path, r.Pattern) || path == r.Pattern[:len(r.Pattern)-1] {
			return r
		}
	}
	return nil
}

// Passes reports whether a route of the table has Passes.
func (t *Table) Passes() bool { return t != nil && t.passes }

// Table maps hosts to sites.
type Table struct {
	exact    map[string]*Site
	wildcard map[string]*Site // by the suffix behind the "*", dot included
	begins   map[string]*Site // by what stands before a "*" at the end, dot included
	fallback *Site
	ids      map[uint64]bool
	passes   bool // a route does
	refs     atomic.Int64
	idle     chan struct{}
}

// NewTable returns an empty table, in use by its caller until Retire.
func NewTable() *Table {
	t := &Table{exact: map[string]*Site{}, wildcard: map[string]*Site{}, begins: map[string]*Site{}, ids: map[uint64]bool{}, idle: make(chan struct{})}
	t.refs.Store(1)
	return t
}

// Add enters a site under its host names, lower-case and without port. A name
// that begins with "*." stands for every name below, one that ends in ".*" for every name
// that begins so. Without hosts the site is for every
// host that no other site has. Add must not be called once the table is in use.
func (t *Table) Add(s *Site, hosts []string) {
	t.ids[s.ID] = true
	t.passes = t.passes || s.passes
	if len(hosts) == 0 {
		t.fallback = s
	}
	for _, h := range hosts {
		if suffix, ok := strings.CutPrefix(h, "*"); ok {
			t.wildcard[suffix] = s
		} else if begin, ok := strings.CutSuffix(h, "*"); ok {
			t.begins[begin] = s
		} else {
			t.exact[h] = s
		}
	}
}

// Has reports whether the site with this number is in the table.
func (t *Table) Has(id uint64) bool { return t.ids[id] }

// Host is a name under which clients find the site with this number. A site for
// all hosts has any.
func (t *Table) Host(id uint64) string {
	for name, s := range t.exact {
		if s.ID == id {
			return name
		}
	}
	for suffix, s := range t.wildcard {
		if s.ID == id {
			return "any" + suffix
		}
	}
	for begin, s := range t.begins {
		if s.ID == id {
			return begin + "any"
		}
	}
	return "localhost"
}

// Site returns the site for a Host header, nil when there is none. Letter case
// and the port do not matter.
func (t *Table) Site(host string) *Site {
	if !t.names() {
		return t.fallback
	}
	return lookup(t, strings.ToLower(host))
}

// Named reports whether a site names the host, alone or by a wildcard: the site
// for all other hosts does not count.
func (t *Table) Named(host string) bool {
	if !t.names() {
		return false
	}
	named := Table{exact: t.exact, wildcard: t.wildcard, begins: t.begins}
	return lookup(&named, strings.ToLower(host)) != nil
}

// ID is Site for the fast lane: host is lower-case already. It returns 0 when
// there is no such site, and allocates nothing.
func (t *Table) ID(host []byte) uint64 {
	s := t.fallback
	if t.names() {
		s = lookup(t, host)
	}
	if s == nil {
		return 0
	}
	return s.ID
}

// names reports whether a site names its hosts.
func (t *Table) names() bool { return len(t.exact)+len(t.wildcard)+len(t.begins) > 0 }

func lookup[T string | []byte](t *Table, host T) *Site {
	host = withoutPort(host)
	if s := t.exact[string(host)]; s != nil {
		return s
	}
	if len(t.wildcard) > 0 {
		for i := range len(host) {
			if host[i] != '.' {
				continue
			}
			if s := t.wildcard[string(host[i:])]; s != nil {
				return s
			}
		}
	}
	if len(t.begins) > 0 {
		for i := len(host) - 1; i > 0; i-- {
			if host[i] != '.' {
				continue
			}
			if s := t.begins[string(host[:i+1])]; s != nil {
				return s
			}
		}
	}
	return t.fallback
}

// withoutPort cuts ":8080" off, and the dot that ends an absolute name.
func withoutPort[T string | []byte](host T) T {
	for i := len(host) - 1; i >= 0; i-- {
		if c := host[i]; c == ':' {
			host = host[:i]
			break
		} else if c < '0' || c > '9' {
			break
		}
	}
	if n := len(host); n > 0 && host[n-1] == '.' {
		host = host[:n-1]
	}
	return host
}

// Enter counts one request that uses the table, until Leave. It reports false when the
// table was retired and has ended: the caller must use its successor.
func (t *Table) Enter() bool {
	for {
		n := t.refs.Load()
		if n == 0 {
			return false
		}
		if t.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Leave ends what Enter began.
func (t *Table) Leave() {
	if t.refs.Add(-1) == 0 {
		close(t.idle)
	}
}

// Retire ends the caller's use of the table. Idle is closed when the last request has
// left.
func (t *Table) Retire() { t.Leave() }

// Idle is closed when the table was retired and no request uses it.
func (t *Table) Idle() <-chan struct{} { return t.idle }
