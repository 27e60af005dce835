package nginx

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
	"millrace/internal/route/headers"
)

// fastcgi translates a location with fastcgi_pass. "location ~ \.php$" becomes the php of
// the routes with the same files (mergePHP), any other a route of its own.
func (t *site) fastcgi(l *location) *plan.Route {
	own := l.own("auth_basic") != nil || l.own("auth_request") != nil || len(l.each("allow"))+len(l.each("deny"))+len(l.each("limit_req")) > 0
	if !own && l.kind == regexLocation && (l.covers("/index.php") || l.covers("/x.php")) && t.php == nil && l.outer == nil {
		t.php = l
		if t.hasFiles(l) {
			l.whole = true
			return nil
		}
	}
	root, ok := t.folder(l)
	if !ok {
		return nil
	}
	php := t.phpOptions(l)
	if php == nil {
		return nil
	}
	php.Front = "off"
	for _, text := range l.own("try_files").Words() { // what answers where there is no script
		script, _, _ := strings.Cut(text, "$")
		if name, is := strings.CutPrefix(strings.TrimSuffix(script, "?"), "/"); is && strings.HasSuffix(name, ".php") && text != l.own("try_files").Arg(0) {
			php.Front = strings.TrimPrefix(name, "index.php")
		}
	}
	return &plan.Route{Static: plan.Static{Root: root}, PHP: *php}
}

// hasFiles reports whether a prefix location serves files of the same folder, that for all
// paths among them, and none of them lets clients in whom the location for PHP keeps out.
func (t *site) hasFiles(php *location) bool {
	if slices.ContainsFunc(t.locations, func(l *location) bool { return t.filesFor(l, php) && !guardedAs(l, php) }) {
		return false
	}
	root := slices.IndexFunc(t.locations, func(l *location) bool { return l.path == "/" && l.isPrefix() && l.outer == nil })
	return (root < 0 || t.filesFor(t.locations[root], php)) && slices.ContainsFunc(t.locations, func(l *location) bool { return t.filesFor(l, php) })
}

// guardedAs reports whether a location keeps out at least the clients that another does.
func guardedAs(l, other *location) bool {
	if d := other.last("auth_basic"); d != nil && d.Arg(0) != "off" && (l.last("auth_basic") != d || l.last("auth_basic_user_file") != other.last("auth_basic_user_file")) {
		return false
	}
	if d := other.last("auth_request"); d != nil && d.Arg(0) != "off" && (l.last("auth_request") == nil || l.last("auth_request").Arg(0) != d.Arg(0)) {
		return false
	}
	for _, names := range [][]string{{"allow", "deny"}, {"limit_req"}} {
		if list := other.all(names...); list != nil && !slices.Equal(l.all(names...), list) {
			return false
		}
	}
	return true
}

func (t *site) filesFor(l, php *location) bool {
	if l.kind != prefixLocation || l.own("proxy_pass") != nil || l.own("return") != nil || l.own("alias") != nil || l.own("fastcgi_pass") != nil || l.internal() != nil {
		return false
	}
	root := l
	for root.outer != nil {
		root = root.outer
	}
	return root.kind == prefixLocation && sameRoot(l, php) // ^~: expressions are not looked at
}

// sameRoot reports whether two locations have the same folder, however it is written.
func sameRoot(a, b *location) bool {
	root := func(l *location) string { return strings.TrimSuffix(strings.Join(l.last("root").Words(), ""), "/") }
	return root(a) == root(b)
}

