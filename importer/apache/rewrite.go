package apache

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
)

// context is where rewrite rules are written: in a folder, or in the host.
type context struct {
	url      string // of the folder; "" of the host
	base     string // what relative targets are relative to
	perDir   bool
	existing bool     // what is there was let through before
	nested   []string // folders within it that have rules of their own
	passed   []string // expressions for paths that a rule before has let through
}

// front is a front controller: what answers for paths that are no files.
type front struct{ to string }

// ruleFlag is one of a rule's flags.
type ruleFlag struct{ name, value string }

func flagsOf(text string) (flags []ruleFlag) {
	for f := range strings.SplitSeq(strings.Trim(text, "[]"), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(f), "=")
		if name != "" {
			flags = append(flags, ruleFlag{strings.ToUpper(name), value})
		}
	}
	return flags
}

// rule is one RewriteRule with its conditions.
type rule struct {
	line   *draft.Directive
	conds  []*condition
	p      pattern
	target string

	last, redirect, deny, gone, proxy bool
	status                            int
	append, drop, noCase              bool
	odd                               []string // flags that are not known here
}

// folderRules translates mod_rewrite and mod_alias of the folders.
func (t *site) folderRules() {
	for _, l := range t.dirs {
		paths := t.pathsOf(l.dir)
		if len(paths) == 0 {
			for _, d := range allIn([]layer{l}, "rewriterule", "redirect", "redirectmatch", "redirectpermanent", "redirecttemp") {
				t.im.Leave(d, "the folder is not below "+t.root()+": write it as a rule of the site")
			}
			continue
		}
		for _, url := range paths {
			c := &context{url: url, base: url, perDir: true, nested: t.nested(url)}
			if len(allIn([]layer{l}, "rewriteengine", "rewriterule")) > 0 {
				if _, has := t.fronts[url]; !has {
					t.fronts[url] = front{}
				}
			}
			t.changes = append(t.changes, t.rules(c, l.list)...)
		}
	}
}

// frontOf is the front controller of a path: that of the nearest folder with rewrite
// rules or a FallbackResource.
func (t *site) frontOf(url string) (front, bool) {
	best := ""
	for at := range t.fronts {
		if strings.HasPrefix(url, at) && len(at) > len(best) {
			best = at
		}
	}
	return t.fronts[best], best != "" && t.fronts[best].to != ""
}

// findFronts finds the front controllers. It is called before places are listed, since
// routes need them.
func (t *site) findFronts() {
	for _, l := range t.dirs {
		url, ok := t.pathOf(l.dir)
		if d := lastIn([]layer{l}, "fallbackresource"); d != nil && ok {
			t.fallback(url, d)
		}
	}
	for _, d := range t.lines() {
		if lower(d) == "fallbackresource" {
			t.fallback("/", d)
		}
	}
}

func (t *site) fallback(url string, d *draft.Directive) {
	t.im.Used(d)
	to := d.Arg(0)
	if strings.EqualFold(to, "disabled") {
		to = ""
	} else if !strings.HasPrefix(to, "/") {
		to = url + to
	}
	t.fronts[url] = front{to}
}

// rules translates the lines of one context in their order.
func (t *site) rules(c *context, list []*draft.Directive) (out []ruleDraft) {
	var conds []*condition
	var aliases []ruleDraft
	on, named := false, false
	for _, d := range list {
		switch lower(d) {
		case "rewriteengine":
			t.im.Used(d)
			on, named = strings.EqualFold(d.Arg(0), "on"), true
		case "rewritebase":
			t.im.Used(d)
			if c.base = d.Arg(0); !strings.HasSuffix(c.base, "/") {
				c.base += "/"
			}
		case "rewriteoptions":
			if strings.Contains(strings.ToLower(d.Arg(0)), "inherit") {
				t.im.Leave(d, "rules hold for the folder that they stand in: repeat those of the folders above")
			} else {
				t.im.Standard(d, "paths are clean before rules see them")
			}
		}
	}
	for _, d := range list {
		switch lower(d) {
		case "rewritecond":
			conds = append(conds, t.condition(d))
		case "rewriterule":
			r := t.readRule(c, d, conds)
			conds = nil
			if !on {
				why := "RewriteEngine is off"
				if !named {
					why = "without RewriteEngine On, Apache does not look at it"
				}
				t.markRule(r, draft.Defaulted, why)
				continue
			}
			out = append(out, t.rewrite(c, r)...)
		case "redirect", "redirectmatch", "redirectpermanent", "redirecttemp":
			aliases = append(aliases, t.redirect(c, d)...)
		}
	}
	for _, cond := range conds {
		t.im.Standard(cond.line, "no rule follows it")
	}
	// Redirects of mod_alias are looked at behind the rules of mod_rewrite, which
	// in a folder change the path only after that.
	i := slices.IndexFunc(out, func(r ruleDraft) bool { return r.node.Get("rewrite") != nil })
	if i < 0 || !c.perDir {
		return append(out, aliases...)
	}
	return slices.Concat(out[:i:i], aliases, out[i:])
}

