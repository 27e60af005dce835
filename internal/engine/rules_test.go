package engine_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/access/password"
)

// ask sends one request without following redirects.
func ask(t *testing.T, method, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// says asks three times, so that the fast lane has its say as well.
func says(t *testing.T, url string, status int, contains string, header ...string) {
	t.Helper()
	for i := range 3 {
		resp, body := ask(t, http.MethodGet, url, header...)
		if resp.StatusCode != status || !strings.Contains(body+resp.Header.Get("Location"), contains) {
			t.Fatalf("%s %v, time %d: %d %q %s, want %d and %q", url, header, i+1, resp.StatusCode, body, resp.Header.Get("Location"), status, contains)
		}
	}
}

// site starts a server of a site with these keys and returns its URL.
func startSite(t *testing.T, keys string) string {
	t.Helper()
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return start(t, parse(t, "listen: 127.0.0.1:0\nsites:\n  - "+strings.ReplaceAll(strings.TrimSpace(keys), "\n", "\n    "))).Addrs()[0]
}

func TestRules(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "home", "new.html": "new", "app/index.html": "app", "a/b.txt": "b", "old.css": "css"})
	url := startSite(t, `
rules:
  - {regex: '^/blog/(?P<year>\d{4})/(.+)$', redirect: {to: '/archive/{year}/{2}', status: 301}}
  - {path: /wiki/, redirect: {to: 'https://wiki.example.org/{1}', status: 302}}
  - {path: /status, respond: fine}
  - {path: /teapot, respond: {status: 418, text: short, type: text/x-tea}}
  - {path: '/files/*.txt', rewrite: '/a/{1}.txt'}
  - {path: /new, rewrite: /new.html}
  - {path: /beta/, cookie: {beta: 'on'}, rewrite: '/app/'}
  - {path: /agents, header: {User-Agent: '~(?i)bot'}, deny: {status: 403}}
  - {path: /agents, rewrite: /new.html}
  - {path: /q, query: {x: '1*'}, respond: one}
  - {path: /named, route: '@other'}
  - {method: ['!GET', '!HEAD'], deny: {status: 403}}
routes:
  /: {static: {root: `+dir+`}}
  '/img/*/full': {respond: full}
  '@other': {respond: other}
`)
	says(t, url+"/", 200, "home")
	says(t, url+"/blog/2019/a%20b/c?x=1", 301, "/archive/2019/a%20b/c?x=1")
	says(t, url+"/wiki/%5Cevil.test", 302, "https://wiki.example.org/%5Cevil.test")
	says(t, url+"/status", 200, "fine")
	says(t, url+"/teapot", 418, "short")
	says(t, url+"/files/b.txt", 200, "b")
	says(t, url+"/files/x/b.txt", 404, "")
	says(t, url+"/new", 200, "new")
	says(t, url+"/img/7/full", 200, "full")
	says(t, url+"/named", 200, "other")
	says(t, url+"/@other", 404, "")
	for range 3 { // whatever was asked for before
		says(t, url+"/beta/", 404, "")
		says(t, url+"/beta/", 200, "app", "Cookie", "beta=on")
		says(t, url+"/agents", 200, "new", "User-Agent", "Firefox")
		says(t, url+"/agents", 403, "", "User-Agent", "GoogleBot")
		says(t, url+"/q?x=12", 200, "one")
		says(t, url+"/q?x=2", 404, "")
	}
	if resp, _ := ask(t, http.MethodPost, url+"/"); resp.StatusCode != 403 {
		t.Errorf("POST: %d, want 403", resp.StatusCode)
	}
}

