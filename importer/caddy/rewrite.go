package caddy

import (
	"fmt"
	"regexp"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// changes translates the directives that change a request's path (rewrite, uri,
// try_files). Outside of handle they become rules; within, they change what its block
// answers.
func (t *site) changes(d *draft.Directive, sc *scope, alts []conds, args []string, m *matcher) {
	t.im.Used(d)
	whole := len(alts) == len(sc.alts) && alts[0].covers(sc.alts[0]) && sc.alts[0].covers(alts[0])
	switch d.Name {
	case "method":
		t.im.Leave(d, "the method of a request stays")
	case "try_files":
		t.tryFiles(d, sc, args)
	case "rewrite":
		if len(args) == 0 {
			t.im.Leave(d, "it has no target")
			return
		}
		if !sc.top && whole {
			t.within(d, sc, args[0])
			return
		}
		for _, c := range alts {
			t.rewrite(d, c, args[0], m)
		}
	case "uri":
		t.uri(d, sc, alts, args, whole)
	}
}

// within notes the rewrite of a block for what answers in it.
func (t *site) within(d *draft.Directive, sc *scope, target string) {
	to, err := template(target, inRule, sc.alts[0].regex())
	if err != nil {
		t.im.Leave(d, fmt.Sprintf("write the rewrite by hand: %v", err))
		sc.broken = d
		return
	}
	sc.to = to
}

// rewrite translates rewrite into a rule.
func (t *site) rewrite(d *draft.Directive, c conds, target string, m *matcher) {
	to, err := template(target, inRule, c.regex())
	if err != nil {
		t.im.Leave(d, fmt.Sprintf("write the rewrite by hand: %v", err))
		return
	}
	to = strings.TrimSuffix(strings.TrimSuffix(to, "?{query}"), "{uri}") + map[bool]string{true: "{path}"}[strings.HasSuffix(strings.TrimSuffix(to, "?{query}"), "{uri}")]
	if c.file != nil {
		t.rewriteMissing(d, c, to)
		return
	}
	if strings.Contains(to, "{uri}") {
		t.im.Leave(d, "{uri} within a rewrite: write {path}, and {query} behind a question mark")
		return
	}
	t.add(&answer{conds: c, line: d, name: m.name, goesOn: true, action: plan.Rewrite(to)})
}

// rewriteMissing translates a front controller that is written by hand, as a rewrite of
// what is no file.
func (t *site) rewriteMissing(d *draft.Directive, c conds, to string) {
	rest := c
	rest.file = nil
	if !c.file.absent || !rest.any() || strings.Contains(to, "{") {
		t.im.Leave(d, "rules do not look for files, and are for all paths but some: static.try does (docs/routes.md)")
		return
	}
	t.missing = append(append([]string{}, c.file.try...), to)
	t.im.Used(d)
}

// tryFiles translates try_files into try of the static route.
func (t *site) tryFiles(d *draft.Directive, sc *scope, args []string) {
	for _, b := range d.Block {
		if b.Name == "policy" && b.Arg(0) == "first_exist" {
			t.im.Used(b)
			continue
		}
		t.im.Leave(b, "the first file that is there answers")
	}
	for _, a := range args {
		rest := strings.ReplaceAll(strings.ReplaceAll(a, "{path}", ""), "{http.request.uri.path}", "")
		if strings.ContainsAny(rest, "{}*") {
			t.im.Leave(d, "write static.try: its paths have {path} and no other variable")
			sc.broken = d
			return
		}
	}
	sc.try = args
}

// uri translates strip_prefix, strip_suffix and replace.
func (t *site) uri(d *draft.Directive, sc *scope, alts []conds, args []string, whole bool) {
	kind := ""
	if len(args) > 0 {
		kind = args[0]
	}
	what := last(args)
	switch {
	case len(args) != 2 || strings.Contains(what, "{") || kind != "strip_prefix" && kind != "strip_suffix":
		t.im.Leave(d, "write a rule with rewrite")
		if !sc.top {
			sc.broken = d
		}
		return
	case kind == "strip_prefix" && !sc.top && whole && len(alts) == 1 && alts[0].path() == what:
		sc.to = "/"
		return
	case kind == "strip_prefix" && !sc.top && whole:
		if len(alts) != 1 || alts[0].path() != strings.TrimSuffix(what, "/")+"/*" {
			sc.broken = d
			t.im.Leave(d, "the prefix is not that of the block: write the route by hand")
			return
		}
		sc.strip = strings.TrimSuffix(what, "/") + "/"
		return
	}
	for _, c := range alts {
		own, to := onPath(strings.TrimSuffix(what, "/")+"/*"), "/{1}"
		if kind == "strip_suffix" {
			own, to = onRegex("^(.*)"+regexp.QuoteMeta(what)+"$"), "{1}"
		}
		both, err := own.and(c)
		if err != nil || both.path() != own.path() || both.regex() != own.regex() || both.file != nil {
			t.im.Leave(d, "write a rule with rewrite")
			return
		}
		t.add(&answer{conds: both, line: d, goesOn: true, action: plan.Rewrite(to)})
	}
}