// markRule gives a rule and its conditions an outcome.
func (t *site) markRule(r *rule, outcome draft.Outcome, why string) {
	t.im.Whole(r.line, outcome, why)
	for _, c := range r.conds {
		if outcome == draft.Untranslated {
			t.im.Leave(c.line, "belongs to the rule of line "+strconv.Itoa(r.line.Line))
			continue
		}
		t.im.Whole(c.line, outcome, why)
	}
}

// readRule reads a rule and its flags.
func (t *site) readRule(c *context, d *draft.Directive, conds []*condition) *rule {
	r := &rule{line: d, conds: conds, target: d.Arg(1)}
	for _, f := range flagsOf(d.Arg(2)) {
		switch f.name {
		case "L", "LAST", "END":
			r.last = true
		case "F", "FORBIDDEN":
			r.deny = true
		case "G", "GONE":
			r.gone = true
		case "R", "REDIRECT":
			r.redirect, r.status = true, map[string]int{"": 302, "TEMP": 302, "PERMANENT": 301, "SEEOTHER": 303}[strings.ToUpper(f.value)]
			if r.status == 0 {
				r.status, _ = strconv.Atoi(f.value) // 0 is no status
			}
		case "P", "PROXY":
			r.proxy = true
		case "QSA", "QSAPPEND":
			r.append = true
		case "QSD", "QSDISCARD":
			r.drop = true
		case "NC", "NOCASE":
			r.noCase = true
		case "NE", "NOESCAPE", "PT", "PASSTHROUGH", "DPI", "DISCARDPATH", "B", "BNP", "BCTLS", "BNE", "BACKREFNOPLUS", "UNSAFEALLOW3F", "UNSAFEPREFIXSTAT", "NS", "NOSUBREQ":
		case "E", "ENV":
			if !strings.HasPrefix(strings.ToUpper(strings.TrimPrefix(f.value, `"`)), "HTTP_AUTHORIZATION:") && !strings.HasPrefix(strings.ToUpper(f.value), "BASE:") {
				r.odd = append(r.odd, "E="+f.value)
			}
		default:
			r.odd = append(r.odd, f.name)
		}
	}
	return r
}

// refuses reports whether a rule keeps clients out.
func (r *rule) refuses() bool { return r.deny || r.gone || r.redirect && r.status >= 400 }

// about reports whether a rule depends on the client: what it keeps some clients from may
// be for others.
func (r *rule) about() bool {
	return slices.ContainsFunc(r.conds, func(c *condition) bool { return c.who })
}

// lost reports a rule that cannot be translated. If it may keep clients out, the paths
// that it is for are closed, or else the site.
func (t *site) lost(c *context, r *rule, err error) []ruleDraft {
	if !r.refuses() && !r.about() || r.target == "-" && !r.refuses() {
		t.markRule(r, draft.Untranslated, fmt.Sprintf("write it as a rule (docs/routes.md): %v", err))
		return nil
	}
	t.markRule(r, draft.Untranslated, fmt.Sprintf("write it as a rule (docs/routes.md): %v. What it is for answers 403 until then", err))
	p, bad := inContext(r.line.Arg(0), c.url, c.perDir, r.noCase)
	if bad != nil || p.not || p.all && p.path == "" {
		t.closed = draft.AppendNew(t.closed, r.line.At()+": "+r.line.String())
		return nil
	}
	n := draft.Map()
	p.set(n)
	return []ruleDraft{{n.Set("deny", draft.Map().Flow()), draft.RemoveThis + r.line.At() + ": " + r.line.String()}}
}

