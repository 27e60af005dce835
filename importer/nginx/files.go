package nginx

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// static translates a location that serves files, such as one with root or alias.
func (t *site) static(l *location) *plan.Route {
	root, ok := t.folder(l)
	if !ok {
		return nil
	}
	r := &plan.Route{Static: plan.Static{Root: root, CacheControl: t.cacheControl(l)}}
	if d := t.im.Take(l.last("index")); d != nil {
		if names := withoutPHP(d.Words()); !slices.Equal(names, []string{"index.html"}) {
			r.Static.Index = names
		}
	}
	if d := l.last("gzip"); d != nil && d.Arg(0) == "off" {
		t.im.Used(d)
		r.Static.NoCompress = true
	}
	if d := l.last("autoindex"); d != nil && d.Arg(0) == "on" {
		t.im.Used(d)
		r.Static.Listing = true
	}
	for _, d := range l.each("types") {
		t.im.Leave(d, "content types go by the files' names: rename the files, or put Content-Disposition into the links (download)")
	}
	r.Try = t.try(l)
	t.folders(l)
	return r
}

// withoutPHP removes scripts from the names of an index: php has them.
func withoutPHP(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return strings.HasSuffix(n, ".php") || strings.ContainsAny(n, "$/") || n == ""
	})
}

// folder is the root of a location as its route has it: a route that ends in a
// slash takes its path away.
func (t *site) folder(l *location) (string, bool) {
	if owner := l.aliased(); owner != nil {
		d := owner.own("alias")
		t.im.Used(d)
		inner := strings.TrimPrefix(l.path, owner.path) // of a location within that
		switch {
		case owner == l && l.kind == regexLocation && l.own("try_files") == nil:
			return t.captured(l, d)
		case strings.Contains(d.Arg(0), "$") || !owner.isPrefix() && owner != l || l.kind == regexLocation || l.kind == namedLocation || l.inExpression() || l.odd():
			t.im.Leave(d, "write a rule that rewrites the path to that of a folder, and a static route for it")
			return "", false
		case l.kind == exactLocation:
			file := d.Arg(0) + inner
			if before, ok := strings.CutSuffix(file, l.path); ok {
				return before, true
			}
			t.answers(l, plan.File(t.im.root(file)))
			return "", false
		}
		if !strings.HasSuffix(l.path, "/") {
			t.im.Standard(l.block, "the path covers the folder, not other names that begin like it")
		}
		return t.im.root(d.Arg(0) + inner), true
	}
	d := l.last("root")
	root := t.im.root("html")
	if d != nil {
		text, err := template(d.Arg(0), nil, t.server.values)
		if err != nil {
			t.im.Leave(d, "a folder's name has no variables: write a site for each")
			return "", false
		}
		t.im.Used(d)
		root = t.im.root(text)
	}
	if strings.HasSuffix(l.key, "/") && l.key != "/" {
		inner := path.Join(root, l.key)
		if t.im.options.IsDir(inner) || !t.im.options.IsDir(root) {
			return inner, true
		}
		// The folder is not there (yet): a name takes nothing away from the path.
		l.key, l.first = t.FreeName(l.path, "files"), true
	}
	return root, true
}

// aliased is the location whose alias holds in this one: the nearest with an alias, if
// none nearer has a root; nil if there is none.
func (l *location) aliased() *location {
	for at := l; at != nil; at = at.outer {
		switch {
		case at.own("alias") != nil:
			return at
		case at.own("root") != nil:
			return nil
		}
	}
	return nil
}

func (im *importer) root(dir string) string {
	if !path.IsAbs(dir) {
		dir = path.Join(im.options.Prefix, dir)
	}
	return path.Clean(dir)
}

// try translates try_files, or an if that does the same.
func (t *site) try(l *location) []string {
	d := l.own("try_files")
	if l.block == nil {
		d = t.server.own("try_files")
	}
	if d == nil {
		fallback := cmp.Or(l.fallback, t.missingLeadsTo(l))
		if fallback == "" && l.path == "/" {
			fallback = t.fallback
		}
		if fallback == "" {
			return nil
		}
		return []string{"{path}", "{path}/", fallback}
	}
	t.im.Used(d)
	list, err := t.tries(d)
	if err != nil {
		t.im.Leave(d, err.Error())
	}
	if err != nil || slices.Equal(list, []string{"{path}", "{path}/", "=404"}) { // that is what static does
		return nil
	}
	return list
}

func (t *site) tries(d *draft.Directive) (list []string, err error) {
	for i, text := range d.Words() {
		last := i == len(d.Args)-1
		if last {
			if status, is := strings.CutPrefix(text, "="); is {
				if !slices.Contains([]string{"403", "404", "410"}, status) {
					return nil, fmt.Errorf("try ends with =403, =404 or =410: use a route that answers %s", status)
				}
				return append(list, text), nil
			}
			if script := t.rewritten(text); script != "" {
				text = script
			}
			if strings.HasPrefix(text, "@") {
				return append(list, text), nil
			}
			if script, is := strings.CutSuffix(text, ".php$request_uri"); is {
				text = script + ".php$uri" // the query stays as it is
			}
			for _, query := range []string{"$is_args$args", "?$args", "?$query_string", "$is_args$query_string", "?$is_args$args"} {
				text = strings.TrimSuffix(text, query) // the query stays as it is
			}
		}
		text = strings.ReplaceAll(text, "$document_root", "")
		out, err := template(text, map[string]string{"uri": "{path}", "document_uri": "{path}", "host": "{host}"}, t.server.values)
		if err != nil || strings.Contains(out, "?") && !last || regexp.MustCompile(`\{\d`).MatchString(out) {
			return nil, fmt.Errorf("write try with {path} and paths of the site: %s cannot be", text)
		}
		if before, query, has := strings.Cut(out, "?"); has {
			if before != "/index.php" {
				return nil, fmt.Errorf("try has no query: write a rule that rewrites to %s?%s", before, query)
			}
			t.im.Leave(d, fmt.Sprintf("the query %q is not added: applications with a front controller read the path itself (REQUEST_URI)", query))
			out = before
		}
		if !strings.HasPrefix(out, "/") && !strings.HasPrefix(out, "{path}") {
			out = "/" + out
		}
		list = append(list, out)
	}
	return list, nil
}
