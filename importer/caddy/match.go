package caddy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// conds are conditions that must all hold.
type conds struct {
	plan.Cond           // but for the path
	in        []group   // the path is one of each
	not       []string  // patterns of paths that it is not for
	file      *fileCond // a file is there, or not
}

// group are paths: those of some patterns, as Caddy has them, or of an expression.
type group struct {
	paths []string
	regex string
}

// fileCond is whether one of some files is there.
type fileCond struct {
	absent bool
	try    []string
}

// onPath are the conditions that a path is one of some patterns.
func onPath(patterns ...string) conds {
	if slices.ContainsFunc(patterns, func(p string) bool { return pathCovers(p, "") }) {
		return conds{}
	}
	return conds{in: []group{{paths: patterns}}}
}

// onRegex are the conditions that a path matches an expression.
func onRegex(expr string) conds { return conds{in: []group{{regex: expr}}} }

// any reports whether they hold for every request.
func (c conds) any() bool { return c.onlyPath() && c.in == nil }

// onlyPath reports whether one pattern for the path is the only condition, or none.
func (c conds) onlyPath() bool {
	return c.EveryPath() && c.not == nil && c.file == nil && (c.in == nil || c.path() != "")
}

// path is the pattern for the path, "" if there is none, or it is not just one.
func (c conds) path() string {
	if len(c.in) == 1 && len(c.in[0].paths) == 1 {
		return c.in[0].paths[0]
	}
	return ""
}

// regex is the expression for the path whose groups a target may use, "" if there is none.
func (c conds) regex() string {
	if len(c.in) > 0 {
		return c.in[0].regex
	}
	return ""
}

// key is the route for a path alone, "" if there is none.
func (c conds) key() string {
	if !c.onlyPath() {
		return ""
	}
	return keyOf(c.path())
}

// keyOf is a pattern as that of a route: a path that ends in a slash is for itself alone
// in Caddy, and here for all below.
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

// rule is the condition of a rule; guard: in all spellings of the path, since Caddy
// compares paths without regard to case.
func (c conds) rule(guard bool) plan.Cond {
	out := c.Cond
	for i, g := range c.in {
		path, expr := g.pattern(guard)
		switch {
		case i == 0:
			out.Path, out.Regex = path, expr
		case path != "":
			out = out.In([]string{path}, nil)
		default:
			out = out.In([]string{"~" + expr}, nil)
		}
	}
	for _, n := range c.not {
		out.Except = append(out.Except, "~"+expressionOf(n, true))
	}
	return out
}