// phpOptions are the keys of php for a location.
func (t *site) phpOptions(l *location) *plan.PHP {
	d := l.own("fastcgi_pass")
	for _, name := range []string{"fastcgi_pass_request_headers", "fastcgi_pass_request_body"} {
		if off := l.last(name); off != nil && off.Arg(0) == "off" {
			t.im.Leave(off, "PHP gets the header and body of requests")
			t.im.Leave(d, "no PHP is run, since "+name+" is off")
			return nil
		}
	}
	to := []string{d.Arg(0)}
	if u := t.im.upstreams[d.Arg(0)]; u != nil {
		to = u.servers
	}
	if strings.Contains(strings.Join(to, ""), "$") {
		text, err := template(to[0], nil, t.server.values)
		if err != nil {
			t.im.Leave(d, "name php-fpm's socket in php")
			return nil
		}
		to[0] = text
	}
	t.im.Used(d)
	o := &plan.PHP{To: to}
	if i := t.im.Take(l.last("fastcgi_index")); i != nil && i.Arg(0) != "index.php" {
		o.Index = i.Arg(0)
	}
	t.value(l, "fastcgi_read_timeout", duration, "set php.timeout", &o.Timeout)
	t.value(l, "fastcgi_connect_timeout", duration, "set php.connect", &o.Connect)
	t.im.Standard(l.last("fastcgi_send_timeout"), "php.timeout is for both directions")
	t.im.Standard(l.own("try_files"), "a script that is not there is not run")
	expr := l.expr
	if script, is := strings.CutSuffix(expr, "(/|$)"); is && l.own("try_files") != nil && l.own("try_files").Arg(0) == "$uri" {
		expr = script + "$" // a path behind a script's name is that of no file
	}
	if l.kind == regexLocation && (!anyScript(expr) || expr != l.expr) {
		o.Only = expr
	}
	t.phpParams(l, o)
	for _, set := range l.each("set") {
		if set.Arg(1) == "$fastcgi_path_info" {
			t.im.Standard(set, "the parameters of PHP are built in")
		}
	}
	return o
}

// anyScript reports whether an expression matches every script, with whatever path behind
// its name: php runs those by default.
func anyScript(expr string) bool {
	return slices.Contains([]string{
		`\.php(/|$)`, `\.php(?:/|$)`, `\.php($|/)`, `\.php(?:$|/)`, `[^/]\.php(/|$)`, `[^/]\.php(?:/|$)`, `\.php`, `^.+\.php(/|$)`, `^(.+\.php)(/.*)?$`, `^(.+?\.php)(/.*)?$`, `^(.+\.php)(.*)$`,
	}, expr)
}

// builtInParams are parameters that php sends by default.
func builtInParams() []string {
	return strings.Fields(`QUERY_STRING REQUEST_METHOD CONTENT_TYPE CONTENT_LENGTH SCRIPT_NAME REQUEST_URI DOCUMENT_URI DOCUMENT_ROOT
		SERVER_PROTOCOL REQUEST_SCHEME HTTPS GATEWAY_INTERFACE SERVER_SOFTWARE REMOTE_ADDR REMOTE_PORT REMOTE_USER SERVER_ADDR SERVER_PORT
		SERVER_NAME REDIRECT_STATUS PATH_INFO PATH_TRANSLATED SCRIPT_FILENAME HTTP_PROXY`)
}

func (t *site) phpParams(l *location, o *plan.PHP) {
	o.Params = map[string]string{}
	for _, d := range l.all("fastcgi_param") {
		name, value := d.Arg(0), d.Arg(1)
		switch {
		case name == "SCRIPT_FILENAME" && !strings.HasPrefix(value, "$document_root") && !strings.HasPrefix(value, "$realpath_root") && !strings.HasPrefix(value, "$request_filename"):
			t.phpRoot(d, o)
		case slices.Contains(builtInParams(), name) && (strings.Contains(value, "$") || value == "" || name == "GATEWAY_INTERFACE" || name == "REDIRECT_STATUS"):
			t.im.Standard(d, "the parameters of PHP are built in")
		case strings.HasPrefix(name, "HTTP_"):
			t.im.Leave(d, "parameters that begin with HTTP_ are the fields of requests, which scripts get as they came")
		default:
			if text, err := template(value, nil, t.captures("")); err != nil {
				t.im.Leave(d, fmt.Sprintf("params of php have no variables: %v", err))
			} else {
				o.Params[name] = text
				t.im.Used(d)
			}
		}
	}
}

// phpRoot translates the folder as php-fpm sees it.
func (t *site) phpRoot(d *draft.Directive, o *plan.PHP) {
	folder, is := strings.CutSuffix(d.Arg(1), "$fastcgi_script_name")
	if !is {
		folder, is = strings.CutSuffix(d.Arg(1), "$uri")
	}
	if !is || strings.Contains(folder, "$") {
		t.im.Leave(d, "one script for all paths is php.front: put the others out of its folder")
		return
	}
	t.im.Used(d)
	o.Root = cmp.Or(strings.TrimSuffix(folder, "/"), "/")
}

