package apache

import (
	"cmp"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
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
	paths bool                             // it is for paths, not for names of files
	name  string                           // of the one file that it is for
	names *regexp.Regexp                   // of files
	index bool                             // a folder may be answered with one
	in    string                           // the place that its rules are for; "" for all
}

// apart reports whether no file matches both of two sections.
func (s section) apart(o section) bool {
	not := func(a, b section) bool { return a.name != "" && b.names != nil && !b.names.MatchString(a.name) }
	return not(s, o) || not(o, s)
}

// hasAll reports whether a section overrides all that another says about clients.
func (s section) hasAll(of section) bool {
	has := func(s section, names []string) bool { return len(allIn([]layer{{list: s.list}}, names...)) > 0 }
	return (has(s, requires()) || !has(of, requires())) && (has(s, orders()) || !has(of, orders()))
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
		s.below = func(url string) (string, error) { return fileExpression(text, url, t.php != "") }
		if !isExpr && !strings.ContainsAny(d.Arg(0), "*?") {
			s.name = d.Arg(0)
		}
		if re, err := regexp.Compile(text); err == nil {
			s.names, s.index = re, slices.ContainsFunc(t.indexes(), re.MatchString)
		}
		s.expr, s.err = s.below(url)
		found = append(found, s)
	}
	return found
}

// indexes are the names of index files.
func (t *site) indexes() []string {
	names := []string{}
	for _, l := range append([]layer{{list: t.lines()}}, t.dirs...) {
		for _, d := range allIn([]layer{l}, "directoryindex") {
			names = append(names, d.Args...)
		}
	}
	if len(names) == 0 {
		return []string{"index.html"}
	}
	return names
}

// fileExpression turns an expression for the name of a file into one for paths below url,
// in which nothing matches a slash. Where PHP runs, the path may go on behind a script.
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

// inner reports whether an expression has anchors in its middle, or something that matches
// a slash.
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

// nameRules translates the sections for files. Those that keep clients out become rules,
// the nearest first.
func (t *site) nameRules() {
	var sections []section
	sections = append(sections, t.filesIn(layer{list: t.lines()}, "/")...)
	for _, l := range t.dirs {
		for _, url := range t.pathsOf(l.dir) {
			sections = append(sections, t.filesIn(l, url)...)
		}
		if within(t.root(), l.dir) && strings.TrimSuffix(l.dir, "/") != strings.TrimSuffix(t.root(), "/") { // a folder around the site's
			sections = append(sections, t.filesIn(l, "/")...)
		}
		for _, a := range t.aliases { // and around that of an alias
			if within(a.dir, l.dir) && !within(t.root(), l.dir) && !slices.ContainsFunc(t.pathsOf(l.dir), func(url string) bool { return strings.HasPrefix(a.path, url) }) {
				sections = append(sections, t.filesIn(l, a.path)...)
			}
		}
	}
	for _, l := range t.locations {
		if expr, is := strings.CutPrefix(l.url, "~"); is {
			s := section{line: l.line, list: l.list, at: "/", paths: true}
			s.expr, s.err = expression(expr, false)
			whole, err := s.expr, s.err
			s.below = func(string) (string, error) { return whole, err }
			sections = append(sections, s)
		}
	}
	var rules []plan.Rule
	var opened []section // what later sections let in, which earlier ones must not take
	var lets []section   // what later sections let in, all of it or some clients
	for _, s := range slices.Backward(sections) {
		t.im.Used(s.line)
		if s.err != nil {
			if guards(s.list) {
				t.Close(s.line, "write it as a rule with a regex: "+s.err.Error())
			} else {
				t.im.Whole(s.line, draft.Untranslated, "write it as a rule with a regex: "+s.err.Error())
			}
			continue
		}
		t.besides(s)
		if guards(s.list) {
			var except []string
			for _, o := range opened {
				if o.hasAll(s) {
					except = append(except, "~"+o.expr)
				}
			}
			more, open := t.guardedFiles(s, except)
			besides := slices.ContainsFunc(lets, func(o section) bool { return !o.hasAll(s) && !o.apart(s) })
			some := slices.ContainsFunc(more, func(r plan.Rule) bool { return r.Do.Deny == 0 })
			if open || some {
				lets = append(lets, s)
			}
			switch {
			case !besides:
				rules = append(rules, more...)
			case some:
				t.Close(s.line, "Require stands beside Order and Allow of another section: write both as one")
			default: // what other sections let in is kept out by this one
				rules = append(more, rules...)
			}
			if open {
				opened = append(opened, s)
			}
		}
	}
	var byClient, byPath []plan.Rule // of places
	for _, g := range t.guards {
		if g.If.Header != nil {
			byClient = append(byClient, g)
		} else {
			byPath = append(byPath, g)
		}
	}
	t.guards = slices.Concat(byClient, t.ordered, rules, byPath)
}