// pattern is a group as a pattern of a rule, or as an expression.
func (g group) pattern(guard bool) (path, expr string) {
	switch {
	case g.regex != "":
		return "", g.regex
	case len(g.paths) > 1:
		return "", "(?i)" + oneOf(g.paths)
	case guard && hasLetters(g.paths[0]) || keyOf(g.paths[0]) == "":
		return "", expressionOf(g.paths[0], guard)
	}
	return keyOf(g.paths[0]), ""
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
	case end == "" && (!strings.Contains(expr, between) || strings.HasPrefix(path, "*")): // a prefix
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

// covers reports whether a group certainly has every path of another.
func (g group) covers(o group) bool {
	if g.regex != "" || o.regex != "" {
		return g.regex == o.regex
	}
	return !slices.ContainsFunc(o.paths, func(p string) bool {
		return !slices.ContainsFunc(g.paths, func(q string) bool { return pathCovers(q, p) })
	})
}

// overlaps reports whether some path may be of both groups.
func (g group) overlaps(o group) bool {
	return g.regex != "" || o.regex != "" || slices.ContainsFunc(g.paths, func(p string) bool {
		return slices.ContainsFunc(o.paths, func(q string) bool { return pathsOverlap(p, q) })
	})
}

// covers reports whether c holds wherever o does.
func (c conds) covers(o conds) bool {
	if c.file != nil && (o.file == nil || o.file.absent != c.file.absent || !slices.Equal(o.file.try, c.file.try)) {
		return false
	}
	for _, g := range c.in {
		if !slices.ContainsFunc(o.in, g.covers) {
			return false
		}
	}
	for _, n := range c.not {
		apart := func(g group) bool { return !g.overlaps(group{paths: []string{n}}) }
		if !slices.Contains(o.not, n) && !slices.ContainsFunc(o.in, apart) {
			return false
		}
	}
	return c.Cond.Covers(o.Cond)
}

// overlaps reports whether both may hold for one request.
func (c conds) overlaps(o conds) bool {
	for _, g := range c.in {
		if slices.ContainsFunc(o.in, func(h group) bool { return !g.overlaps(h) }) {
			return false
		}
	}
	return !c.excludes(o) && !o.excludes(c) && c.Cond.Overlaps(o.Cond)
}

// excludes reports whether c is for none of the paths that o is for.
func (c conds) excludes(o conds) bool {
	return slices.ContainsFunc(c.not, func(n string) bool {
		return slices.ContainsFunc(o.in, group{paths: []string{n}}.covers)
	})
}

// and joins both; an error where one rule cannot express it.
func (c conds) and(o conds) (conds, error) {
	out := conds{not: draft.Unique(slices.Concat(c.not, o.not)), file: c.file}
	for _, g := range slices.Concat(c.in, o.in) {
		if slices.ContainsFunc(out.in, g.covers) {
			continue // the other says it already
		}
		out.in = append(slices.DeleteFunc(out.in, func(h group) bool { return h.covers(g) }), g)
	}
	slices.SortStableFunc(out.in, func(a, b group) int { return min(len(b.regex), 1) - min(len(a.regex), 1) }) // whose groups may be used
	out.not = slices.DeleteFunc(out.not, func(n string) bool {                                                 // those that do not concern it
		return slices.ContainsFunc(out.in, func(g group) bool { return !g.overlaps(group{paths: []string{n}}) })
	})
	if o.file != nil && c.file != nil && o.file != c.file {
		return out, errors.New("its conditions on files are too many for one rule")
	}
	if out.file == nil {
		out.file = o.file
	}
	var err error
	if out.Cond, err = c.Cond.And(o.Cond); err != nil {
		return out, fmt.Errorf("its conditions are too many for one rule: %w", err)
	}
	if out.excludes(out) {
		return out, plan.ErrNever
	}
	return out, nil
}

// below are the conditions of a block from whose paths a prefix is taken away, which see the
// rest alone, for the whole path.
func below(strip string, list []conds) (out []conds, err error) {
	prefix := strings.TrimSuffix(strip, "/")
	if prefix == "" {
		return list, nil
	}
	pattern := func(p string) string {
		if strings.HasPrefix(p, "/") {
			return prefix + p
		}
		return p // by how it ends
	}
	for _, c := range list {
		inside := c
		inside.in, inside.not = nil, nil
		for _, g := range c.in {
			h := group{regex: g.regex}
			if expr, is := strings.CutPrefix(g.regex, "^/"); is {
				h.regex = "^" + regexp.QuoteMeta(prefix) + "/" + expr
			} else if g.regex != "" {
				return nil, fmt.Errorf("%s is for the path without %s: write it for the whole path", g.regex, strip)
			}
			for _, p := range g.paths {
				h.paths = append(h.paths, pattern(p))
			}
			inside.in = append(inside.in, h)
		}
		for _, p := range c.not {
			inside.not = append(inside.not, pattern(p))
		}
		out = append(out, inside)
	}
	return out, nil
}

// andAll joins each of a with each of b; an error where a pair is too much for one rule.
func andAll(a, b []conds) ([]conds, error) {
	var out []conds
	for _, x := range a {
		for _, y := range b {
			if !x.overlaps(y) {
				continue
			}
			both, err := x.and(y)
			if errors.Is(err, plan.ErrNever) {
				continue
			}
			if err != nil {
				return nil, err
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
