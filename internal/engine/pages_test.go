package engine_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/wire/pages"
)

// A failure that the server answers itself: what is asked for, and what is said.
type builtIn struct {
	target string
	status int
	says   string
	head   []string // of the request
	method string   // "": GET
}

// TestBuiltInPages asks for every kind of error in every form. What a client gets is the
// same by every protocol, with the lane and without, and tells nothing of the inside.
func TestBuiltInPages(t *testing.T) {
	t.Parallel()
	files, dead := t.TempDir(), deadAddress(t)
	for _, name := range []string{"index.html", "limited/a.html", "closed/a.html"} {
		if err := os.MkdirAll(filepath.Join(files, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(files, name), []byte("page"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]builtIn{
		"missing file":      {target: "/none", status: 404, says: "Nothing is here."},
		"method":            {target: "/", status: 405, says: "Requests with this method are not possible here.", method: "DELETE"},
		"wrong host":        {target: "/", status: 404, says: "No site is served under this host name.", head: []string{"Host", "other.example"}},
		"dead upstream":     {target: "/dead/x", status: 502, says: "could not be reached"},
		"dead cached":       {target: "/cached/x", status: 502, says: "could not be reached"},
		"only if cached":    {target: "/cached/x", status: 504, says: "Nothing usable is stored", head: []string{"Cache-Control", "only-if-cached"}},
		"dead socket":       {target: "/socket/", status: 426, says: "Here is a WebSocket"},
		"loop":              {target: "/dead/x", status: 508, says: "This request loops", head: []string{"Via", strings.TrimSuffix(strings.Repeat("1.1 millrace, ", 20), ", ")}},
		"wrong password":    {target: "/secret/", status: 401, says: "Check your user name and password", head: []string{"Authorization", "Basic YTpi"}},
		"limit, from files": {target: "/limited/a.html", status: 429, says: "You have sent too many requests. Try again in 60 minutes."},
		"closed, from lane": {target: "/closed/a.html", status: 403, says: "Your address may not see this page."},
		"denied":            {target: "/denied", status: 403, says: "You may not see this page."},
		"gone":              {target: "/gone", status: 410, says: "This page was removed for good."},
		"rule":              {target: "/ruled", status: 451, says: "for legal reasons"},
		"try":               {target: "/try/x", status: 404, says: "Nothing is here."},
	}
	first := map[string]string{}
	everyWay(t, fmt.Sprintf(`
sites:
- hosts: [localhost, 127.0.0.1]
  rules:
  - {path: /ruled, deny: {status: 451}}
  routes:
    /: {static: {root: %[1]q}}
    /limited/: {static: {root: %[1]q}, rate_limit: {rate: 1/h, burst: 3}}
    /closed/: {static: {root: %[1]q}, access: {deny: [0.0.0.0/0, "::/0"]}}
    /dead/: {proxy: {to: %[2]s, breaker: {off: true}}}
    /cached/: {cache: {to: %[2]s, breaker: {off: true}}}
    /socket/: {websocket: {echo: {}, page: false}}
    /secret/: {static: {root: %[1]q}, auth: {passwords: {ann: '{SHA}GpHWL3ymc5liWkNopqtdSjuqYHM='}}}
    /denied: {deny: {}}
    /gone: {deny: {status: 410}}
    /try/: {static: {root: %[1]q}, try: ["{path}", =404]}
`, files, dead), func(w *way) {
		for range 4 { // those that are allowed: the file gets hot
			w.ask("GET", "/limited/a.html", "")
		}
		for name, c := range cases {
			for form, accept := range [pages.Forms]string{pages.Text: "*/*", pages.HTML: "text/html", pages.JSON: "application/json"} {
				w.checkPage(name, c, pages.Form(form), accept, first, files, dead)
			}
		}
	})
}

// checkPage asks for one form of a page, with GET and HEAD.
func (w *way) checkPage(name string, c builtIn, form pages.Form, accept string, first map[string]string, secrets ...string) {
	w.Helper()
	method := c.method
	if method == "" {
		method = http.MethodGet
	}
	head := append([]string{"Accept", accept}, c.head...)
	res, body := w.ask(method, c.target, "", head...)
	h := res.Header
	if res.StatusCode != c.status || !strings.Contains(body, c.says) {
		w.Errorf("%s, %s: %s %s", name, accept, res.Status, body)
		return
	}
	kind := [pages.Forms]string{pages.Text: "text/plain; charset=utf-8", pages.HTML: "text/html; charset=utf-8", pages.JSON: "application/problem+json"}[form]
	if h.Get("Content-Type") != kind || h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(strings.Join(h["Vary"], ","), "Accept") ||
		(h.Get("Content-Security-Policy") != "") != (form == pages.HTML) || h.Get("Content-Length") != strconv.Itoa(len(body)) {
		w.Errorf("%s, %s: header %v of %d bytes", name, accept, h, len(body))
	}
	if form == pages.JSON && !json.Valid([]byte(body)) {
		w.Errorf("%s: %s", name, body)
	}
	for _, secret := range secrets {
		if strings.Contains(body, strings.TrimPrefix(secret, "http://")) {
			w.Errorf("%s, %s: the page has %q:\n%s", name, accept, secret, body)
		}
	}
	same := random.ReplaceAllString(body, "$1") + fmt.Sprint(h["Vary"], h["Cache-Control"], h["Www-Authenticate"], h["Allow"])
	if was, ok := first[name+accept]; !ok {
		first[name+accept] = same
	} else if was != same {
		w.Errorf("%s, %s differs between ways:\n%s\n%s", name, accept, same, was)
	}
	if method != http.MethodGet {
		return
	}
	res, none := w.ask(http.MethodHead, c.target, "", head...)
	if res.StatusCode != c.status || none != "" || res.Header.Get("Content-Type") != kind || res.Header.Get("Content-Length") != strconv.Itoa(len(body)) {
		w.Errorf("%s, %s: HEAD has %s %v and %q", name, accept, res.Status, res.Header, none)
	}
}

// random matches the id of a failure, and how many seconds are left.
var random = regexp.MustCompile(`(id: |id: <code>|"id":"|"retry_after":)[A-Z0-9]+`)

// Where requests have ids, pages have them, and pages of the site stand in their place
// as before.
func TestBuiltInPagesWithIDs(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "own.html"), []byte("our own"), 0o600); err != nil {
		t.Fatal(err)
	}
	everyWay(t, fmt.Sprintf(`
request_id: on
sites:
- errors: {403: /own.html}
  routes:
    /: {static: {root: %q}}
    /denied: {deny: {}}
`, files), func(w *way) {
		res, body := w.ask("GET", "/none", "", "Accept", "text/html")
		if id := res.Header.Get("X-Request-Id"); id == "" || !strings.Contains(body, "Request id: <code>"+id+"</code>") || res.Header.Get("Cache-Control") != "no-store" {
			w.Errorf("id %q, %v in:\n%s", id, res.Header, body)
		}
		if res, body := w.ask("GET", "/denied", "", "Accept", "text/html"); res.StatusCode != http.StatusForbidden || body != "our own" {
			w.Errorf("%s %s", res.Status, body)
		}
	})
}

// While sites are closed, everybody gets the page for it, from the lane as well.
func TestBuiltInMaintenance(t *testing.T) {
	t.Parallel()
	first := map[string]string{}
	everyWay(t, fmt.Sprintf(`
maintenance: {on: true, retry_after: 20m}
sites:
- routes:
    /: {static: {root: %q}}
`, t.TempDir()), func(w *way) {
		for range 3 { // hot in the end
			for form, accept := range [pages.Forms]string{pages.Text: "*/*", pages.HTML: "text/html", pages.JSON: "application/json"} {
				w.checkPage("closed", builtIn{target: "/", status: 503, says: "This site is being worked on. Try again in 20 minutes."}, pages.Form(form), accept, first)
			}
		}
	})
}

// deadAddress is one at which nobody listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	return srv.URL
}
