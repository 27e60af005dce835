package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/wire/field"
	"millrace/internal/wire/urlpath"
)

// Rewrite turns one path into another.
type Rewrite struct {
	// Path is a regular expression (RE2) that the whole path has to match: after
	// strip_prefix, with the escapes of the request, without the query.
	Path string `yaml:"path"`
	// To is the path instead, in which {1} stands for the expression's first
	// group. A query in it comes before the request's.
	To string `yaml:"to"`
}

const (
	// maxRewrites and maxPattern bound what a request is compared with.
	maxRewrites = 100
	maxPattern  = 1 << 10
	// maxRewritten is the longest path that a rewrite makes: a group may stand in it twice.
	maxRewritten = 16 << 10
	// maxWork is for how many instructions, times bytes of a path, a loop may match
	// expressions: a few hundred microseconds. Longer paths are for goroutines.
	maxWork = 32 << 10
)

// paths is how the upstream's paths differ from the client's. It is made once.
type paths struct {
	strip    string // without the last slash; "": nothing
	rewrites []rewrite
	work     int // for each byte of a path, by rewrites: how many instructions they have
	servers  []upstreamPath
	below    bool // an address has a path, or one is taken away: requests stay below that
	answers  bool // Location and the like are turned back
}

// upstreamPath is where an address begins.
type upstreamPath struct {
	authority []string // with scheme, in one spelling
	prefix    string   // escaped, without the last slash
}

// rewrite is a Rewrite, compiled.
type rewrite struct {
	path  *regexp.Regexp
	size  int // of path, in instructions
	parts []part
}

// part is text, or the number of a group.
type part struct {
	text  string
	group int // 0: text
}

// newPaths returns what is wrong by the key it is wrong with.
func newPaths(o Options) (paths, map[string]error) {
	faults := map[string]error{}
	p := paths{strip: strings.TrimRight(o.StripPrefix, "/"), answers: o.Redirects != "keep"}
	if o.Redirects != "" && o.Redirects != "keep" && o.Redirects != "rewrite" {
		faults["redirects"] = fmt.Errorf("%q is not supported: write rewrite (the default) or keep", o.Redirects)
	}
	if s := o.StripPrefix; s != "" && (s[0] != '/' || p.strip != "" && path.Clean(s) != p.strip || strings.ContainsAny(s, "?#%*")) {
		faults["strip_prefix"] = fmt.Errorf("%q is not the beginning of a path: write /app/, without escapes", s)
	}
	if len(o.Rewrite) > maxRewrites {
		faults["rewrite"] = fmt.Errorf("%d rewrites are too many: at most %d", len(o.Rewrite), maxRewrites)
	}
	for i, one := range o.Rewrite {
		r, key, err := compileRewrite(one)
		if err != nil {
			faults[fmt.Sprintf("rewrite[%d].%s", i, key)] = err
			continue
		}
		p.rewrites = append(p.rewrites, r)
		p.work += r.size
	}
	for _, to := range o.To {
		one := pathOf(to)
		if name := o.Host; name != "" && name != "client" && name != "upstream" {
			for _, scheme := range []string{"http", "https"} {
				one.authority = append(one.authority, scheme+"://"+field.NormalAuthority(scheme, name))
			}
		}
		p.servers = append(p.servers, one)
	}
	p.below = p.strip != "" || slices.ContainsFunc(slices.Concat(o.To, o.Mirror.To), func(to string) bool { return pathOf(to).prefix != "" })
	return p, faults
}

// pathOf reads one of Options.To, of which only valid ones count.
func pathOf(to string) upstreamPath {
	if strings.HasPrefix(to, "unix:") {
		return upstreamPath{authority: []string{"http://localhost", "https://localhost"}}
	}
	u, err := url.Parse(to)
	if err != nil {
		return upstreamPath{}
	}
	scheme := map[string]string{"ws": "http", "wss": "https", "h2c": "http"}[u.Scheme]
	scheme = cmp.Or(scheme, u.Scheme)
	return upstreamPath{
		authority: []string{scheme + "://" + field.NormalAuthority(scheme, u.Host)},
		prefix:    strings.TrimRight(u.EscapedPath(), "/"),
	}
}

