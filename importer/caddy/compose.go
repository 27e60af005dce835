package caddy

import (
	"slices"
	"strings"

	"millrace/importer/draft"
)

// applyMiddlewares gives each answer the middlewares that hold for it. Where one holds
// for only some of its requests, the answer becomes two: "header /img/* …" beside
// file_server makes a route for /img/ with the field, and one for all else without.
func (t *site) applyMiddlewares() {
	var out []*answer
	for _, a := range t.answers {
		parts := []*answer{a}
		around := a.middlewares
		a.middlewares = nil
		for _, w := range around {
			for _, c := range w.alts {
				parts = t.applyMiddleware(parts, w, c)
			}
		}
		out = append(out, parts...)
	}
	t.answers = out
}

// maxParts bounds into how many routes one answer is split.
const maxParts = 64

func (t *site) applyMiddleware(parts []*answer, w *middleware, c conds) (out []*answer) {
	for _, p := range parts {
		switch {
		case slices.Contains(p.middlewares, w) || !c.overlaps(p.conds) || p.goesOn || p.build == nil && refuses(p.action):
		case c.covers(p.conds):
			p.middlewares = append(p.middlewares, w)
		default:
			both, ok := c.and(p.conds)
			switch {
			case !w.guard && p.build == nil && p.action != nil:
				// A field of a redirect or a refusal is not worth a route.
			case (!ok || len(parts) >= maxParts) && w.guard:
				t.close(w.line, "write its condition by hand, as a rule: with those of what it is for, they are too many for one")
			case !ok || len(parts) >= maxParts:
				t.im.Leave(w.line, "write it into the routes that it is for: its conditions and theirs are too many for one rule")
			default:
				part := *p
				part.conds, part.middlewares = both, append(slices.Clone(p.middlewares), w)
				part.guard = p.guard || w.guard
				out = append(out, &part)
			}
		}
		if slices.Contains(p.middlewares, w) {
			p.guard = p.guard || w.guard
		}
		out = append(out, p)
	}
	return out
}

// expandNot removes the paths that an answer is not for ("not path /api/*") from its
// conditions: whatever answers for those paths is put before it.
func (t *site) expandNot() {
	for i := 0; i < len(t.answers); i++ {
		a := t.answers[i]
		if a.not == nil {
			continue
		}
		var before []*answer
		for _, path := range a.not {
			covered := false
			for _, later := range t.answers[i+1:] {
				both, ok := later.conds.and(conds{path: path})
				if !later.overlaps(conds{path: path}) {
					continue
				}
				if !ok || later.not != nil {
					t.close(a.line, "write its condition by hand, as a rule: paths that it is not for have others as well")
					break
				}
				part := *later
				part.conds, part.same = both, later
				before = append(before, &part)
				if later.covers(conds{path: path}) && !later.goesOn {
					covered = true
					break
				}
			}
			if !covered {
				before = append(before, &answer{conds: conds{path: path}, line: a.line, guard: true, action: draft.Map().Set("deny", draft.Map().Set("status", draft.Number(404)).Flow()).Flow()})
			}
		}
		a.not = nil
		t.answers = slices.Insert(t.answers, i, before...)
		i += len(before)
	}
}

// fileConditions turns matchers that look for files ("@missing not file") into try of
// the static route, since rules do not look for files.
func (t *site) fileConditions() {
	for i := 0; i < len(t.answers); i++ {
		a := t.answers[i]
		if a.file == nil {
			continue
		}
		f := a.file
		a.file = nil
		next := slices.IndexFunc(t.answers[i+1:], func(l *answer) bool { return l.file == nil && l.covers(a.conds) && !l.goesOn })
		switch {
		case f.absent && next >= 0 && t.answers[i+1+next].static && !a.goesOn:
			files := t.answers[i+1+next]
			files.try = append(slices.Clone(f.try), t.asRoute(a))
			t.answers = slices.Delete(t.answers, i, i+1)
			i--
		case !f.absent && a.static && next >= 0:
			a.try = append(slices.Clone(f.try), t.asRoute(t.answers[i+1+next]))
		default:
			a.file = nil
			t.close(a.line, "rules do not look for files: static, with try, does (docs/routes.md)")
		}
	}
}

// reachable drops answers that no request reaches, since an earlier one answers all of
// theirs. It returns those that a rule still leads to.
func (t *site) reachable() (targets []*answer) {
	var kept []*answer
	for _, a := range t.answers {
		dead := slices.ContainsFunc(kept, func(e *answer) bool { return !e.goesOn && e.file == nil && e.covers(a.conds) })
		if !dead {
			kept = append(kept, a)
			continue
		}
		if slices.ContainsFunc(t.answers, func(l *answer) bool { return l.same == a }) {
			targets = append(targets, a)
		}
	}
	t.answers = kept
	return targets
}

// asRoute writes an answer as a route with a name, and returns the name.
func (t *site) asRoute(a *answer) string {
	name := t.freeName(a.name, kindOf(a))
	t.writeRoute(name, a)
	return name
}

func kindOf(a *answer) string {
	switch {
	case a.proxies:
		return "upstream"
	case a.static:
		return "files"
	}
	return "answer"
}

