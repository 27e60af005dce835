package apache

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// findPHP finds what runs PHP: the php-fpm that a line names, or Debian's where the config
// has mod_php.
func (t *site) findPHP() {
	var all []*draft.Directive
	var walk func(list []*draft.Directive)
	walk = func(list []*draft.Directive) {
		for _, d := range t.im.flat(list) {
			all = append(all, d)
			walk(d.Block)
		}
	}
	walk(t.lines())
	for _, l := range t.dirs {
		if l.line == nil {
			walk(l.list)
		}
	}
	runs := t.im.options.IsFile(t.root() + "/index.php")
	to := ""
	for _, d := range all {
		switch name := lower(d); {
		case name == "sethandler" || name == "addhandler" || name == "addtype" || name == "action" || name == "fcgiwrapper":
			if !isPHPType(strings.Join(d.Args, " ")) && !strings.Contains(d.Arg(0), "fcgi:") {
				continue
			}
			runs = true
			if socket := fcgi(d.Arg(0)); socket != "" {
				t.im.Used(d)
				to = socket
			} else {
				t.im.Standard(d, "PHP is run by php-fpm, whatever its handler was called")
			}
		case name == "proxypassmatch" && strings.Contains(d.Arg(1), "fcgi:"):
			t.im.Used(d)
			runs, to = true, fcgi(d.Arg(1))
		case name == "php_value" || name == "php_flag" || name == "php_admin_value" || name == "php_admin_flag":
			runs = true
		case name == "loadmodule" && strings.HasPrefix(d.Arg(0), "php"):
			runs = true
		case name == "fallbackresource" && strings.HasSuffix(d.Arg(0), ".php"), name == "rewriterule" && regexp.MustCompile(`\.php(\?|$|/)`).MatchString(d.Arg(1)):
			runs = true
		}
	}
	switch {
	case to != "":
		t.php = to
	case runs:
		t.php = t.im.options.PHP
	}
	for _, l := range t.dirs {
		t.switchedOff(l)
	}
}

// fcgi is where php-fpm listens, by a handler or a target of ProxyPassMatch.
func fcgi(text string) string {
	if socket, is := strings.CutPrefix(text, "proxy:unix:"); is {
		socket, _, _ = strings.Cut(socket, "|")
		return socket
	}
	if socket, is := strings.CutPrefix(text, "unix:"); is {
		socket, _, _ = strings.Cut(socket, "|")
		return socket
	}
	if _, rest, ok := strings.Cut(text, "fcgi://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		if strings.Contains(host, ":") && host != "" {
			return host
		}
	}
	return ""
}

// switchedOff finds folders in which PHP is switched off.
func (t *site) switchedOff(l layer) {
	paths := t.pathsOf(l.dir)
	if len(paths) == 0 {
		return
	}
	off := func(d *draft.Directive) {
		t.im.Used(d)
		if slices.Contains(paths, "/") {
			t.php = ""
			t.im.Standard(d, "no PHP is run, and sources are not shown")
			return
		}
		t.noPHP = append(t.noPHP, paths...)
	}
	look := func(list []*draft.Directive) {
		for _, d := range list {
			switch name := lower(d); {
			case (name == "php_flag" || name == "php_admin_flag") && strings.EqualFold(d.Arg(0), "engine") && (strings.EqualFold(d.Arg(1), "off") || d.Arg(1) == "0"):
				off(d)
			case name == "removehandler" && slices.ContainsFunc(d.Args, func(a string) bool { return strings.TrimPrefix(a, ".") == "php" }):
				off(d)
			case (name == "sethandler" || name == "forcetype") && noProgram(d.Arg(0)):
				off(d)
			case name == "addtype" && d.Arg(0) == "text/plain" && slices.ContainsFunc(d.Args[1:], func(a string) bool { return strings.TrimPrefix(a, ".") == "php" }):
				off(d)
			}
		}
	}
	look(l.list)
	for _, s := range l.list {
		if name := lower(s); (name == "files" || name == "filesmatch") && (strings.Contains(s.Arg(len(s.Args)-1), "ph") || s.Arg(0) == "*") {
			look(t.im.flat(s.Block))
		}
	}
}

// noProgram reports whether a handler or type takes the place of PHP's, so that
// no script is run.
func noProgram(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains([]string{"none", "default-handler", "text/plain"}, name) || strings.HasPrefix(name, "drupal_security")
}

