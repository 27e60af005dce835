package nginx

import (
	"fmt"
	"regexp"
	"strings"

	"millrace/importer/draft"
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

// headers translates add_header and what hides fields of answers.
func (t *site) headers(l *location, node *draft.Node) {
	always, good, remove := draft.Map(), draft.Map(), []string{}
	passes := node.Get("proxy") != nil || node.Get("cache") != nil
	if d := l.last("expires"); passes && d != nil && !strings.HasPrefix(d.Arg(0), "$") {
		if value := t.lifetime(l); value != "" {
			good.Child("set").Flow().Set("Cache-Control", draft.Text(value))
		}
	}
	for _, d := range l.all("add_header") {
		name, value := d.Arg(0), d.Arg(1)
		lower := strings.ToLower(name)
		switch {
		case lower == "cache-control" && (node.Get("static") != nil || good.Get("set").Get("Cache-Control") != nil) && !strings.Contains(value, "$"), lower == "content-type":
			continue // of the files, with expires, and of the text of return
		case strings.Contains(value, "$upstream_cache_status"):
			t.im.Standard(d, "Cache-Status says what the cache did")
			continue
		case lower == "alt-svc":
			t.im.Standard(d, "tls.http3 says where HTTP/3 is spoken")
			continue
		}
		text, err := t.headerText(value)
		if usual := t.usual(value); err != nil && usual != value {
			text, err = t.headerText(usual)
			t.im.Leave(d, fmt.Sprintf("it is %q in all answers, whatever the map says: a rule with the map's condition leads to a route with another", usual))
		}
		if err != nil || text == "" {
			t.im.Leave(d, fmt.Sprintf("write it into headers (docs/routes.md): %v", err))
			continue
		}
		t.im.Used(d)
		to := good
		if d.Arg(2) == "always" {
			to = always
		}
		kind := "set"
		if lower == "set-cookie" || lower == "link" || lower == "vary" {
			kind = "add"
		}
		to.Child(kind).Flow().Set(name, draft.Text(text))
	}
	for name, hides := range map[string]bool{"proxy_hide_header": passes, "fastcgi_hide_header": node.Get("php") != nil} {
		for _, d := range l.all(name) {
			if hides {
				remove = append(remove, d.Arg(0))
				t.im.Used(d)
			}
		}
	}
	rules := draft.Map()
	if len(remove) > 0 {
		rules.Set("remove", draft.Texts(remove...))
	}
	always.CopyTo(rules)
	if good.Len() > 0 { // nginx leaves errors without it
		when := draft.List()
		rule := draft.Map().Set("status", draft.Texts("2xx", "3xx"))
		good.CopyTo(rule)
		when.Add(rule.Flow())
		rules.Set("when", when.Flow())
	}
	if rules.Len() > 0 {
		node.Set("headers", rules)
	}
}
