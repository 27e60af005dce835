package apache

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// redirect translates a line of mod_alias.
func (t *site) redirect(c *context, d *draft.Directive) []plan.Rule {
	args := slices.Clone(d.Args)
	status := map[string]int{"redirectpermanent": 301}[lower(d)]
	if lower(d) == "redirect" || lower(d) == "redirectmatch" {
		first := strings.ToLower(d.Arg(0))
		named := map[string]int{"permanent": 301, "temp": 302, "seeother": 303, "gone": 410}[first]
		if n, err := strconv.Atoi(first); err == nil {
			named = n
		}
		if named != 0 {
			status, args = named, args[1:]
		}
	}
	status = cmp.Or(status, 302)
	if len(args) == 0 {
		t.im.Leave(d, "write it as a rule with redirect")
		return nil
	}
	to := ""
	if len(args) > 1 {
		to = args[1]
	}
	r := plan.Rule{Note: d.At()}
	var err error
	if lower(d) == "redirectmatch" {
		r.If, to, err = t.redirectMatch(args[0], to)
	} else {
		r.If, to = t.redirectPrefix(args[0], to, status)
	}
	if err == nil && t.shadowed(c, r.If) {
		beside := func(p *place) bool { return p.proxy.Arg(0) == args[0]+"/" } // it has what is below, not the path itself
		if lower(d) == "redirectmatch" || !slices.ContainsFunc(t.proxies(), beside) {
			t.im.Standard(d, "Apache never comes to it: ProxyPass answers before")
			return nil
		}
		r.If, to = plan.Cond{Path: args[0]}, strings.TrimSuffix(to, "{1}")
	}
	if err == nil {
		r.Do, err = answer(to, status)
	}
	switch {
	case err == nil:
		t.im.Used(d)
		return []plan.Rule{r}
	case status >= 400:
		t.Close(d, "write it as a rule: "+err.Error())
	default:
		t.im.Leave(d, "write it as a rule: "+err.Error())
	}
	return nil
}

// answer is a redirect, or an answer that is none.
func answer(to string, status int) (plan.Action, error) {
	if status >= 300 && status < 400 && to != "" {
		if strings.HasPrefix(to, "//") {
			to = "/" + strings.TrimLeft(to, "/")
		}
		return plan.Redirect(to, status)
	}
	return plan.Answer(status, "", "")
}

// shadowed reports whether a proxy answers for the paths of a host's rule.
func (t *site) shadowed(c *context, of plan.Cond) bool {
	at := of.Path
	if before, is := strings.CutSuffix(strings.TrimPrefix(of.Regex, "^"), "(/.*)?$"); is {
		at = before + "/"
	}
	return !c.perDir && slices.ContainsFunc(t.proxies(), func(p *place) bool {
		return p.proxy.Arg(len(p.proxy.Args)-1) != "!" && strings.HasPrefix(at, p.path) && !strings.HasPrefix(p.path, "/.")
	})
}

func (t *site) redirectMatch(text, to string) (plan.Cond, string, error) {
	text, except, _ := plan.Excepting(text)
	expr, err := expression(text, false)
	if err != nil {
		return plan.Cond{}, "", err
	}
	if except != "" {
		except, err = expression(except, false)
	}
	if err != nil {
		return plan.Cond{}, "", err
	}
	p := pattern{expr: expr, except: except, groups: regexp.MustCompile(expr).NumSubexp()}
	of := p.cond()
	if of.Everything() {
		of.Regex = expr
	}
	to, err = (&context{}).substitution(strings.ReplaceAll(to, "%", `\%`), p, nil)
	return of, to, err
}

// redirectPrefix redirects a path and all below it: the rest of the path is appended to
// the target.
func (t *site) redirectPrefix(url, to string, status int) (plan.Cond, string) {
	file := strings.Contains(path.Base(url), ".")
	if status >= 400 || to == "" {
		if !file {
			url = slashed(url)
		}
		return plan.Cond{Path: url}, to
	}
	to = strings.NewReplacer("{", "%7B", "}", "%7D").Replace(to)
	cut, is := strings.CutSuffix(to, "/")
	switch {
	case url == "/" && is:
		return plan.Cond{}, cut + "{path}"
	case url == "/":
		return plan.Cond{Path: url}, to + "{1}"
	case strings.HasSuffix(url, "/"): // the path without the slash is another one
		return plan.Cond{Regex: "^" + regexp.QuoteMeta(url) + "(.*)$"}, to + "{1}"
	case file:
		return plan.Cond{Path: url}, to
	}
	return plan.Cond{Regex: "^" + regexp.QuoteMeta(url) + "(/.*)?$"}, to + "{1}"
}

// serverRules translates the rewrites and redirects of the host itself, which come before
// those of folders.
func (t *site) serverRules() {
	t.findFronts()
	list := t.host.list
	if t.host.Line == nil {
		list = t.lines()
	}
	c := &context{base: "/"}
	t.first = append(t.first, t.rules(c, list)...)
	for _, l := range t.locations {
		for _, d := range l.list {
			if lower(d) == "redirect" && len(d.Args) <= 2 && !strings.HasPrefix(l.url, "~") {
				moved := &draft.Directive{Name: d.Name, Args: append([]string{"302", l.url}, d.Args...), File: d.File, Line: d.Line}
				if _, err := strconv.Atoi(d.Arg(0)); len(d.Args) == 2 || err == nil || strings.EqualFold(d.Arg(0), "gone") {
					moved.Args = append([]string{d.Arg(0), l.url}, d.Args[1:]...)
				}
				t.first = append(t.first, t.redirect(c, moved)...)
				t.im.Used(d)
			}
		}
	}
}
