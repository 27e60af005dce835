package static

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"millrace/internal/process/servertest"
	"millrace/static/original"
)

var ruledSite = map[string]string{
	"index.html":     "home",
	"about.html":     "about",
	"taken.html":     "taken",
	"app/index.html": "app",
	"closed.html":    "closed",
	"404.html":       "nothing",
	"secret/a.txt":   "secret",
	"assets/app.js":  "script",
	"_redirects": `/old /new
/taken.html /nowhere
/about.html /moved 302!
/app/* /app/ 200
/shop/* /closed.html 410
/peek /secret/a.txt 200
/assets/app.js v=:v /versions/:v 301!
/gone /not/there 200
nonsense
`,
	"_headers": `/*
  X-Frame-Options: DENY
  Cache-Control: max-age=7
/app/*
  X-App: yes
/secret/*
  Basic-Auth: me:you
`,
}

// A file that nobody may have has no other path by which it is had.
func TestClosedFiles(t *testing.T) {
	everyWay(t, func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler) {
		dir := t.TempDir()
		write(t, dir, map[string]string{
			"about.html": "about", "app/index.html": "app", "open.html": "open",
			"_headers":   "/about.html\n  Basic-Auth: a:b\n/app/index.html\n  Basic-Auth: a:b\n",
			"_redirects": "/peek /app/ 200\n",
		})
		h := serve(t, dir, Options{RuleFiles: true, CleanURLs: true, Log: slog.New(slog.DiscardHandler)})
		for path, want := range map[string]int{"/about": 403, "/about.html": 403, "/app/": 403, "/peek": 403, "/open": 200} {
			if got := ask(h, "GET", path).Code; got != want {
				t.Errorf("%s: %d, want %d", path, got, want)
			}
			if got := h.Explain(httptest.NewRequest("GET", path, nil)).Status; got != want {
				t.Errorf("%s is explained as %d, want %d", path, got, want)
			}
		}
	})
}

// TestRuleFilesOfEncodings: what is compressed in the background has the fields of its
// own path.
func TestRuleFilesOfEncodings(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.css": strings.Repeat("a{color:red}", 200), "_headers": "/a.css\n  X-Own: yes\n"})
	h := open(t, dir, Options{RuleFiles: true})
	servertest.Eventually(t, "it is compressed", func() bool {
		w := ask(h, "GET", "/a.css", "Accept-Encoding", "br")
		if w.Header().Get("X-Own") != "yes" {
			t.Fatalf("fields are missing: %v", w.Header())
		}
		return w.Header().Get("Content-Encoding") == "br"
	})
}

func TestRuleFiles(t *testing.T) {
	everyWay(t, func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler) {
		dir := t.TempDir()
		write(t, dir, ruledSite)
		var log bytes.Buffer
		h := serve(t, dir, Options{RuleFiles: true, Mount: "/docs", Log: slog.New(slog.NewTextHandler(&log, nil))})
		for _, c := range []struct {
			target string
			status int
			want   string // Location, or body
			cache  string
			app    bool
		}{
			{"/", 200, "home", "max-age=7", false},
			{"/old", 301, "/docs/new", "max-age=300", false},
			{"/old?a=b", 301, "/docs/new?a=b", "max-age=300", false},
			{"/taken.html", 200, "taken", "max-age=7", false},
			{"/about.html", 302, "/docs/moved", "max-age=300", false},
			{"/app/deep/link", 200, "app", "max-age=7", true},
			{"/app/", 200, "app", "max-age=7", true},
			{"/shop/x", 410, "closed", "max-age=7", false},
			{"/missing", 404, "nothing", "max-age=7", false},
			{"/gone", 404, "nothing", "max-age=7", false},
			{"/assets/app.js", 200, "script", "max-age=7", false},
			{"/assets/app.js?v=3", 301, "/docs/versions/3?v=3", "max-age=300", false},
			{"/_redirects", 404, "nothing", "max-age=7", false},
			{"/_headers", 404, "nothing", "max-age=7", false},
			{"/_HEADERS~", 404, "nothing", "max-age=7", false},
			{"/secret/a.txt", 403, "You may not see this page. If you think you should, ask the owner of the site.\n", "no-cache", false},
			{"/peek", 403, "You may not see this page. If you think you should, ask the owner of the site.\n", "no-cache", false},
		} {
			w := ask(h, "GET", c.target)
			got := w.Body.String()
			if w.Code >= 300 && w.Code < 400 {
				got = w.Header().Get("Location")
			}
			if w.Code != c.status || got != c.want {
				t.Errorf("%s: %d %q, want %d %q", c.target, w.Code, got, c.status, c.want)
			}
			if c.status != 403 && w.Header().Get("X-Frame-Options") != "DENY" {
				t.Errorf("%s: without the field of all answers: %v", c.target, w.Header())
			}
			if got := w.Header().Get("Cache-Control"); got != c.cache {
				t.Errorf("%s: Cache-Control %q, want %q", c.target, got, c.cache)
			}
			if got := w.Header().Get("X-App") == "yes"; got != c.app {
				t.Errorf("%s: X-App %v", c.target, got)
			}
		}
		if !strings.Contains(log.String(), "at=_redirects:9") || !strings.Contains(log.String(), "at=_headers:7") {
			t.Errorf("the log has no word of the bad lines:\n%s", &log)
		}
	})
}

