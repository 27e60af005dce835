package nginx

import (
	"fmt"
	"regexp"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
	"millrace/internal/route/headers"
)

// usual replaces the variables of maps in a text by the value that the map has for an
// empty source.
func (t *site) usual(text string) string {
	for name, m := range t.im.maps {
		value := ""
		for _, e := range m.Block {
			if e.Name == "default" && value == "" {
				value = e.Arg(0)
			}
		}
		for _, e := range m.Block {
			if e.Name == "" {
				value = e.Arg(0)
			}
		}
		if !strings.Contains(value, "$") && !strings.Contains(value, "~") {
			before := text
			if text = regexp.MustCompile(`\$(?:`+regexp.QuoteMeta(name)+`\b|\{`+regexp.QuoteMeta(name)+`\})`).ReplaceAllLiteralString(text, value); text != before {
				t.im.Used(m)
			}
		}
	}
	return text
}

// headers translates add_header and what hides fields of answers. Without "always" nginx
// leaves errors without them.
func (t *site) headers(l *location, node *draft.Node) {
	always, good := &plan.Fields{}, &plan.Fields{}
	passes := node.Get("proxy") != nil || node.Get("cache") != nil
	if d := l.last("expires"); passes && d != nil && !strings.HasPrefix(d.Arg(0), "$") {
		if value := t.lifetime(l); value != "" {
			good.Put("set", "Cache-Control", value)
		}
	}
	for name, hides := range map[string]bool{"proxy_hide_header": passes, "fastcgi_hide_header": node.Get("php") != nil} {
		for _, d := range l.all(name) {
			if hides {
				always.Put("remove", d.Arg(0), "")
				t.im.Used(d)
			}
		}
	}
	for _, d := range l.all("add_header") {
		name, value := d.Arg(0), d.Arg(1)
		lower := strings.ToLower(name)
		switch {
		case lower == "cache-control" && (node.Get("static") != nil || good.Has("Cache-Control")) && !strings.Contains(value, "$"), lower == "content-type":
			continue // of the files, with expires, and of the text of return
		case strings.Contains(value, "$upstream_cache_status"):
			t.im.Standard(d, "Cache-Status says what the cache did")
			continue
		case lower == "alt-svc":
			t.im.Standard(d, "tls.http3 says where HTTP/3 is spoken")
			continue
		}
		text, err := t.headerText(value, true)
		if usual := t.usual(value); err != nil && usual != value {
			text, err = t.headerText(usual, true)
			t.im.Leave(d, fmt.Sprintf("it is %q in all answers, whatever the map says: a rule with the map's condition leads to a route with another", usual))
		}
		if err != nil || text == "" {
			t.im.Leave(d, fmt.Sprintf("write it into headers (docs/routes.md): %v", err))
			continue
		}
		to, kind := good, headers.Set
		if d.Arg(2) == "always" {
			to = always
		}
		if lower == "set-cookie" || lower == "link" || lower == "vary" {
			kind = headers.Add
		}
		if why := to.Put(kind, name, text); why != "" {
			t.im.Standard(d, why)
			continue
		}
		t.im.Used(d)
	}
	node.Fill("headers", always.When(good, "2xx", "3xx"))
}
