package site

import (
	"net/http"
	"net/url"
	"strings"

	"millrace/internal/route/match"
	"millrace/internal/wire/message"
	"millrace/internal/wire/urlpath"
)

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
	if !several {
		return f // the path has one reading, and is clean
	}
	_, stays := urlpath.Made(path)
	asItCame := f.Route != nil && f.Route.RawPath
	if !asItCame && (!clean || !stays) || s.OnlyRoute(&u) == nil {
		f.redirectToClean(&u, path)
	}
	return f
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
