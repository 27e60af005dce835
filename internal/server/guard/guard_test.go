package guard

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// ask sends a raw request line and Host through net/http's parser to h.
func ask(t *testing.T, h http.Handler, method, target, host string) *http.Response {
	t.Helper()
	raw := method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestRedirect(t *testing.T) {
	for _, c := range []struct{ route, to, target, want string }{
		{"/old", "/new", "/old", "/new"},
		{"/old", "/new", "/old?a=1&b=2", "/new?a=1&b=2"},
		{"/old", "/new?c=3", "/old?a=1", "/new?c=3"},
		{"/old", "/new#part", "/old?a=1", "/new?a=1#part"},
		{"/old", "/new/", "/old", "/new/"}, // an exact route has no remainder
		{"/old/", "/new", "/old/x", "/new"},
		{"/old/", "/new/", "/old/", "/new/"},
		{"/old/", "/new/", "/old?q", "/new/?q"}, // such a route covers /old as well
		{"/old/", "/new/", "/old/a/b?q", "/new/a/b?q"},
		{"/old/", "https://example.org/", "/old/a%2Fb%20c", "https://example.org/a%2Fb%20c"},
		{"/", "https://www.example.org/", "/a", "https://www.example.org/a"},
		{"/o d/", "/new/", "/o%20d/x:y", "/new/x:y"},
		{"/old/", "/new/", "/%6fld/x:y", "/new/x:y"}, // the route escaped in another way
		{"/old/", "/", "/old//evil.test/x", "/evil.test/x"},
		{"/old/", "/", `/old/\evil.test/x`, "/%5Cevil.test/x"},
		{"/old/", "/", `/%6fld/\\evil.test`, "/%5C%5Cevil.test"},
		{"/old/", "/new/", "/old/\xc3\xa4?\xc3\xa4", "/new/%C3%A4?%C3%A4"},
	} {
		resp := ask(t, Redirect{To: c.to}.Handler(c.route), "GET", c.target, "example.org")
		if got := resp.Header.Get("Location"); got != c.want || resp.StatusCode != 308 {
			t.Errorf("route %s to %s: %q gave %d to %q, want 308 to %q", c.route, c.to, c.target, resp.StatusCode, got, c.want)
		}
	}
	if resp := ask(t, Redirect{To: "/new", Status: 302}.Handler("/old"), "GET", "/old", "h"); resp.StatusCode != 302 {
		t.Errorf("status %d, want 302", resp.StatusCode)
	}
}

func TestRedirectCheck(t *testing.T) {
	for _, to := range []string{"/", "/new", "/new?a=b#c", "https://example.org", "http://[::1]:8080/x", "/a/:b"} {
		if f := (Redirect{To: to}).Check(); len(f) != 0 {
			t.Errorf("to %q: %v, want no fault", to, f)
		}
	}
	for _, to := range []string{
		"", "new", "//evil.test", "ftp://example.org/", "https://", "https:///x", "javascript:alert(1)",
		"/a b", "/a\r\nSet-Cookie: x", `/\evil.test`, "http://[::1/", "/%zz", "example.org/new",
	} {
		f := Redirect{To: to, Status: 200}.Check()
		if f["to"] == nil || f["status"] == nil {
			t.Errorf("to %q with status 200: faults %v, want both", to, f)
		}
	}
	for _, s := range []int{0, 301, 302, 303, 307, 308} {
		if f := (Redirect{To: "/", Status: s}).Check(); len(f) != 0 {
			t.Errorf("status %d: %v", s, f)
		}
	}
	for _, s := range []int{-1, 300, 304, 305, 309} {
		if f := (Redirect{To: "/", Status: s}).Check(); f["status"] == nil {
			t.Errorf("status %d has no fault", s)
		}
	}
}

func anyHost(string) bool { return true }

func TestToHTTPSUnknown(t *testing.T) {
	h := ToHTTPS("8443", func(host string) bool { return host == "example.org" })
	for host, want := range map[string]int{"example.org:80": 308, "evil.test": 404, "sub.example.org": 404} {
		if resp := ask(t, h, "GET", "/x", host); resp.StatusCode != want || want == 404 && resp.Header.Get("Location") != "" {
			t.Errorf("host %s: %d to %q, want %d", host, resp.StatusCode, resp.Header.Get("Location"), want)
		}
	}
}

func TestToHTTPS(t *testing.T) {
	for _, c := range []struct{ port, host, target, want string }{
		{"", "example.org", "/", "https://example.org/"},
		{"443", "example.org:80", "/a?b=c", "https://example.org/a?b=c"},
		{"8443", "example.org:8080", "/a%2Fb", "https://example.org:8443/a%2Fb"},
		{"8443", "[::1]:8080", "/", "https://[::1]:8443/"},
		{"443", "[2001:db8::1]", "//evil.test", "https://[2001:db8::1]//evil.test"},
		{"443", "127.0.0.1", "http://example.net/x?y", "https://example.net/x?y"},
	} {
		resp := ask(t, ToHTTPS(c.port, anyHost), "GET", c.target, c.host)
		if got := resp.Header.Get("Location"); got != c.want || resp.StatusCode != 308 {
			t.Errorf("port %q host %q: %q gave %d to %q, want 308 to %q", c.port, c.host, c.target, resp.StatusCode, got, c.want)
		}
	}
	for _, host := range []string{"", "a@b", "example.org:x", "example.org:99999", "[::1", "[::1]x", "[fe80::1%25eth0]", "[1.2.3.4]", "a/b", "::1", strings.Repeat("a", 254)} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		ToHTTPS("", anyHost).ServeHTTP(w, r)
		if w.Code != 400 || w.Header().Get("Location") != "" {
			t.Errorf("host %q: %d to %q, want 400", host, w.Code, w.Header().Get("Location"))
		}
	}
	for _, method := range []string{"OPTIONS", "CONNECT"} {
		target := map[string]string{"OPTIONS": "*", "CONNECT": "example.org:443"}[method]
		if resp := ask(t, ToHTTPS("", anyHost), method, target, "example.org"); resp.StatusCode != 400 {
			t.Errorf("%s %s: %d, want 400", method, target, resp.StatusCode)
		}
	}
}

