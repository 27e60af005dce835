package nginx

import (
	"regexp"
	"slices"
	"strings"

	"millrace/importer/plan"
)

// nginx looks for a location level by level: an exact one, or the longest prefix, and
// then the same within that prefix. Only where nothing there is exact or an expression
// that matches, it tries the expressions of the level itself, unless the prefix says
// ^~; what stands within an expression comes in the same way before it. If no
// expression matches, the innermost prefix answers. The rules are written in this
// order, each for the part of the paths for which nginx reaches its location.

// region is a part of a site's paths, given by a rule's patterns.
type region struct{ within, except []string }

// and is the part of a region that other patterns match as well.
func (g region) and(o region) region {
	return region{slices.Concat(g.within, o.within), slices.Concat(g.except, o.except)}
}

// isPrefix reports whether a location is chosen by how paths begin.
func (l *location) isPrefix() bool { return l.kind == prefixLocation || l.kind == caretLocation }

// ofKind are locations of a list.
func ofKind(list []*location, kinds ...locationKind) (found []*location) {
	for _, l := range list {
		if slices.Contains(kinds, l.kind) {
			found = append(found, l)
		}
	}
	return found
}

// inner are the locations directly within one; those of the server block for nil.
func (t *site) inner(outer *location) (found []*location) {
	for _, l := range t.locations {
		if l.outer == outer {
			found = append(found, l)
		}
	}
	return found
}

// longer are prefixes of the same level that nginx chooses before l.
func (t *site) longer(l *location) (found []*location) {
	for _, o := range ofKind(t.inner(l.outer), prefixLocation, caretLocation) {
		if strings.HasPrefix(o.path, l.path) && len(o.path) > len(l.path) {
			found = append(found, o)
		}
	}
	return found
}

// find is the location that nginx chooses for a path within outer; ended: the expressions
// of outer levels are not tried.
func (t *site) find(outer *location, path string) (found *location, ended bool) {
	level := t.inner(outer)
	for _, l := range ofKind(level, exactLocation) {
		if l.path == path {
			return l, true
		}
	}
	var prefix *location
	for _, l := range ofKind(level, prefixLocation, caretLocation) {
		if strings.HasPrefix(path, l.path) && (prefix == nil || len(l.path) > len(prefix.path)) {
			prefix = l
		}
	}
	found = prefix
	if prefix != nil {
		inner, ended := t.find(prefix, path)
		if ended {
			return inner, true
		}
		if inner != nil {
			found = inner
		}
	}
	if prefix == nil || prefix.kind != caretLocation {
		for _, l := range ofKind(level, regexLocation) {
			if !l.matches(path) {
				continue
			}
			if inner, _ := t.find(l, path); inner != nil {
				return inner, true
			}
			return l, true
		}
	}
	return found, false
}

// prune removes the locations that nginx never reaches.
func (t *site) prune() {
	lost := map[*location]bool{}
	for _, l := range t.locations {
		switch {
		case l.kind == exactLocation:
			found, _ := t.find(nil, l.path)
			lost[l] = found != l
		case l.isPrefix():
			for at := l; at != nil && at.isPrefix(); at = at.outer {
				lost[l] = lost[l] || slices.ContainsFunc(t.longer(at), func(o *location) bool { return strings.HasPrefix(l.path, o.path) })
			}
		}
	}
	t.locations = slices.DeleteFunc(t.locations, func(l *location) bool {
		for at := l; at != nil; at = at.outer {
			if lost[at] {
				t.im.unreachable(l.block)
				return true
			}
		}
		return false
	})
}

// shadowed reports whether a prefix never answers, since it contains one of the same path.
func (t *site) shadowed(l *location) bool {
	return l.isPrefix() && slices.ContainsFunc(t.inner(l), func(o *location) bool { return o.isPrefix() && o.path == l.path })
}

// ordered adds the rules of locations in the order in which nginx looks for those.
func (t *site) ordered() {
	t.closeOvertaken()
	t.pass(true)
	rewriting, chain := t.rewriting()
	if chain {
		t.pass(true)
	}
	if rewriting {
		t.pass(false) // nginx looks for a location anew with the path that a rewrite has made
	}
}

// rewrites reports whether a location changes paths.
func (l *location) rewrites() bool {
	return slices.ContainsFunc(l.rules, func(r rule) bool { return r.Do.Rewrite != "" && r.line != nil })
}

