package match

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"millrace/internal/wire/netset"
)

// When says which requests a rule is for. All that is named must hold. A value
// is text with stars for any characters, "~" and a regular expression, or one of
// both behind "!", which turns it round; "" means: not there, or empty.
type When struct {
	// Path is /a for only that path, /a/ also for everything below it, or a
	// pattern: in /a/*.png the star stands for characters of one segment, two
	// stars for any characters. What the stars stand for is {1}, {2} … in the
	// rule's action; behind a path that ends in "/", the rest is {1},
	// which is empty for the path itself, with or without that slash.
	Path string `yaml:"path"`
	// Regex is a regular expression (RE2) that the path must match, instead of
	// path. Its groups are {1}, {2} … or {name} for (?P<name>…). A dollar sign
	// in it is itself.
	Regex string `yaml:"regex" expand:"no"`
	// Except are paths that the rule is not for: paths and patterns as in path,
	// or "~" and a regular expression.
	Except []string `yaml:"except" expand:"no"`
	// Within are patterns, as except has them, all of which the path must match
	// as well: {regex: '\.jpg$', within: [/media/]} is for pictures below /media/.
	Within []string `yaml:"within" expand:"no"`
	// Host are names of the site, as in example.org or *.example.org.
	Host []string `yaml:"host"`
	// Method are methods, as in POST; [!GET, !HEAD] are all others.
	Method []string `yaml:"method"`
	// Header are request headers and their values, as in {Accept: "*json*"}.
	Header map[string]string `yaml:"header" expand:"no"`
	// Query are parameters of the query and their values.
	Query map[string]string `yaml:"query" expand:"no"`
	// Cookie are cookies and their values.
	Cookie map[string]string `yaml:"cookie" expand:"no"`
	// Address are addresses and networks of clients, as in 10.0.0.0/8; with
	// "!" in front, of those that the rule is not for. Behind a proxy that
	// limits.trusted_proxies names, it is that of the client that the proxy names.
	Address []string `yaml:"address"`
	// Protocol is http or https: what the listener speaks.
	Protocol string `yaml:"protocol"`
	// Table is the name of a table that must have an entry for the request.
	Table string `yaml:"table"`
}

// Matcher is a compiled When.
type Matcher struct {
	Path     *Path
	except   []*Path
	within   []*Path
	hosts    []string
	methods  []string
	others   bool // all methods but these
	headers  []named
	queries  []named
	cookies  []named
	allowed  netset.Set
	denied   netset.Set
	protocol string

	client addressBy
	tables []*Table // that must have an entry

	vary []string // request headers that have a say
	own  bool     // something has a say that no header tells
}

// named is a value with a name.
type named struct {
	name string
	value
}

// Compile returns what is wrong by its key, or nil.
func (w *When) Compile(in *Scope) (*Matcher, map[string]error) {
	m := &Matcher{protocol: w.Protocol}
	if in != nil {
		m.client = in.Client
	}
	faults := map[string]error{}
	note := func(key string, err error) {
		if err != nil && faults[key] == nil {
			faults[key] = err
		}
	}
	var err error
	switch {
	case w.Regex == "":
		m.Path, err = NewPath(w.Path)
		note("path", err)
	case w.Path != "":
		note("regex", errors.New("path and regex exclude each other"))
	default:
		m.Path, err = NewExpression(w.Regex)
		note("regex", err)
	}
	m.except, err = patterns(w.Except)
	note("except", err)
	m.within, err = patterns(w.Within)
	note("within", err)
	for _, h := range w.Host {
		m.hosts = append(m.hosts, strings.ToLower(h))
	}
	note("method", m.method(w.Method))
	for key, list := range map[string]struct {
		from map[string]string
		to   *[]named
	}{"header": {w.Header, &m.headers}, "query": {w.Query, &m.queries}, "cookie": {w.Cookie, &m.cookies}} {
		note(key, compileValues(list.from, list.to))
	}
	for i, h := range m.headers {
		m.headers[i].name = textproto.CanonicalMIMEHeaderKey(h.name)
		m.vary = append(m.vary, m.headers[i].name)
	}
	if len(m.cookies) > 0 {
		m.vary = append(m.vary, "Cookie")
	}
	if len(m.hosts) > 0 {
		m.vary = append(m.vary, "Host")
	}
	note("address", m.address(w.Address))
	if w.Table != "" {
		t, err := in.table(w.Table)
		note("table", err)
		if err == nil {
			m.Needs(t)
		}
	}
	if !slices.Contains([]string{"", "http", "https"}, w.Protocol) {
		note("protocol", fmt.Errorf("%q is neither http nor https", w.Protocol))
	}
	m.own = m.own || len(m.queries) > 0 || !m.allowed.Empty() || !m.denied.Empty()
	if len(faults) > 0 {
		return nil, faults
	}
	return m, nil
}