// mergePHP adds php to each static route of the same folder.
func (t *site) mergePHP() {
	if t.php == nil || t.php.own("fastcgi_pass") == nil || !t.hasFiles(t.php) {
		return
	}
	options := t.phpOptions(t.php)
	if options == nil {
		return
	}
	after := false
	for _, l := range t.locations {
		if l == t.php {
			after = true
			continue
		}
		if (l.kind == regexLocation && after || l.loose()) && t.php.internal() == nil {
			// nginx runs scripts before it looks there
			t.phpFirst()
			break
		}
	}
	for _, l := range t.locations {
		switch {
		case l.job == nil || !t.filesFor(l, t.php) || l.job.Static.Root == "":
		case strings.HasSuffix(l.key, "/"):
			t.addPHP(l, *options)
		default:
			t.folderPHP(l, *options)
		}
	}
}

// folderPHP handles a prefix without a slash at its end: php covers folders, so the folder
// of that name gets a route of its own.
func (t *site) folderPHP(l *location, options plan.PHP) {
	folderName := path.Join(l.job.Static.Root, l.path)
	if !slices.Contains(l.last("index").Words(), "index.php") || !t.im.options.IsDir(folderName) {
		return
	}
	folder := *l
	folder.key, folder.job = l.path+"/", l.job.Clone()
	folder.job.Static.Root = folderName
	t.addPHP(&folder, options)
	t.route(&folder, folder.job)
	l.add(plan.Cond{Path: folder.key}, plan.To(folder.key), "")
}

// phpFirst lets the route of the files answer for scripts before a later expression does.
func (t *site) phpFirst() {
	for _, l := range t.locations {
		if t.filesFor(l, t.php) && l.path == "/" {
			t.php.add(t.php.match(), plan.To(l.key), t.php.block.At()+": PHP is run beside the files of the route")
		}
	}
}

// addPHP adds php to a static route, with the front controller that try names.
func (t *site) addPHP(l *location, php plan.PHP) {
	front := ""
	if d := l.own("try_files"); d != nil {
		front = d.Arg(len(d.Args) - 1)
	} else if l.block == nil && t.server.own("try_files") != nil {
		d := t.server.own("try_files")
		front = d.Arg(len(d.Args) - 1)
	}
	toPath := strings.HasSuffix(front, ".php$request_uri") || strings.HasSuffix(front, ".php$uri")
	front, _, _ = strings.Cut(front, "?")
	front, _, _ = strings.Cut(front, "$")
	if script := t.rewritten(front); script != "" {
		front = script
	}
	front = cmp.Or(front, l.fallback)
	front = cmp.Or(front, t.fallback)
	prefix := strings.TrimSuffix(l.key, "/")
	switch {
	case strings.HasSuffix(front, ".php") && strings.HasPrefix(front, prefix+"/"):
		switch name := strings.TrimPrefix(front, prefix+"/"); {
		case toPath:
			php.Front = name + "{path}"
		case name != "index.php":
			php.Front = name
		}
		l.job.Try = nil
	case strings.HasSuffix(front, ".php"):
		php.Front = "off"
	default:
		php.Front = "off"
		if strings.HasPrefix(front, "=") {
			l.job.Try = nil
		}
	}
	if d := l.last("index"); d != nil && !strings.HasSuffix(d.Arg(0), ".php") {
		t.im.Partly(d, "beside PHP, a folder's index.php comes before its pages")
	}
	for _, d := range t.php.all("fastcgi_hide_header") {
		l.job.Headers.Put(plan.Answers{}, headers.Remove, d.Arg(0), "")
		t.im.Used(d)
	}
	t.bodySize(l, l.job)
	d := t.php.last("fastcgi_intercept_errors") // proxy_intercept_errors is not for PHP
	l.job.Intercept = d != nil && d.Arg(0) == "on" && l.job.Errors != nil
	l.job.PHP = php
}
