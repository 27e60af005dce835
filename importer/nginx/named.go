package nginx

import (
	"slices"
	"strings"
)

// rewritten is the path to which a named location rewrites every path; "" if it does
// anything else. try names that path itself.
func (t *site) rewritten(name string) string {
	for _, l := range t.locations {
		if l.kind != namedLocation || l.path != name || len(l.list) != 1 || l.list[0].Name != "rewrite" {
			continue
		}
		d := l.list[0]
		if to, is := strings.CutSuffix(d.Arg(1), "$1"); is && (d.Arg(0) == "^(.*)$" || d.Arg(0) == "^/(.*)$") && d.Arg(2) == "last" && strings.HasPrefix(to, "/") && strings.HasSuffix(to, ".php/") {
			return strings.TrimSuffix(to, "/") + "$uri" // a script, with the path behind it
		}
		if all, _ := everything(d.Arg(0)); all && slices.Contains([]string{"", "last", "break"}, d.Arg(2)) && strings.HasPrefix(d.Arg(1), "/") && !strings.ContainsAny(d.Arg(1), "?$@") {
			return d.Arg(1)
		}
	}
	return ""
}

// rewriteAlone reports whether a named location needs no route, since try names its path
// instead.
func (t *site) rewriteAlone(l *location) bool {
	if l.kind != namedLocation || t.rewritten(l.path) == "" {
		return false
	}
	t.im.Used(l.list[0])
	return true
}

// missingLeadsTo is what answers in a location for files that do not exist, by "error_page
// 404 = @app": try says the same.
func (t *site) missingLeadsTo(l *location) string {
	for _, d := range l.each("error_page") {
		words := d.Words()
		if len(words) == 3 && words[0] == "404" && words[1] == "=" && (words[2][0] == '@' || words[2][0] == '/') && !strings.Contains(words[2], "$") {
			return words[2]
		}
	}
	return ""
}