// compileRewrite returns the key that an error is about.
func compileRewrite(o Rewrite) (r rewrite, key string, err error) {
	if o.Path == "" || len(o.Path) > maxPattern {
		return r, "path", fmt.Errorf("a regular expression of 1 to %d bytes is needed, like /v1/(.*)", maxPattern)
	}
	if r.path, err = regexp.Compile("^(?:" + o.Path + ")$"); err != nil {
		return r, "path", fmt.Errorf("%q is not a regular expression: %s", o.Path, reasonOf(err))
	}
	r.size = sizeOf(r.path)
	if o.To == "" || o.To[0] != '/' || strings.HasPrefix(o.To, "//") || !sendable(o.To) {
		return r, "to", fmt.Errorf("%q is not a path: write /api/{1}, with spaces and the like escaped", o.To)
	}
	if urlpath.LeadsOut(o.To) {
		return r, "to", fmt.Errorf("%q has a dot segment: write the path that it leads to", o.To)
	}
	if strings.Contains(o.To, "#") {
		return r, "to", fmt.Errorf("%q: a fragment is not sent: leave out # and what follows", o.To)
	}
	for rest := o.To; rest != ""; {
		before, after, found := strings.Cut(rest, "{")
		if before != "" {
			r.parts = append(r.parts, part{text: before})
		}
		if !found {
			break
		}
		number, behind, closed := strings.Cut(after, "}")
		n, err := strconv.Atoi(number)
		if !closed || err != nil || n < 1 {
			return r, "to", fmt.Errorf("%q: { begins the number of a group, like {1}; for the character itself write %%7B", o.To)
		}
		if n > r.path.NumSubexp() {
			return r, "to", fmt.Errorf("%q names group %d, and %q has %d: groups are in parentheses", o.To, n, o.Path, r.path.NumSubexp())
		}
		r.parts = append(r.parts, part{group: n})
		rest = behind
	}
	return r, "", nil
}

// sizeOf is how many instructions an expression has: the most that is done for each
// byte of what is matched with it.
func sizeOf(e *regexp.Regexp) int {
	parsed, err := syntax.Parse(e.String(), syntax.Perl)
	if err != nil {
		return maxWork // cannot be: it was compiled
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return maxWork
	}
	return len(program.Inst)
}

// reasonOf is what regexp says, without the expression, which has more than the user wrote.
func reasonOf(err error) string {
	text := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	if before, _, found := strings.Cut(text, ": `"); found {
		return before
	}
	return text
}

// sendable reports whether s may stand in a request line.
func sendable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// Rewrites reports whether the upstream gets other paths than the clients ask
// for. Such a route takes only paths without dots and double slashes: what is
// left of them must not lead out of the path of the upstream's address.
func (o *Options) Rewrites() bool { return o.StripPrefix != "" || len(o.Rewrite) > 0 }

// moved returns the escaped path and the query that the upstream gets. ok is false
// where that would lead out of the path that the rewrite, or the upstream's address,
// names: /../admin, for example.
func (p *paths) moved(raw, query string) (newPath, newQuery string, ok bool) {
	if p.strip != "" {
		raw = stripped(raw, p.strip)
	}
	for i := range p.rewrites {
		if to, applies := p.rewrites[i].apply(raw); applies {
			path, first, asks := strings.Cut(to, "?")
			switch {
			case asks && query != "":
				query = first + "&" + query
			case asks:
				query = first
			}
			return path, query, !urlpath.LeadsOut(path)
		}
	}
	return raw, query, !p.below || !urlpath.LeadsOut(raw)
}

// stays reports whether a request with an escaped path may be passed on: it asks for nothing
// beside the path of a rewrite, or of the upstream's address.
func (p *paths) stays(path string) bool {
	if len(p.rewrites) == 0 && !p.below {
		return true
	}
	_, _, ok := p.moved(path, "")
	return ok
}

