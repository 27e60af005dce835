package nginx

import (
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// insideAlias reports whether a location with an expression is in one with an alias, as
// in configs of phpMyAdmin. Then the route of the folder answers for it, since an
// expression has no path that could be taken away.
func (t *site) insideAlias(l *location) bool {
	outer := l.outer
	if l.kind != regexLocation || outer == nil || outer.own("alias") == nil || (outer.kind != prefixLocation && outer.kind != caretLocation) || !sameFolder(l) || !guardedAs(l, outer) || !guardedAs(outer, l) {
		return false
	}
	if job := l.own("fastcgi_pass"); job != nil && (outer.php != nil || outer.own("fastcgi_pass") != nil) {
		return false // one expression says which scripts are run
	}
	for _, d := range l.list {
		switch d.Name {
		case "alias", "access_log", "log_not_found", "index":
		case "proxy_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "root", "return", "auth_request", "limit_except", "autoindex":
			return false
		case "expires", "add_header":
			t.im.Leave(d, "the folder's route answers for this expression, too: write it there, into static.cache_control or headers")
		}
	}
	if l.own("fastcgi_pass") != nil {
		outer.php = l
	}
	t.im.Used(l.own("alias"), l.last("alias"))
	l.add(l.match(), plan.To(outer.key), l.block.At())
	l.whole = true
	return true
}

// sameFolder reports whether an alias leads to where that of the outer location does.
func sameFolder(l *location) bool {
	own, outer := l.own("alias"), l.outer.own("alias")
	if own == nil {
		return true
	}
	folder, is := strings.CutSuffix(own.Arg(0), "$1")
	if !is || strings.TrimSuffix(folder, "/") != strings.TrimSuffix(outer.Arg(0), "/") {
		return false
	}
	begins := regexp.MustCompile(`^(?:\(\?i\))?\^` + regexp.QuoteMeta(regexp.QuoteMeta(strings.TrimSuffix(l.outer.path, "/"))) + `/\(`)
	return begins.MatchString(l.expr)
}

// aliasPHP puts php beside the files of folders with an alias whose expressions run
// scripts.
func (t *site) aliasPHP() {
	for _, l := range t.locations {
		if l.php == nil || l.node.Get("static") == nil {
			continue
		}
		php := t.phpOptions(l.php)
		if php == nil {
			continue
		}
		if !slices.Contains(l.last("index").Words(), "index.php") && php.Get("only") == nil {
			php.Set("only", draft.Verbatim(l.php.expr))
		}
		php.Set("front", draft.Text("off"))
		l.node.Set("php", php)
		t.bodySize(l, l.node)
	}
}
