package caddy

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// pages translates handle_errors: for answers of the server's own, and for
// upstreams that do not answer. Their own errors keep their bodies, as in Caddy.
func (t *site) pages(list []*draft.Directive, root string) {
	for _, d := range list {
		if d.Name == "root" {
			root = t.im.path(last(d.Args))
		}
	}
	for _, d := range list {
		if d.Name != "handle_errors" {
			continue
		}
		t.im.Used(d)
		sc := &scope{alts: []conds{{}}, matchers: map[string]*matcher{}, root: root}
		statuses := d.Args
		if len(statuses) == 0 {
			statuses = []string{"4xx", "5xx"}
		}
		t.errorBlock(d.Block, sc, statuses, "")
	}
}

// errorBlock reads what is done with errors of some statuses.
func (t *site) errorBlock(list []*draft.Directive, sc *scope, statuses []string, to string) {
	for _, d := range list {
		if strings.HasPrefix(d.Name, "@") {
			m := t.matcher(d)
			sc.matchers[d.Name] = m
			if m.status != nil {
				t.im.Used(m.lines...)
			}
		}
	}
	for _, d := range sorted(list) {
		if strings.HasPrefix(d.Name, "@") {
			continue
		}
		of, args := statuses, d.Args
		if name := d.Arg(0); strings.HasPrefix(name, "@") {
			m := sc.find(name)
			if m == nil || m.status == nil {
				t.im.Leave(d, "write it into errors, by the status (docs/routes.md)")
				continue
			}
			of, args = m.status, args[1:]
		} else if name == "*" {
			args = args[1:]
		}
		t.im.Used(d)
		switch d.Name {
		case "root":
			sc.root = t.im.path(last(args))
		case "rewrite", "try_files":
			to = last(args)
			if d.Name == "try_files" {
				to = d.Arg(0)
			}
			if len(of) < len(statuses) {
				t.page(d, sc, of, to)
				to = ""
			}
		case "handle", "route":
			inner := &scope{outer: sc, alts: sc.alts, matchers: map[string]*matcher{}, root: sc.root}
			t.errorBlock(d.Block, inner, of, to)
		case "file_server":
			if to != "" {
				t.page(d, sc, of, to)
			}
		case "respond":
			action, err := t.respond(d, args)
			if err != nil || action.Respond.Text == "" {
				t.im.Standard(d, "errors have a short text")
				if err != nil {
					t.im.Leave(d, "write a page into errors: it has no variables")
				}
				continue
			}
			t.error(of, "respond", action, d)
		case "header", "encode", "templates":
			t.im.Leave(d, "headers.when has fields for answers of a status (docs/routes.md)")
		default:
			t.im.Leave(d, "errors has pages: a file, or a route with a name (docs/routes.md)")
		}
	}
}

// page adds a file as the page of some errors. With {err.status_code} in its name it is
// one file for each status, as far as they exist.
func (t *site) page(d *draft.Directive, sc *scope, statuses []string, to string) {
	to = strings.ReplaceAll(strings.ReplaceAll(to, "{http.error.status_code}", "\x00"), "{err.status_code}", "\x00")
	if strings.Contains(to, "{") || sc.root == "" {
		t.im.Leave(d, "name the files in errors")
		return
	}
	if !strings.Contains(to, "\x00") {
		t.error(statuses, strings.TrimSuffix(path.Base(to), path.Ext(to)), plan.File(path.Join(sc.root, to)), d)
		return
	}
	found := 0
	for n := 400; n < 600; n++ {
		status := strconv.Itoa(n)
		file := path.Join(sc.root, strings.ReplaceAll(to, "\x00", status))
		if in(statuses, status) && t.im.options.IsFile(file) {
			t.error([]string{status}, status, plan.File(file), d)
			found++
		}
	}
	if found == 0 {
		t.im.Leave(d, "no such page is in the folder: name them in errors")
	}
}

func in(statuses []string, status string) bool {
	return slices.ContainsFunc(statuses, func(s string) bool {
		return s == status || len(s) == 3 && strings.HasSuffix(s, "xx") && s[0] == status[0]
	})
}

// error names a route for the errors of some statuses.
func (t *site) error(statuses []string, name string, do plan.Action, d *draft.Directive) {
	key := t.FreeName("error-"+name, "error")
	t.Route(key, &plan.Route{Action: do}, d.At()+": "+d.String())
	for _, s := range statuses {
		if len(s) != 3 || s[0] != '4' && s[0] != '5' {
			t.im.Leave(d, fmt.Sprintf("errors are of the statuses 400 to 599: %s is none", s))
			continue
		}
		if t.errors.Of(s) == "" {
			t.errors.Set(s, key)
		}
	}
}