func TestRuleFilesAreReadAgain(t *testing.T) {
	for how, freshness := range map[string]freshness{"watched": watched, "swept": swept} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, ruledSite)
			h := opener(freshness)(t, dir, Options{RuleFiles: true})
			before := versionOf(t, h, "/taken.html", "taken")
			if err := os.WriteFile(filepath.Join(dir, "_redirects"), []byte("/taken.html /elsewhere 301!\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			servertest.Eventually(t, "the new rule", func() bool { return ask(h, "GET", "/taken.html").Header().Get("Location") == "/elsewhere" })
			if before.Valid() {
				t.Error("the lane may still send the file")
			}
			if err := os.Remove(filepath.Join(dir, "_headers")); err != nil {
				t.Fatal(err)
			}
			servertest.Eventually(t, "the fields to go", func() bool { return ask(h, "GET", "/").Header().Get("X-Frame-Options") == "" })
			servertest.Eventually(t, "the path to open", func() bool { return ask(h, "GET", "/secret/a.txt").Code == http.StatusOK })
		})
	}
}

func TestRuleFilesThatAreOffAreNeitherObeyedNorSent(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ruledSite)
	h := open(t, dir, Options{})
	for target, status := range map[string]int{"/old": 404, "/about.html": 200, "/_redirects": 404, "/_headers": 404} {
		if w := ask(h, "GET", target); w.Code != status || w.Header().Get("X-Frame-Options") != "" {
			t.Errorf("%s: %d, want %d", target, w.Code, status)
		}
	}
	if w := (Options{Root: dir}).Warnings(); len(w) != 1 || !strings.Contains(w[0], "_redirects and _headers, which nothing obeys") {
		t.Errorf("warnings: %q", w)
	}
	if f := (Options{Root: dir, RuleFiles: true}).RuleFaults(); len(f) != 2 || !strings.HasPrefix(f[0], dir+"/_redirects:9: ") {
		t.Errorf("faults: %q", f)
	}
}

func TestRulesHoldForWhatIsMadeOfFiles(t *testing.T) {
	h := serveFS(t, fstest.MapFS{
		"a.jpg":      {Data: []byte("jpeg"), ModTime: past},
		"b.jpg":      {Data: []byte("jpeg"), ModTime: past},
		"_redirects": {Data: []byte("/b.jpg /c.jpg 301!\n"), ModTime: past},
		"_headers":   {Data: []byte("/*.jpg\n X-Picture: yes\n"), ModTime: past},
	}, Options{RuleFiles: true})
	f, err := h.Original(httptest.NewRequestWithContext(t.Context(), "GET", "/a.jpg", nil))
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	if f.ApplyHeaders(header); header.Get("X-Picture") != "yes" {
		t.Errorf("fields of what is made of it: %v", header)
	}
	if _, err := h.Original(httptest.NewRequestWithContext(t.Context(), "GET", "/b.jpg", nil)); err != original.ErrNone { //nolint:errorlint // it is not wrapped
		t.Errorf("an image that is elsewhere: %v", err)
	}
	if e := h.Explain(httptest.NewRequest("GET", "/b.jpg", nil)); e.Status != 301 || !strings.Contains(e.Why, "line 1 of _redirects") {
		t.Errorf("explained as %+v", e)
	}
}

func TestAnArchiveDoesNotGoRoundRules(t *testing.T) {
	if f := (Options{Listing: true, Archives: true, RuleFiles: true}).Check(); f["archives"] == nil {
		t.Error("archives and rules stand side by side")
	}
}

// TestRuleFilesThatCannotBeRead: nothing is served where it is not known which paths
// are closed; later the rules from before hold.
func TestRuleFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ruledSite)
	long := "/*\n  X-A: " + strings.Repeat("a", 1<<20)
	if err := os.WriteFile(filepath.Join(dir, "_headers"), []byte(long), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{RuleFiles: true}); err == nil || !strings.Contains(err.Error(), "_headers: it is larger") {
		t.Errorf("%v, want an error that names the file", err)
	}
	write(t, dir, ruledSite)
	h := opener(swept)(t, dir, Options{RuleFiles: true})
	if err := os.WriteFile(filepath.Join(dir, "_headers"), []byte(long), 0o644); err != nil {
		t.Fatal(err)
	}
	h.readRules()
	if got := ask(h, "GET", "/secret/a.txt").Code; got != http.StatusForbidden {
		t.Errorf("a path that the rules closed is answered with %d", got)
	}
}
