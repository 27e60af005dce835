package headers

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func policy(t testing.TB, o CORSOptions) *CORS {
	t.Helper()
	p, err := NewCORS(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func request(method string, kv ...string) *http.Request {
	r := httptest.NewRequest(method, "/api", nil)
	for i := 0; i < len(kv); i += 2 {
		r.Header.Add(kv[i], kv[i+1])
	}
	return r
}

func TestOrigins(t *testing.T) {
	p := policy(t, CORSOptions{Origins: []string{
		"https://blog.example", "HTTP://Dev.Example:8080", "https://*.example.org", "https://*.api.example:8443",
		"https://example.net:443", "http://[2001:DB8:0::1]", "capacitor://localhost", "https://a.example.org",
	}})
	for origin, rule := range map[string]int{
		"https://blog.example":          0,
		"https://blog.example:443":      0,
		"HTTPS://Blog.Example":          0,
		"http://blog.example":           -1,
		"https://blog.example:444":      -1,
		"https://blog.example:0443":     0,
		"https://blog.example:":         -1,
		"https://blog.example/":         -1,
		"https://blog.example.":         -1,
		"https://user@blog.example":     -1,
		" https://blog.example":         -1,
		"https://blog.example, null":    -1,
		"http://dev.example:8080":       1,
		"http://dev.example":            -1,
		"https://www.example.org":       2,
		"https://a.b.c.example.org":     2,
		"https://WWW.Example.Org:443":   2,
		"https://example.org":           -1,
		"https://.example.org":          -1,
		"https://a..example.org":        -1,
		"https://evil-example.org":      -1,
		"https://example.org.evil.test": -1,
		"https://www.example.org.":      -1,
		"https://www.example.org:8443":  -1,
		"http://www.example.org":        -1,
		"https://*.example.org":         -1,
		"https://evil/.example.org":     -1,
		"https://evil#.example.org":     -1,
		"https://evil:.example.org":     -1,
		"https://a.api.example:8443":    3,
		"https://a.api.example":         -1,
		"https://example.net":           4,
		"http://[2001:db8::1]":          5,
		"http://[2001:db8::1%25e]":      -1,
		"http://[2001:db8::1":           -1,
		"http://2001:db8::1":            -1,
		"capacitor://localhost":         6,
		"https://a.example.org":         7, // by name before any pattern
		"null":                          -1,
		"*":                             -1,
		"https://":                      -1,
		"https":                         -1,
		"https://" + strings.Repeat("a.", 200) + "example.org": -1,
	} {
		if got := p.rule(origin); got != rule {
			t.Errorf("%s is allowed by rule %d, want %d", origin, got, rule)
		}
	}
	if p := policy(t, CORSOptions{Origins: []string{"https://a.example", "null"}}); p.rule("null") != 1 || p.rule("NULL") != -1 {
		t.Error("null is not allowed where it is listed")
	}
	if p := policy(t, CORSOptions{Origins: []string{"*"}}); p.rule("null") != 0 || p.rule("anything") != 0 {
		t.Error("* does not allow everything")
	}
}

func TestCORSApply(t *testing.T) {
	single := CORSOptions{Origins: []string{"HTTPS://Blog.Example:443"}}
	several := CORSOptions{Origins: []string{"https://a.example", "https://*.b.example"}, Credentials: true, Expose: []string{"X-A", "ETag"}}
	secret := CORSOptions{Origins: []string{"https://blog.example"}, Credentials: true}
	upstream := http.Header{
		"Access-Control-Allow-Origin": {"*"}, "Access-Control-Allow-Credentials": {"true"}, "Access-Control-Expose-Headers": {"Secret"},
		"Access-Control-Allow-Private-Network": {"true"}, "Access-Control-Max-Age": {"1"}, "Etag": {`"1"`},
	}
	for _, c := range []struct {
		name   string
		o      CORSOptions
		origin string
		want   string // as lines, without Etag
		class  string
	}{
		{"any", CORSOptions{Origins: []string{"*"}, Expose: []string{"*"}}, "https://x.example", "Access-Control-Allow-Origin: *|Access-Control-Expose-Headers: *", ""},
		{"any without Origin", CORSOptions{Origins: []string{"*"}}, "", "Access-Control-Allow-Origin: *", ""},
		// Constant: the browser compares, and no cache needs to know.
		{"single", single, "https://blog.example", "Access-Control-Allow-Origin: https://blog.example", ""},
		{"single, other origin", single, "https://evil.example", "Access-Control-Allow-Origin: https://blog.example", ""},
		{"single without Origin", single, "", "Access-Control-Allow-Origin: https://blog.example", ""},
		{"single with credentials", secret, "https://evil.example", "Access-Control-Allow-Credentials: true|Access-Control-Allow-Origin: https://blog.example", ""},
		{"single pattern", CORSOptions{Origins: []string{"https://*.b.example"}}, "https://x.b.example", "Access-Control-Allow-Origin: https://x.b.example|Vary: Origin", "0"},
		{
			"several", several, "https://x.b.example",
			"Access-Control-Allow-Credentials: true|Access-Control-Allow-Origin: https://x.b.example|Access-Control-Expose-Headers: X-A, ETag|Vary: Origin", "1",
		},
		{"several, not allowed", several, "https://b.example", "Vary: Origin", CORSDenied},
		{"several without Origin", several, "", "Vary: Origin", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := policy(t, c.o)
			r := request(http.MethodGet)
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			h := upstream.Clone()
			p.Apply(h, r)
			p.Apply(h, r) // twice is as once
			var lines []string
			for _, name := range slices.Sorted(maps.Keys(h)) {
				for _, value := range h[name] {
					lines = append(lines, name+": "+value)
				}
			}
			lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Etag") })
			if got := strings.Join(lines, "|"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if p.Varies() != strings.Contains(c.want, "Vary") {
				t.Errorf("Varies is %v", p.Varies())
			}
			if got := p.Class(r); got != c.class {
				t.Errorf("class %q, want %q", got, c.class)
			}
		})
	}
}

func TestApplyLeavesSlicesAlone(t *testing.T) {
	p := policy(t, CORSOptions{Origins: []string{"https://a.example", "https://b.example"}})
	stored := make([]string, 1, 4)
	stored[0] = "Accept-Encoding"
	for _, c := range []struct{ vary, want []string }{
		{stored, []string{"Accept-Encoding", "Origin"}},
		{[]string{"accept, ORIGIN"}, []string{"accept, ORIGIN"}},
		{[]string{"a", "*"}, []string{"a", "*"}},
		{nil, []string{"Origin"}},
	} {
		h := http.Header{"Vary": c.vary}
		p.Apply(h, request(http.MethodGet, "Origin", "https://a.example"))
		if diff := cmp.Diff(c.want, h["Vary"]); diff != "" {
			t.Error(diff)
		}
	}
	if got := stored[:2][1]; got != "" {
		t.Errorf("%q was written behind a stored field", got)
	}
	h := http.Header{}
	p.Apply(h, request(http.MethodGet, "Origin", "https://a.example", "Origin", "https://b.example"))
	if len(h) != 1 {
		t.Errorf("two origins got %v", h)
	}
}

func TestOff(t *testing.T) {
	p := policy(t, CORSOptions{})
	if p != nil {
		t.Fatal("on without origins")
	}
	h := http.Header{allowOrigin: {"*"}}
	p.Apply(h, request(http.MethodGet, "Origin", "https://a.example"))
	if len(h) != 1 || p.Varies() || p.Class(request(http.MethodGet, "Origin", "x")) != "" {
		t.Errorf("off, it does something: %v", h)
	}
	if p.Preflight(httptest.NewRecorder(), request(http.MethodOptions, "Origin", "x", requestMethod, "PUT")) {
		t.Error("off, it answers a preflight")
	}
}

func TestPreflight(t *testing.T) {
	const vary = "Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
	some := CORSOptions{Origins: []string{"https://a.example", "https://b.example"}, Methods: []string{"PUT", "GET"}, Headers: []string{"Content-Type", "X-A"}}
	anything := CORSOptions{Origins: []string{"https://a.example"}, Methods: []string{"*"}, Headers: []string{"*"}, Credentials: true, MaxAge: -1}
	for _, c := range []struct {
		name   string
		o      CORSOptions
		fields []string
		status int
		want   string
	}{
		{
			"listed", some,
			[]string{"Origin", "https://b.example", requestMethod, "PATCH", requestHeaders, "x-b", "Access-Control-Request-Private-Network", "true"},
			204, "Access-Control-Allow-Headers: Content-Type, X-A|Access-Control-Allow-Methods: GET, HEAD, POST, PUT|" +
				"Access-Control-Allow-Origin: https://b.example|Access-Control-Max-Age: 86400|" + vary,
		},
		{
			"echoed", anything,
			[]string{"Origin", "https://a.example", requestMethod, "PATCH", requestHeaders, "authorization,x-b"},
			204, "Access-Control-Allow-Credentials: true|Access-Control-Allow-Headers: authorization,x-b|Access-Control-Allow-Methods: PATCH|" +
				"Access-Control-Allow-Origin: https://a.example|Access-Control-Max-Age: 0|" + vary,
		},
		{
			"not fit to be echoed", anything,
			[]string{"Origin", "https://a.example", requestMethod, "PA TCH", requestHeaders, "x\x01b"},
			204, "Access-Control-Allow-Credentials: true|Access-Control-Allow-Origin: https://a.example|Access-Control-Max-Age: 0|" + vary,
		},
		{
			"too long to be echoed", anything,
			[]string{"Origin", "https://a.example", requestMethod, "PUT", requestHeaders, strings.Repeat("a", longestEcho+1)},
			204, "Access-Control-Allow-Credentials: true|Access-Control-Allow-Methods: PUT|Access-Control-Allow-Origin: https://a.example|Access-Control-Max-Age: 0|" + vary,
		},
		{
			"any origin",
			CORSOptions{Origins: []string{"*"}, MaxAge: 5},
			[]string{"Origin", "null", requestMethod, "GET"},
			204, "Access-Control-Allow-Methods: GET, HEAD, POST|Access-Control-Allow-Origin: *|Access-Control-Max-Age: 5|" + vary,
		},
		{"not allowed", some, []string{"Origin", "https://c.example", requestMethod, "PUT"}, 403, "Content-Length: 31|Content-Type: text/plain; charset=utf-8|" + vary + "; Accept|X-Content-Type-Options: nosniff"},
		{"not allowed, one origin", anything, []string{"Origin", "https://c.example", requestMethod, "PUT"}, 403, "Content-Length: 31|Content-Type: text/plain; charset=utf-8|" + vary + "; Accept|X-Content-Type-Options: nosniff"},
		{"no Origin", some, []string{requestMethod, "PUT"}, 0, ""},
		{"no method", some, []string{"Origin", "https://a.example"}, 0, ""},
		{"empty method", some, []string{"Origin", "https://a.example", requestMethod, ""}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			w.Code = 0
			was := policy(t, c.o).Preflight(w, request(http.MethodOptions, c.fields...))
			if was != (c.status != 0) || w.Code != c.status {
				t.Fatalf("a preflight: %v, status %d, want %d", was, w.Code, c.status)
			}
			var lines []string
			for _, name := range slices.Sorted(maps.Keys(w.Header())) {
				lines = append(lines, name+": "+strings.Join(w.Header()[name], "; "))
			}
			if got := strings.Join(lines, "|"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	if policy(t, some).Preflight(httptest.NewRecorder(), request(http.MethodGet, "Origin", "https://a.example", requestMethod, "PUT")) {
		t.Error("a GET is a preflight")
	}
}

func TestCheck(t *testing.T) {
	one := []string{"https://a.example"}
	for _, c := range []struct {
		o    CORSOptions
		want string
	}{
		{CORSOptions{}, ""},
		{CORSOptions{Origins: []string{"*"}, Methods: []string{"PUT", "*"}, Headers: []string{"*"}, Expose: []string{"*"}, MaxAge: 60}, ""},
		{CORSOptions{Origins: []string{"https://*.a.example", "null", "http://127.0.0.1:3000", "http://xn--bcher-kva.example"}}, ""},
		{CORSOptions{Methods: []string{"PUT"}}, "origins"},
		{CORSOptions{Credentials: true}, "origins"},
		{CORSOptions{Origins: []string{"*"}, Credentials: true}, "credentials"},
		{CORSOptions{Origins: []string{"null"}, Credentials: true}, "credentials"},
		{CORSOptions{Origins: one, Credentials: true, Expose: []string{"*"}}, "expose"},
		{CORSOptions{Origins: []string{"*", "https://a.example"}}, "origins"},
		{CORSOptions{Origins: []string{""}}, "origins"},
		{CORSOptions{Origins: []string{"a.example"}}, "origins"},
		{CORSOptions{Origins: []string{"https://a.example/"}}, "origins"},
		{CORSOptions{Origins: []string{"https://*"}}, "origins"},
		{CORSOptions{Origins: []string{"https://*.*.a"}}, "origins"},
		{CORSOptions{Origins: []string{"https://a.*"}}, "origins"},
		{CORSOptions{Origins: []string{"*.a.example"}}, "origins"},
		{CORSOptions{Origins: []string{"https://*a.example"}}, "origins"},
		{CORSOptions{Origins: []string{"https://*.[::1]"}}, "origins"},
		{CORSOptions{Origins: []string{"https://*."}}, "origins"},
		{CORSOptions{Origins: []string{"https://bücher.example"}}, "origins"},
		{CORSOptions{Origins: []string{"https://a:x"}}, "origins"},
		{CORSOptions{Origins: []string{"https://a:65536"}}, "origins"},
		{CORSOptions{Origins: slices.Repeat(one, maxOrigins+1)}, "origins"},
		{CORSOptions{Origins: one, Methods: []string{"put"}}, "methods"},
		{CORSOptions{Origins: one, Methods: []string{"P T"}}, "methods"},
		{CORSOptions{Origins: one, Methods: []string{"TRACE"}}, "methods"},
		{CORSOptions{Origins: one, Headers: []string{"a:"}}, "headers"},
		{CORSOptions{Origins: one, Headers: slices.Repeat([]string{"a"}, maxNames+1)}, "headers"},
		{CORSOptions{Origins: one, Expose: []string{"a\r\nb"}}, "expose"},
		{CORSOptions{Origins: one, MaxAge: -2}, "max_age"},
		{CORSOptions{Origins: one, MaxAge: 1 << 30}, "max_age"},
	} {
		faults := c.o.Check()
		if got := strings.Join(slices.Sorted(maps.Keys(faults)), " "); got != c.want {
			t.Errorf("%.200v: faults with %q, want %q (%v)", c.o, got, c.want, faults)
		}
		if _, err := NewCORS(c.o); (err == nil) != (c.want == "") {
			t.Errorf("%.200v: New returned %v", c.o, err)
		}
	}
	for text, hint := range map[string]string{
		"a.example":              "with its scheme",
		"https://a.example/x/":   "write https://a.example",
		"https://bücher.example": "xn--",
		"https://a*.example":     "https://*.example.org",
	} {
		if err := checkOrigin(text); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v does not say %q", text, err, hint)
		}
	}
}

func TestUnmarshalText(t *testing.T) {
	for text, want := range map[string][]string{
		"":                     nil,
		"  ":                   nil,
		"https://blog.example": {"https://blog.example"},
		" https://a.example , https://*.b.example,null": {"https://a.example", "https://*.b.example", "null"},
		"*": {"*"},
	} {
		o := CORSOptions{Credentials: true}
		if err := o.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(CORSOptions{Origins: want}, o); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
	for _, text := range []string{",", "https://a.example,", "true", "https://a.example https://b.example"} {
		var o CORSOptions
		if err := o.UnmarshalText([]byte(text)); err == nil || len(o.Origins) > 0 {
			t.Errorf("%q is %v", text, o)
		}
	}
}

func TestAllocations(t *testing.T) {
	p := policy(t, CORSOptions{Origins: []string{"https://a.example", "https://b.example", "https://*.c.example"}})
	r := request(http.MethodGet, "Origin", "https://b.example")
	if n := testing.AllocsPerRun(100, func() { p.Class(r) }); n > 0 {
		t.Errorf("Class took %v allocations", n)
	}
}
