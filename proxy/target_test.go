package proxy

import (
	"millrace/internal/wire/message"
	"net/url"
	"strings"
	"testing"
)

// TestTarget: loops change paths as the other road does, or leave them to it: where an
// escape comes in, and where the expressions would take a while.
func TestTarget(t *testing.T) {
	many := make([]Rewrite, 20)
	for i := range many {
		many[i] = Rewrite{Path: "/(a|b){5}c" + strings.Repeat("x", i), To: "/{1}"}
	}
	options := map[string]Options{
		"none":      {},
		"strip":     {StripPrefix: "/app/"},
		"rewrite":   {StripPrefix: "/app", Rewrite: []Rewrite{{Path: "/users/([0-9]+)", To: "/user?id={1}"}, {Path: "(/.*)/", To: "/{1}?"}, {Path: "/esc(.*)", To: "/%7B{1}"}, {Path: "/odd(.*)", To: "/|{1}"}}},
		"expensive": {Rewrite: many},
	}
	kept := map[string]int{}
	for name, o := range options {
		p, faults := newPaths(o)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		for _, asked := range []string{
			"/", "/app", "/app/", "/app/users/12", "/app/users/12?", "/app/users/12?a=b&c", "/app/x/?q", "/app/x/?", "/app/x/", "/app/esc1", "/app/odd1", "/application?x", "/" + strings.Repeat("ab", 2000),
		} {
			var head message.Request
			if !head.Parse("GET "+asked+" HTTP/1.1\r\nHost: a\r\n\r\n") || !head.Simple {
				t.Fatal(asked)
			}
			got, ok := p.target(&head)
			if !ok {
				kept[name]++
				continue
			}
			u, err := url.ParseRequestURI(asked)
			if err != nil {
				t.Fatal(err)
			}
			if p.changes() {
				p.outgoing(u)
			}
			if asks := u.ForceQuery || u.RawQuery != ""; got != (target{u.EscapedPath(), u.RawQuery, asks}) {
				t.Errorf("%s: of %.40s the loops make %+v, others %.40s?%s", name, asked, got, u.EscapedPath(), u.RawQuery)
			}
		}
	}
	if want := map[string]int{"rewrite": 3, "expensive": 1}; len(kept) != len(want) || kept["rewrite"] != want["rewrite"] || kept["expensive"] != want["expensive"] {
		t.Errorf("for goroutines are %v, want %v", kept, want)
	}
}