// addPHP puts php beside the files of a place.
func (t *site) addPHP(p *place, r *plan.Route, scripts []string, key string) {
	for _, off := range t.noPHP {
		if strings.HasPrefix(p.path, off) {
			if f, is := t.frontOf(p.path); is {
				r.Try = f.try()
			}
			return
		}
	}
	php := plan.PHP{To: []string{t.php}}
	if len(scripts) > 0 && scripts[0] != "index.php" && !slices.Contains(scripts, "index.php") {
		php.Index = scripts[0]
	}
	t.phpParams(p, &php)
	f, is := t.frontOf(p.path)
	prefix := p.path
	if strings.HasPrefix(key, "@") {
		prefix = "/"
	}
	script, query, _ := strings.Cut(f.to, "?")
	switch {
	case !is:
		php.Front = "off"
	case query == "" && strings.HasSuffix(script, ".php") && !strings.HasPrefix(script, prefix) && f.leavesFolder:
		php.Front = "off"
		t.im.Leave(f.line, "the front controller "+script+" is none of this folder: what is not there answers 404 until you have written a rule that rewrites it")
	case query != "" || !strings.HasSuffix(script, ".php") || !strings.HasPrefix(script, prefix):
		php.Front = "off"
		r.Try = f.try()
		if query != "" {
			t.frontWithQuery(p, php, script)
			return
		}
	default:
		if name := strings.TrimPrefix(script, prefix); name != "index.php" {
			php.Front = name
		}
	}
	php.Except = slices.DeleteFunc(draft.Unique(t.noPHP), func(u string) bool { return !strings.HasPrefix(u, p.path) })
	r.PHP = php
}

// frontWithQuery translates a front controller that gets the path in its query
// (index.php?q=$1): it becomes a route of its own that try leads to, and a rule leads to
// the other scripts.
func (t *site) frontWithQuery(p *place, php plan.PHP, script string) {
	if f, _ := t.frontOf(p.path); f.line != nil {
		t.im.Partly(f.line, "a script that is not there answers 404: the front controller is not asked")
	}
	if t.controllers[script] != nil {
		return
	}
	at := func(root string) *plan.Route {
		return t.routeOptions(p, p.layers, p.guard, &plan.Route{Static: plan.Static{Root: root}, PHP: php})
	}
	t.controllers[script] = at(strings.TrimSuffix(t.dirOf(script), script))
	name := t.FreeName("php"+strings.ReplaceAll(p.path, "/", "-"), "php")
	t.Route(name, at(cutSuffix(slashed(p.dir), strings.TrimPrefix(p.path, "/"))))
	expr := `\.php(?:/|$)`
	if p.path != "/" {
		expr = "^" + regexp.QuoteMeta(p.path) + ".*" + expr
	}
	t.last = append(t.last, plan.Rule{If: plan.Cond{Regex: expr, Except: t.innerPlaces(p)}, Do: plan.To(name), Note: "scripts themselves"})
}

// phpParams are the variables that scripts get.
func (t *site) phpParams(p *place, php *plan.PHP) {
	php.Params = map[string]string{}
	for _, d := range allIn(p.layers, "setenv") {
		if strings.ContainsAny(d.Arg(1), "%") || len(d.Args) == 0 {
			continue
		}
		if strings.HasPrefix(d.Arg(0), "HTTP_") {
			t.im.Leave(d, "parameters that begin with HTTP_ are the fields of requests, which scripts get as they came")
			continue
		}
		t.im.Used(d)
		php.Params[d.Arg(0)] = d.Arg(1)
	}
}

func cutSuffix(text, suffix string) string {
	if out := strings.TrimSuffix(strings.TrimSuffix(text, suffix), "/"); out != "" {
		return out
	}
	return "/"
}

// innerPlaces are the places within one.
func (t *site) innerPlaces(p *place) (paths []string) {
	for _, o := range t.places {
		if o != p && strings.HasPrefix(o.path, p.path) {
			paths = append(paths, o.path)
		}
	}
	return paths
}

// routeOptions adds the keys that go with any job: access, auth, errors, headers.
func (t *site) routeOptions(p *place, layers []layer, g guard, r *plan.Route) *plan.Route {
	r.Access, r.Auth = g.access, g.auth
	if r.None() {
		t.errorPages(layers, r)
		t.headers(layers, r)
	}
	return r
}

// guardedFronts closes the site where a section keeps clients out of the script that answers
// for what is not there: Apache looks at its sections anew with the script's path.
func (t *site) guardedFronts() {
	for _, p := range t.places {
		f, is := t.frontOf(p.path)
		r := t.Routed(p.path)
		if !is || r == nil || r.PHP.To == nil || r.Try != nil {
			continue
		}
		if t.KeptFrom(p.path, f.to) != nil {
			t.Close(cmp.Or(f.line, lastIn(p.layers, "fallbackresource"), t.Server.Line), "it answers for what is not there, and a section keeps clients out of it: write access or auth for the route of "+p.path)
		}
	}
}
