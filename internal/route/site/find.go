package site

import (
	"net/http"
	"net/url"
	"strings"

	"millrace/internal/route/match"
	"millrace/internal/wire/urlpath"
)

// Rule is one of the rules that requests go through before a route is looked for.
type Rule struct {
	Match *match.Matcher
	// Rewrite gives the request another path, and the next rules see that; Route
	// ends the way. One of them is set.
	Rewrite *match.Template
	Route   *Route

	captures bool // Rewrite uses some
}

// path reports whether the rule is for a path, with the captures that it needs.
func (r *Rule) path(path string) (captures []string, ok bool) {
	if r.Rewrite == nil || !r.captures {
		return nil, r.Match.Covers(path)
	}
	return r.Match.Captures(path)
}

// Found says what answers a request.
type Found struct {
	Route *Route // nil: nothing does
	// Request has another path than the one that came where a rule has rewritten it.
	Request *http.Request
	// Clean is the path to which the client is to be sent instead, "" for none.
	Clean string
	// Ambiguous: some servers take the path for one that another route or rule is
	// for, and there is no other way to write it that says what is meant.
	Ambiguous bool
	// Private: more had a say than the path and the headers that Vary names, so
	// that the answer is for nobody else.
	Private bool
	// PrivateBy is the number of the rule for which it is, from 1.
	PrivateBy int
	Vary      []string
	// Rule is the number of the rule that named the route, from 1; 0: its path did.
	Rule int
}

// Step is what became of one rule on a request's way.
type Step struct {
	Rule    int    // its number, from 1
	Pattern string // of its path
	// Path: the rule is for the request's path. Where it is and a condition does
	// not hold, Fails is the condition's key and Name which of them.
	Path        bool
	Fails, Name string
	// To is the path and query that the rule gives the request, "" if it ends the way.
	To string
	// Nowhere: what the rule makes of the request is no path, and nothing answers.
	Nowhere bool
}

// Find returns what answers a request.
func (s *Site) Find(r *http.Request) Found { return s.find(r, nil) }

// Explain is Find, with what became of each rule that was looked at.
func (s *Site) Explain(r *http.Request) (f Found, steps []Step) {
	f = s.find(r, func(step Step) { steps = append(steps, step) })
	return f, steps
}

// find is Find. told may be nil.
func (s *Site) find(r *http.Request, told func(Step)) Found {
	f := Found{Request: r}
	path, clean := urlpath.Clean(r.URL.Path)
	several := !clean || urlpath.Several(r.URL.Path, r.URL.RawPath)
	if several && ambiguous(s.rules, r.URL) {
		f.redirectToClean(r, path)
		return f
	}
	asked := WithPath(r, path, r.URL.RawQuery) // what rules see: no dot segment is in it
	for i := range s.rules {
		rule := &s.rules[i]
		captures, ok := rule.path(path)
		if !ok {
			if told != nil {
				told(Step{Rule: i + 1, Pattern: rule.Match.Path.String()})
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
		if key, name := rule.Match.Failing(asked); key != "" {
			if told != nil {
				told(Step{Rule: i + 1, Pattern: rule.Match.Path.String(), Path: true, Fails: key, Name: name})
			}
			continue
		}
		// Requests in which such a rule holds go another way than those that the
		// lane compares with.
		if !rule.Match.Only() && !rule.Match.OnlyHost() {
			f.private(i)
		}
		if rule.Route != nil {
			f.Route, f.Rule, f.Request = rule.Route, i+1, asked
			if told != nil {
				told(Step{Rule: i + 1, Pattern: rule.Match.Path.String(), Path: true})
			}
			return f
		}
		to, query, made := f.rewrite(i, rule.Rewrite, asked, captures)
		if !made {
			if told != nil {
				told(Step{Rule: i + 1, Pattern: rule.Match.Path.String(), Path: true, Nowhere: true})
			}
			return f
		}
		path, clean = to, true
		asked = WithPath(asked, path, query)
		several = urlpath.Several(path, asked.URL.RawPath)
		f.Request = asked
		if told != nil {
			told(Step{Rule: i + 1, Pattern: rule.Match.Path.String(), Path: true, To: asked.URL.RequestURI()})
		}
		if several && ambiguous(s.rules[i+1:], asked.URL) {
			f.Ambiguous = true
			return f
		}
	}
	f.Route = s.Route(path)
	if !several {
		return f // which is clean
	}
	_, stays := urlpath.Made(path)
	asItCame := f.Route != nil && f.Route.RawPath
	if !asItCame && (!clean || !stays) || s.OnlyRoute(f.Request.URL) == nil {
		f.redirectToClean(r, path)
	}
	return f
}

// redirectToClean sends the client to the clean path, unless that is what it has asked for, or
// a rule has made it.
func (f *Found) redirectToClean(r *http.Request, clean string) {
	if f.Request == r && (clean != r.URL.Path || urlpath.EncodesSlash(r.URL.RawPath) && !strings.ContainsRune(clean, '\\')) {
		f.Clean = clean
		return
	}
	f.Route, f.Ambiguous = nil, true
}

// rewrite is what a rule makes of a request, and notes what it looks at for that.
func (f *Found) rewrite(rule int, to *match.Template, asked *http.Request, captures []string) (path, query string, made bool) {
	if headers, more := to.Says(); more {
		f.private(rule)
	} else {
		f.Vary = append(f.Vary, headers...)
	}
	return to.Path(asked, captures)
}

// private notes that a rule makes the answer one for nobody else.
func (f *Found) private(rule int) {
	if !f.Private {
		f.Private, f.PrivateBy = true, rule+1
	}
}

// ambiguous reports whether a rule is for one of the paths that a path which is
// not clean may be taken for, and not for another.
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

// OnlyRoute returns what answers for a path whichever way it is read, or nil
// when there are two ways to read it that lead to different routes: then it is
// for nobody but who reads it as [urlpath.Clean] does.
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

// WithPath is a request with another path and query; the one that it is made
// from stays as it is, and so does RequestURI, which is what the client sent.
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

// IsName reports whether a route's key is a name and no path: it is reached by
// rules alone.
func IsName(key string) bool { return strings.HasPrefix(key, "@") }

// Pages are the pages for answers that say that something is wrong: by status,
// and by its class under 4 and 5. A page is a path of the site, or the name of a route.
type Pages map[int]string

// For is the page for a status, or "".
func (p Pages) For(status int) string {
	if status < 400 || status > 599 || len(p) == 0 {
		return ""
	}
	if page, ok := p[status]; ok {
		return page
	}
	return p[status/100]
}

// Page returns the route of a page and the path that it is asked for under.
func (s *Site) Page(page, path string) (*Route, string) {
	if IsName(page) {
		clean, _ := urlpath.Clean(path)
		return s.named[page], clean
	}
	clean, _ := urlpath.Clean(page)
	return s.Route(clean), clean
}