// guardedFiles are the rules for a section; open: it lets the same clients in as the
// folder.
func (t *site) guardedFiles(s section, opened []string) (rules []plan.Rule, open bool) {
	i := slices.IndexFunc(t.places, func(p *place) bool { return p.path == s.at })
	if i < 0 {
		t.Close(s.line, "write it as a rule with a regex")
		return nil, false
	}
	base := t.places[i]
	var except []string
	g := t.guardedBy(base, s)
	if !g.closed {
		for _, p := range t.places[:i] { // the deepest first
			if p.proxy != nil && !s.paths || !strings.HasPrefix(p.path, s.at) || p.guard.same(base.guard) && p.proxy == base.proxy && t.guardedBy(p, s).same(g) {
				continue
			}
			inner := s
			below := slices.DeleteFunc(slices.Clone(except), func(deeper string) bool { return !strings.HasPrefix(deeper, p.path) })
			except = append(except, p.path)
			inner.in = p.path
			if inner.expr, inner.err = s.below(p.path); inner.err != nil {
				t.im.Leave(s.line, "it is not carried over for "+p.path+": write a rule and a route")
				continue
			}
			more, _ := t.fileRules(p, inner, t.guardedBy(p, s), append(slices.Clone(opened), below...))
			rules = append(rules, more...)
		}
	}
	more, open := t.fileRules(base, s, g, append(slices.Clone(opened), except...))
	return append(rules, more...), open
}

// guardedBy is which clients may get the files of a section in a place.
func (t *site) guardedBy(p *place, s section) guard {
	// Apache puts folders, names of files and paths together in this order.
	at := slices.IndexFunc(p.layers, func(l layer) bool { return l.url != "" && (!s.paths || t.after(l, s)) })
	if at < 0 {
		at = len(p.layers)
	}
	g := t.guardOf(slices.Insert(slices.Clone(p.layers), at, layer{line: s.line, list: s.list}))
	if g.why != "" {
		t.im.Leave(g.lineOr(s.line), g.why+". Nobody gets these files")
		g.closed = true
	}
	return g
}

// after reports whether the section for a path comes after one for an expression.
func (t *site) after(l layer, s section) bool {
	place := func(d *draft.Directive) int {
		return slices.IndexFunc(t.locations, func(l layer) bool { return l.line == d })
	}
	return place(l.line) > place(s.line)
}

// fileRules are the rules for the files of a section in one place.
func (t *site) fileRules(p *place, s section, g guard, except []string) (rules []plan.Rule, open bool) {
	comment := s.line.At() + ": " + s.line.String()
	files := plan.Cond{Regex: s.expr, Except: except}
	if s.paths && s.in != "" {
		files.Within = []string{s.in}
	}
	for _, r := range g.rules {
		if r.If.Regex == "" && !slices.ContainsFunc(p.guard.rules, alike(r)) {
			r.If = must(files.And(r.If))
			rules = append(rules, r)
		}
	}
	switch {
	case g.closed:
		rules = append(rules, plan.Rule{If: files, Do: plan.Deny(403), Note: comment})
		return append(rules, t.folders(s, except, plan.Deny(403))...), false
	case g.same(p.guard):
		return rules, true
	}
	last := s.line.Arg(len(s.line.Args) - 1)
	name := t.Named(t.answer(p, p.layers, g, "@"), base(strings.NewReplacer("\\", "", "^", "", "$", "").Replace(last)), "files", comment)
	rules = append(rules, plan.Rule{If: files, Do: plan.To(name), Note: comment})
	if !s.index {
		return rules, false
	}
	if p.guard.open() {
		return append(rules, t.folders(s, except, plan.To(name))...), false
	}
	t.im.Leave(s.line, "folders that this file answers for are closed: both what the folder asks and what the file asks would have to hold")
	return append(rules, t.folders(s, except, plan.Deny(403))...), false
}

// folders are the rules for folders in a place whose index is a section's file.
func (t *site) folders(s section, except []string, do plan.Action) []plan.Rule {
	if !s.index {
		return nil
	}
	at := cmp.Or(s.in, s.at)
	return []plan.Rule{{If: plan.Cond{Regex: "^" + regexp.QuoteMeta(at) + "(?:.*/)?$", Except: except}, Do: do, Note: s.line.At() + ": folders that it is the index of"}}
}

func (g guard) lineOr(d *draft.Directive) *draft.Directive {
	if g.line != nil && g.line.File != "" {
		return g.line
	}
	return d
}

// same reports whether two guards let the same clients in.
func (g guard) same(o guard) bool {
	return g.closed == o.closed && reflect.DeepEqual(g.access, o.access) && reflect.DeepEqual(g.auth, o.auth)
}
