package caddy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// conds are conditions that must all hold: what one rule can express.
type conds struct {
	path     string   // a pattern as Caddy has it; "" is any
	regex    string   // instead of path
	paths    []string // patterns of which one must match, instead of both
	within   string   // a prefix that all paths of the regex have
	not      []string // patterns of paths that it is not for
	host     []string
	method   []string
	address  []string
	header   map[string]string
	query    map[string]string
	protocol string
	file     *fileCond
}

// fileCond is whether one of some files is there.
type fileCond struct {
	absent bool
	try    []string
}

// any reports whether they hold for every request.
func (c conds) any() bool {
	return c.onlyPath() && c.path == ""
}

// onlyPath reports whether the path is the only condition.
func (c conds) onlyPath() bool {
	return c.regex == "" && c.paths == nil && c.not == nil && c.host == nil && c.method == nil && c.address == nil && c.header == nil && c.query == nil && c.protocol == "" && c.file == nil
}

// key is the route for a path alone, "" if there is none: a path that ends in a
// slash is for itself alone in Caddy, and here for all below.
func (c conds) key() string {
	if !c.onlyPath() {
		return ""
	}
	return keyOf(c.path)
}

func keyOf(path string) string {
	switch stars := strings.Count(path, "*"); {
	case path == "", path == "/*", path == "*":
		return "/"
	case stars == 0 && strings.HasSuffix(path, "/"):
		return ""
	case stars == 0:
		return path
	case stars == 1 && strings.HasSuffix(path, "/*"):
		return strings.TrimSuffix(path, "*")
	case stars == 1 && strings.HasSuffix(path, "*"):
		return path + "*"
	case strings.HasPrefix(path, "*"): // what ends, or has within, the rest
		rest := strings.TrimPrefix(path, "*")
		if strings.Count(rest, "*") == 1 && strings.HasSuffix(rest, "*") {
			rest += "*"
		} else if strings.Contains(rest, "*") {
			return ""
		}
		return "/**" + strings.TrimPrefix(rest, "/**")
	}
	return path
}

// rule is a rule's conditions; guard: in all spellings of the path, since Caddy
// compares paths without regard to case.
func (c conds) rule(guard bool) *draft.Node {
	n := draft.Map()
	switch path := keyOf(c.path); {
	case c.regex != "":
		n.Set("regex", draft.Verbatim(c.regex))
	case c.paths != nil:
		n.Set("regex", draft.Verbatim("(?i)"+oneOf(c.paths)))
	case c.path == "":
	case path == "" || guard && hasLetters(c.path):
		n.Set("regex", draft.Verbatim(expressionOf(c.path, guard)))
	default:
		n.Set("path", text(path))
	}
	list := func(key string, values []string) {
		if values != nil {
			n.Set(key, draft.Texts(values...))
		}
	}
	list("host", c.host)
	list("method", c.method)
	list("address", c.address)
	for _, m := range []struct {
		key    string
		values map[string]string
	}{{"header", c.header}, {"query", c.query}} {
		if m.values == nil {
			continue
		}
		values := draft.Map()
		for _, name := range slices.Sorted(maps.Keys(m.values)) {
			values.Set(name, draft.Verbatim(m.values[name]))
		}
		n.Set(m.key, values.Flow())
	}
	if c.protocol != "" {
		n.Set("protocol", draft.Text(c.protocol))
	}
	return n.Flow()
}

func hasLetters(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' })
}

