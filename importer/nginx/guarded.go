package nginx

import (
	"path"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// guardedPHP gives the front controller of try a route with the guards of the location for
// PHP. nginx looks for a location again with the script's path and finds that location;
// try does not look for expressions.
func (t *site) guardedPHP() {
	for _, l := range t.locations {
		if l.job == nil || l.job.Static.Root == "" || l.job.PHP.To != nil {
			continue
		}
		list := slices.Clone(l.job.Try)
		script := "/index.php"
		if l.isPrefix() {
			script = path.Join(l.path, "index.php") // of the folder
		}
		switch {
		case len(list) > 0:
			if script = list[len(list)-1]; !strings.HasSuffix(strings.TrimSuffix(script, "{path}"), ".php") || !strings.HasPrefix(script, "/") {
				continue
			}
		case !slices.Contains(l.last("index").Words(), "index.php"):
			continue
		}
		php := t.scriptAt(strings.TrimSuffix(script, "{path}"))
		if php == nil || !sameRoot(php, l) {
			continue
		}
		if len(php.rules) > 0 { // they are for its own paths alone
			t.im.Leave(php.block, "what leads to "+script+" from elsewhere answers 404: its rules are not for it. Write them for those paths, and a route for try")
			continue
		}
		if len(list) == 0 { // a folder's script
			l.job.Try = []string{"{path}", php.key}
			continue
		}
		list[len(list)-1] = t.frontRoute(php, script)
		l.job.Try = list
	}
}

// asks are the lines that hold in a location and say which clients may come in.
func (l *location) asks() (lines []*draft.Directive) {
	for _, name := range []string{"auth_basic", "auth_request", "auth_jwt", "secure_link"} {
		if d := l.last(name); d != nil && d.Arg(0) != "off" {
			lines = append(lines, d)
		}
	}
	return append(lines, l.all("allow", "deny")...)
}

// keepsOut reports whether a location, or one within it, keeps any clients out.
func (t *site) keepsOut(l *location) bool {
	return l.internal() != nil || slices.ContainsFunc(slices.Concat(l.asks(), l.list), keepsClientsOut)
}

// keepsClientsOut reports whether a line, or one in its block, keeps clients out.
func keepsClientsOut(d *draft.Directive) bool {
	switch d.Name {
	case "deny", "internal", "limit_except", "auth_basic", "auth_request", "auth_jwt", "secure_link", "access_by_lua_block", "access_by_lua_file", "js_access":
		return d.Arg(0) != "off"
	case "return":
		return refuses(d)
	}
	return slices.ContainsFunc(d.Block, keepsClientsOut)
}

// scriptAt is the location with an expression by which nginx runs a script, if it has a
// route of its own; else nil.
func (t *site) scriptAt(script string) *location {
	for _, l := range t.locations {
		switch {
		case l.kind == exactLocation && l.covers(script), l.kind == caretLocation && l.covers(script):
			return nil // the path leads there
		}
	}
	for _, l := range t.locations {
		if l.kind != regexLocation || !l.covers(script) {
			continue
		}
		if l.job == nil || l.job.PHP.To == nil || !strings.HasPrefix(l.key, "@") {
			return nil
		}
		return l
	}
	return nil
}

// frontRoute is the route of a location for PHP in which one script is the front
// controller.
func (t *site) frontRoute(php *location, script string) string {
	front := *php
	name, withPath := strings.CutSuffix(script, "{path}")
	front.key = php.key + "-front" + strings.TrimPrefix(strings.ReplaceAll(strings.TrimSuffix(name, ".php"), "/", "-"), "-index")
	if withPath {
		front.key += "-path"
	}
	if t.Routed(front.key) != nil {
		return front.key
	}
	r := php.job.Clone()
	r.PHP.Front = strings.TrimPrefix(script, "/")
	t.route(&front, r, "what is not there: nginx looks for "+script+" anew")
	return front.key
}

// withLineFeeds puts a rule for paths that end in a line feed before the others: the $ of
// nginx's expressions matches before that, too, and that of RE2 at the end alone. Nobody
// has files like that.
func (t *site) withLineFeeds() {
	dollar := slices.ContainsFunc(t.Rules, func(r plan.Rule) bool {
		return strings.Contains(r.If.Regex+strings.Join(r.If.Within, "")+strings.Join(r.If.Except, ""), "$")
	})
	if dollar && (slices.ContainsFunc(t.locations, t.keepsOut) || slices.ContainsFunc(t.server.list, keepsClientsOut)) {
		t.Rules = append([]plan.Rule{{If: plan.Cond{Regex: `\n$`}, Do: plan.Deny(404), Note: "nginx's $ also matches before a line feed"}}, t.Rules...)
	}
}
