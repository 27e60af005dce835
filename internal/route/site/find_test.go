package site

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"millrace/internal/route/match"
	"millrace/internal/wire/urlpath"
)

func rule(t testing.TB, w match.When, to string, route *Route) Rule {
	t.Helper()
	m, faults := w.Compile(nil)
	if faults != nil {
		t.Fatal(faults)
	}
	r := Rule{Match: m, Route: route}
	if to != "" {
		var err error
		if r.Rewrite, err = match.NewTemplate(to, m.Path, nil); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestFindIsForOthers: only an answer that nothing but its key decided on is for
// the next one who asks.
func TestFindIsForOthers(t *testing.T) {
	other := route("@other")
	s := New(1, []*Route{route("/"), other},
		rule(t, match.When{Path: "/h/", Header: map[string]string{"X": "1"}}, "", other),
		rule(t, match.When{Path: "/q/", Query: map[string]string{"x": "1"}}, "", other),
		rule(t, match.When{Path: "/p/", Method: []string{"POST"}}, "", other),
		rule(t, match.When{Path: "/r/"}, "/h/{1}", nil))
	for _, c := range []struct {
		target, x, pattern string
		private            bool
		vary               int
	}{
		{"/", "1", "/", false, 0},
		{"/h/a", "", "/", false, 1},
		{"/h/a", "1", "@other", true, 1},
		{"/q/a", "", "/", true, 0},
		{"/p/a", "", "/", false, 0},
		{"/r/a", "1", "/", false, 0}, // what a rule before has not seen
	} {
		r := httptest.NewRequest(http.MethodGet, c.target, http.NoBody)
		r.Header.Set("X", c.x)
		f := s.Find(match.Of(r).Head)
		if f.Route.Pattern != c.pattern || f.Private != c.private || len(f.Vary) != c.vary {
			t.Errorf("%s, X: %s is %s, private %v, vary %v", c.target, c.x, f.Route.Pattern, f.Private, f.Vary)
		}
	}
}

// A path that some server reads as one that a rule is for is not passed on.
func TestFindUnclean(t *testing.T) {
	p := route("/")
	p.RawPath = true
	s := New(1, []*Route{p}, rule(t, match.When{Path: "/admin/"}, "", route("@deny")))
	for target, clean := range map[string]string{"/a//b": "", "/a/../admin/x": "/admin/x", "//admin/": "/admin/", "/admin//x": ""} {
		f := s.Find(match.Of(httptest.NewRequest(http.MethodGet, "http://x"+target, http.NoBody)).Head)
		if f.Clean != clean {
			t.Errorf("%s leads to %q, want %q", target, f.Clean, clean)
		}
	}
	if f := s.Find(match.Of(httptest.NewRequest(http.MethodGet, "http://x/admin//x", http.NoBody)).Head); f.Route.Pattern != "@deny" {
		t.Errorf("the rule was got round: %s", f.Route.Pattern)
	}
}

// A path that can be read in two ways is passed on by a route only if both ways
// lead to it: no other route can be got round.
func TestOnlyRoute(t *testing.T) {
	routes := []*Route{route("/"), route("/p/"), route("/secret/"), route("/p/admin")}
	s := New(1, routes)
	for target, want := range map[string]string{
		"/x//y": "/", "/p//y": "/p/", "/p/a%2F..%2Fb": "/p/", "/p/https%3A%2F%2Fexample.com/x": "/p/", "/x/../y": "/", "//": "/",
		"/p/..%2fx": "", "/p/..%2fsecret%2fx": "", "/secret%2f..%2fx": "", "/secret/../x": "", "//secret/x": "", "/x/..%2f..%2fsecret/": "",
		"/a/../secret//../k": "", "/p//admin": "", "/p/x%2f..%2fadmin": "", "/p/./admin": "", "/p/%2fadmin": "",
		"/x/../secret/a/%2e%2e/../../k": "", "/x/../secret/%2E./../k": "", "/x/%2e%2e/../y": "/",
	} {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if r := s.OnlyRoute(u); r != nil {
			got = r.Pattern
		}
		if got != want {
			t.Errorf("%s: %q, want %q; read as %q", target, got, want, urlpath.Readings(u))
		}
	}
}

// FuzzRewriteStays: whatever a rule's text is made of and however the request is
// spelled, the path that comes out is below what the text begins with.
func FuzzRewriteStays(f *testing.F) {
	f.Add(uint(0), "/../private/s", "a.test", "..")
	f.Add(uint(7), "/%2e%2e/x", "..", `..\`)
	f.Add(uint(12), "/a/.../x", "", "../../x")
	values := []string{"{path}", "{rest}", "{uri}", "{host}", "{query.p}", "{header.X-P}", "{cookie.p}", "{0}", "{1}", "{2}"}
	f.Fuzz(func(t *testing.T, choice uint, target, host, text string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Path == "" || u.Path[0] != '/' {
			return
		}
		w := match.When{Regex: [...]string{"^(/[^/]*)(.*)$", "^/(.?.?)(.*)$", "([^/]*)/?([^/]*)$", "^/([^x]*)x?(.*)$"}[choice%4]}
		to := "/to/" + values[choice/4%10] + [...]string{"", "/", ".", "x"}[choice/40%4] + values[choice/160%10]
		s := New(1, []*Route{route("/")}, rule(t, w, to, nil))
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.URL, r.Host = u, host
		r.Header["X-P"], r.Header["Cookie"] = []string{text}, []string{"p=" + text}
		u.RawQuery = url.Values{"p": {text}}.Encode()
		found := s.Find(match.Of(r).Head)
		if path := found.Path; found.Route != nil && found.Clean == "" && s.rules[0].Match.Covers(u.Path) && path != "/to" && !strings.HasPrefix(path, "/to/") {
			t.Fatalf("%s of %q (host %q, %q) is %q", to, target, host, text, path)
		}
	})
}

func BenchmarkFind(b *testing.B) {
	var rules []Rule
	var routes []*Route
	for i := range 50 {
		routes = append(routes, route(fmt.Sprintf("/folder%d/", i)), route(fmt.Sprintf("/page%d", i)))
		w := match.When{Regex: fmt.Sprintf(`^/blog%d/(\d+)$`, i)}
		if i%2 == 0 {
			w = match.When{Path: fmt.Sprintf("/old%d/*.html", i)}
		}
		rules = append(rules, rule(b, w, "/new/{1}", nil))
	}
	s := New(1, append(routes, route("/")), rules...)
	for name, target := range map[string]string{"last": "/nowhere/at/all", "rewritten": "/blog49/12345"} {
		b.Run(name, func(b *testing.B) {
			q := match.Of(httptest.NewRequest(http.MethodGet, target, http.NoBody)).Head
			b.ReportAllocs()
			for b.Loop() {
				if s.Find(q).Route == nil {
					b.Fatal("nothing was found")
				}
			}
		})
	}
}