// What a rewrite takes from a request beside its path is part of the answer's key.
func TestRewritesAreKeyed(t *testing.T) {
	dir := folder(t, map[string]string{"a.example/x.txt": "of a", "b.example/x.txt": "of b", "1.txt": "one", "2.txt": "two"})
	url := startSite(t, `
hosts: ['*.example']
rules:
  - {path: /q, rewrite: '/{query}.txt'}
  - {path: /x.txt, rewrite: '/{host}{path}'}
routes:
  /: {static: {root: `+dir+`}}
`)
	for range 3 {
		says(t, url+"/x.txt", 200, "of a", "Host", "a.example")
		says(t, url+"/x.txt", 200, "of b", "Host", "b.example")
		says(t, url+"/q?1", 200, "one", "Host", "a.example")
		says(t, url+"/q?2", 200, "two", "Host", "a.example")
	}
}

// Maintenance closes hot and cold, lets some in, and survives a reload.
func TestMaintenance(t *testing.T) {
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	dir := folder(t, map[string]string{"index.html": "home"})
	yaml := `
listen: 127.0.0.1:0
limits: {trusted_proxies: [127.0.0.1]}
maintenance: {allow: [203.0.113.0/24], text: closed, retry_after: 90s}
sites:
  - errors: {5xx: /index.html}
    routes: {/: {static: {root: ` + dir + `}}}
`
	srv := start(t, parse(t, yaml))
	url := srv.Addrs()[0]
	says(t, url+"/", 200, "home")
	for range 2 {
		if err := srv.SetMaintenance(true); err != nil || !srv.Maintenance().On {
			t.Fatal(err)
		}
		says(t, url+"/", 503, "closed")
		says(t, url+"/none", 503, "closed")
		says(t, url+"/", 200, "home", "X-Forwarded-For", "203.0.113.7")
		says(t, url+"/", 503, "closed")
		if resp, _ := ask(t, http.MethodGet, url+"/"); resp.Header.Get("Retry-After") != "90" {
			t.Errorf("Retry-After: %q", resp.Header.Get("Retry-After"))
		}
		if err := srv.Reload(parse(t, yaml)); err != nil {
			t.Fatal(err)
		}
		says(t, url+"/", 503, "closed")
		if err := srv.SetMaintenance(false); err != nil || srv.Maintenance().On {
			t.Fatal(err)
		}
		says(t, url+"/", 200, "home")
	}
	if err := srv.Reload(parse(t, strings.Replace(yaml, "allow:", "on: true, allow:", 1))); err != nil {
		t.Fatal(err)
	}
	says(t, url+"/", 200, "home") // a command's word counts
}

func TestTables(t *testing.T) {
	file := filepath.Join(t.TempDir(), "moved")
	write(t, file, "/old /index.html\n/gone https://archive.example/\n")
	dir := folder(t, map[string]string{"index.html": "home", "de/x.html": "german", "en/x.html": "english"})
	yaml := `
listen: 127.0.0.1:0
tables:
  moved: {file: ` + file + `}
  lang: {key: '{header.Accept-Language}', values: {de: /de}, default: /en}
  bots: {key: '{header.User-Agent}', values: {Crawler: x}}
sites:
  - rules:
      - {redirect: {to: '{table.moved}', status: 301}}
      - {table: bots, deny: {}}
      - {path: /x.html, rewrite: '{table.lang}{path}'}
    routes: {/: {static: {root: ` + dir + `}}}
`
	srv := start(t, parse(t, yaml))
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	url := srv.Addrs()[0]
	for range 3 {
		says(t, url+"/old", 301, "/index.html")
		says(t, url+"/gone", 301, "https://archive.example/")
		says(t, url+"/", 200, "home")
		says(t, url+"/x.html", 200, "german", "Accept-Language", "de")
		says(t, url+"/x.html", 200, "english", "Accept-Language", "fr")
		says(t, url+"/x.html", 200, "english")
		says(t, url+"/", 403, "", "User-Agent", "Crawler")
	}
	write(t, file, "/index.html /new\n")
	if err := srv.Reload(parse(t, yaml)); err != nil {
		t.Fatal(err)
	}
	says(t, url+"/old", 404, "")
	says(t, url+"/index.html", 301, "/new")
}

