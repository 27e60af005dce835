package nginx

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// serverRules translates the rewrites and returns of a server block itself; true: they
// answer everything, and no location is reached.
func (t *site) serverRules() bool {
	l := &location{scope: t.server.scope, path: "/"}
	answer := t.phase(t.server.scope, l)
	t.first = append(t.first, l.rules...)
	if l.fallback != "" {
		t.fallback = l.fallback
	}
	if answer.None() {
		return false
	}
	l.key = "/"
	t.route(l, &plan.Route{Action: answer})
	for _, d := range t.server.list {
		if d.Name == "location" {
			t.im.unreachable(d)
		}
	}
	return true
}

// unreachable marks a block that nginx never reaches.
func (im *importer) unreachable(d *draft.Directive) {
	im.Standard(d, "nginx never comes to it: the server returns before")
	for _, inner := range d.Block {
		im.unreachable(inner)
	}
}

// phase translates the directives of the rewrite module in their order, as rules of a
// location. What it returns answers every request that they let through.
func (t *site) phase(sc *scope, l *location) plan.Action {
	answer := t.phaseLines(sc, l)
	// Behind a rewrite without a flag nginx goes on in the block: what refuses there does
	// so for the paths that came, and an answer there is for those, too.
	late := slices.DeleteFunc(slices.Clone(l.rules), func(r rule) bool { return !r.late })
	l.rules = slices.DeleteFunc(l.rules, func(r rule) bool { return r.late })
	if answer.None() {
		l.rules = append(l.rules, late...)
	}
	return answer
}

func (t *site) phaseLines(sc *scope, l *location) plan.Action {
	for _, d := range sc.list {
		switch d.Name {
		case "return":
			answer, err := t.returned(d, l)
			if err != nil {
				t.im.Leave(d, err.Error())
				answer = cmp.Or(refusal(d), plan.Deny(404))
			} else {
				t.im.Used(d)
			}
			return answer
		case "rewrite":
			t.rewrite(d, l, plan.Cond{})
		case "if":
			t.condition(d, l)
		case "break":
			t.im.Standard(d, "rules of a site end where one answers")
		case "set":
			if !strings.Contains(d.Arg(1), "$") {
				t.server.values[strings.TrimPrefix(d.Arg(0), "$")] = d.Arg(1)
				t.im.Used(d)
			}
		}
	}
	return plan.Action{}
}

// captures are the names of an expression's groups, for templates.
func (t *site) captures(expr string) map[string]string {
	values := map[string]string{}
	maps.Copy(values, t.server.values)
	if len(t.Server.Names) > 0 && !strings.HasPrefix(t.Server.Names[0], "*") {
		values["server_name"] = t.Server.Names[0]
	}
	if port := t.server.port(); port != "" {
		values["server_port"] = port
	}
	if re, err := regexp.Compile(expr); err == nil {
		for _, name := range re.SubexpNames() {
			if name != "" {
				values[name] = "{" + name + "}"
			}
		}
	}
	return values
}

// text translates a text with variables, for redirects and rewrites.
func (t *site) text(text, expr string) (string, error) {
	text = strings.ReplaceAll(text, "$is_args$args", "$is_args")
	text = strings.ReplaceAll(text, "$is_args$query_string", "$is_args")
	text = strings.ReplaceAll(text, "$is_args", "") // the query is kept
	text = strings.TrimSuffix(text, "?$args")
	text = strings.TrimSuffix(text, "?$query_string")
	if strings.ContainsAny(strings.ReplaceAll(variable().ReplaceAllString(text, ""), "${", ""), "{}") {
		return "", fmt.Errorf("%q has braces, which stand for variables here", text)
	}
	out, err := template(text, withFields(text), t.captures(expr))
	if err != nil {
		return "", err
	}
	groups := 0
	if re, err := regexp.Compile(expr); err == nil {
		groups = re.NumSubexp()
	}
	for _, m := range regexp.MustCompile(`\{(\d+)\}`).FindAllStringSubmatch(out, -1) {
		if n, _ := strconv.Atoi(m[1]); n > groups {
			return "", fmt.Errorf("{%d} is no group of the expression", n)
		}
	}
	return out, nil
}

// returned translates return.
func (t *site) returned(d *draft.Directive, l *location) (plan.Action, error) {
	status, err := strconv.Atoi(d.Arg(0))
	text := d.Arg(1)
	if err != nil {
		status, text = 302, d.Arg(0)
	}
	expr := ""
	if l.kind == regexLocation {
		expr = l.expr
	}
	switch {
	case status >= 300 && status < 400 && status != 304:
		to, err := t.text(text, expr)
		if err != nil {
			return plan.Action{}, fmt.Errorf("write the redirect by hand: %w", err)
		}
		return plan.Redirect(address(withoutQuery(text, to)), status)
	case status == 444:
		t.im.Standard(d, "a connection is not closed without an answer: 403")
		return plan.Deny(403), nil
	case len(d.Args) > 1 && err == nil && strings.Contains(text, "$"):
		if text, err = template(text, nil, t.captures("")); err != nil {
			return plan.Action{}, fmt.Errorf("texts of respond have no variables: %w", err)
		}
	}
	return plan.Answer(status, text, t.contentType(l))
}

// refusal stands for a return that cannot be translated and keeps clients out; none if it
// keeps nobody out.
func refusal(d *draft.Directive) plan.Action {
	status, err := strconv.Atoi(d.Arg(0))
	if err != nil || status < 400 {
		return plan.Action{}
	}
	return cmp.Or(plan.Refuse(status), plan.Deny(403))
}

