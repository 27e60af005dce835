package config

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/plugin"
	"millrace/internal/route/match"
	"millrace/internal/route/site"
	"millrace/internal/server/guard"
)

// rules checks that the routes, tables and pages that a site's rules name exist.
func (c *checker) rules(path string, s Site) {
	known := func(at, key string) {
		if _, ok := s.Routes[key]; !ok && site.IsName(key) {
			c.value(at, fmt.Sprintf("no route of this site is called %s", key), nearestRoute(key, s))
		}
	}
	for i, r := range s.Rules {
		at := fmt.Sprintf("%s.rules[%d]", path, i)
		c.tables(at, r)
		if r.Route == "" {
			continue
		}
		if _, ok := s.Routes[r.Route]; !ok {
			c.value(at+".route", fmt.Sprintf("%s is none of this site's routes", r.Route), nearestRoute(r.Route, s))
		}
	}
	check := func(at string, pages map[string]string) {
		for _, status := range sortedKeys(pages) {
			page := pages[status]
			if _, ok := pageStatus(status); !ok {
				c.key(fmt.Sprintf("%s[%s]", at, status), fmt.Sprintf("%q is not a status of an error", status), "one from 400 to 599, or 4xx or 5xx")
			}
			if !strings.HasPrefix(page, "/") && !site.IsName(page) {
				c.value(fmt.Sprintf("%s[%s]", at, status), fmt.Sprintf("%q is neither a path of the site nor the name of a route", page), "as in /404.html or @errors")
			}
			known(fmt.Sprintf("%s[%s]", at, status), page)
		}
	}
	check(path+".errors", s.Errors)
	for _, key := range sortedKeys(s.Routes) {
		r, at := s.Routes[key], path+".routes["+key+"]"
		check(at+".errors", r.Errors)
		if n := len(r.Try); n > 0 {
			known(fmt.Sprintf("%s.try[%d]", at, n-1), r.Try[n-1])
		}
	}
}

// scope has the names of all tables, without their entries.
func (c *checker) scope() *match.Scope {
	in := &match.Scope{Tables: map[string]*match.Table{}}
	for name, t := range c.cfg.Tables {
		in.Tables[name] = t.Declared()
	}
	return in
}

// tables checks that the tables that a rule names exist.
func (c *checker) tables(at string, r guard.Rule) {
	in := c.scope()
	m, faults := r.Compile(in)
	if err := faults["table"]; err != nil {
		c.value(at+".table", err.Error(), meant(r.Table, sortedKeys(c.cfg.Tables)))
	}
	if m == nil {
		return
	}
	if _, err := match.NewTemplate(r.Rewrite, m.Path, in); err != nil && !c.reported[at+".rewrite"] {
		c.value(at+".rewrite", err.Error(), "")
	}
	if r.Redirect != nil && !c.reported[at+".redirect.to"] {
		if _, err := match.NewTemplate(r.Redirect.To, m.Path, in); err != nil {
			c.value(at+".redirect.to", err.Error(), "")
		}
	}
}

func nearestRoute(key string, s Site) string {
	names := sortedKeys(s.Routes)
	if n := Nearest(key, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return "it has " + strings.Join(names, ", ")
}

// pageStatus reads a status, 404, or a class, 5xx: then it is 5.
func pageStatus(text string) (int, bool) {
	if text == "4xx" || text == "5xx" {
		return int(text[0] - '0'), true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 400 && n <= 599
}

// Pages are the pages of a route: its own before those of its site.
func (s Site) Pages(r Route) site.Pages {
	pages := site.Pages{}
	for _, from := range []map[string]string{s.Errors, r.Errors} {
		for key, page := range from {
			if status, ok := pageStatus(key); ok {
				pages[status] = page
			}
		}
	}
	if len(pages) == 0 {
		return nil
	}
	return pages
}

// Intercepts reports whether the pages of a route also take the place of what an
// application answers.
func (s Site) Intercepts(r Route) bool {
	if r.InterceptErrors != nil {
		return *r.InterceptErrors
	}
	return s.InterceptErrors
}

// nonJobOptions checks a route's keys that go with any job: try, early_hints, redirect.to.
func (c *checker) nonJobOptions(path, route string, r Route) {
	if r.Redirect != nil && !c.reported[join(path, "redirect.to")] {
		of, err := match.NewPath(route)
		if err != nil {
			of, _ = match.NewPath("")
		}
		if t, err := match.NewTemplate(r.Redirect.To, of, c.scope()); err != nil {
			c.value(join(path, "redirect.to"), err.Error(), "")
		} else if len(t.Tables()) > 0 {
			c.value(join(path, "redirect.to"), "a route answers every request, and this table has no default", "give the table one, or write a rule instead: it is only for what the table has")
		}
	}
	c.plugins(path, r.Plugins)
	if err := guard.CheckHints(r.EarlyHints); err != nil {
		c.value(join(path, "early_hints"), err.Error(), "")
	}
	if len(r.Try) == 0 {
		return
	}
	if r.Static == nil {
		c.key(join(path, "try"), "try looks for files: there is no folder beside it", "add static: {root: DIR}")
	}
	for i, text := range r.Try {
		at := fmt.Sprintf("%s[%d]", join(path, "try"), i)
		_, err := match.NewTemplate(text, nil, c.scope())
		last := i == len(r.Try)-1
		status, isStatus := strings.CutPrefix(text, "=")
		code, bad := strconv.Atoi(status)
		switch {
		case last && site.IsName(text):
		case last && isStatus && bad == nil && slices.Contains([]int{403, 404, 410}, code):
		case isStatus:
			c.value(at, fmt.Sprintf("%q: only =403, =404 or =410, at the end", text), "")
		case err != nil:
			c.value(at, err.Error(), "")
		case !strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "{path}"):
			c.value(at, fmt.Sprintf("%q is not a path: it begins with \"/\" or {path}", text), "")
		}
	}
}

// plugins looks for the modules of a site's or a route's plugins. What is in them is looked
// at by the engine, which compiles them.
func (c *checker) plugins(path string, list []plugin.Options) {
	for i, o := range list {
		at := fmt.Sprintf("%s.plugins[%d].module", path, i)
		if o.Module == "" { // the options say so
			continue
		}
		if info, err := os.Stat(o.Module); err != nil {
			c.missing(at, "cannot read "+reason(err), nearHint(o.Module))
		} else if !info.Mode().IsRegular() {
			c.value(at, o.Module+" is not a file", "name the .wasm file of a module")
		}
	}
}