// The address in rules and templates is that of the client behind a proxy.
func TestAddressBehindProxy(t *testing.T) {
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	url := start(t, parse(t, `
listen: 127.0.0.1:0
limits: {trusted_proxies: [127.0.0.1]}
sites:
  - rules:
      - {address: [203.0.113.0/24], deny: {}}
      - {path: /me, redirect: {to: '/is/{address}'}}
    routes: {/: {respond: fine}}
`)).Addrs()[0]
	for range 3 {
		says(t, url+"/", 403, "", "X-Forwarded-For", "203.0.113.7")
		says(t, url+"/", 403, "", "X-Forwarded-For", "198.51.100.1, 203.0.113.7")
		says(t, url+"/", 200, "fine", "X-Forwarded-For", "203.0.113.7, 198.51.100.1")
		says(t, url+"/", 200, "fine")
		says(t, url+"/me", 308, "/is/198.51.100.1", "X-Forwarded-For", "198.51.100.1")
	}
}

func TestTry(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "shell", "about.html": "about", "docs/index.html": "docs", "app.js": "js"})
	url := startSite(t, `
routes:
  /: {static: {root: `+dir+`}, try: ['{path}', '{path}.html', '{path}/', /index.html]}
  /strict/: {static: {root: `+dir+`}, try: ['{path}', '=404']}
  /api/: {static: {root: `+dir+`}, try: ['{path}', '@api']}
  '@api': {respond: api}
  /loop/: {static: {root: `+dir+`}, try: ['{path}', /pool/x]}
  /pool/: {static: {root: `+dir+`}, try: ['{path}', /loop/x]}
`)
	says(t, url+"/", 200, "shell")
	says(t, url+"/app.js", 200, "js")
	says(t, url+"/about", 200, "about")
	says(t, url+"/docs", 301, "./docs/")
	says(t, url+"/docs/", 200, "docs")
	says(t, url+"/some/where", 200, "shell")
	says(t, url+"/strict/app.js", 200, "js")
	says(t, url+"/strict/nothing", 404, "")
	says(t, url+"/api/v1", 200, "api")
	says(t, url+"/loop/a", 508, "")
	write(t, filepath.Join(dir, "some", "where"), "here")
	says(t, url+"/some/where", 200, "here") // no answer for what was not there is kept
}

// TestAuth: what a password protects reaches nobody else, whoever asked before.
func TestAuth(t *testing.T) {
	t.Parallel()
	hash, err := password.New("open sesame", password.Bcrypt)
	if err != nil {
		t.Fatal(err)
	}
	argon, err := password.New("other", password.Argon2id)
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t, map[string]string{"index.html": "secret", "public/a.txt": "public", "401.html": "please"})
	users := filepath.Join(t.TempDir(), "users")
	write(t, users, "bob:"+argon+"\n")
	url := startSite(t, `
auth: {realm: Staff, file: `+users+`, passwords: {alice: '`+hash+`'}}
errors: {401: /401.html}
rules:
  - {path: /door, rewrite: /index.html}
routes:
  /: {static: {root: `+dir+`}}
  /public/: {static: {root: `+dir+`/public}, auth: {off: true}}
`)
	alice, bob, wrong := basic("alice", "open sesame"), basic("bob", "other"), basic("alice", "open says me")
	for range 3 {
		says(t, url+"/", 200, "secret", "Authorization", alice)
		says(t, url+"/door", 200, "secret", "Authorization", bob)
		says(t, url+"/", 401, "please")
		says(t, url+"/index.html", 401, "please")
		says(t, url+"/door", 401, "please")
		says(t, url+"/", 401, "please", "Authorization", wrong)
		says(t, url+"/", 401, "please", "Authorization", basic("nobody", "x"))
		says(t, url+"/public/a.txt", 200, "public")
		says(t, url+"//index.html", 301, "/index.html")
	}
	resp, _ := ask(t, http.MethodGet, url+"/")
	if got := resp.Header.Get("Www-Authenticate"); got != `Basic realm="Staff", charset="UTF-8"` {
		t.Errorf("the challenge is %q", got)
	}
}

