package engine_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"millrace/internal/config"
	"millrace/internal/engine"
)

// Of the modules that the library http-wasm-host-go ships, auth wants a password, redact
// covers a secret in bodies, router answers by itself what does not begin with /host, and
// trap fails.
type modules struct{ auth, redact, router, trap string }

func shippedModules(t *testing.T) modules {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/http-wasm/http-wasm-host-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(strings.TrimSpace(string(dir)), path) }
	return modules{
		at("examples/auth.wasm"), at("examples/redact.wasm"), at("examples/router.wasm"),
		at("internal/test/testdata/error/panic_on_handle_request.wasm"),
	}
}

// aladdin is who auth lets in.
var aladdin = []string{"Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}

// TestPluginsSeeEveryRequest: whatever job is behind it and however often something is asked
// for, no answer goes past a plugin: nothing of its route gets hot, and no loop passes a
// request on.
func TestPluginsSeeEveryRequest(t *testing.T) {
	m := shippedModules(t)
	up := application(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, "the word is open sesame")
	})
	dir := folder(t, map[string]string{"a.txt": "the word is open sesame", "app/index.html": "the word is open sesame"})
	redact := fmt.Sprintf("plugins: [{module: %q, config: open sesame}]", m.redact)
	everyWay(t, fmt.Sprintf(`
sites:
- plugins: [{module: %q}]
  routes:
    /f/: {static: {root: %[2]q}}
    /rf/: {static: {root: %[2]q}, %[3]s}
    /p/: {proxy: %[4]s}
    /rp/: {proxy: %[4]s, %[3]s}
    /c/: {cache: %[4]s}
    /rc/: {cache: %[4]s, %[3]s}
    /t/: {static: {root: %[2]q}, try: ["{path}", /rf/app/index.html], %[3]s}
    /text: {respond: the word is open sesame}
`, m.auth, dir, redact, up), func(w *way) {
		for _, path := range []string{"/f/a.txt", "/rf/a.txt", "/p/a", "/rp/a", "/c/a", "/rc/a", "/t/none", "/text"} {
			want := "the word is open sesame"
			if strings.HasPrefix(path, "/r") || path == "/t/none" {
				want = "the word is ###########"
			}
			for n := range 6 {
				if res, body := w.ask("GET", path, "", aladdin...); res.StatusCode != 200 || strings.TrimSpace(body) != want || res.ContentLength != int64(len(body)) {
					w.Errorf("%s: %d %q", path, res.StatusCode, body)
				} else if tagged := res.Header.Get("Etag") != ""; tagged && want != "the word is open sesame" {
					w.Errorf("%s: %v", path, res.Header)
				}
				if res, body := w.ask("GET", path, ""); res.StatusCode != 401 || body != "" || res.Header.Get("Www-Authenticate") == "" {
					w.Errorf("%s without a password, the %dth time: %d %q", path, n, res.StatusCode, body)
				}
			}
		}
		if res, body := w.ask("GET", "/rf/a.txt", "", append([]string{"Range", "bytes=12-15", "Accept-Encoding", "gzip", "If-Modified-Since", "Mon, 01 Jan 2035 00:00:00 GMT"}, aladdin...)...); res.StatusCode != 200 || body != "the word is ###########" {
			w.Errorf("a part of it: %d %q", res.StatusCode, body)
		}
		if res, body := w.ask("GET", "/f/a.txt", "", append([]string{"Range", "bytes=12-15"}, aladdin...)...); res.StatusCode != 206 || body != "open" {
			w.Errorf("a part of what nobody holds: %d %q", res.StatusCode, body)
		}
	})
}

// TestPluginsStandBehindAccess: who may not come in is turned away before a plugin sees the
// request, and the site's plugins come before the route's. Rules and pages for errors are
// before and behind it.
func TestPluginsStandBehindAccess(t *testing.T) {
	m := shippedModules(t)
	var asked atomic.Int64
	up := application(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, r.URL.RequestURI())
	})
	dir := folder(t, map[string]string{"404.html": "no such page", "401.html": "who are you", "users": "a:$2a$04$abcdefghijklmnopqrstuuH5xfQdMhnVQzqpKPdlOGJeYlJmYtmFu\n"})
	everyWay(t, fmt.Sprintf(`
sites:
- errors: {401: /401.html, 404: /404.html}
  rules: [{path: /moved, redirect: {to: /f/}}]
  routes:
    /denied: {respond: x, access: {deny: [0.0.0.0/0, "::/0"]}, plugins: [{module: %[2]q}]}
    /signed: {respond: x, auth: {file: %[1]q}, plugins: [{module: %[2]q}]}
    /open: {respond: x, plugins: [{module: %[2]q}]}
    /other/: {cache: %[4]s, plugins: [{module: %[2]q}]}
    /host/: {cache: %[4]s, plugins: [{module: %[2]q}]}
    /both: {respond: x, plugins: [{module: %[3]q}, {module: %[2]q}]}
    /: {static: {root: %[5]q}}
    /f/: {static: {root: %[5]q}, plugins: [{module: %[3]q}]}
    /fails: {respond: x, plugins: [{module: %[6]q}]}
`, filepath.Join(dir, "users"), m.router, m.auth, up, dir, m.trap), func(w *way) {
		for path, want := range map[string]string{
			"/denied":    "403 Your address may not see this page. If you think it should, ask the owner of the site.",
			"/signed":    "401 who are you",
			"/open":      "200 hello world",
			"/both":      "401 who are you",
			"/host/a?b":  "200 /a?b",
			"/other/a":   "200 hello world",
			"/f/x":       "401 who are you",
			"/x":         "404 no such page",
			"/moved":     "308",
			"/fails":     "500 Something went wrong on the server. Try again in a moment.",
			"/host/../x": "301",
		} {
			for range 3 {
				res, body := w.ask("GET", path, "")
				if res.StatusCode/100 == 3 {
					body = ""
				}
				if got := strings.TrimSpace(fmt.Sprint(res.StatusCode, " ", body)); got != want {
					w.Errorf("%s: %q, want %q", path, got, want)
				}
			}
		}
		if res, body := w.ask("GET", "/f/x", "", aladdin...); res.StatusCode != 404 || body != "no such page" {
			w.Errorf("a page for an error of the job: %d %q", res.StatusCode, body)
		}
	})
	if n := asked.Load(); n > 4 {
		t.Errorf("a plugin stands before the cache, which asks once for each server and scheme: %d times", n)
	}
}

