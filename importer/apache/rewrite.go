package apache

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// context is where rewrite rules are written: in a folder, or in the host.
type context struct {
	url      string // of the folder; "" of the host
	base     string // what relative targets are relative to
	perDir   bool
	existing bool        // what is there was let through before
	nested   []string    // folders within it that have rules of their own
	passed   []string    // expressions for paths that a rule before has let through
	through  []plan.Rule // these paths, but for those of one file
}

// front is a front controller: what answers for paths that are no files.
type front struct {
	to           string
	files        bool             // folders are none of what is there
	line         *draft.Directive // nil: not by a rule
	leavesFolder bool             // RewriteBase leads out of the folder
}

// try are the places where a file is looked for before it answers.
func (f front) try() []string {
	if f.files {
		return []string{"{path}", f.to}
	}
	return []string{"{path}", "{path}/", f.to}
}

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
	t.fronts[url] = front{to: to}
}

// rules translates the lines of one context in their order.
func (t *site) rules(c *context, list []*draft.Directive) (out []plan.Rule) {
	var conds []*condition
	var aliases []plan.Rule
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
	i := slices.IndexFunc(out, func(r plan.Rule) bool { return r.Do.Rewrite != "" })
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
func (t *site) lost(c *context, r *rule, err error) []plan.Rule {
	if !r.proxy && (!r.refuses() && !r.about() || r.target == "-" && !r.refuses()) {
		t.markRule(r, draft.Untranslated, fmt.Sprintf("write it as a rule (docs/routes.md): %v", err))
		return nil
	}
	t.markRule(r, draft.Untranslated, fmt.Sprintf("write it as a rule (docs/routes.md): %v. What it is for answers 403 until then", err))
	p, bad := inContext(r.line.Arg(0), c.url, c.perDir, r.noCase)
	if bad != nil || p.not || p.all && p.path == "" {
		t.Close(r.line, "what it is for cannot be told apart")
		return nil
	}
	return []plan.Rule{{If: p.cond(), Do: plan.Deny(403), Note: plan.RemoveThis + r.line.At() + ": " + r.line.String()}}
}

// cond is the condition that a path is one of a pattern's.
func (p pattern) cond() (c plan.Cond) {
	switch exact, is := plan.Literal(p.expr); {
	case p.path != "":
		c.Path = p.path
	case p.expr == "" || p.expr == "^/(.*)$" || p.expr == "^(.*)$":
	case is && !strings.Contains(exact, "*") && strings.HasPrefix(exact, "/") && !strings.HasSuffix(exact, "/"):
		c.Path = exact
	default:
		c.Regex = p.expr
	}
	if p.except != "" {
		c.Except = []string{"~" + p.except}
	}
	return c
}

// rewrite translates one rule.
func (t *site) rewrite(c *context, r *rule) []plan.Rule {
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
	if t.isFront(c, r, files) || t.standardRule(c, r) || t.isProxyPass(r) {
		return nil
	}
	if err := t.passesMissing(c, r, files); err == nil {
		return nil
	} else if r.proxy && len(files) > 0 {
		return t.lost(c, r, err)
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
	var out []plan.Rule
	for _, w := range ways {
		rule, err := t.write1(c, r, w)
		if err != nil {
			return t.lost(c, r, err)
		}
		out = append(out, rule)
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
func (r *rule) ways() ([]plan.Way, error) {
	const most = 64
	out := []plan.Way{{}}
	for i := 0; i < len(r.conds); {
		var one []plan.Way
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
		var next []plan.Way
		for _, a := range out {
			for _, b := range or(one) {
				both, err := a.And(b.Cond)
				switch {
				case errors.Is(err, plan.ErrNever):
					continue
				case err != nil:
					return nil, err
				case a.Regex != "" && b.Regex != "" && b.Regex != a.Regex: // %1 is of the last, {1} of the first
					b.Groups = map[int]string{}
				}
				w := plan.Way{Cond: both, Groups: a.Groups}
				if b.Groups != nil {
					w.Groups = b.Groups
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
func (t *site) write1(c *context, r *rule, w plan.Way) (plan.Rule, error) {
	p := r.p
	except := slices.Clone(c.passed)
	if c.perDir {
		except = append(slices.Clone(c.nested), except...)
	}
	if p.not {
		except = append(except, "~"+p.expr)
		p.expr, p.all = "", true
		if c.perDir && c.url != "/" {
			p.path = c.url
		}
	}
	exact, is := plan.Literal(p.expr)
	theirs := strings.Contains(r.target, "%") && w.Regex != "" // groups of a condition on the path
	switch {
	case is && strings.Contains(exact, "*"):
		return plan.Rule{}, errors.New("a path with a star")
	case is && w.Regex != "" && regexp.MustCompile(w.Regex).MatchString(exact) && !theirs:
		w.Regex = "" // the path says it already
	case theirs && !p.all:
		return plan.Rule{}, fmt.Errorf("a rule has the groups of one expression: put %q and %q together", r.line.Arg(0), w.Regex)
	}
	if p.all && p.wholePath && (!strings.Contains(r.target, "$1") || c.url == "/" || c.url == "") {
		p.expr = "" // {path} does without a group
		if c.url != "/" {
			p.path = c.url
		}
	}
	of, err := p.cond().And(w.Cond)
	if theirs {
		of, err = w.And(p.cond())
	}
	if err != nil {
		return plan.Rule{}, err
	}
	do, err := t.action(c, r, p, w.Groups)
	return plan.Rule{If: of.In(nil, except), Do: do, Note: r.line.At()}, err
}

// action is what a rule does.
func (t *site) action(c *context, r *rule, p pattern, groups map[int]string) (plan.Action, error) {
	switch {
	case r.deny:
		return plan.Deny(403), nil
	case r.gone:
		return plan.Deny(410), nil
	case r.redirect && (r.status < 300 || r.status >= 400):
		return answer("", r.status)
	case r.proxy:
		return t.passOn(c, r, p, groups)
	}
	text, query, hasQuery := strings.Cut(r.target, "?")
	absolute := regexp.MustCompile(`^(?i)[a-z][a-z0-9+.-]*://`).MatchString(text)
	if file, is := strings.CutPrefix(text, "%{DOCUMENT_ROOT}"); is && !r.redirect { // a file, which has a path
		text = file
	}
	if !absolute && !strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "%{REQUEST_URI}") && text != "-" && !strings.HasPrefix(text, "%1/") {
		text = strings.TrimPrefix(text, "./")
		if text == "%1" && c.perDir { // of a path
			text = r.target
		} else {
			text = c.base + text
		}
	}
	to, err := c.substitution(text, p, groups)
	if err != nil {
		return plan.Action{}, err
	}
	to = strings.NewReplacer("//{path}", "{path}", "/{path}", "{path}").Replace(to)
	if hasQuery || r.drop {
		q, err := c.substitution(query, p, groups)
		if err != nil {
			return plan.Action{}, err
		}
		q = strings.ReplaceAll(q, "{path}", "{rest}")
		if r.append && q != "" {
			q += "&{query}"
		}
		to += "?" + q
	}
	switch {
	case absolute || r.redirect:
		return answer(to, cmp.Or(r.status, 302))
	case to == "{path}":
		return plan.Action{}, errors.New("it leads to the path that it is for")
	}
	return plan.Rewrite(to), nil
}