// contentType is that of a text of return.
func (t *site) contentType(l *location) string {
	for _, h := range l.all("add_header") {
		if strings.EqualFold(h.Arg(0), "Content-Type") {
			t.im.Used(h)
			return h.Arg(1)
		}
	}
	if l.kind == exactLocation {
		if ct := draft.TypeOf(path.Ext(l.path)); ct != "" {
			return ct
		}
	}
	if d := l.last("default_type"); d != nil {
		return d.Arg(0)
	}
	return ""
}

// withoutQuery ends the target of a return so that the query is not appended: nginx
// appends it for rewrites alone.
func withoutQuery(nginx, to string) string {
	for _, v := range []string{"request_uri", "args", "query_string"} {
		if strings.Contains(nginx, "$"+v) || strings.Contains(nginx, "${"+v) {
			return to
		}
	}
	if strings.ContainsAny(to, "?#") {
		return to
	}
	return to + "?"
}

// address is a target as that of a redirect: nginx puts the site in front of one without
// a scheme.
func address(to string) string {
	if !strings.HasPrefix(to, "/") && !strings.Contains(to, "://") && !strings.HasPrefix(to, "{uri}") && !strings.HasPrefix(to, "{path}") && !strings.HasPrefix(to, "{1}") {
		return "/" + to
	}
	return to
}

// rewrite translates a rewrite, with the conditions of the if that it is in.
func (t *site) rewrite(d *draft.Directive, l *location, when plan.Cond) {
	positive, except, _ := plan.Excepting(d.Arg(0))
	expr, err := plan.Expression(positive, false)
	if err == nil && except != "" {
		except, err = plan.Expression(except, false)
	}
	if err != nil {
		t.im.Leave(d, fmt.Sprintf("write it as rules: %v", err))
		return
	}
	target, flag := d.Arg(1), d.Arg(2)
	absolute := strings.Contains(target, "://") && (strings.HasPrefix(target, "http") || strings.HasPrefix(target, "$scheme"))
	redirects := flag == "permanent" || flag == "redirect" || absolute
	if !redirects && flag != "last" && l.own("proxy_pass") != nil && (flag == "break" || l.kind == namedLocation) {
		return // the proxy changes the path
	}
	stays := !redirects && flag == "break" && l.block != nil
	if stays {
		l.moved = d
	}
	c, err := t.scoped(l, expr)
	if err == nil {
		c, err = c.And(when)
	}
	if except != "" {
		c.Except = append(c.Except, "~"+except)
	}
	var do plan.Action
	switch {
	case err != nil:
	case stays && !t.answersAlike(l, target):
		t.im.Leave(d, "its location answers for the path that this makes, and here another one would: it answers 501 until you have written it as a route and a rule")
		do = plan.NotImplemented()
	default:
		do, err = t.target(c, target, expr, flag == "permanent", redirects)
	}
	if err != nil {
		t.im.Leave(d, fmt.Sprintf("write it as a rule: %v", err))
		return
	}
	if do.Rewrite == "{path}" {
		t.im.Standard(d, "the path that came is passed on")
		return
	}
	t.im.Used(d)
	l.rules = append(l.rules, rule{Rule: plan.Rule{If: c, Do: do, Note: d.At()}, line: d, late: flag == "" && !redirects})
}

// answersAlike reports whether whatever location has the paths that a rewrite makes
// serves the same files as l.
func (t *site) answersAlike(l *location, target string) bool {
	begins, _, _ := strings.Cut(target, "$")
	return l.own("return") == nil && l.aliased() == nil && !slices.ContainsFunc(t.locations, func(o *location) bool {
		reached := o.kind == regexLocation || o.kind == exactLocation && strings.HasPrefix(o.path, begins) || o.isPrefix() && (strings.HasPrefix(o.path, begins) || strings.HasPrefix(begins, o.path))
		others := o.passes() && o.own("fastcgi_pass") == nil || o.own("return") != nil || o.aliased() != nil || !sameRoot(o, l)
		return reached && others && o.internal() == nil && !o.deniesAll()
	})
}

// target is what a rewrite makes of a request for which a condition holds.
func (t *site) target(c plan.Cond, target, expr string, permanent, redirects bool) (plan.Action, error) {
	bare, dropQuery := strings.CutSuffix(target, "?")
	to, err := t.text(bare, expr)
	if err != nil {
		return plan.Action{}, err
	}
	if all, noSlash := everything(expr); all && !noSlash && c.Regex == "" {
		to = strings.ReplaceAll(to, "{1}", "{path}")
	}
	switch {
	case dropQuery && !strings.Contains(to, "?"):
		to += "?"
	case !dropQuery && strings.Contains(to, "?") && !strings.Contains(to, "{query}"):
		to += "&{query}" // nginx adds the request's
	}
	if !redirects {
		if rest, all := strings.CutSuffix(to, "{uri}"); all {
			to = rest + "{path}" // the query stays as it is
		}
		return plan.Rewrite(to), nil
	}
	return plan.Redirect(address(to), map[bool]int{true: 301}[permanent])
}

// scoped is the condition for those paths of a location that an expression matches.
func (t *site) scoped(l *location, expr string) (plan.Cond, error) {
	re, err := regexp.Compile(expr)
	if err != nil {
		return plan.Cond{}, fmt.Errorf("%w", err)
	}
	all, _ := everything(expr)
	whole := re.NumSubexp() == 0 && (all || l.kind == exactLocation && re.MatchString(l.path))
	switch {
	case l.kind == namedLocation:
		return plan.Cond{}, fmt.Errorf("rules come before named routes: write it above")
	case whole:
		return l.match(), nil
	}
	return plan.Cond{Regex: expr}, nil
}
