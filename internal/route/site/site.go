// Package site finds the handler for a request: host, then path. A Table is
// immutable; a reload puts a new one in its place and retires the old one.
package site

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"millrace/internal/access/admit"
	"millrace/internal/observe/meter"
	"millrace/internal/route/headers"
	"millrace/internal/route/match"
	"millrace/internal/wire/message"
	"millrace/internal/wire/urlpath"
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

// Rule is one of the rules that requests go through before a route is looked for.
type Rule struct {
	Match *match.Matcher
	// Rewrite gives the request another path, which the next rules see; Route is the
	// final answer. One of them is set.
	Rewrite *match.Template
	Route   *Route

	captures bool // Rewrite uses some
}

// path reports whether the rule is for a path, and returns the captures for Rewrite.
func (r *Rule) path(path string) (captures []string, ok bool) {
	if r.Rewrite == nil || !r.captures {
		return nil, r.Match.Covers(path)
	}
	return r.Match.Captures(path)
}

// Found is the result of routing a request.
type Found struct {
	Route *Route // nil: there is none
	// Path and Query are what the route's handler gets, decoded: those of the request, unless
	// a rule has Moved it.
	Path, Query string
	Moved       bool
	// Clean is the path to redirect the client to; "": there is no redirect.
	Clean string
	// Ambiguous: some servers would read the path as one of another route or rule, and no
	// redirect could make it clear.
	Ambiguous bool
	// Private: rules have looked at more than the path and the headers in Vary, so the
	// answer must not be repeated for others.
	Private bool
	// PrivateBy is the number of the rule that did so, from 1.
	PrivateBy int
	Vary      []string
	// Rule is the number of the rule that named the route, from 1; 0: its path did.
	Rule int
}

// Request returns r as the route's handler gets it. What rules have moved has no escapes of
// the client's, also where they have moved it back: "/a%2Fb" to "/x/a/b" to "/a/b".
func (f *Found) Request(r *http.Request) *http.Request {
	if !f.Moved {
		return r
	}
	return moved(r, f.Path, f.Query)
}

// Step is the result of one rule for a request.
type Step struct {
	Rule    int    // its number, from 1
	Pattern string // of its path
	// Path: the rule is for the request's path. Where it is and a condition does
	// not hold, Fails is the condition's key and Name which of them.
	Path        bool
	Fails, Name string
	// To is the path and query after a rewrite; "" for a rule with a route.
	To string
	// Nowhere: the rewrite gives no valid path, so no route answers.
	Nowhere bool
}

// Find returns the route of a request.
func (s *Site) Find(q *message.Request) Found { return s.find(q, nil) }

// Explain is Find, with a step for each rule that was tried.
func (s *Site) Explain(q *message.Request) (f Found, steps []Step) {
	f = s.find(q, func(step Step) { steps = append(steps, step) })
	return f, steps
}

// find is Find. onStep may be nil.
func (s *Site) find(q *message.Request, onStep func(Step)) (f Found) {
	var u url.URL // of f
	if !q.URL(&u) {
		f.Ambiguous = true
		return f
	}
	f.Path, f.Query = u.Path, q.Query
	path, clean := urlpath.Clean(u.Path)
	several := !clean || urlpath.Several(u.Path, u.RawPath)
	if several && ambiguous(s.rules, &u) {
		f.redirectToClean(&u, path)
		return f
	}
	asked := match.Asked{Head: q, Path: u.Path, Query: q.Query}
	asked.Move(path, q.Query) // rules see a path without dot segments
	for i := range s.rules {
		rule := &s.rules[i]
		captures, ok := rule.path(path)
		if !ok {
			if onStep != nil {
				onStep(Step{Rule: i + 1, Pattern: rule.Match.Path.String()})
			}
			continue
		}
		if !rule.Match.Only() {
			names, ok := rule.Match.Vary()
			f.Vary = append(f.Vary, names...)
			if !ok {
				f.private(i)
			}
		}
		if key, name := rule.Match.Failing(&asked); key != "" {
			if onStep != nil {
				onStep(Step{Rule: i + 1, Pattern: rule.Match.Path.String(), Path: true, Fails: key, Name: name})
			}
			continue
		}
		// The lane compares requests by path and Vary alone, and could not tell that
		// such a rule holds.
		if !rule.Match.Only() && !rule.Match.OnlyHost() {
			f.private(i)
		}
		if rule.Route != nil {
			f.Route, f.Rule = rule.Route, i+1
			f.move(&asked)
			if onStep != nil {
				onStep(Step{Rule: i + 1, Pattern: rule.Match.Path.String(), Path: true})
			}
			return f
		}
		to, query, made := f.rewrite(i, rule.Rewrite, &asked, captures)
		if !made {
			if onStep != nil {
				onStep(Step{Rule: i + 1, Pattern: rule.Match.Path.String(), Path: true, Nowhere: true})
			}
			return f
		}
		path, clean = to, true
		if asked.Move(path, query); asked.Moved {
			u = url.URL{Path: path, RawQuery: query}
		}
		several = urlpath.Several(path, u.RawPath)
		f.move(&asked)
		if onStep != nil {
			onStep(Step{Rule: i + 1, Pattern: rule.Match.Path.String(), Path: true, To: asked.URI()})
		}
		if several && ambiguous(s.rules[i+1:], &u) {
			f.Ambiguous = true
			return f
		}
	}
	f.Route = s.Route(path)
	if several { // otherwise the path has one reading, and is clean
		s.checkReadings(&f, &u, path, clean)
	}
	return f
}