// writeRoute writes an answer as a route.
func (t *site) writeRoute(key string, a *answer) {
	a.route = key
	node := draft.Map()
	if a.build == nil {
		a.action.CopyTo(node)
	} else {
		built, err := a.build(key)
		if err != nil {
			t.im.Leave(a.line, err.Error())
			built = draft.NotImplemented()
		}
		node = built
	}
	var signIn *middleware
	for _, w := range a.middlewares {
		if w.guard && signIn != nil {
			t.close(w.line, "a route has one auth, and here clients must pass that of "+signIn.line.At()+" as well: have one server decide (auth.url), or keep one of the two")
		} else if w.guard {
			signIn = w
		}
		w.apply(node, a)
	}
	if a.try != nil && node.Get("static") != nil {
		node.Set("try", texts(a.try...))
	}
	t.errorsOf(node)
	t.routes.Set(key, node, a.line.At()+": "+a.line.String())
}

// write turns the answers into rules and routes.
func (t *site) write() {
	t.applyMiddlewares()
	t.expandNot()
	t.fileConditions()
	targets := t.reachable()
	needs := t.needRules()
	own := draft.List()
	for i, a := range t.answers {
		t.writeOne(a, needs[i], own)
	}
	for _, a := range targets {
		t.writeRoute(t.freeName(a.name, kindOf(a)), a)
	}
	for _, l := range t.links {
		l.rule.Set("route", text(l.to.route))
	}
	rules := draft.Closed(t.closed)
	for _, r := range t.first {
		rules.Add(r.node, r.comment)
	}
	own.Each(func(value *draft.Node, comment []string) { rules.Add(value, comment...) })
	if rules.Len() > 0 {
		t.node.Set("rules", rules)
	}
	if t.routes.Len() == 0 {
		t.routes.Set("/", draft.Map().Set("deny", draft.Map().Set("status", draft.Number(404)).Flow()).Flow(), "nothing answers there")
	}
	t.node.Set("routes", t.routes)
}

// needRules says which answers need a rule that leads to their route. A site takes the
// route with the longest path, Caddy the first answer: where both differ, a rule decides.
func (t *site) needRules() []bool {
	needs := make([]bool, len(t.answers))
	keys := map[string]int{}
	for i := len(t.answers) - 1; i >= 0; i-- {
		a := t.answers[i]
		key := a.key()
		needs[i] = key == "" || a.goesOn || a.same != nil || t.routes.Get(key) != nil
		for j := i + 1; j < len(t.answers) && !needs[i]; j++ {
			later := t.answers[j]
			needs[i] = a.overlaps(later.conds) && (needs[j] || before(later.key(), key))
		}
		if !needs[i] {
			if _, taken := keys[key]; taken {
				needs[i] = true
			}
			keys[key] = i
		}
	}
	return needs
}

// before reports whether a route is chosen before another.
func before(key, other string) bool {
	rank := func(k string) int {
		switch {
		case strings.Contains(k, "*"):
			return 1
		case strings.HasSuffix(k, "/"):
			return 0
		}
		return 2
	}
	if rank(key) != rank(other) {
		return rank(key) > rank(other)
	}
	return len(key) > len(other)
}

// writeOne writes an answer as a rule, as a route, or as both.
func (t *site) writeOne(a *answer, needsRule bool, rules *draft.Node) {
	comment := a.line.At() + ": " + a.line.String()
	alone := a.build == nil && len(a.middlewares) == 0
	if alone && (needsRule || a.guard && hasLetters(a.path) || a.action.Get("redirect") != nil && a.path != "" && !t.isKey(a)) {
		n := a.rule(a.guard)
		a.action.CopyTo(n)
		rules.Add(n.Flow(), comment)
		return
	}
	if a.same != nil && !alone {
		n := a.rule(a.guard)
		rules.Add(n, comment)
		t.links = append(t.links, link{n, a.same})
		return
	}
	key := a.key()
	if key == "" || t.routes.Get(key) != nil {
		if a.strips {
			t.close(a.line, "its path leads to another route as well: write it by hand")
			return
		}
		key = t.freeName(a.name, kindOf(a))
		needsRule = true
	}
	t.writeRoute(key, a)
	fold := a.guard && hasLetters(a.path) && a.path != ""
	if needsRule || fold {
		n := a.rule(a.guard && strings.HasPrefix(key, "@"))
		if path := n.Get("path").Plain(); strings.HasSuffix(path, "/") && path != "/" {
			n.Set("path", text(path+"**")) // the folder's name without a slash is for others in Caddy
		}
		rules.Add(n.Set("route", text(key)).Flow(), comment)
	}
	if fold && !strings.HasPrefix(key, "@") {
		n := draft.Map().Set("regex", draft.Verbatim(expressionOf(a.path, true))).Set("deny", draft.Map().Set("status", draft.Number(404)).Flow())
		rules.Add(n.Flow(), "the same path in another spelling, which Caddy takes for it as well")
	}
}

// isKey reports whether a redirect is as good as a route.
func (t *site) isKey(a *answer) bool {
	key := a.key()
	return key != "" && !strings.HasSuffix(key, "/")
}