// set writes the path that a pattern is for.
func (p pattern) set(n *draft.Node) {
	switch {
	case p.path != "":
		n.Set("path", draft.Text(p.path))
	case p.expr == "" || p.expr == "^/(.*)$" || p.expr == "^(.*)$":
	default:
		text := p.expr
		if exact, is := literal(text); is && !strings.Contains(exact, "*") && strings.HasPrefix(exact, "/") && !strings.HasSuffix(exact, "/") {
			n.Set("path", draft.Text(exact))
			return
		}
		n.Set("regex", draft.Verbatim(text))
	}
}

// rewrite translates one rule.
func (t *site) rewrite(c *context, r *rule) []ruleDraft {
	if i := slices.Index(r.odd, "C"); i >= 0 || slices.Contains(r.odd, "S") || slices.Contains(r.odd, "N") {
		return t.lost(c, r, errors.New("rules are not skipped, chained or repeated"))
	}
	var err error
	if r.p, err = inContext(r.line.Arg(0), c.url, c.perDir, r.noCase); err != nil {
		return t.lost(c, r, err)
	}
	var files []*fileTest
	for _, cond := range r.conds {
		if cond.file != nil {
			files = append(files, cond.file)
		}
	}
	if len(files) > 0 {
		if done := t.withFiles(c, r, files); done {
			return nil
		}
	}
	if t.isFront(c, r, files) {
		return nil
	}
	if t.standardRule(c, r) {
		return nil
	}
	if len(files) > 0 {
		return t.lost(c, r, errors.New("whether a file is there decides with try alone"))
	}
	ways, err := r.ways()
	if err != nil {
		return t.lost(c, r, err)
	}
	if r.target == "-" && !r.refuses() {
		return t.pass(c, r, ways)
	}
	var out []ruleDraft
	for _, w := range ways {
		if w.never {
			continue
		}
		n, err := t.write1(c, r, w)
		if err != nil {
			return t.lost(c, r, err)
		}
		out = append(out, ruleDraft{n, r.line.At()})
	}
	if len(out) == 0 {
		t.markRule(r, draft.Defaulted, "its conditions never hold here")
		return nil
	}
	t.markRule(r, draft.Translated, "")
	if len(r.odd) > 0 {
		t.im.Leave(r.line, "the flag "+strings.Join(r.odd, ", ")+" has no counterpart")
	}
	return out
}

// ways are the ways in which all conditions of a rule hold.
func (r *rule) ways() ([]way, error) {
	const most = 64
	out := []way{{}}
	for i := 0; i < len(r.conds); {
		var one []way
		always := false
		for {
			c := r.conds[i]
			i++
			if c.err != nil {
				return nil, c.err
			}
			one, always = append(one, c.ways...), always || c.skip
			if !c.or || i == len(r.conds) {
				break
			}
		}
		if always {
			continue
		}
		var next []way
		for _, a := range out {
			for _, b := range or(one) {
				w, err := and(a, b)
				if err != nil {
					return nil, err
				}
				next = append(next, w)
			}
		}
		if len(next) > most {
			return nil, fmt.Errorf("the conditions would be more than %d rules", most)
		}
		out = next
	}
	return out, nil
}

// write1 is the rule for one way in which the conditions hold.
func (t *site) write1(c *context, r *rule, w way) (*draft.Node, error) {
	p := r.p
	n := draft.Map()
	except := slices.Clone(w.except)
	if c.perDir {
		except = append(except, c.nested...)
	}
	except = append(except, c.passed...)
	if p.not {
		except = append(except, "~"+p.expr)
		p.expr, p.all = "", true
		if c.perDir && c.url != "/" {
			p.path = c.url
		}
	}
	if exact, is := literal(p.expr); is && w.regex != "" && regexp.MustCompile(w.regex).MatchString(exact) && !strings.Contains(r.target, "%") {
		w.regex = "" // the path says it already
	}
	if w.regex != "" {
		if !p.all {
			return nil, fmt.Errorf("a rule has one expression for the path: put %q and %q together", r.line.Arg(0), w.regex)
		}
		uses := strings.Contains(r.target, "$")
		p = pattern{expr: w.regex, all: true, wholePath: uses}
	}
	if p.all && p.wholePath && w.regex == "" && (!strings.Contains(r.target, "$1") || c.url == "/" || c.url == "") {
		// {path} does without a group
		if c.url == "/" || c.url == "" {
			p.expr = ""
		} else if !strings.Contains(r.target, "$1") {
			p.expr, p.path = "", c.url
		}
	}
	if exact, is := literal(p.expr); is && strings.Contains(exact, "*") {
		return nil, errors.New("a path with a star")
	}
	p.set(n)
	w.set(n, except)
	return n, t.action(c, r, p, w, n)
}