// checkReadings has a client ask again by the clean path, where a path that can be read in
// several ways leads to several routes, or its route does not take it as it came.
func (s *Site) checkReadings(f *Found, u *url.URL, path string, clean bool) {
	_, stays := urlpath.Made(path)
	asItCame := f.Route != nil && f.Route.RawPath
	if !asItCame && (!clean || !stays) || s.OnlyRoute(u) == nil {
		f.redirectToClean(u, path)
	}
}

// move has the handler get what rules have made of the request.
func (f *Found) move(a *match.Asked) { f.Path, f.Query, f.Moved = a.Path, a.Query, a.Moved }

// redirectToClean redirects the client to the clean path. Where that is the path it has
// sent, or a rule has made the path, the request is ambiguous.
func (f *Found) redirectToClean(u *url.URL, clean string) {
	if !f.Moved && (clean != u.Path || urlpath.EncodesSlash(u.RawPath) && !strings.ContainsRune(clean, '\\')) {
		f.Clean = clean
		return
	}
	f.Route, f.Ambiguous = nil, true
}

// rewrite applies a rule's rewrite, and notes which headers it reads.
func (f *Found) rewrite(rule int, to *match.Template, asked *match.Asked, captures []string) (path, query string, made bool) {
	if headers, more := to.Says(); more {
		f.private(rule)
	} else {
		f.Vary = append(f.Vary, headers...)
	}
	return to.Path(asked, captures)
}

// private notes that a rule makes the answer private.
func (f *Found) private(rule int) {
	if !f.Private {
		f.Private, f.PrivateBy = true, rule+1
	}
}

// ambiguous reports whether a rule covers one reading of a path and not another.
func ambiguous(rules []Rule, u *url.URL) bool {
	if len(rules) == 0 {
		return false
	}
	readings := urlpath.Readings(u)
	for i := range rules {
		m := rules[i].Match
		first := m.Covers(readings[0])
		for _, other := range readings[1:] {
			if m.Covers(other) != first {
				return true
			}
		}
	}
	return false
}

// OnlyRoute returns the route that all readings of a path lead to, or nil where two
// readings lead to different routes.
func (s *Site) OnlyRoute(u *url.URL) *Route {
	var only *Route
	for i, p := range urlpath.Readings(u) {
		r := s.Route(p)
		if r == nil || i > 0 && r != only {
			return nil
		}
		only = r
	}
	return only
}

// WithPath returns a copy of a request with another path and query. RequestURI stays what
// the client has sent.
func WithPath(r *http.Request, path, query string) *http.Request {
	if r.URL.Path == path && r.URL.RawQuery == query {
		return r
	}
	return moved(r, path, query)
}

// moved is WithPath, also for the path that the request has.
func moved(r *http.Request, path, query string) *http.Request {
	c := *r
	u := *r.URL
	u.Path, u.RawPath, u.RawQuery, u.ForceQuery = path, "", query, false
	c.URL = &u
	return &c
}

// Named returns the route with a pattern or a name, such as @app, or nil.
func (s *Site) Named(name string) *Route { return s.named[name] }

// IsName reports whether a route's key is a name, such as @app, and not a path: only rules
// and error pages lead to it.
func IsName(key string) bool { return strings.HasPrefix(key, "@") }

// Pages are error pages, by status (404) or class (4 and 5). A page is a path of the site,
// or the name of a route.
type Pages map[int]string

// For returns the page for a status; "": none.
func (p Pages) For(status int) string {
	if status < 400 || status > 599 || len(p) == 0 {
		return ""
	}
	if page, ok := p[status]; ok {
		return page
	}
	return p[status/100]
}

// Page returns the route of a page, and the path of the request for it.
func (s *Site) Page(page, path string) (*Route, string) {
	if IsName(page) {
		clean, _ := urlpath.Clean(path)
		return s.named[page], clean
	}
	clean, _ := urlpath.Clean(page)
	return s.Route(clean), clean
}
