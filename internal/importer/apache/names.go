package apache

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"millrace/internal/importer/draft"
)

// section is a <Files> or <FilesMatch>, or a <LocationMatch>, with the layers
// that are below it.
type section struct {
	line *draft.Directive
	list []*draft.Directive
	expr string // for paths of the site, as RE2
	at   string // the path of the folder that it stands in
	err  error

	below func(url string) (string, error) // the expression for the paths below another folder
}

// filesIn are the sections for files in a layer.
func (t *site) filesIn(l layer, url string) (found []section) {
	for _, d := range l.list {
		name := lower(d)
		if name != "files" && name != "filesmatch" {
			continue
		}
		s := section{line: d, list: t.im.flat(d.Block), at: url}
		text := d.Arg(0)
		isExpr := name == "filesmatch"
		if text == "~" {
			text, isExpr = d.Arg(1), true
		}
		if !isExpr {
			text = "^" + strings.NewReplacer(`\*`, "[^/]*", `\?`, "[^/]").Replace(regexp.QuoteMeta(text)) + "$"
		}
		s.below = func(url string) (string, error) { return fileExpression(text, url, t.php != nil) }
		s.expr, s.err = s.below(url)
		found = append(found, s)
	}
	return found
}

// fileExpression makes an expression for the name of a file one for paths below
// url: within it, nothing matches a slash. Where PHP is run, what stands behind a
// script belongs to it.
func fileExpression(text, url string, php bool) (string, error) {
	expr, err := expression(text, false)
	if err != nil {
		return "", err
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return "", err //nolint:wrapcheck // never: it was compiled before
	}
	tail := "$"
	if php && regexp.MustCompile(expr).MatchString("index.php") || php && strings.Contains(expr, "php") {
		tail = "(?:/|$)"
	}
	begins, ends := anchors(expr)
	body := strings.TrimSuffix(strings.TrimPrefix(expr, "^"), "$")
	if !begins && strings.HasPrefix(expr, "^") || !ends && strings.HasSuffix(expr, "$") || inner(re, begins, ends) {
		body = inSegment(re).String()
		begins, ends = false, false
	}
	if begins {
		body = "/" + body
	}
	switch {
	case ends:
		body += tail
	default:
		body += "[^/]*" + tail
	}
	if url != "/" {
		prefix := "^" + regexp.QuoteMeta(strings.TrimSuffix(url, "/"))
		if begins {
			body = prefix + "(?:/.*)?" + body
		} else {
			body = prefix + "/.*?" + body
		}
	}
	_, err = regexp.Compile(body)
	return body, err //nolint:wrapcheck // never
}

// anchors reports whether the whole of an expression begins with ^ and ends in $.
func anchors(expr string) (begins, ends bool) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return false, false
	}
	if re.Op == syntax.OpConcat {
		begins = re.Sub[0].Op == syntax.OpBeginText && strings.HasPrefix(expr, "^")
		ends = re.Sub[len(re.Sub)-1].Op == syntax.OpEndText && strings.HasSuffix(expr, "$")
	}
	return begins, ends
}

// inner reports whether an expression has more in it than literals would leave
// to chance: anchors in the middle, or something that matches a slash.
func inner(re *syntax.Regexp, begins, ends bool) bool {
	found := false
	var walk func(*syntax.Regexp, bool)
	walk = func(r *syntax.Regexp, edge bool) {
		switch r.Op {
		case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
			found = true
		case syntax.OpCharClass:
			for i := 0; i+1 < len(r.Rune); i += 2 {
				found = found || r.Rune[i] <= '/' && '/' <= r.Rune[i+1]
			}
		case syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine:
			found = found || !edge
		}
		for i, s := range r.Sub {
			top := r == re && r.Op == syntax.OpConcat
			walk(s, top && (i == 0 && begins || i == len(r.Sub)-1 && ends))
		}
	}
	walk(re, false)
	return found
}

// inSegment is an expression in which nothing matches a slash, ^ is the slash in
// front of a name and $ the end.
func inSegment(re *syntax.Regexp) *syntax.Regexp {
	n := *re
	n.Sub = nil
	for _, s := range re.Sub {
		n.Sub = append(n.Sub, inSegment(s))
	}
	noSlash := []rune{0, '/' - 1, '/' + 1, 0x10ffff}
	switch re.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n.Op, n.Rune = syntax.OpCharClass, noSlash
	case syntax.OpCharClass:
		n.Rune = without(re.Rune, '/')
	case syntax.OpBeginText, syntax.OpBeginLine:
		n.Op, n.Rune, n.Flags = syntax.OpLiteral, []rune{'/'}, 0
	}
	return &n
}

// without are ranges of runes without one of them.
func without(ranges []rune, not rune) (out []rune) {
	for i := 0; i+1 < len(ranges); i += 2 {
		lo, hi := ranges[i], ranges[i+1]
		if not < lo || hi < not {
			out = append(out, lo, hi)
			continue
		}
		if lo < not {
			out = append(out, lo, not-1)
		}
		if not < hi {
			out = append(out, not+1, hi)
		}
	}
	return out
}