// Stays reports whether a request with this URL is passed on: see [Handler.Refuse].
func (o *Options) Stays(u *url.URL) bool {
	p, _ := newPaths(*o)
	return p.stays(cmp.Or(u.RawPath, u.EscapedPath()))
}

// brief reports whether matching a path is quick enough for an event loop.
func (p *paths) brief(path string) bool { return p.work == 0 || len(path)*p.work <= maxWork }

// stripped removes prefix, which is not escaped, from the start of an escaped path.
func stripped(raw, prefix string) string {
	i := 0
	for n := 0; n < len(prefix); n++ {
		if i >= len(raw) {
			return raw
		}
		c, width := raw[i], 1
		if c == '%' && i+2 < len(raw) {
			if v, err := strconv.ParseUint(raw[i+1:i+3], 16, 8); err == nil {
				c, width = byte(v), 3
			}
		}
		if c != prefix[n] {
			return raw
		}
		i += width
	}
	switch {
	case i == len(raw):
		return "/"
	case raw[i] == '/':
		return raw[i:]
	}
	return raw // /application is not below /app
}

func (r *rewrite) apply(raw string) (string, bool) {
	m := r.path.FindStringSubmatchIndex(raw)
	if m == nil {
		return "", false
	}
	var b strings.Builder
	for _, p := range r.parts {
		if p.group == 0 {
			b.WriteString(p.text)
		} else if from := m[2*p.group]; from >= 0 {
			b.WriteString(raw[from:m[2*p.group+1]])
		}
		if b.Len() > maxRewritten {
			return "", false
		}
	}
	to := b.String()
	if strings.HasPrefix(to, "//") {
		to = "/" + strings.TrimLeft(to, "/") // a host for some
	}
	return to, true
}

// Restore turns paths and addresses of the upstream in the fields of an answer, in place,
// into those that the client may use: in Location, Content-Location, Refresh, and the
// Path of Set-Cookie. scheme and host are what the client has asked for: see
// [Handler.Asked].
func (h *Handler) Restore(l field.Lines, scheme, host string) {
	p := &h.paths
	if !p.answers {
		return
	}
	for i := range l {
		switch one := &l[i]; one.Name {
		case "Location", "Content-Location", "Refresh":
			if l.Only(one.Name) != "" { // no client can follow several
				one.Value = p.address(one.Name, one.Value, scheme, host)
			}
		case "Set-Cookie":
			if p.moves() {
				one.Value = p.cookie(one.Value)
			}
		}
	}
}

// moves reports whether clients see other paths than the upstream's.
func (p *paths) moves() bool {
	if p.strip != "" {
		return true
	}
	for i := range p.servers {
		if p.servers[i].prefix != "" {
			return true
		}
	}
	return false
}

// address translates the value of Location, Content-Location or Refresh for a client
// that asked for the host asked in a scheme.
func (p *paths) address(name, value, scheme, asked string) string {
	before, target, quote := "", value, ""
	if name == "Refresh" {
		before, target, quote = refreshTarget(value)
	}
	if to, ok := p.restored(target, scheme, asked); ok && target != "" {
		return before + to + quote
	}
	return value
}

// restored translates an address of the upstream into one that the client may use;
// false where it stays as it is.
func (p *paths) restored(to, scheme, asked string) (string, bool) {
	if lower := strings.ToLower(to[:min(len(to), len("https://"))]); strings.HasPrefix(lower, "http://") || strings.HasPrefix(lower, "https://") || strings.HasPrefix(to, "//") {
		begin := strings.Index(to, "//") + 2
		end := len(to)
		if i := strings.IndexAny(to[begin:], "/?#"); i >= 0 {
			end = begin + i
		}
		host, rest := strings.ToLower(to[:end]), to[end:]
		if rest == "" || rest[0] != '/' {
			rest = "/" + rest
		}
		for i := range p.servers {
			if p.servers[i].is(host) {
				moved, ok := p.public(rest, p.servers[i].prefix)
				return harmless(moved), ok || p.strip != "" && below(rest, p.strip)
			}
		}
		if asked == "" || !sameOrigin(host, scheme+"://"+asked) {
			return "", false
		}
		if moved, ok := p.publicOfAny(rest); ok {
			return to[:end] + moved, true
		}
		return "", false
	}
	if to == "" || to[0] != '/' {
		return "", false // relative, which holds for any prefix
	}
	moved, ok := p.publicOfAny(to)
	return harmless(moved), ok
}

