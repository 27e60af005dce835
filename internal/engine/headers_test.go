package engine_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/access/password"
)

// roads are clients of one site over all protocols.
type roads struct {
	admin string
	ways  map[string]*way
}

// headersSite serves the same with the fast lane or without it.
func headersSite(t *testing.T, off bool, upstream, dir string) *roads {
	t.Helper()
	cert, key, pool := certificate(t)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
	cfg := parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
tls: {listen: %q, cert: %q, key: %q, http3: true, redirect: false}
lane: {off: %v}
sites:
- headers:
    security: {hsts: 1h}
    set: {X-Site: site, X-Host: 'h={host} s={scheme} p={path}'}
    add: {Vary: X-Extra}
    remove: [Cache-Status]
    when:
      - {status: [404, 5xx], set: {Cache-Control: no-store}}
      - {type: text/css, set: {Cache-Control: 'max-age=1', Content-Type: text/css2}}
      - {status: 200, set: {X-Ok: ok}}
      - {status: 304, set: {X-Same: same}}
  cors: {origins: ['https://a.example', 'https://*.b.example'], methods: [PUT], credentials: true, expose: [X-Site]}
  routes:
    /: {static: {root: %q}, headers: {set: {X-Site: route}}}
    /api/: {cache: {to: [%q]}}
    /proxy/: {proxy: {to: [%q]}, cors: '*', headers: {security: off}}
    /id/: {proxy: {to: [%q], request_headers: {set: {X-Id: '{request_id}'}}}, headers: {set: {X-Request-Id: '{request_id}', X-Client: '{client_ip}', X-Uri: '{method} {uri}'}}}
    /plain/: {static: {root: %q}, cors: '', headers: {remove: [Content-Type, X-Frame-Options, Last-Modified]}}
    /moved: {redirect: {to: /}}
    /no: {deny: {}}
    /text: {respond: hello}
`, addr, cert, key, off, dir, upstream, upstream, upstream, dir))
	cfg.Admin.Listen = net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
	srv := start(t, cfg)
	r := &roads{admin: cfg.Admin.Listen, ways: map[string]*way{}}
	for _, protocol := range protocols {
		r.ways[protocol] = wayTo(t, protocol, srv, &tls.Config{RootCAs: pool, ServerName: "localhost"})
	}
	return r
}

// offers is how many answers the lane has taken.
func (s *roads) offers(t *testing.T) (n int) {
	t.Helper()
	resp, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	text, _ := io.ReadAll(resp.Body)
	_, rest, _ := strings.Cut(string(text), "\nmillrace_lane_offers_total ")
	line, _, _ := strings.Cut(rest, "\n")
	f, err := strconv.ParseFloat(line, 64)
	if err != nil {
		t.Fatalf("%q", line)
	}
	return int(f)
}

// ask returns the answer as text, without what differs from second to second.
func (s *roads) ask(t *testing.T, road, method, path string, header http.Header) (text string, h http.Header) {
	t.Helper()
	fields := http.Header{"Host": {"site.example"}}
	maps.Copy(fields, header)
	resp, body, err := s.ways[road].try(method, path, "", fields)
	if err != nil {
		t.Fatalf("%s %s %s: %v", road, method, path, err)
	}
	h = resp.Header.Clone()
	for _, name := range []string{"Date", "Alt-Svc", "Age", "Server"} {
		h.Del(name)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d\n", resp.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		fmt.Fprintf(&b, "%s: %q\n", name, h[name])
	}
	b.WriteString(body)
	return b.String(), resp.Header
}

// Rules for headers hold on every road, and answers of the fast lane are those
// that there are without it.
func TestHeaders(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "max-age=600")
		h.Set("X-Powered-By", "old things")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Access-Control-Allow-Origin", "https://other.example")
		h.Set("X-Got-Id", r.Header.Get("X-Id"))
		if strings.HasSuffix(r.URL.Path, "/broken") {
			w.WriteHeader(http.StatusBadGateway)
		}
		fmt.Fprint(w, "api ", r.URL.Path)
	}))
	defer upstream.Close()
	dir := folder(t, map[string]string{"index.html": "<p>page", "a.css": "a{}", "big.bin": strings.Repeat("0123456789", 100_000)})
	with, without := headersSite(t, false, upstream.URL, dir), headersSite(t, true, upstream.URL, dir)
	etag := func(path string) string {
		_, h := without.ask(t, "h1", http.MethodGet, path, nil)
		return h.Get("Etag")
	}
	var requests []struct {
		method, path string
		header       http.Header
	}
	for _, path := range []string{"/", "/a.css", "/big.bin", "/none", "/api/x", "/api/broken", "/proxy/x", "/plain/", "/plain/a.css", "/moved", "/no", "/text", "/a//b"} {
		for _, origin := range []string{"", "https://a.example", "https://x.b.example", "https://evil.example"} {
			h := http.Header{}
			if origin != "" {
				h.Set("Origin", origin)
			}
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				requests = append(requests, struct {
					method, path string
					header       http.Header
				}{method, path, h})
			}
			if tag := etag(path); tag != "" {
				h = h.Clone()
				h.Set("If-None-Match", tag)
				requests = append(requests, struct {
					method, path string
					header       http.Header
				}{http.MethodGet, path, h})
			}
		}
	}
	for road := range with.ways {
		for _, q := range requests {
			want, _ := without.ask(t, road, q.method, q.path, q.header)
			for i := range 4 {
				if got, _ := with.ask(t, road, q.method, q.path, q.header); got != want {
					t.Fatalf("%s %s %s %v, time %d:\n%.900s\nwithout the lane:\n%.900s", road, q.method, q.path, q.header, i+1, got, want)
				}
			}
		}
	}
	if n := with.offers(t); n < 40 {
		t.Errorf("%d answers were offered to the lane", n)
	}
	checkHeaders(t, with)
}

// checkHeaders looks at what the rules are to do.
func checkHeaders(t *testing.T, s *roads) {
	t.Helper()
	a, evil := http.Header{"Origin": {"https://a.example"}}, http.Header{"Origin": {"https://evil.example"}}
	for _, c := range []struct {
		road, path string
		header     http.Header
		want       map[string]string
	}{
		{"h1", "/", nil, map[string]string{
			"X-Site": "route", "X-Host": "h=site.example s=http p=/", "X-Ok": "ok", "X-Frame-Options": "SAMEORIGIN", "X-Content-Type-Options": "nosniff",
			"Strict-Transport-Security": "", "Access-Control-Allow-Origin": "",
		}},
		{"h2", "/", a, map[string]string{"X-Host": "h=site.example s=https p=/", "Strict-Transport-Security": "max-age=3600", "Access-Control-Allow-Origin": "https://a.example", "Access-Control-Allow-Credentials": "true"}},
		{"h3", "/", evil, map[string]string{"Access-Control-Allow-Origin": "", "Strict-Transport-Security": "max-age=3600"}},
		{"tls", "/a.css", nil, map[string]string{"Cache-Control": "max-age=1", "Content-Type": "text/css2"}},
		{"tls", "/none", nil, map[string]string{"Cache-Control": "no-store", "X-Site": "route", "X-Ok": ""}},
		{"h2", "/api/x", a, map[string]string{"X-Frame-Options": "DENY", "X-Powered-By": "", "X-Site": "site", "Cache-Status": "", "Access-Control-Allow-Origin": "https://a.example"}},
		{"h1", "/api/broken", nil, map[string]string{"Cache-Control": "no-store", "Access-Control-Allow-Origin": ""}},
		{"h1", "/proxy/x", evil, map[string]string{"Access-Control-Allow-Origin": "*", "X-Powered-By": "old things", "X-Content-Type-Options": ""}},
		{"h1", "/plain/", nil, map[string]string{"Content-Type": "", "X-Frame-Options": "", "Last-Modified": "", "X-Content-Type-Options": "nosniff"}},
	} {
		for range 3 {
			if _, h := s.ask(t, c.road, http.MethodGet, c.path, c.header); true {
				for name, want := range c.want {
					if got := h.Get(name); got != want {
						t.Errorf("%s %s %v: %s is %q, want %q", c.road, c.path, c.header, name, got, want)
					}
				}
			}
		}
	}
	seen := map[string]bool{}
	for road := range s.ways {
		_, h := s.ask(t, road, http.MethodGet, "/id/x?y=1", nil)
		id := h.Get("X-Request-Id")
		if id == "" || seen[id] || h.Get("X-Got-Id") != id || h.Get("X-Client") != "127.0.0.1" || h.Get("X-Uri") != "GET /id/x?y=1" {
			t.Errorf("%s: %v", road, h)
		}
		seen[id] = true
		asks := http.Header{"Origin": {"https://x.b.example"}, "Access-Control-Request-Method": {"PUT"}}
		text, h := s.ask(t, road, http.MethodOptions, "/a.css", asks)
		if !strings.HasPrefix(text, "204\n") || h.Get("Access-Control-Allow-Origin") != "https://x.b.example" || h.Get("Access-Control-Allow-Methods") != "GET, HEAD, POST, PUT" || h.Get("X-Site") != "route" {
			t.Errorf("%s: a preflight: %s", road, text)
		}
	}
}

// Preflights pass the question for a password, pages in the place of errors have
// the fields as well, and a reload changes answers that were hot.
func TestHeadersAround(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "home", "404.html": "nothing"})
	hash, err := password.New("open sesame", password.Bcrypt)
	if err != nil {
		t.Fatal(err)
	}
	yaml := func(value string) string {
		return `
listen: 127.0.0.1:0
sites:
- headers: {set: {X-A: ` + value + `}, remove: [Etag]}
  cors: https://a.example
  errors: {404: /404.html}
  rules:
    - {path: /old, redirect: {to: /new, status: 301}}
  routes:
    /: {static: {root: ` + dir + `}}
    /secret/: {static: {root: ` + dir + `}, auth: {passwords: {alice: '` + hash + `'}}}
`
	}
	srv := start(t, parse(t, yaml("one")))
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	url := srv.Addrs()[0]
	check := func(method, path string, status int, value string) {
		t.Helper()
		for range 3 {
			resp, _ := ask(t, method, url+path, "Origin", "https://a.example", "Access-Control-Request-Method", "GET")
			h := resp.Header
			if resp.StatusCode != status || h.Get("X-A") != value || h.Get("Access-Control-Allow-Origin") != "https://a.example" || h.Get("Etag") != "" {
				t.Errorf("%s %s: %s %v", method, path, resp.Status, h)
			}
		}
	}
	for _, value := range []string{"one", "two"} {
		if value == "two" {
			if err := srv.Reload(parse(t, yaml("two"))); err != nil {
				t.Fatal(err)
			}
			url = srv.Addrs()[0]
		}
		check(http.MethodGet, "/", 200, value)
		check(http.MethodGet, "/none", 404, value)
		check(http.MethodGet, "/old", 301, value)
		check(http.MethodGet, "/secret/", 401, value)
		check(http.MethodOptions, "/secret/", 204, value)
		check(http.MethodOptions, "/", 204, value)
	}
}

// TestCachedPagesGetHot: the lane takes over a cached page whatever protocol its visitors
// speak, and sends over each what the others get.
func TestCachedPagesGetHot(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	t.Cleanup(up.Close)
	s := headersSite(t, false, up.URL, t.TempDir())
	for _, first := range protocols {
		path := "/api/" + first
		before := s.offers(t)
		for range 3 {
			if text, _ := s.ask(t, first, http.MethodGet, path, nil); !strings.Contains(text, path) {
				t.Fatalf("over %s: %s", first, text)
			}
		}
		if s.offers(t) == before {
			t.Errorf("a page that is asked for over %s alone does not get hot", first)
		}
		want, _ := s.ask(t, first, http.MethodGet, path, nil)
		for _, road := range protocols {
			if text, _ := s.ask(t, road, http.MethodGet, path, nil); text != want && (first == "h1") == (road == "h1") {
				t.Errorf("hot over %s, over %s: %s\nwant %s", first, road, text, want)
			}
		}
	}
}