func basic(user, pass string) string {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.SetBasicAuth(user, pass)
	return r.Header.Get("Authorization")
}

// TestErrorPages: pages keep the status, also of what an upstream says, and are
// never taken for what they replace.
func TestErrorPages(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("X-Inner", "yes")
		switch r.URL.Path {
		case "/up/gone", "/cached/gone":
			http.Error(w, "bare", http.StatusGone)
		case "/up/broken":
			w.Header().Set("Retry-After", "7")
			http.Error(w, strings.Repeat("bare", 100_000), http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, "fine")
		}
	}))
	t.Cleanup(up.Close)
	dir := folder(t, map[string]string{"index.html": "home", "missing.html": "nicely missing", "down.html": "nicely down"})
	url := startSite(t, `
errors: {404: /missing.html, 410: /missing.html, 5xx: '@down'}
intercept_errors: true
routes:
  /: {static: {root: `+dir+`}}
  /up/: {proxy: '`+up.URL+`'}
  /cached/: {cache: '`+up.URL+`'}
  /dead/: {proxy: 'http://127.0.0.1:1', errors: {502: /nowhere.html}}
  '@down': {respond: {text: nicely down, status: 200}}
`)
	for range 3 {
		says(t, url+"/nothing", 404, "nicely missing")
		says(t, url+"/missing.html", 200, "nicely missing")
		says(t, url+"/up/gone", 410, "nicely missing")
		says(t, url+"/cached/gone", 410, "nicely missing")
		says(t, url+"/up/fine", 200, "fine")
		says(t, url+"/cached/fine", 200, "fine")
		says(t, url+"/up/broken", 503, "nicely down")
		says(t, url+"/dead/", 502, "The server behind this site could not be reached")
	}
	resp, _ := ask(t, http.MethodGet, url+"/up/broken", "If-None-Match", "*", "Range", "bytes=0-1")
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "7" || resp.Header.Get("X-Inner") != "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if resp, body := ask(t, http.MethodHead, url+"/nothing"); resp.StatusCode != 404 || body != "" || resp.ContentLength != int64(len("nicely missing")) {
		t.Errorf("HEAD: %d %q %d", resp.StatusCode, body, resp.ContentLength)
	}
}

func TestBodyLimitOfARoute(t *testing.T) {
	url := startSite(t, `
routes:
  /: {respond: fine}
  /small/: {respond: small, body_bytes: 10B}
`)
	for path, want := range map[string]int{"/": 200, "/small/": 413} {
		resp, err := http.Post(url+path, "text/plain", strings.NewReader(strings.Repeat("x", 100)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// TestProtectedOverProtocols is TestAuth and the conditions of rules over
// all protocols, each with its own way into the fast lane.
func TestProtectedOverProtocols(t *testing.T) {
	hash, err := password.New("open sesame", password.Bcrypt)
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t, map[string]string{"a.html": "secret", "b.html": "open"})
	everyWay(t, `sites:
- routes:
    /in/: {static: {root: `+dir+`}, auth: {passwords: {alice: '`+hash+`'}}}
    /out/: {static: {root: `+dir+`}, errors: {404: /out/b.html}}
`, func(w *way) {
		in := anything{header: []string{"Authorization", basic("alice", "open sesame")}}
		for range 4 {
			for _, c := range []struct {
				path string
				q    anything
				want int
			}{{"/in/a.html", in, 200}, {"/in/a.html", anything{}, 401}, {"/out/b.html", anything{}, 200}, {"/out/nothing", anything{}, 404}} {
				if status, body, _ := w.visit(c.path, c.q); status != c.want || status == 401 && strings.Contains(body, "secret") {
					w.Fatalf("%s: %d %q, want %d", c.path, status, body, c.want)
				}
			}
		}
	})
}
