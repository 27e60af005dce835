package rulefile

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/wire/urlpath"
)

// Redirects are the rules of a _redirects file. A nil one has none.
type Redirects struct {
	rules   []redirect
	literal map[string][]int // by their path
	dynamic []int
	hosts   bool // a forced one is for one host
}

// redirect is one rule.
type redirect struct {
	line   int
	scheme string // "" where it is for every host
	host   string
	from   pattern
	query  []parameter
	to     string
	status int
	force  bool
	names  []string // all that to may have
}

// parameter is a part of the query that a request must have.
type parameter struct{ key, value, name string }

// Target is what a rule makes of a request.
type Target struct {
	// Status is 200 for an answer from another file of the folder, from 400 for such
	// a one with another status, else that of a redirect.
	Status int
	// To is the escaped path of the file, or the Location. One that begins with a
	// slash begins with one only.
	To string
	// Line is that of the rule.
	Line int
}

// statuses are those that a rule may have.
var statuses = []int{200, 301, 302, 303, 307, 308, 403, 404, 410, 451}

// ParseRedirects reads a file.
func ParseRedirects(text []byte) (*Redirects, []Fault) {
	r, wrong := &Redirects{literal: map[string][]int{}}, faults{file: RedirectsName}
	dynamic := 0
	lines(text, func(number int, line string) {
		if len(line) > maxLine {
			wrong.add(number, "the line has %d bytes: at most %d", len(line), maxLine)
			return
		}
		rule, err := parseRedirect(line)
		rule.line = number
		kind := &dynamic
		most := maxDynamic
		if !rule.from.dynamic() {
			n := len(r.rules) - dynamic
			kind, most = &n, maxStatic
		}
		switch {
		case err != nil:
			wrong.add(number, "%w", err)
			return
		case *kind >= most:
			wrong.add(number, "there are more than %d rules like it: write them as rules of the site in the config, or in a table", most)
			return
		}
		i := len(r.rules)
		if rule.from.dynamic() {
			dynamic++
			r.dynamic = append(r.dynamic, i)
		} else {
			r.literal[rule.from.literal] = append(r.literal[rule.from.literal], i)
		}
		r.hosts = r.hosts || rule.force && rule.host != ""
		r.rules = append(r.rules, rule)
	})
	return r, wrong.all()
}

// parseRedirect reads a line: from, parameters, to, status, conditions.
func parseRedirect(line string) (r redirect, err error) {
	words := strings.Fields(line)
	if i := slices.IndexFunc(words, func(w string) bool { return w[0] == '#' }); i >= 0 {
		words = words[:i]
	}
	if !address(words[0]) {
		return r, fmt.Errorf("%q is no path: a line begins with the path that is asked for, as in /old /new 301", words[0])
	}
	if err = r.source(words[0]); err != nil {
		return r, err
	}
	words = words[1:]
	to := slices.IndexFunc(words, address)
	if to < 0 {
		return r, fmt.Errorf("a second path or URL is missing: where %s leads", r.from.text())
	}
	r.names = slices.Clone(r.from.names)
	for _, word := range words[:to] {
		if err = r.parameter(word); err != nil {
			return r, err
		}
	}
	r.to, r.status = words[to], 301
	rest := words[to+1:]
	if len(rest) > 0 {
		text, forced := strings.CutSuffix(rest[0], "!")
		if code, bad := strconv.Atoi(text); bad == nil {
			if !slices.Contains(statuses, code) {
				return r, fmt.Errorf("the status %d is not one of %v", code, statuses)
			}
			r.status, r.force, rest = code, forced, rest[1:]
		}
	}
	if len(rest) > 0 {
		key, _, condition := strings.Cut(rest[0], "=")
		if condition {
			return r, fmt.Errorf("the condition %s= is not known here: write a rule of the site in the config, which can look at headers, cookies and addresses", key)
		}
		return r, fmt.Errorf("%q is not understood behind the target: only a status is known there, as in 301", rest[0])
	}
	return r, r.target()
}

// text is a pattern for people.
func (p *pattern) text() string {
	if p.path == nil {
		return p.literal
	}
	return "the path"
}

// source reads what a rule is for.
func (r *redirect) source(word string) (err error) {
	if word[0] != '/' {
		var rest string
		r.scheme, rest, _ = strings.Cut(word, "://")
		host, path, _ := strings.Cut(rest, "/")
		r.host = strings.ToLower(host)
		if r.host == "" || strings.ContainsAny(r.host, ":*@?#") {
			return fmt.Errorf("%q: the host is a plain name without a port", word)
		}
		word = "/" + path
	}
	r.from, err = newPattern(word)
	return err
}

