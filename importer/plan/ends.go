package plan

import (
	"fmt"
	"slices"
	"strings"

	"millrace/internal/route/match"
)

// This file is about the paths that try makes. The original looks at all that it says of
// paths anew with such a path; here its route answers, and no rule is asked. In
//
//	location / { try_files $uri /index.html; }
//	location ~ \.html$ { auth_basic x; … }
//
// nginx asks for a password before it shows /index.html in the place of what is not there.

// closeEnds gives paths that try makes, and that a rule keeps clients out of, routes that do
// the same, or closes what leads to them.
func (t *Site) closeEnds() {
	for _, key := range slices.Clone(t.order) {
		r := t.routes[key]
		var kept []string
		for i, to := range r.Try {
			last := i == len(r.Try)-1
			rule := t.KeptFrom(key, to)
			switch {
			case rule == nil || !last && !t.AllOfTry:
				kept = append(kept, to)
			case last && t.sameByRoute(to, rule):
				kept = append(kept, to)
			default:
				if last {
					kept = append(kept, fmt.Sprintf("=%d", refusedWith(rule)))
				}
				if !last || !rule.If.EveryPath() || rule.Do.Deny == 0 {
					t.Leave(t.Server.Line, fmt.Sprintf("what is not there does not lead to %s, which a rule keeps clients out of: write a route for that path, with access or auth, and put the path into try", to))
				}
				t.notes[key] = append(t.notes[key], to+": "+t.reason(rule)+" keeps clients out")
			}
		}
		r.Try = kept
		if r.Static.CleanURLs && t.KeptFrom(key, "{path}.html") != nil {
			r.Static.CleanURLs = false
			t.Leave(t.Server.Line, "a rule keeps clients out of pages that end in .html: they have no path without it. Write clean_urls where nobody is kept out")
		}
	}
}

// refusedWith is the status with which try ends where a rule keeps clients out.
func refusedWith(r *Rule) int {
	if d := int(r.Do.Deny); d == 404 || d == 410 {
		return d
	}
	return 403
}

// sameByRoute gives a path a route like that to which a rule leads for it, which may ask for
// a password; false where it cannot.
func (t *Site) sameByRoute(path string, rule *Rule) bool {
	to := t.routes[rule.Do.Route]
	if to == nil || !to.None() || !rule.If.EveryPath() || t.routes[path] != nil || strings.HasSuffix(path, "/") || strings.ContainsAny(path, "{?*#") {
		return false
	}
	same := to.Clone()
	same.Try = nil
	if !strings.HasSuffix(path, ".php") {
		same.PHP = PHP{} // there are no scripts below it
	}
	t.Route(path, same, "try ends with it: "+t.reason(rule))
	return true
}

// reason is what stands above a rule, or above its route.
func (t *Site) reason(r *Rule) string {
	if r.Note == "" && len(t.notes[r.Do.Route]) > 0 {
		return t.notes[r.Do.Route][0]
	}
	return r.Note
}

// KeptFrom is the rule that keeps clients out of a path that a route's try makes, but not out
// of the path that was asked for; nil if there is none.
func (t *Site) KeptFrom(key, to string) *Rule {
	to, _, _ = strings.Cut(to, "?")
	script := strings.HasSuffix(to, ".php") && t.routes[key].PHP.To == nil // is not sent
	if script || to == "{path}" || to == "{path}/" || !strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "{path}") {
		return nil
	}
	for _, asked := range t.samples(key, strings.Contains(to, "{path}")) {
		path := strings.ReplaceAll(to, "{path}", asked)
		if strings.Contains(path, "{") {
			continue
		}
		if r := t.decides(path, asked, t.routes[key]); r != nil {
			return r
		}
	}
	return nil
}

// samples are paths for which a route answers, unless a rule is for them: one of its own, or
// one that begins like what rules are for.
func (t *Site) samples(key string, like bool) (paths []string) {
	const name = "zzz" // is no file, and in no expression
	folder, exact := strings.CutSuffix(strings.ReplaceAll(key, "**", "*"), "*")
	exact = !exact && !strings.HasSuffix(folder, "/")
	if !strings.HasPrefix(key, "@") {
		if exact {
			return []string{key}
		}
		paths = append(paths, strings.ReplaceAll(folder, "*", name)+name)
	}
	for _, r := range t.Rules {
		begins, _, _ := strings.Cut(r.If.Path, "*")
		if r.If.Regex != "" {
			begins = match.LiteralPrefix(r.If.Regex)
		}
		if strings.HasPrefix(begins, "/") && (r.Do.Route == key || like && !strings.HasPrefix(key, "@") && strings.HasPrefix(begins, folder)) {
			paths = append(paths, begins+name)
		}
	}
	if paths == nil {
		paths = []string{"/" + name}
	}
	return paths
}

// decides is the first rule for a path, and not for another that was asked for, if it keeps
// any clients out whom a route lets in.
func (t *Site) decides(path, asked string, from *Route) *Rule {
	for i, r := range t.Rules {
		m, faults := (&match.When{Path: r.If.Path, Regex: r.If.Regex, Within: r.If.Within, Except: r.If.Except}).Compile(nil)
		if faults != nil || r.If.Path+r.If.Regex == "" || !m.Covers(path) || m.Covers(asked) || r.Do.Rewrite != "" || r.Outside {
			continue
		}
		do := r.Do
		to := t.routes[do.Route]
		if to != nil && !to.None() {
			do = to.Action
		}
		guarded := to != nil && (!to.Access.None() || !to.Auth.None()) && !sameAccess(to, from)
		switch {
		case do.Route == path: // as without the rule
			return nil
		case do.Deny != 0, do.Respond.Status >= 400, guarded:
			return &t.Rules[i]
		case r.If.EveryPath():
			return nil
		}
	}
	return nil
}

// sameAccess reports whether two routes let in the same clients.
func sameAccess(a, b *Route) bool {
	ask := func(r *Route) string { return written(Shared{Access: r.Access, Auth: r.Auth}).String() }
	return ask(a) == ask(b)
}
