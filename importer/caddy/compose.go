package caddy

import (
	"slices"
	"strings"

	"millrace/importer/plan"
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
			both, err := c.and(p.conds)
			switch {
			case !w.guard && p.build == nil:
				// A field of a redirect or a refusal is not worth a route.
			case (err != nil || len(parts) >= maxParts) && w.guard:
				t.Close(w.line, "write its condition by hand, as a rule: with those of what it is for, they are too many for one")
			case err != nil || len(parts) >= maxParts:
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
			t.Close(a.line, "rules do not look for files: static, with try, does (docs/routes.md)")
		}
	}
}

// reachable drops answers that no request reaches, since an earlier one answers all of
// theirs.
func (t *site) reachable() {
	var kept []*answer
	for _, a := range t.answers {
		if !slices.ContainsFunc(kept, func(e *answer) bool { return !e.goesOn && e.file == nil && e.covers(a.conds) }) {
			kept = append(kept, a)
		}
	}
	t.answers = kept
}

// asRoute writes an answer as a route with a name, and returns the name.
func (t *site) asRoute(a *answer) string {
	kind := "answer"
	switch {
	case a.proxies:
		kind = "upstream"
	case a.static:
		kind = "files"
	}
	return t.Named(t.routeOf("@"+kind, a), a.name, kind, a.line.At()+": "+a.line.String())
}

// routeOf is an answer as a route.
func (t *site) routeOf(key string, a *answer) *plan.Route {
	r := &plan.Route{Action: a.action}
	if a.build != nil {
		var err error
		if r, err = a.build(key); err != nil {
			t.im.Leave(a.line, err.Error())
			r = &plan.Route{Action: plan.NotImplemented()}
		}
	}
	var signIn *middleware
	for _, w := range a.middlewares {
		if w.guard && signIn != nil {
			t.Close(w.line, "a route has one auth, and here clients must pass that of "+signIn.line.At()+" as well: have one server decide (auth.url), or keep one of the two")
		} else if w.guard {
			signIn = w
		}
		w.apply(r, a)
	}
	if r.Static.Root != "" {
		r.Try = a.try
	}
	if r.Redirect.To == "" && r.Respond == (plan.Response{}) { // an application's own errors keep their bodies, as in Caddy
		r.Errors = t.errors
	}
	return r
}

// write turns the answers into rules and routes.
func (t *site) write() {
	t.applyMiddlewares()
	t.fileConditions()
	t.reachable()
	needs := t.needRules()
	for i, a := range t.answers {
		t.writeOne(a, needs[i])
	}
}

// needRules says which answers need a rule that leads to their route. A site takes the
// route with the longest path, Caddy the first answer: where both differ, a rule decides.
func (t *site) needRules() []bool {
	needs := make([]bool, len(t.answers))
	keys := map[string]bool{}
	for i, a := range slices.Backward(t.answers) {
		key := a.key()
		needs[i] = key == "" || a.goesOn || t.Routed(key) != nil
		for j := i + 1; j < len(t.answers) && !needs[i]; j++ {
			later := t.answers[j]
			needs[i] = a.overlaps(later.conds) && (needs[j] || later.alone(false) || plan.Before(later.key(), key))
		}
		if !needs[i] {
			needs[i], keys[key] = keys[key], true
		}
	}
	return needs
}

// writeOne writes an answer as a rule, as a route, or as both.
func (t *site) writeOne(a *answer, needsRule bool) {
	note := a.line.At() + ": " + a.line.String()
	letters := a.letters()
	if a.alone(needsRule) {
		t.Add(plan.Rule{If: a.rule(a.guard), Do: a.action, Note: note})
		return
	}
	key := a.key()
	if key == "" || t.Routed(key) != nil {
		if a.strips {
			t.Close(a.line, "its path leads to another route as well: write it by hand")
			return
		}
		key, needsRule = t.asRoute(a), true
	} else {
		t.Route(key, t.routeOf(key, a), note)
	}
	if needsRule || letters {
		c := a.rule(a.guard && strings.HasPrefix(key, "@"))
		if strings.HasSuffix(c.Path, "/") && c.Path != "/" {
			c.Path += "**" // the folder's name without a slash is for others in Caddy
		}
		t.Add(plan.Rule{If: c, Do: plan.To(key), Note: note})
	}
	if letters && !strings.HasPrefix(key, "@") {
		t.Add(plan.Rule{If: plan.Cond{Regex: expressionOf(a.path(), true)}, Do: plan.Deny(404), Note: "the same path in another spelling, which Caddy takes for it as well"})
	}
}

// letters reports whether an answer keeps clients out of all spellings of a path.
func (a *answer) letters() bool { return a.guard && hasLetters(a.path()) }

// alone reports whether an answer is written as a rule alone, which comes before all routes.
func (a *answer) alone(needsRule bool) bool {
	return a.build == nil && len(a.middlewares) == 0 && (needsRule || a.letters() || a.action.Redirect.To != "" && a.in != nil && !a.isKey())
}

// isKey reports whether a redirect is as good as a route.
func (a *answer) isKey() bool {
	key := a.key()
	return key != "" && !strings.HasSuffix(key, "/")
}