// set writes the conditions of a way.
func (w way) set(n *draft.Node, except []string) {
	if len(except) > 0 {
		n.Set("except", verbatims(unique(except)))
	}
	if len(w.hosts) > 0 {
		n.Set("host", draft.Texts(w.hosts...))
	}
	if w.protocol != "" {
		n.Set("protocol", draft.Text(w.protocol))
	}
	if len(w.methods) > 0 {
		n.Set("method", draft.Texts(unique(w.methods)...))
	}
	for _, kind := range []string{"header", "query", "cookie"} {
		if len(w.values[kind]) == 0 {
			continue
		}
		m := draft.Map()
		for _, name := range slices.Sorted(maps.Keys(w.values[kind])) {
			m.Set(name, draft.Verbatim(w.values[kind][name]))
		}
		n.Set(kind, m.Flow())
	}
	if len(w.address) > 0 {
		n.Set("address", draft.Texts(w.address...))
	}
}

// action writes what a rule does.
func (t *site) action(c *context, r *rule, p pattern, w way, n *draft.Node) error {
	switch {
	case r.deny:
		n.Set("deny", draft.Map().Flow())
		return nil
	case r.gone:
		n.Set("deny", draft.Map().Set("status", draft.Number(410)).Flow())
		return nil
	case r.redirect && (r.status < 300 || r.status >= 400):
		return answer(n, r.status)
	}
	text, query, hasQuery := strings.Cut(r.target, "?")
	absolute := regexp.MustCompile(`^(?i)[a-z][a-z0-9+.-]*://`).MatchString(text)
	if r.proxy {
		return errors.New("write it as a route with proxy: the path of a rule does not lead to another server")
	}
	if !absolute && !strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "%{REQUEST_URI}") && text != "-" && !strings.HasPrefix(text, "%1/") {
		text = strings.TrimPrefix(text, "./")
		if text == "%1" && c.perDir { // of a path
			text = r.target
		} else {
			text = c.base + text
		}
	}
	to, err := c.substitution(text, p, w)
	if err != nil {
		return err
	}
	to = strings.NewReplacer("//{path}", "{path}", "/{path}", "{path}").Replace(to)
	if hasQuery || r.drop {
		q, err := c.substitution(query, pattern{all: p.all, wholePath: p.wholePath, groups: p.groups, expr: p.expr}, w)
		if err != nil {
			return err
		}
		q = strings.ReplaceAll(q, "{path}", "{rest}")
		if r.append && q != "" {
			q += "&{query}"
		}
		to += "?" + q
	}
	if absolute || r.redirect {
		return t.redirectTo(n, to, r.status)
	}
	if !strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "{") {
		to = "/" + to
	}
	if to == "{path}" {
		return errors.New("it leads to the path that it is for")
	}
	n.Set("rewrite", draft.Text(to))
	return nil
}

// redirectTo writes a redirect.
func (t *site) redirectTo(n *draft.Node, to string, status int) error {
	status = cmp.Or(status, 302)
	if strings.HasPrefix(to, "//") {
		to = "/" + strings.TrimLeft(to, "/")
	}
	if strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) {
		return fmt.Errorf("%q cannot be an address", to)
	}
	if status < 301 || status == 304 || status == 305 || status == 306 || status > 308 {
		return fmt.Errorf("%d is no redirect: 301, 302, 303, 307 or 308", status)
	}
	n.Set("redirect", draft.Map().Set("to", draft.Text(to)).Set("status", draft.Number(status)).Flow())
	return nil
}

// answer writes an answer that is no redirect.
func answer(n *draft.Node, status int) error {
	switch {
	case slices.Contains([]int{403, 404, 410, 451, 503}, status):
		draft.Denied(status).CopyTo(n)
	case status >= 200 && status <= 599:
		n.Set("respond", draft.Map().Set("status", draft.Number(status)).Flow())
	default:
		return fmt.Errorf("%d is not the status of an answer", status)
	}
	return nil
}
