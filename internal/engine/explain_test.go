package engine_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// lanes reads which lane answered each request, by the access log.
func lanes(t *testing.T, file string) (list []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var line struct {
			Lane string `json:"lane"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		list = append(list, line.Lane)
	}
	return list
}

// TestExplain holds explanations against what the server does.
func TestExplain(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := folder(t, map[string]string{
		"index.html": "home", "about.html": "about", "docs/index.html": "docs", "missing.html": "missing",
		"new/x.html": "new", ".secret": "s", "a.php": "p", "one/index.html": "one", "two/index.html": "two",
	})
	log := filepath.Join(t.TempDir(), "log")
	cfg, err := config.Parse("test.yaml", []byte(`
admin: {listen: off}
log: {format: json, file: `+log+`}
listen: 127.0.0.1:0
sites:
  - hosts: [localhost, '*.example.org']
    rules:
      - {host: [www.example.org], redirect: {to: 'https://example.org{uri}', status: 301}}
      - {path: /old/, rewrite: '/new/{1}'}
      - {path: /q, query: {x: '*'}, rewrite: /about.html}
      - {host: [one.example.org], path: /by-host/, rewrite: /one/}
      - {path: /by-host/, rewrite: '/two/{1}'}
      - {path: /json, header: {Accept: '!*json*'}, respond: {status: 406, text: JSON only}}
      - {path: /named, route: '@app'}
      - {path: /fixed, respond: fine}
      - {method: [POST], address: ['!10.0.0.0/8'], path: /admin/, deny: {}}
    errors: {403: /missing.html}
    routes:
      /: {static: {root: `+dir+`}}
      /t/: {static: {root: `+dir+`}, try: ['{path}', '{path}.html', '{path}/', /index.html]}
      /strict/: {static: {root: `+dir+`}, try: ['{path}', '=410']}
      /to/: {redirect: {to: 'https://example.net/'}}
      /no: {deny: {}}
      /below/: {proxy: 'http://127.0.0.1:1/public'}
      /kept/: {cache: 'http://127.0.0.1:1/public'}
      '@app': {respond: {text: app, status: 201}}
`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { http.DefaultTransport.(*http.Transport).CloseIdleConnections() })
	srv := start(t, cfg)
	asked := 0
	for _, c := range []struct{ method, host, path, header, route, job string }{
		{"GET", "localhost", "/", "", "/", "static"},
		{"GET", "localhost", "/about.html", "", "/", "static"},
		{"GET", "localhost", "/docs", "", "/", "static"},
		{"GET", "localhost", "/nothing", "", "/", "static"},
		{"GET", "localhost", "/.secret", "", "/", "static"},
		{"GET", "localhost", "/a.php", "", "/", "static"},
		{"POST", "localhost", "/about.html", "", "/", "static"},
		{"GET", "www.example.org", "/about.html", "", "", "redirect"},
		{"GET", "localhost", "/old/x.html", "", "/", "static"},
		{"GET", "localhost", "/q?x=1", "", "/", "static"},
		{"GET", "localhost", "/q", "", "/", "static"},
		{"GET", "one.example.org", "/by-host/", "", "/", "static"},
		{"GET", "two.example.org", "/by-host/", "", "/", "static"},
		{"GET", "localhost", "/json", "", "", "respond"},
		{"GET", "localhost", "/json", "Accept: application/json", "/", "static"},
		{"GET", "localhost", "/named", "", "@app", "respond"},
		{"GET", "localhost", "/fixed", "", "", "respond"},
		{"POST", "localhost", "/admin/", "", "", "deny"},
		{"GET", "localhost", "/t/about", "", "/t/", "static"},
		{"GET", "localhost", "/t/about.html", "", "/t/", "static"},
		{"GET", "localhost", "/t/docs", "", "/t/", "static"},
		{"GET", "localhost", "/t/nothing", "", "/", "static"},
		{"GET", "localhost", "/strict/nothing", "", "/strict/", ""},
		{"GET", "localhost", "/to/x?y", "", "/to/", "redirect"},
		{"GET", "localhost", "/no", "", "/no", "deny"},
		{"GET", "localhost", "/a//b", "", "", ""},
		{"GET", "localhost", "/below/x/..;/y", "", "/below/", "proxy"},
		{"GET", "localhost", "/kept/x/../y", "", "/kept/", "cache"},
		{"GET", "localhost", "/old/x%5cy", "", "/", "static"},
		{"GET", "elsewhere", "/", "", "", ""},
	} {
		r := httptest.NewRequest(c.method, "http://"+c.host+c.path, http.NoBody)
		r.RemoteAddr = "127.0.0.1:1"
		name, value, _ := strings.Cut(c.header, ": ")
		header := []string{"Host", c.host}
		if c.header != "" {
			r.Header.Set(name, value)
			header = append(header, name, value)
		}
		e, err := engine.Explain(cfg, r)
		if err != nil {
			t.Fatal(err)
		}
		var resp *http.Response
		for range 3 {
			resp, _ = ask(t, c.method, srv.Addrs()[0]+c.path, header...)
		}
		asked += 3
		var last string
		servertest.Eventually(t, "the log has the request", func() bool {
			list := lanes(t, log)
			if len(list) == asked {
				last = list[asked-1]
			}
			return len(list) == asked
		})
		if e.Status != resp.StatusCode || e.Hot != (last == "fast") || e.Route != c.route || e.Job != c.job {
			t.Errorf("%s: it was %d by the %s lane, want %+v", fmt.Sprint(c), resp.StatusCode, last, e)
		}
		if len(e.Steps) == 0 || e.Answer == "" {
			t.Errorf("%v: says nothing: %+v", c, e)
		}
	}
}