// rewriting reports whether a location changes paths, and whether such a path may
// come to another that does.
func (t *site) rewriting() (some, chain bool) {
	for _, l := range t.locations {
		for _, r := range l.rules {
			if r.Do.Rewrite == "" || r.line == nil {
				continue
			}
			some = true
			begins, _, _ := strings.Cut(r.Do.Rewrite, "{")
			chain = chain || slices.ContainsFunc(t.locations, func(o *location) bool {
				return o != l && o.rewrites() && (o.kind == regexLocation || strings.HasPrefix(o.path, begins) || strings.HasPrefix(begins, o.path))
			})
		}
	}
	return some, chain
}

// closeOvertaken answers 501 instead of a rewrite to a path whose location keeps clients
// out and has its rules before those of the rewrite, where a later one would answer for
// that path: rules go on behind a rewrite, and nginx begins anew.
func (t *site) closeOvertaken() {
	visited := &ordering{site: &site{Site: plan.NewSite(t.Config, t.Server), im: t.im, server: t.server, locations: t.locations}, rewrites: true}
	visited.exact()
	visited.level(nil, region{})
	may := func(l *location, to string) bool {
		begins, _, open := strings.Cut(to, "{")
		begins, _, _ = strings.Cut(begins, "?")
		switch {
		case !open:
			return l.covers(begins)
		case l.kind == regexLocation:
			return plan.MayMatch(l.expr, begins)
		}
		return strings.HasPrefix(l.path, begins) || l.isPrefix() && strings.HasPrefix(begins, l.path)
	}
	for i, l := range visited.visited {
		for j, r := range l.rules {
			to := r.Do.Rewrite
			if to == "" || r.line == nil {
				continue
			}
			guarded := func(o *location) bool { return o != l && t.keepsOut(o) && may(o, to) }
			takes := func(o *location) bool { return may(o, to) && (o.kind == regexLocation || o != l && o.outer != nil) }
			if slices.ContainsFunc(visited.visited[:i], guarded) && slices.ContainsFunc(visited.visited[i:], takes) {
				t.im.Leave(r.line, "another location keeps clients out of the path that this makes, and here a later one would answer: it answers 501 until you have written it as a rule behind the others")
				l.rules[j].Do = plan.NotImplemented()
			}
		}
	}
}

// pass adds the rules of all locations once, with or without those that change paths.
func (t *site) pass(rewrites bool) {
	o := &ordering{site: t, rewrites: rewrites}
	o.exact()
	o.level(nil, region{})
}

// ordering is the list of rules that is being made.
type ordering struct {
	*site
	rewrites bool
	visited  []*location // in their order
}

// exact adds the rules for exact paths, and rules that lead to their routes where a later
// rule would answer.
func (o *ordering) exact() {
	for _, l := range o.locations {
		o.Add(l.apart...)
	}
	for _, l := range ofKind(o.locations, exactLocation) {
		o.own(l, region{})
		taken := slices.ContainsFunc(o.locations, func(other *location) bool {
			return other != l && (other.covers(l.path) && (other.kind == regexLocation || other.kind == caretLocation || other.first || len(other.rules) > 0) || other.path == l.path+"/" && (other.kind == caretLocation || other.first || len(other.rules) > 0))
		})
		if taken || strings.HasPrefix(l.key, "@") {
			o.end(l, region{})
		}
	}
}

// level adds the rules of the locations directly within one, and of the prefixes within
// those, for a part of the paths.
func (o *ordering) level(outer *location, g region) {
	prefixes := o.prefixes(outer)
	byDepth := slices.Clone(prefixes)
	slices.SortStableFunc(byDepth, func(a, b *location) int { return depthOf(b) - depthOf(a) })
	for _, l := range byDepth {
		for _, e := range ofKind(o.inner(l), regexLocation) {
			for _, part := range o.parts(l, outer) {
				o.expression(e, g.and(part))
			}
		}
	}
	expressions := ofKind(o.inner(outer), regexLocation)
	rest := prefixes
	if len(expressions) > 0 {
		rest = o.caret(prefixes, outer, g)
	}
	for _, e := range expressions {
		o.expression(e, g)
	}
	for i, l := range rest {
		if o.shadowed(l) {
			continue
		}
		o.own(l, g)
		shorter := func(s *location) bool { return (len(s.rules) > 0 || s.first) && strings.HasPrefix(l.path, s.path) }
		if l.first || outer != nil || slices.ContainsFunc(rest[i+1:], shorter) {
			o.end(l, g)
		}
	}
}