// expressionOf is a pattern of Caddy's as a regular expression.
func expressionOf(path string, fold bool) string {
	parts := strings.Split(path, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	between := "[^/]*"
	if strings.HasPrefix(path, "*") {
		between = ".*"
	}
	expr, end := strings.Join(parts[:len(parts)-1], between), parts[len(parts)-1]
	switch {
	case len(parts) == 1:
		expr = "^" + end + "$"
	case end == "" && !strings.Contains(expr, between): // a prefix
		expr = "^" + expr
	case end == "" && strings.HasPrefix(path, "*"):
		expr = "^" + expr
	default:
		expr = "^" + expr + between + end + "$"
	}
	if fold {
		expr = "(?i)" + expr
	}
	return expr
}

// oneOf is an expression for several patterns.
func oneOf(paths []string) string {
	exprs := make([]string, 0, len(paths))
	for _, p := range paths {
		exprs = append(exprs, expressionOf(p, false))
	}
	return strings.Join(exprs, "|")
}

// below joins those of several patterns that are below a prefix into one expression; ""
// if there are none, false where no expression can say it.
func below(prefix string, paths []string) (string, bool) {
	head, _ := literal(prefix)
	var exprs []string
	for _, p := range paths {
		switch end, suffix := strings.CutPrefix(p, "*"); {
		case !pathsOverlap(prefix, p):
		case pathCovers(prefix, p):
			exprs = append(exprs, expressionOf(p, false))
		case suffix && !strings.Contains(end, "*") && strings.HasSuffix(prefix, "*") && strings.Count(prefix, "*") == 1:
			exprs = append(exprs, "^"+regexp.QuoteMeta(head)+".*"+regexp.QuoteMeta(end)+"$")
		default:
			return "", false
		}
	}
	if exprs == nil {
		return "", true
	}
	return "(?i)" + strings.Join(exprs, "|"), true
}

// andPaths joins the conditions on the path.
func (c conds) andPaths(o conds) (conds, bool) {
	free := func(c conds) bool { return c.regex == "" && c.paths == nil }
	anyPath := func(c conds) bool { return free(c) && pathCovers(c.path, "") }
	switch {
	case anyPath(o):
		return c, true
	case anyPath(c):
		c.path, c.regex, c.paths, c.within = o.path, o.regex, o.paths, o.within
		return c, true
	case free(c) && free(o):
		if pathCovers(c.path, o.path) {
			c.path = o.path
			return c, true
		}
		if pathCovers(o.path, c.path) {
			return c, true
		}
		if c.paths = []string{c.path}; strings.HasPrefix(o.path, "*") {
			c.path, o.path, c.paths = o.path, c.path, []string{o.path}
		}
	case free(o) && c.within != "" && pathCovers(o.path, c.within):
		return c, true
	case free(c) && o.within != "" && pathCovers(c.path, o.within):
		c.path, c.regex, c.within = "", o.regex, o.within
		return c, true
	case c.regex != "" || o.regex != "":
		return c, c.regex == o.regex
	case c.paths != nil && o.paths != nil:
		return c, slices.Equal(c.paths, o.paths)
	}
	prefix, list := o.path, c.paths
	if list == nil {
		prefix, list = c.path, o.paths
	}
	expr, ok := below(prefix, list)
	c.path, c.paths, c.regex, c.within = "", nil, expr, prefix
	return c, ok && expr != ""
}

// literal is the text before a pattern's first star, and whether that is the whole pattern.
func literal(path string) (string, bool) {
	head, _, has := strings.Cut(strings.ToLower(path), "*")
	return head, !has && path != ""
}

// pathCovers reports whether a certainly matches every path that b matches.
func pathCovers(a, b string) bool {
	if a == "" || a == "*" || a == "/*" || strings.EqualFold(a, b) {
		return true
	}
	head, exact := literal(a)
	if exact || strings.Count(a, "*") != 1 || !strings.HasSuffix(a, "*") {
		return false
	}
	other, _ := literal(b)
	return strings.HasPrefix(other, head) && b != ""
}

// pathsOverlap reports whether some path may match both.
func pathsOverlap(a, b string) bool {
	if a == "" || b == "" {
		return true
	}
	ha, exactA := literal(a)
	hb, exactB := literal(b)
	switch {
	case exactA && exactB:
		return ha == hb
	case exactA:
		return mayBe(ha, b, hb)
	case exactB:
		return mayBe(hb, a, ha)
	}
	return strings.HasPrefix(ha, hb) || strings.HasPrefix(hb, ha)
}

// mayBe reports whether a pattern that begins with head may match a path.
func mayBe(path, pattern, head string) bool {
	if end, is := strings.CutPrefix(strings.ToLower(pattern), "*"); is && !strings.Contains(end, "*") {
		return strings.HasSuffix(path, end)
	}
	return strings.HasPrefix(path, head)
}

// covers reports whether c holds wherever o does.
func (c conds) covers(o conds) bool {
	same := func(a, b map[string]string) bool {
		for k, v := range a {
			if have, named := b[k]; !named || have != v { // "" is said of what must be missing
				return false
			}
		}
		return true
	}
	if c.file != nil && (o.file == nil || o.file.absent != c.file.absent || !slices.Equal(o.file.try, c.file.try)) {
		return false
	}
	for _, n := range c.not {
		if !slices.Contains(o.not, n) && (o.path == "" || pathsOverlap(n, o.path)) {
			return false
		}
	}
	return (c.regex == "" || c.regex == o.regex) && (c.paths == nil || slices.Equal(c.paths, o.paths) || o.path != "" && slices.ContainsFunc(c.paths, func(p string) bool { return pathCovers(p, o.path) })) &&
		(pathCovers(c.path, o.path) || o.within != "" && pathCovers(c.path, o.within)) && within(c.host, o.host) && within(c.method, o.method) &&
		(c.address == nil || slices.Equal(c.address, o.address)) && same(c.header, o.header) && same(c.query, o.query) && (c.protocol == "" || c.protocol == o.protocol)
}

// within reports whether each value that list a allows is allowed by b. Lists may name
// what is excluded instead; nil allows everything.
func within(a, b []string) bool {
	excluded := func(list []string) bool { return len(list) > 0 && strings.HasPrefix(list[0], "!") }
	all := func(list, in []string) bool {
		return !slices.ContainsFunc(list, func(v string) bool { return !slices.Contains(in, v) })
	}
	switch {
	case a == nil:
		return true
	case b == nil:
		return false
	case excluded(a) && excluded(b):
		return all(a, b)
	case excluded(a):
		return !slices.ContainsFunc(b, func(v string) bool { return slices.Contains(a, "!"+v) })
	case excluded(b):
		return false
	}
	return all(b, a)
}

// overlaps reports whether both may hold for one request.
func (c conds) overlaps(o conds) bool {
	apart := func(a, b []string) bool {
		if a == nil || b == nil || strings.HasPrefix(a[0], "!") || strings.HasPrefix(b[0], "!") {
			return false
		}
		return !slices.ContainsFunc(a, func(v string) bool {
			return slices.ContainsFunc(b, func(w string) bool { return v == w || strings.Contains(v+w, "*") })
		})
	}
	if apart(c.host, o.host) || apart(c.method, o.method) || c.protocol != "" && o.protocol != "" && c.protocol != o.protocol {
		return false
	}
	for _, pair := range [][2]conds{{c, o}, {o, c}} {
		for _, n := range pair[0].not {
			if pair[1].path != "" && pathCovers(n, pair[1].path) {
				return false
			}
		}
	}
	if c.regex != "" || o.regex != "" {
		reach := func(c conds) string { return c.path + c.within }
		return c.paths != nil || o.paths != nil || pathsOverlap(reach(c), reach(o))
	}
	each := func(c conds) []string {
		if c.paths != nil {
			return c.paths
		}
		return []string{c.path}
	}
	return slices.ContainsFunc(each(c), func(p string) bool {
		return slices.ContainsFunc(each(o), func(q string) bool { return pathsOverlap(p, q) })
	})
}

// and joins both; false where one rule cannot express it.
func (c conds) and(o conds) (conds, bool) {
	var ok bool
	if c, ok = c.andPaths(o); !ok {
		return c, false
	}
	both := func(a, b []string) []string {
		switch {
		case a == nil:
			return b
		case b == nil || slices.Equal(a, b):
			return a
		case strings.HasPrefix(a[0], "!") && strings.HasPrefix(b[0], "!"):
			return slices.Concat(a, b)
		case strings.HasPrefix(a[0], "!") || strings.HasPrefix(b[0], "!"):
			ok = false
			return a
		}
		common := slices.DeleteFunc(slices.Clone(a), func(v string) bool { return !slices.Contains(b, v) })
		ok = ok && len(common) > 0
		return common
	}
	merge := func(a, b map[string]string) map[string]string {
		if a == nil {
			return b
		}
		out := maps.Clone(a)
		for k, v := range b {
			if old, is := out[k]; is && old != v {
				ok = false
			}
			out[k] = v
		}
		return out
	}
	c.host, c.method, c.address = both(c.host, o.host), both(c.method, o.method), both(c.address, o.address)
	c.header, c.query = merge(c.header, o.header), merge(c.query, o.query)
	not := slices.Concat(c.not, o.not)
	c.not = nil
	for _, n := range not { // those that concern it
		if pathCovers(n, c.path) && c.path != "" {
			return c, false
		}
		if (c.regex != "" || c.paths != nil || pathsOverlap(n, c.path)) && !slices.Contains(c.not, n) {
			c.not = append(c.not, n)
		}
	}
	if c.protocol == "" {
		c.protocol = o.protocol
	} else if o.protocol != "" && o.protocol != c.protocol {
		return c, false
	}
	if c.file == nil {
		c.file = o.file
	} else if o.file != nil && o.file != c.file {
		return c, false
	}
	return c, ok
}

// andAll joins each of a with each of b; an error where a pair is too much for one rule.
func andAll(a, b []conds) ([]conds, error) {
	var out []conds
	for _, x := range a {
		for _, y := range b {
			if !x.overlaps(y) {
				continue
			}
			both, ok := x.and(y)
			if !ok {
				return nil, fmt.Errorf("its conditions are too many for one rule")
			}
			out = append(out, both)
		}
	}
	if len(out) > maxAlternatives {
		return nil, fmt.Errorf("it stands for more than %d rules", maxAlternatives)
	}
	return out, nil
}

// maxAlternatives bounds what is made of one matcher.
const maxAlternatives = 32