// parameter reads what must be in the query: id=:id takes any value, id=7 that one.
func (r *redirect) parameter(word string) error {
	key, value, ok := strings.Cut(word, "=")
	if !ok || key == "" {
		return fmt.Errorf("%q is neither a path nor a parameter like id=:id", word)
	}
	p := parameter{key: key, value: value}
	if name, is := strings.CutPrefix(value, ":"); is && placeholder.FindString(value) == value {
		if slices.Contains(r.names, name) || name == splat {
			return fmt.Errorf("%q: there is another :%s", word, name)
		}
		p.name = name
		r.names = append(r.names, name)
	}
	r.query = append(r.query, p)
	return nil
}

// target checks where a rule leads.
func (r *redirect) target() error {
	local := r.to[0] == '/'
	file := r.status == 200 || r.status >= 400
	if strings.HasPrefix(r.to, "//") || strings.ContainsAny(r.to, `\`) {
		return fmt.Errorf("%q is no path: write one slash, or a URL with its scheme", r.to)
	}
	if file && !local {
		return fmt.Errorf("%d from another server would be a proxy: give the path a route with proxy in the config", r.status)
	}
	if !local {
		_, rest, _ := strings.Cut(r.to, "://")
		host := rest
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			host = rest[:i]
		}
		if placeholder.MatchString(host) || strings.ContainsAny(host, "*@") || host == "" {
			return fmt.Errorf("%q: its host must be plain: a part of the visitor's address could lead anywhere", r.to)
		}
	}
	if u, err := url.Parse(r.to); err != nil || !local && u.Hostname() == "" {
		return fmt.Errorf("%q is no address", r.to)
	}
	for _, name := range placeholder.FindAllString(r.to, -1) {
		if name == ":"+splat && !slices.Contains(r.names, splat) {
			return fmt.Errorf("%q has :splat, but the path has no star", r.to)
		}
	}
	return nil
}

// Hosts reports whether the host of a request has a say in what forced rules do.
func (r *Redirects) Hosts() bool { return r != nil && r.hosts }

// Find is what the first rule says that is for a request: of the forced ones, or
// of all. byQuery: the query has a say in that.
func (r *Redirects) Find(a Asked, forced bool) (t Target, ok, byQuery bool) {
	if r == nil {
		return t, false, false
	}
	literal, dynamic := r.literal[literalOf(a.Path)], r.dynamic
	for len(literal)+len(dynamic) > 0 { // the one that comes first in the file
		var i int
		if len(dynamic) == 0 || len(literal) > 0 && literal[0] < dynamic[0] {
			i, literal = literal[0], literal[1:]
		} else {
			i, dynamic = dynamic[0], dynamic[1:]
		}
		rule := &r.rules[i]
		if forced && !rule.force || rule.host != "" && (rule.host != a.Host || (rule.scheme == "https") != a.Secure) {
			continue
		}
		values, is := rule.from.match(a.Path)
		if !is {
			continue
		}
		byQuery = byQuery || len(rule.query) > 0
		if values, is = rule.parameters(values, a.Query); !is {
			continue
		}
		t = Target{Status: rule.status, To: rule.fill(values), Line: rule.line}
		if rule.leadsHere(&t, &a) || len(values) > 0 && urlpath.LeadsOut(t.To) {
			continue
		}
		if !strings.Contains(t.To, "?") && a.Query != "" {
			before, fragment, has := strings.Cut(t.To, "#")
			if t.To = before + "?" + a.Query; has {
				t.To += "#" + fragment
			}
		}
		return t, true, byQuery
	}
	return t, false, byQuery
}

func literalOf(path string) string {
	if path = strings.TrimSuffix(path, "/"); path == "" {
		return "/"
	}
	return path
}

// parameters adds the values of those that are captured; false where one is missing.
func (r *redirect) parameters(values []string, query string) ([]string, bool) {
	if len(r.query) == 0 {
		return values, true
	}
	has, _ := url.ParseQuery(query) // what can be read of it
	values = slices.Clone(values)
	for _, p := range r.query {
		got, ok := has[p.key]
		switch {
		case !ok, p.name == "" && got[0] != p.value:
			return nil, false
		case p.name != "":
			values = append(values, got[0])
		}
	}
	return values, true
}

// fill makes the target. A path stays one on this host, whatever a value begins with.
func (r *redirect) fill(values []string) string {
	path, query, has := strings.Cut(r.to, "?")
	path = fill(path, r.names, values, func(_, value string) string { return escapePath(value) })
	if path[0] == '/' {
		path = "/" + strings.TrimLeft(path, `/\`)
	}
	if !has {
		return path
	}
	return path + "?" + fill(query, r.names, values, func(_, value string) string { return url.QueryEscape(value) })
}

// leadsHere reports whether a redirect leads to where the request is: it would go in
// circles.
func (r *redirect) leadsHere(t *Target, a *Asked) bool {
	if t.Status < 300 || t.Status >= 400 {
		return false
	}
	u, err := url.Parse(t.To)
	if err != nil || u.Path != a.Path && (u.Path != "" || a.Path != "/") || u.RawQuery != "" && u.RawQuery != a.Query {
		return false
	}
	return u.Host == "" || strings.EqualFold(u.Hostname(), a.Host) && (u.Scheme == "https") == a.Secure
}