func TestDeny(t *testing.T) {
	for status, want := range map[int]int{0: 403, 404: 404, 410: 410, 451: 451, 503: 503} {
		d := Deny{Status: status}
		if f := d.Check(); len(f) != 0 {
			t.Errorf("status %d: %v", status, f)
		}
		if got := ask(t, d.Handler(), "POST", "/x", "h").StatusCode; got != want {
			t.Errorf("status %d answered %d, want %d", status, got, want)
		}
	}
	for _, status := range []int{-1, 200, 302, 401, 500} {
		if f := (Deny{Status: status}).Check(); f["status"] == nil {
			t.Errorf("status %d has no fault", status)
		}
	}
}

// FuzzRedirect: whatever is asked for, the answer stays on the host (or the
// whole address) that the operator wrote.
func FuzzRedirect(f *testing.F) {
	for _, s := range []string{"/old/x", "/old//evil.test", `/old/\evil.test`, "/old/%2F%2Fevil.test", "/%6fld/%5c/evil?x#y", "//evil.test/old/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") {
			return
		}
		for _, to := range []string{"/", "/new/", "https://example.org/"} {
			w := httptest.NewRecorder()
			Redirect{To: to}.Handler("/old/").ServeHTTP(w, &http.Request{Method: "GET", URL: u})
			loc := w.Header().Get("Location")
			got, err := url.Parse(loc)
			if err != nil {
				continue // a query that Go does not parse; its host is checked below
			}
			if !strings.HasPrefix(loc, to) || !slices.Contains([]string{"", "example.org"}, got.Host) ||
				strings.HasPrefix(loc, "//") || strings.HasPrefix(loc, `/\`) || strings.ContainsAny(loc, "\r\n") {
				t.Errorf("%q to %q leads to %q", target, to, loc)
			}
		}
	})
}