// harmless makes one slash of several at the start of a path: browsers take what
// follows two for a host.
func harmless(to string) string {
	if len(to) > 1 && to[0] == '/' && (to[1] == '/' || to[1] == '\\') {
		return "/." + to
	}
	return to
}

// is reports whether an origin, in lower case and perhaps without its scheme, is
// the server's.
func (s *upstreamPath) is(origin string) bool {
	return slices.ContainsFunc(s.authority, func(a string) bool { return sameOrigin(origin, a) })
}

// sameOrigin compares an origin with a normal one. Without a scheme it has any.
func sameOrigin(origin, normal string) bool {
	scheme, host, found := strings.Cut(origin, "://")
	ourScheme, ourHost, _ := strings.Cut(normal, "://")
	if !found {
		scheme, host = ourScheme, strings.TrimPrefix(origin, "//")
	}
	return scheme == ourScheme && field.NormalAuthority(scheme, host) == ourHost
}

// publicOfAny is public with the prefix of the first server that the path is below.
func (p *paths) publicOfAny(rest string) (string, bool) {
	if !p.moves() {
		return "", false
	}
	for i := range p.servers {
		if to, ok := p.public(rest, p.servers[i].prefix); ok {
			return to, true
		}
	}
	return "", false
}

// public translates a path of the upstream into the one that clients see. A path that
// clients see already is left alone, and so is one that is not below prefix.
func (p *paths) public(rest, prefix string) (string, bool) {
	if p.strip != "" && below(rest, p.strip) || !below(rest, prefix) {
		return rest, false
	}
	return p.strip + rest[len(prefix):], true
}

// below reports whether a path, perhaps with its query, is a prefix or below it.
func below(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || strings.IndexByte("/?#", rest[0]) >= 0)
}

// cookie translates the Path of a Set-Cookie.
func (p *paths) cookie(line string) string {
	if strings.HasPrefix(line, "__Host-") {
		return line // whose Path is / (draft-ietf-httpbis-rfc6265bis, 4.1.3.2)
	}
	attributes := strings.Split(line, ";")
	for i, a := range attributes[1:] {
		name, value, _ := strings.Cut(a, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "path") {
			continue
		}
		if to, ok := p.cookiePath(strings.TrimSpace(value)); ok {
			attributes[i+1] = name + "=" + to
		}
	}
	return strings.Join(attributes, ";")
}

func (p *paths) cookiePath(path string) (string, bool) {
	if path == "" || path[0] != '/' {
		return "", false
	}
	for i := range p.servers {
		if to, ok := p.public(path, p.servers[i].prefix); ok {
			return to, to != ""
		}
	}
	return "", false
}

// refreshTarget cuts the address out of a Refresh: "5; url=/there".
func refreshTarget(value string) (before, target, quote string) {
	at := strings.Index(strings.ToLower(value), "url=")
	if at < 0 || len(value) > maxRewritten {
		return value, "", ""
	}
	at += len("url=")
	before, target = value[:at], strings.TrimRight(value[at:], " \t")
	if n := len(target); n >= 2 && (target[0] == '"' || target[0] == '\'') && target[n-1] == target[0] {
		return before + target[:1], target[1 : n-1], target[n-1:]
	}
	return before, target, ""
}

// CheckPrefix reports whether a strip_prefix can ever be at the beginning of a
// path that the route's pattern matches.
func (o *Options) CheckPrefix(pattern string) error {
	prefix := strings.TrimRight(o.StripPrefix, "/")
	if prefix == "" || below(pattern, prefix) {
		return nil
	}
	if strings.HasSuffix(pattern, "/") && strings.HasPrefix(prefix+"/", pattern) {
		return nil // some of the route's paths have it
	}
	return errors.New("no path of this route begins with it: the route is " + pattern)
}
