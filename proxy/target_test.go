package proxy

import (
	"strings"
	"testing"
)

// TestTarget: which path and query the upstream gets, and for which paths an event loop has
// no time.
func TestTarget(t *testing.T) {
	many := make([]Rewrite, 20)
	for i := range many {
		many[i] = Rewrite{Path: "/(a|b){5}c" + strings.Repeat("x", i), To: "/{1}"}
	}
	options := map[string]Options{
		"none":  {},
		"strip": {StripPrefix: "/app/"},
		"rewrite": {StripPrefix: "/app", Rewrite: []Rewrite{
			{Path: "/users/([0-9]+)", To: "/user?id={1}"}, {Path: "(/.*)/", To: "/{1}?"}, {Path: "/esc(.*)", To: "/%7B{1}"}, {Path: "/odd(.*)", To: "/|{1}"},
		}},
		"expensive": {Rewrite: many},
	}
	for _, c := range []struct{ options, path, query, want string }{
		{"none", "/app/x", "q", "/app/x?q"},
		{"none", "/a%2fb//..", "", "/a%2fb//..?"},
		{"strip", "/app", "", "/?"},
		{"strip", "/app/", "", "/?"},
		{"strip", "/%61pp/x", "q", "/x?q"},
		{"strip", "/application", "x", "/application?x"},
		{"strip", "/app/../x", "", ""},
		{"rewrite", "/app/users/12", "", "/user?id=12"},
		{"rewrite", "/app/users/12", "a=b&c", "/user?id=12&a=b&c"},
		{"rewrite", "/app/x/", "q", "/x?&q"},
		{"rewrite", "/app/esc1", "", "/%7B1?"},
		{"rewrite", "/app/odd1", "", "/|1?"},
		{"rewrite", "/app/esc/../..", "", ""},
	} {
		p, faults := newPaths(options[c.options])
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		path, query, ok := p.moved(c.path, c.query)
		if got := path + "?" + query; ok != (c.want != "") || ok && got != c.want || p.stays(c.path) != ok {
			t.Errorf("%s: %s?%s becomes %q, %t; want %q", c.options, c.path, c.query, got, ok, c.want)
		}
		if !p.brief(c.path) {
			t.Errorf("%s: %s is left to goroutines", c.options, c.path)
		}
	}
	p, _ := newPaths(options["expensive"])
	if short, long := p.brief("/"+strings.Repeat("ab", 20)), p.brief("/"+strings.Repeat("ab", 2000)); !short || long {
		t.Errorf("expensive expressions are matched by loops: short paths %t, long ones %t", short, long)
	}
}
