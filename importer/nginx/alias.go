package nginx

import (
	"errors"
	"fmt"
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

// captured is the folder of an alias in a location with an expression, whose groups name the
// files below it: "location ~ ^/u/(.+)/f/(.+)$ { alias /home/$1/files/$2; }". A rule gives
// the request a path that nobody else can ask for, and the route of that takes it away.
func (t *site) captured(l *location, d *draft.Directive) (string, bool) {
	name := d.Arg(0)
	literal, _, _ := strings.Cut(name, "$")
	folder := literal[:strings.LastIndexByte(literal, '/')+1]
	file, err := t.text(name[len(folder):], l.expr)
	if err == nil && (folder == "" || strings.ContainsAny(file, "?#") || regexp.MustCompile(`\{[a-z]`).MatchString(file) && !regexp.MustCompile(`\(\?P<`).MatchString(l.expr)) {
		err = errors.New("its folder is not known beforehand")
	}
	if err != nil {
		t.im.Leave(d, fmt.Sprintf("write a rule that rewrites the path to that of a folder, and a static route for it: %v", err))
		return "", false
	}
	l.key = "/" + strings.TrimPrefix(t.FreeName("alias", "files"), "@") + "/"
	closed := plan.Rule{If: plan.Cond{Path: l.key}, Do: plan.Deny(404), Note: "a path of this config, not of the site"}
	t.last = append(t.last, closed)
	l.rules = append(l.rules, rule{Rule: closed, then: true},
		rule{Rule: plan.Rule{If: l.match(), Do: plan.Rewrite(l.key + file), Note: l.block.At() + ": " + l.block.String()}},
		rule{Rule: plan.Rule{If: plan.Cond{Path: l.key}, Do: plan.To(l.key)}, then: true})
	l.whole = true
	t.im.Used(d)
	return t.im.root(folder), true
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
		if l.php == nil || l.job == nil || l.job.Static.Root == "" {
			continue
		}
		php := t.phpOptions(l.php)
		if php == nil {
			continue
		}
		if !slices.Contains(l.last("index").Words(), "index.php") && php.Only == "" {
			php.Only = l.php.expr
		}
		php.Front = "off"
		l.job.PHP = *php
		t.bodySize(l, l.job)
	}
}
