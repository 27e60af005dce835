package apache

import (
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// withFiles is for rules that ask whether a file is there; true: nothing is left
// to do for it.
func (t *site) withFiles(c *context, r *rule, files []*fileTest) bool {
	positive := slices.ContainsFunc(files, func(f *fileTest) bool { return !f.not })
	compressed := regexp.MustCompile(`\.(gz|br|zst|webp|avif)(\?|$)`)
	switch {
	case positive && compressed.MatchString(strings.ReplaceAll(r.target, `\`, "")):
		t.markRule(r, draft.Defaulted, "files named like another with .br, .zst or .gz behind are sent for it; pictures in the best format are images: on")
		return true
	case positive && r.target == "-" && r.last && !slices.ContainsFunc(files, func(f *fileTest) bool { return f.other || f.suffix != "" }):
		// What is there is let through: all that follows is for what is not.
		t.markRule(r, draft.Defaulted, "what is there is served; what is not, the front controller answers")
		c.existing = true
		return true
	}
	for _, f := range files {
		if f.not || f.suffix != ".html" || f.other || !strings.HasSuffix(strings.ReplaceAll(r.target, `\`, ""), "$1.html") && !strings.HasSuffix(r.target, "$0.html") {
			continue
		}
		t.clean = append(t.clean, c.url)
		t.markRule(r, draft.Translated, "")
		return true
	}
	return false
}

// isFront reads a rule that leads to one path for all that is not there.
func (t *site) isFront(c *context, r *rule, files []*fileTest) bool {
	missing := c.existing || len(files) > 0 && !slices.ContainsFunc(files, func(f *fileTest) bool { return !f.not || f.other || f.suffix != "" })
	missing = missing && (c.existing || slices.ContainsFunc(files, func(f *fileTest) bool { return f.kind == 'f' || f.kind == 's' }))
	if !missing || r.redirect || r.proxy || r.refuses() || r.target == "-" || r.p.not || r.p.except != "" || strings.Contains(r.target, "://") {
		return false
	}
	target, query, hasQuery := strings.Cut(strings.ReplaceAll(r.target, "%{ENV:BASE}", ""), "?")
	target = strings.TrimPrefix(target, "./")
	if script, info, cut := strings.Cut(target, ".php/"); cut && (info == "$1" || info == "$0") {
		target = script + ".php" // it reads the path itself
	}
	if strings.ContainsAny(target, "$%") || r.p.groups > 1 {
		return false
	}
	url := c.url
	if !r.p.all {
		folder := regexp.MustCompile(`^\^(/[A-Za-z0-9/_-]+?)/?(?:\(?\.\*\)?|\(\.\+\))?\$?$`).FindStringSubmatch(strings.TrimPrefix(r.p.expr, "(?i)"))
		if folder == nil || !t.im.options.IsDir(t.dirOf(folder[1])) && !c.existing {
			return false
		}
		url = folder[1] + "/"
	}
	if !strings.HasPrefix(target, "/") {
		target = c.base + target
	}
	for _, cond := range r.conds {
		switch {
		case cond.file != nil, cond.skip:
		case cond.err == nil && !cond.who && len(cond.ways) == 1 && (len(cond.ways[0].Except) > 0 || cond.ways[0].Regex != ""):
			t.im.Standard(cond.line, "what is not there is the front controller's in any case: it answers 404")
		default:
			return false
		}
	}
	to := target
	if hasQuery && query != "" {
		q, err := c.substitution(query, pattern{all: true, wholePath: true, groups: 1}, nil)
		if err != nil {
			return false
		}
		to += "?" + strings.ReplaceAll(strings.ReplaceAll(q, "{path}", "{rest}"), "{1}", "{rest}")
		if r.append {
			to += "&{query}"
		}
	}
	for _, cond := range r.conds {
		t.im.Used(cond.line)
	}
	t.im.Used(r.line)
	if url == "/" {
		t.through = append(t.through, c.through...)
	}
	t.fronts[url] = front{to: to, line: r.line, leavesFolder: !strings.HasPrefix(r.target, "/") && !strings.HasPrefix(target, url)}
	return true
}

// filesAlone leads paths that a rule lets through before a front controller to the files of
// the site: what is not there is not the front controller's.
func (t *site) filesAlone() {
	for _, r := range t.through {
		root := t.places[len(t.places)-1]
		files := root.job.Clone()
		files.PHP, files.Try = plan.PHP{}, nil
		inner := func(p *place) bool { return p != root && plan.MayMatch(r.If.Regex, p.path) && !p.guard.open() }
		if files.Static.Root == "" || slices.ContainsFunc(t.places, inner) {
			r.Do = plan.Deny(404)
		} else {
			r.Do = plan.To(t.Named(files, "files", "files", "files alone, without the front controller"))
		}
		t.changes = append([]plan.Rule{r}, t.changes...)
	}
}

// standardRule are rules that stand for what happens anyway.
func (t *site) standardRule(c *context, r *rule) bool {
	set := func(why string) bool {
		t.markRule(r, draft.Defaulted, why)
		return true
	}
	flags := strings.ToUpper(r.line.Arg(2))
	upgrade := slices.ContainsFunc(r.conds, func(cond *condition) bool {
		return strings.Contains(strings.ToLower(cond.line.Arg(0)+cond.line.Arg(1)), "upgrade") || strings.Contains(strings.ToLower(cond.line.Arg(1)), "websocket")
	})
	switch {
	case r.target == "-" && strings.Contains(flags, "E=") && strings.Contains(flags, "HTTP_AUTHORIZATION"):
		return set("PHP gets Authorization unasked")
	case r.target == "-" && strings.Contains(flags, "E=BASE:") && len(r.odd) == 0:
		return set("applications find their folder in SCRIPT_NAME")
	case r.target == "-" && r.last && !r.refuses() && len(r.conds) == 0 && literalScript(r.p.expr):
		return set("a script that is there is run")
	case r.proxy && upgrade:
		return set("WebSockets pass: proxy upgrades connections where both sides want")
	}
	return false
}

// literalScript reports whether an expression is for one script: ^/index\.php$.
func literalScript(expr string) bool {
	text, ok := plan.Literal(strings.TrimPrefix(expr, "(?i)"))
	return ok && strings.HasSuffix(text, ".php")
}

// pass is a rule that lets paths through without what follows: the rules behind
// it are not for them.
func (t *site) pass(c *context, r *rule, ways []plan.Way) []plan.Rule {
	if !r.last || len(r.odd) > 0 {
		if len(r.odd) == 0 {
			t.markRule(r, draft.Defaulted, "it changes nothing")
			return nil
		}
		if !t.asked(r.odd) {
			t.markRule(r, draft.Defaulted, "nothing asks for the variable")
			return nil
		}
		t.markRule(r, draft.Untranslated, "variables are not set by rules: "+strings.Join(r.odd, ", "))
		return nil
	}
	if len(ways) == 1 && !r.p.not && r.p.except == "" && ways[0].EveryPath() {
		w, expr := ways[0], r.p.expr
		if w.Regex != "" && r.p.all {
			expr = w.Regex
		}
		if expr != "" && len(w.Except) == 0 && (w.Regex == "" || w.Regex == expr) {
			c.passed = append(c.passed, "~"+expr)
			if _, one := plan.Literal(strings.TrimPrefix(expr, "(?i)")); !one {
				c.through = append(c.through, plan.Rule{If: plan.Cond{Regex: expr}, Note: r.line.At() + ": " + r.line.String()})
			}
			t.markRule(r, draft.Translated, "")
			return nil
		}
	}
	t.markRule(r, draft.Untranslated, "the rules behind it are for these requests as well: write a rule before them with a route")
	return nil
}

// asked reports whether a line asks for one of the variables that flags set, or
// they do something else.
func (t *site) asked(flags []string) bool {
	text := Write(t.im.lines)
	for _, f := range flags {
		name, is := strings.CutPrefix(f, "E=")
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "!"), ":")
		if !is || strings.Contains(text, "ENV:"+name) || strings.Contains(text, "env "+name) || strings.Contains(text, "env="+name) {
			return true
		}
	}
	return false
}