// prefixes are those directly within a location, and within each other, the longest first.
func (o *ordering) prefixes(outer *location) (found []*location) {
	for _, l := range ofKind(o.inner(outer), prefixLocation, caretLocation) {
		found = append(append(found, o.prefixes(l)...), l)
	}
	slices.SortStableFunc(found, func(a, b *location) int { return len(b.path) - len(a.path) })
	return found
}

// caret adds the rules of prefixes with ^~, which come before the expressions of their
// level, and returns the others.
func (o *ordering) caret(prefixes []*location, outer *location, g region) (rest []*location) {
	for _, l := range prefixes {
		root := l
		for root.outer != outer {
			root = root.outer
		}
		if root.kind != caretLocation {
			rest = append(rest, l)
			continue
		}
		if o.shadowed(l) {
			continue
		}
		var except []string
		for _, other := range ofKind(o.inner(outer), prefixLocation) {
			if len(other.path) > len(root.path) && strings.HasPrefix(other.path, l.path) {
				except = append(except, plan.Below(other.path))
			}
		}
		part := g.and(region{except: except})
		o.own(l, part)
		o.end(l, part)
	}
	return rest
}

// parts are the paths for which nginx looks at the expressions within a prefix: those
// for which it has chosen this one on each level, and none with ^~ within it.
func (o *ordering) parts(l, outer *location) []region {
	part := region{within: []string{plan.Below(l.path)}}
	for at := l; at != outer; at = at.outer {
		for _, longer := range o.longer(at) {
			if strings.HasPrefix(longer.path, l.path) {
				part.except = append(part.except, plan.Below(longer.path))
			}
		}
	}
	parts := []region{part}
	carets := ofKind(o.inner(l), caretLocation)
	for _, c := range carets {
		parts[0].except = append(parts[0].except, plan.Below(c.path))
	}
	for _, p := range ofKind(o.inner(l), prefixLocation) {
		if !slices.ContainsFunc(carets, func(c *location) bool { return strings.HasPrefix(p.path, c.path) }) {
			continue
		}
		more := region{within: []string{plan.Below(p.path)}, except: slices.Clone(part.except)}
		for _, c := range carets {
			if strings.HasPrefix(c.path, p.path) {
				more.except = append(more.except, plan.Below(c.path))
			}
		}
		parts = append(parts, more)
	}
	return parts
}

// expression adds the rules of a location with an expression, after those of the locations
// within it.
func (o *ordering) expression(l *location, g region) {
	if len(o.inner(l)) > 0 {
		inside := region{within: []string{"~" + l.expr}}
		if l.not != "" {
			inside.except = []string{"~" + l.not}
		}
		o.level(l, g.and(inside))
	}
	o.own(l, g)
	o.end(l, g)
}

// depthOf is how deep a location is within others.
func depthOf(l *location) int {
	n := 0
	for at := l.outer; at != nil; at = at.outer {
		n++
	}
	return n
}

// own adds the rules of a location.
func (o *ordering) own(l *location, g region) {
	o.visited = append(o.visited, l)
	for _, r := range l.rules {
		switch {
		case !o.rewrites && (r.then || r.Do.Rewrite != ""):
			continue
		case !r.then:
			r.If = confined(r.If, l, g)
		}
		o.Add(r.Rule)
	}
}

// end leads to the route of a location, unless its rules answer everything.
func (o *ordering) end(l *location, g region) {
	if l.job == nil || l.whole {
		return
	}
	c := l.match()
	if strings.HasPrefix(l.key, "@") && c.Path == l.path && strings.HasSuffix(c.Path, "/") {
		c.Path += "**" // /a/ as a pattern is for /a, too, which is another location's
	}
	o.Add(plan.Rule{If: confined(c, l, g), Do: plan.To(l.key)})
}

// confined restricts the condition of a rule of a location to a part of the paths.
func confined(c plan.Cond, l *location, g region) plan.Cond {
	switch {
	case l.kind == regexLocation && c.Regex != l.expr:
		g = g.and(region{within: []string{"~" + l.expr}})
		if l.not != "" {
			g = g.and(region{except: []string{"~" + l.not}})
		}
	case l.kind == exactLocation && c.Path != l.path && c.Regex != "^"+regexp.QuoteMeta(l.path)+"$":
		g = g.and(region{within: []string{"~^" + regexp.QuoteMeta(l.path) + "$"}})
	case l.isPrefix() && l.path != "/":
		g = g.and(region{within: []string{plan.Below(l.path)}})
	}
	return c.In(g.within, g.except)
}