// TestPluginsAreSwapped: a reload takes the module as it is then, and no request is lost.
func TestPluginsAreSwapped(t *testing.T) {
	m := shippedModules(t)
	file := filepath.Join(t.TempDir(), "x.wasm")
	put := func(from string) {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(file, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(m.router)
	yaml := fmt.Sprintf("listen: 127.0.0.1:0\nsites:\n- routes:\n    /: {respond: job, plugins: [{module: %q}]}\n", file)
	srv := start(t, parse(t, yaml))
	url := srv.Addrs()[0]
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		c := dial(t, url)
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if status, body := c.get("a", "/"); (status != 200 || body != "hello world") && (status != 401 || body != "") {
					t.Errorf("%d %q", status, body)
					return
				}
			}
		})
	}
	c := dial(t, url)
	for n := range 10 {
		put([]string{m.auth, m.router}[n%2])
		if err := srv.Reload(parse(t, yaml)); err != nil {
			t.Error(err)
		}
		if status, _ := c.get("a", "/"); status != []int{401, 200}[n%2] {
			t.Errorf("after reload %d: %d", n, status)
		}
	}
	close(stop)
	clients.Wait()
	if err := os.WriteFile(file, []byte("no module"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := srv.Reload(parse(t, yaml)); err == nil || !strings.Contains(err.Error(), "route /: plugins: "+file+": this is no WebAssembly module") {
		t.Errorf("%v", err)
	}
	if err := engine.Check(parse(t, yaml), nil); err == nil || !strings.Contains(err.Error(), "this is no WebAssembly module") {
		t.Errorf("%v", err)
	}
	if status, _ := c.get("a", "/"); status != 200 {
		t.Errorf("the old module goes on: %d", status)
	}
}

// TestPluginsBesideWebSockets: a plugin sees the request for a WebSocket, and holds no
// instance for as long as that lasts.
func TestPluginsBesideWebSockets(t *testing.T) {
	m := shippedModules(t)
	srv := start(t, parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
sites: [{routes: {/echo: {websocket: echo, plugins: [{module: %q, config: xyz, instances: 1, timeout: 200ms}]}}}]
`, m.redact)))
	for range 3 {
		s, status := handshakeFrom(t, srv, "127.0.0.1", "/echo")
		if status != http.StatusSwitchingProtocols {
			t.Fatalf("the handshake: %d", status)
		}
		if err := s.send("hello"); err != nil {
			t.Fatal(err)
		}
		s.want(t, "hello")
	}
}

func TestPluginsAreExplained(t *testing.T) {
	m := shippedModules(t)
	dir := folder(t, map[string]string{"a.txt": "a"})
	cfg := parse(t, fmt.Sprintf("sites: [{plugins: [{module: %q}], routes: {/: {static: {root: %q}, plugins: [{module: %q}]}}}]\n", m.router, dir, m.auth))
	e, err := engine.Explain(cfg, httptest.NewRequest(http.MethodGet, "/a.txt", nil))
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, s := range e.Steps {
		if s.Step == "plugin" || s.Step == "lane" {
			steps = append(steps, strings.Fields(s.Says)[0])
		}
	}
	if got := strings.Join(steps, " "); got != "router.wasm auth.wasm cold:" || e.Hot {
		t.Errorf("%s\n%+v", got, e)
	}
}

// TestFilesOfPlugins: the sandbox lets the server read modules, and a config has them beside
// it.
func TestFilesOfPlugins(t *testing.T) {
	m := shippedModules(t)
	cfg := parse(t, fmt.Sprintf("sites: [{plugins: [{module: %q}], routes: {/: {respond: x, plugins: [{module: %q}]}}}]\n", m.router, m.auth))
	for _, file := range []string{m.router, m.auth} {
		if !slices.Contains(cfg.Files(), file) {
			t.Errorf("%s is not among %v", file, cfg.Files())
		}
	}
	_, err := config.Parse("millrace.yaml", []byte("sites: [{routes: {/: {respond: x, plugins: [{}, {module: no.wasm}, {module: ., timeout: 2h, memory: 1KiB, instances: 20000, body_bytes: 2GiB}]}}}]\n"))
	for _, want := range []string{`a plugin needs "module"`, "no.wasm: there is no such file", ". is not a file", "between 1ms and 1m", "between 64KiB and 4GiB", "between 1 and 10000", "between 1B and 1GiB"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing says %q:\n%v", want, err)
		}
	}
}