// patterns compiles paths and patterns, or expressions behind "~".
func patterns(texts []string) (list []*Path, err error) {
	for _, text := range texts {
		var p *Path
		switch expression, is := strings.CutPrefix(text, "~"); {
		case is:
			p, err = NewExpression(expression)
		case text == "":
			err = errors.New("an empty text is every path: leave it out")
		default:
			p, err = NewPath(text)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// Covers reports whether the rule is for a clean path.
func (m *Matcher) Covers(path string) bool { return m.Path.Matches(path) && m.allows(path) }

// Captures is Covers with what the groups of the path's pattern stand for: an
// expression runs once.
func (m *Matcher) Captures(path string) (captures []string, ok bool) {
	if captures, ok = m.Path.Match(path); !ok || !m.allows(path) {
		return nil, false
	}
	return captures, true
}

// allows reports whether within and except let a path through.
func (m *Matcher) allows(path string) bool {
	for _, p := range m.within {
		if !p.Matches(path) {
			return false
		}
	}
	return !slices.ContainsFunc(m.except, func(p *Path) bool { return p.Matches(path) })
}

func (m *Matcher) method(list []string) error {
	for i, method := range list {
		name, other := strings.CutPrefix(method, "!")
		if name == "" || strings.ToUpper(name) != name {
			return fmt.Errorf("%q is not a method: write one like POST", method)
		}
		if i > 0 && other != m.others {
			return errors.New("methods with and without \"!\" exclude each other")
		}
		m.others = other
		m.methods = append(m.methods, name)
	}
	// To the lane GET and HEAD are one.
	if slices.Contains(m.methods, http.MethodGet) != slices.Contains(m.methods, http.MethodHead) {
		m.own = true
	}
	return nil
}

func compileValues(from map[string]string, to *[]named) error {
	for name, text := range from {
		v, err := newValue(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*to = append(*to, named{name, v})
	}
	slices.SortStableFunc(*to, func(a, b named) int { return strings.Compare(a.name, b.name) })
	return nil
}

func (m *Matcher) address(list []string) (err error) {
	var allowed, denied []string
	for _, text := range list {
		if bare, not := strings.CutPrefix(text, "!"); not {
			denied = append(denied, bare)
		} else {
			allowed = append(allowed, text)
		}
	}
	if m.allowed, err = netset.Parse(allowed); err == nil {
		m.denied, err = netset.Parse(denied)
	}
	return err
}

// Needs adds the condition that a table has an entry for the request.
func (m *Matcher) Needs(t *Table) {
	m.tables = append(m.tables, t)
	if t.key == nil {
		return // of options that are only checked
	}
	headers, more := t.key.Says()
	m.vary, m.own = append(m.vary, headers...), m.own || more
}

// OnlyHost reports whether of all that may have a say beside the path, the
// listener and the kind of method, only the host has.
func (m *Matcher) OnlyHost() bool {
	return !m.own && !slices.ContainsFunc(m.vary, func(name string) bool { return name != "Host" })
}

// Only reports whether nothing but the path, the listener and the kind of method have a say.
func (m *Matcher) Only() bool { return !m.own && len(m.vary) == 0 }

// Vary are the request headers that have a say; ok is false where more than
// headers has one.
func (m *Matcher) Vary() (names []string, ok bool) { return m.vary, !m.own }

// Matches reports whether all but the path holds for a request.
func (m *Matcher) Matches(r *Asked) bool {
	key, _ := m.Failing(r)
	return key == ""
}

// Failing is the first condition that does not hold for a request, by its key and
// where several have that, its name; "" if all but the path hold.
func (m *Matcher) Failing(r *Asked) (key, name string) {
	switch {
	case len(m.methods) > 0 && slices.Contains(m.methods, r.Head.Method) == m.others:
		return "method", ""
	case m.protocol != "" && (m.protocol == "https") != r.Head.Secure:
		return "protocol", ""
	case len(m.hosts) > 0 && !matchesHost(m.hosts, Host(r.Head.Host)):
		return "host", ""
	}
	for _, h := range m.headers {
		if h.name == "Host" {
			if !h.matches(r.Head.Host) {
				return "header", h.name
			}
		} else if !h.matchesAny(r.Head.Fields.Values(h.name)) {
			return "header", h.name
		}
	}
	if name, ok := m.matchesQuery(r); !ok {
		return "query", name
	}
	if name, ok := m.matchesCookies(r); !ok {
		return "cookie", name
	}
	if !m.matchesAddress(r) {
		return "address", ""
	}
	for _, t := range m.tables {
		if !t.Has(r) {
			return "table", ""
		}
	}
	return "", ""
}

func matchesHost(hosts []string, host string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool {
		if suffix, ok := strings.CutPrefix(h, "*"); ok {
			return strings.HasSuffix(host, suffix) && len(host) > len(suffix)
		}
		return h == host
	})
}

func (m *Matcher) matchesQuery(r *Asked) (name string, ok bool) {
	if len(m.queries) == 0 {
		return "", true
	}
	values, err := url.ParseQuery(r.Query)
	if err != nil && values == nil {
		values = url.Values{}
	}
	for _, q := range m.queries {
		if !q.matchesAny(values[q.name]) {
			return q.name, false
		}
	}
	return "", true
}

func (m *Matcher) matchesCookies(r *Asked) (name string, ok bool) {
	for _, c := range m.cookies {
		if !c.matchesAny(slices.Collect(r.Head.Fields.Cookies(c.name))) {
			return c.name, false
		}
	}
	return "", true
}

func (m *Matcher) matchesAddress(r *Asked) bool {
	if m.allowed.Empty() && m.denied.Empty() {
		return true
	}
	ip := m.client.of(r) // of a UNIX socket the zero address
	return !m.denied.Has(ip) && (m.allowed.Empty() || m.allowed.Has(ip))
}

// value is what a header, a cookie or a parameter must be.
type value struct {
	not   bool
	exact string
	re    *regexp.Regexp // nil: exact
}

func newValue(text string) (v value, err error) {
	text, v.not = strings.CutPrefix(text, "!")
	v.exact = text
	expression, is := strings.CutPrefix(text, "~")
	if !is {
		if !IsGlob(text) {
			return v, nil
		}
		parts := strings.Split(text, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		expression = "(?s)^" + strings.Join(parts, ".*") + "$"
	}
	if len(expression) > maxExpression {
		return v, fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	}
	if v.re, err = regexp.Compile(expression); err != nil {
		return v, plainError(expression, err)
	}
	return v, nil
}

func (v value) matches(s string) bool {
	if v.re == nil {
		return (s == v.exact) != v.not
	}
	return v.re.MatchString(s) != v.not
}

// matchesAny is for a field that may come several times, or not at all: then it
// is "", which a star is not.
func (v value) matchesAny(values []string) bool {
	if len(values) == 0 {
		if v.re != nil && v.exact == "*" {
			return v.not
		}
		return v.matches("")
	}
	if v.not { // none of them may be it
		return !slices.ContainsFunc(values, func(s string) bool { return !v.matches(s) })
	}
	return slices.ContainsFunc(values, v.matches)
}