// nameRules translates the sections for files: who keeps clients out becomes a
// rule, in front of all that is not so near.
func (t *site) nameRules() {
	var sections []section
	sections = append(sections, t.filesIn(layer{list: t.lines()}, "/")...)
	for _, l := range t.dirs {
		url, ok := t.pathOf(l.dir)
		switch {
		case ok:
			sections = append(sections, t.filesIn(l, url)...)
		case within(t.root(), l.dir): // a folder around the site's
			sections = append(sections, t.filesIn(l, "/")...)
		}
	}
	for _, l := range t.locations {
		if expr, is := strings.CutPrefix(l.url, "~"); is {
			s := section{line: l.line, list: l.list, at: "/", below: func(string) (string, error) { return "", errors.New("it is for paths") }}
			s.expr, s.err = expression(expr, false)
			sections = append(sections, s)
		}
	}
	var rules []ruleDraft
	var opened []string // what later sections let in, which earlier ones must not take
	for _, s := range slices.Backward(sections) {
		t.im.Used(s.line)
		if s.err != nil {
			if guards(s.list) {
				t.close(s.line, "write it as a rule with a regex: "+s.err.Error())
			} else {
				t.im.Whole(s.line, draft.Left, "write it as a rule with a regex: "+s.err.Error())
			}
			continue
		}
		t.besides(s)
		if guards(s.list) {
			more, open := t.guardedFiles(s, opened)
			rules = append(rules, more...)
			if open {
				opened = append(opened, "~"+s.expr)
			}
		}
	}
	var byClient, byPath []ruleDraft // of places
	for _, g := range t.guards {
		if g.node.Get("header") != nil {
			byClient = append(byClient, g)
		} else {
			byPath = append(byPath, g)
		}
	}
	t.guards = slices.Concat(byClient, rules, byPath)
}

// guardedFiles are the rules for a section; open: it lets in who asks for these
// files where the folder does.
func (t *site) guardedFiles(s section, opened []string) (rules []ruleDraft, open bool) {
	i := slices.IndexFunc(t.places, func(p *place) bool { return p.path == s.at })
	home := t.places[i]
	var except []string
	g := t.guardedBy(home, s)
	if !g.closed {
		for _, p := range t.places[:i] { // the deepest first
			if p.proxy != nil || !strings.HasPrefix(p.path, s.at) || p.guard.same(home.guard) {
				continue
			}
			except = append(except, p.path)
			inner := s
			if inner.expr, inner.err = s.below(p.path); inner.err != nil {
				t.im.Leave(s.line, "it is not carried over for "+p.path+": write a rule and a route")
				continue
			}
			more, _ := t.fileRules(p, inner, t.guardedBy(p, s), opened)
			rules = append(rules, more...)
		}
	}
	more, open := t.fileRules(home, s, g, append(slices.Clone(opened), except...))
	return append(rules, more...), open
}

// guardedBy is who is let in to the files of a section in a place.
func (t *site) guardedBy(p *place, s section) guard {
	g := t.guardOf(append(slices.Clone(p.layers), layer{line: s.line, list: s.list}))
	if g.why != "" {
		t.im.Leave(g.lineOr(s.line), g.why+". Nobody gets these files")
		g.closed = true
	}
	return g
}

// fileRules are the rules for the files of a section in one place.
func (t *site) fileRules(p *place, s section, g guard, except []string) (rules []ruleDraft, open bool) {
	comment := s.line.At() + ": " + s.line.String()
	with := func(action string, value *draft.Node) *draft.Node {
		n := draft.Map().Set("regex", draft.Verbatim(s.expr))
		if len(except) > 0 {
			n.Set("except", verbatims(except))
		}
		return n.Set(action, value)
	}
	for _, w := range g.rules {
		if w.node.Get("regex") == nil && !slices.ContainsFunc(p.guard.rules, w.same) {
			n := with("deny", draft.Map().Flow())
			w.node.CopyTo(n)
			rules = append(rules, ruleDraft{n, w.comment})
		}
	}
	switch {
	case g.closed:
		return append(rules, ruleDraft{with("deny", draft.Map().Flow()), comment}), false
	case g.same(p.guard):
		return rules, true
	}
	last := s.line.Arg(len(s.line.Args) - 1)
	node := t.answer(p, p.layers, g, "@")
	name := t.nameOf(node)
	if name == "" {
		name = t.freeName(base(strings.NewReplacer("\\", "", "^", "", "$", "").Replace(last)))
		t.named.Set(name, node, comment)
	}
	return append(rules, ruleDraft{with("route", draft.Text(name)), comment}), false
}

// nameOf is the name of a route that is there already, "" if there is none.
func (t *site) nameOf(node *draft.Node) string {
	for name := range t.names {
		if n := t.named.Get(name); n != nil && n.String() == node.String() {
			return name
		}
	}
	return ""
}

// verbatims is a list of texts in which dollar signs are themselves.
func verbatims(texts []string) *draft.Node {
	l := draft.List()
	for _, t := range texts {
		l.Add(draft.Verbatim(t))
	}
	return l.Flow()
}

func (g guard) lineOr(d *draft.Directive) *draft.Directive {
	if g.line != nil && g.line.File != "" {
		return g.line
	}
	return d
}

// same reports whether two guards let the same clients in.
func (g guard) same(o guard) bool {
	text := func(n *draft.Node) string {
		if n == nil {
			return ""
		}
		return n.String()
	}
	return g.closed == o.closed && text(g.access) == text(o.access) && text(g.auth) == text(o.auth)
}
