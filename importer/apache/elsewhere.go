package apache

import (
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// elsewhere answers 501 for paths that Apache hands to programs (ScriptAlias, WSGI), or to
// folders that an expression names. Files by the same names in the site's own folder,
// perhaps the programs' sources, must not be served instead.
func (t *site) elsewhere() {
	for _, d := range t.lines() {
		switch lower(d) {
		case "scriptalias", "wsgiscriptalias", "jkmount":
			t.program(d)
		case "virtualdocumentroot", "virtualscriptalias":
			t.Close(d, "write a site for each host, with its own folder")
		case "aliasmatch", "scriptaliasmatch", "wsgiscriptaliasmatch", "proxypassmatch":
			if len(d.Args) > 1 && strings.Contains(d.Arg(1), "fcgi:") || lower(d) == "proxypassmatch" && d.Arg(1) == "!" {
				continue // PHP, which is looked for by itself
			}
			expr, err := expression(d.Arg(0), false)
			if err != nil {
				t.Close(d, "write it as rules: "+err.Error())
				continue
			}
			t.answers501(d, plan.Cond{Regex: expr})
		}
	}
	t.scripts(layer{list: t.lines()}, "/")
	for _, l := range t.dirs {
		for _, url := range t.pathsOf(l.dir) {
			t.scripts(l, url)
		}
	}
	for _, l := range t.locations {
		t.scripts(l, l.url)
	}
}

// program answers 501 for all paths below a ScriptAlias.
func (t *site) program(d *draft.Directive) {
	at := strings.TrimSuffix(d.Arg(0), "*")
	if !strings.HasPrefix(at, "/") {
		t.Close(d, "write a route for the program's paths")
		return
	}
	c := plan.Cond{}
	if at != "/" {
		c.Path = slashed(at)
	}
	for _, a := range t.aliases {
		if strings.HasPrefix(a.path, at) && a.path != at {
			c.Except = append(c.Except, a.path)
		}
	}
	t.answers501(d, c)
	if dir := strings.TrimSuffix(t.im.file(d.Arg(1)), "/"); dir != "" && len(d.Args) > 1 { // its sources by another path
		for _, url := range t.pathsOf(dir) {
			if url != at && url != "/" {
				t.answers501(d, plan.Cond{Path: url})
			}
		}
	}
}

// scripts answers 501 for files that a handler runs, in a folder or below a path.
func (t *site) scripts(l layer, url string) {
	for _, d := range l.list {
		switch {
		case lower(d) == "sethandler" && runs(d.Arg(0)):
			c := plan.Cond{}
			if expr, is := strings.CutPrefix(url, "~"); is {
				c.Regex = expr
			} else if url != "/" {
				c.Path = slashed(url)
			}
			t.answers501(d, c)
		case lower(d) == "addhandler" && runs(d.Arg(0)) && len(d.Args) > 1:
			var names []string
			for _, ext := range d.Args[1:] {
				names = append(names, regexp.QuoteMeta(strings.TrimPrefix(ext, ".")))
			}
			t.answers501(d, plan.Cond{Regex: `(?i)\.(?:` + strings.Join(names, "|") + `)(?:/|\.|$)`})
		}
	}
	if strings.HasPrefix(url, "~") {
		return
	}
	for _, s := range t.filesIn(l, slashed(url)) {
		for _, d := range s.list {
			if lower(d) == "sethandler" && runs(d.Arg(0)) && s.err == nil {
				t.answers501(d, plan.Cond{Regex: strings.TrimSuffix(s.expr, "$") + "(?:/|$)"})
			}
		}
	}
}

// runs reports whether a handler runs a file as a program that is none here.
func runs(handler string) bool {
	handler = strings.ToLower(handler)
	return strings.HasPrefix(handler, "proxy:") && !strings.Contains(handler, "fcgi:") || slices.Contains([]string{"cgi-script", "fcgid-script", "fastcgi-script", "wsgi-script", "perl-script", "mod_python", "proxy-server"}, handler)
}

func (t *site) answers501(d *draft.Directive, c plan.Cond) {
	t.im.Leave(d, "no CGI is run, and folders have no expressions: its paths answer 501 until you have written a route for them (docs/routes.md)")
	t.guard(c, plan.NotImplemented(), d.At())
}
