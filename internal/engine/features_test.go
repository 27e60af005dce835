package engine_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// application is an upstream.
func application(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestPrefixIsStripped(t *testing.T) {
	var up string
	up = application(t, func(w http.ResponseWriter, r *http.Request) {
		if to := r.Header.Get("X-Location"); to != "" {
			w.Header().Set("Location", strings.ReplaceAll(to, "UP", strings.TrimPrefix(up, "http:")))
			w.Header().Set("Set-Cookie", "a=b; Path=/inner/x; HttpOnly")
			w.WriteHeader(http.StatusFound)
			return
		}
		fmt.Fprintf(w, "%s %s", r.RequestURI, r.Header.Get("X-Forwarded-Prefix"))
	})
	sites := fmt.Sprintf(`
sites:
- routes:
    /sub/: {proxy: {to: %[1]s/inner/, strip_prefix: /sub/}}
    /plain/: {proxy: {to: %[1]s}}
    /kept/: {proxy: {to: %[1]s, redirects: keep}}
    /cached/: {cache: {to: %[1]s/inner, strip_prefix: /cached}}
    /v1/: {proxy: {to: %[1]s, rewrite: [{path: "/v1/(\\w+)/(.*)", to: "/api/{2}?kind={1}"}, {path: "/v1/(.*)", to: "/{1}"}]}}
`, up)
	everyWay(t, sites, func(w *way) {
		for target, want := range map[string]string{
			"/sub/": "/inner/ /sub", "/sub/x%2fy?a=b": "/inner/x%2fy?a=b /sub", "/%73ub/x": "/inner/x /sub", "/sub/a;b=%7C": "/inner/a;b=%7C /sub",
			"/plain/x": "/plain/x ", "/cached/x": "/inner/x /cached",
			"/v1/user/7?z=1": "/api/7?kind=user&z=1 ", "/v1/x": "/x ", "/v1//evil.test/x": "301", "/v1/a/../b": "301",
			"/sub/../sub/secret": "301",
		} {
			res, body := w.ask("GET", target, "")
			if res.StatusCode >= 300 {
				body = fmt.Sprint(res.StatusCode)
			}
			if body != want {
				w.Errorf("GET %s: %d %q, want %q", target, res.StatusCode, body, want)
			}
		}
		for _, c := range [][3]string{
			{"/sub/", "/inner/login?x", "/sub/login?x"},
			{"/sub/", "http:UP/inner/login", "/sub/login"},
			{"/sub/", "UP/inner/", "/sub/"},
			{"/sub/", "/elsewhere", "/elsewhere"},
			{"/sub/", "/sub/own", "/sub/own"},
			{"/sub/", "next", "next"},
			{"/sub/", w.base + "/inner/x", w.base + "/sub/x"},
			{"/sub/", "https://example.org/inner/x", "https://example.org/inner/x"},
			{"/plain/", "http:UP/plain/x", "/plain/x"},
			{"/plain/", "http:UP//evil.test/", "/.//evil.test/"},
			{"/plain/", "http:UP", "/"},
			{"/plain/", "/x", "/x"},
			{"/kept/", "http:UP/x", "http:UP/x"},
			{"/cached/", "http:UP/inner/x", "/cached/x"},
		} {
			res, _ := w.ask("GET", c[0], "", "X-Location", c[1], "Authorization", "x")
			if got := res.Header.Get("Location"); got != strings.ReplaceAll(c[2], "UP", strings.TrimPrefix(up, "http:")) {
				w.Errorf("%s: Location %q became %q, want %q", c[0], c[1], got, c[2])
			}
		}
		res, _ := w.ask("GET", "/sub/", "", "X-Location", "/x")
		if got := res.Header.Get("Set-Cookie"); got != "a=b; Path=/sub/x; HttpOnly" {
			w.Errorf("Set-Cookie %q", got)
		}
	})
}

func TestRequestHeaders(t *testing.T) {
	up := application(t, func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		fmt.Fprintf(w, "%s|%s|%q|%s|%d", h.Get("X-Real-IP"), h.Get("X-Asked"), h["X-More"], h.Get("Cookie"), len(h.Get("X-Request-Id")))
	})
	rules := `{set: {X-Real-IP: "{client_ip}", X-Asked: "{method} {path}?{query}", X-Request-Id: "{request_id}"}, add: {X-More: two}, remove: [cookie]}`
	sites := fmt.Sprintf(`
sites:
- routes:
    /: {proxy: {to: %[1]s, request_headers: %[2]s}}
    /behind/: {proxy: {to: %[1]s, trust_forwarded: [127.0.0.1, 10.0.0.0/8], request_headers: %[2]s}}
    /cached/: {cache: {to: %[1]s, request_headers: {set: {X-Asked: constant}, add: {X-More: two}, remove: [Cookie]}}}
`, up, rules)
	everyWay(t, sites, func(w *way) {
		for target, want := range map[string]string{
			"/a?b=c":   `127.0.0.1|GET /a?b=c|["one" "two"]||26`,
			"/behind/": `192.0.2.7|GET /behind/?|["one" "two"]||26`,
			"/cached/": `|constant|["one" "two"]||0`,
		} {
			_, body := w.ask("GET", target, "", "X-Real-IP", "6.6.6.6", "X-Forwarded-For", "6.6.6.6, 192.0.2.7, 10.1.2.3", "X-More", "one", "Cookie", "a=b", "Cache-Control", "no-store")
			if body != want {
				w.Errorf("%s: %s, want %s", target, body, want)
			}
		}
	})
}

func TestRetriesByStatus(t *testing.T) {
	bad := application(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad", http.StatusServiceUnavailable) })
	good := application(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "good") })
	sites := fmt.Sprintf(`
sites:
- routes:
    /: {proxy: {to: [%[1]q, %[2]q], balance: round_robin, retries: {status: [503], budget: 100}}}
    /bad/: {proxy: {to: %[1]s, retries: {status: [5xx], attempts: 2, budget: 100}}}
    /sick/: {proxy: {to: [%[1]q, %[2]q], balance: hash, hash_by: client}}
`, bad, good)
	everyWay(t, sites, func(w *way) {
		posts := map[string]bool{}
		for range 4 {
			if _, body := w.ask("GET", "/", ""); body != "good" {
				w.Errorf("GET / %q", body)
			}
			for range 2 { // one of them is the bad server's turn
				_, body := w.ask("POST", "/", "an upload")
				posts[body] = true
			}
		}
		if len(posts) != 2 {
			w.Errorf("what is not idempotent is not repeated: %v", posts)
		}
		if _, body := w.ask("GET", "/bad/", ""); body != "bad\n" {
			w.Errorf("the last answer counts: %q", body)
		}
		_, first := w.ask("GET", "/sick/0", "")
		for i := range 20 {
			if _, body := w.ask("GET", fmt.Sprint("/sick/", i), ""); body != first {
				w.Errorf("hash_by: client: %q, then %q", first, body)
			}
		}
	})
}
