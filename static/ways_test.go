package static

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// openers are the ways to serve the same folder. Every test that changes nothing
// while it asks runs in all of them (everyWay); what embed.FS itself does is in
// TestSite, since the compiler alone makes one.
var openers = map[string]func(t testing.TB, dir string, o Options) *Handler{
	"disk":  open,
	"fs.FS": func(t testing.TB, dir string, o Options) *Handler { t.Helper(); return serveFS(t, os.DirFS(dir), o) },
	"go:embed": func(t testing.TB, dir string, o Options) *Handler {
		t.Helper()
		return serveFS(t, likeEmbedded(t, dir), o)
	},
	"packed": servePacked,
	"fallback": func(t testing.TB, dir string, o Options) *Handler {
		t.Helper()
		o.Fallback = []string{dir}
		return open(t, t.TempDir(), o)
	},
}

// likeEmbedded is a folder as go:embed has it: in memory, without dates and links.
func likeEmbedded(t testing.TB, dir string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = &fstest.MapFile{Data: data, Mode: 0o444}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// undated reports whether a test of everyWay runs on files without dates.
func undated(t *testing.T) bool { return strings.Contains(t.Name(), "/go:embed") }

// everyWay runs a test on the folder in all of them.
func everyWay(t *testing.T, test func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler)) {
	t.Helper()
	for kind, serve := range openers {
		t.Run(kind, func(t *testing.T) { test(t, serve) })
	}
}

// TestEveryWayIsAlike: what is listed, and what a path is found to be, does not
// depend on where the files are; nor does a kept or forbidden name.
func TestEveryWayIsAlike(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"index.html": "home", "a/index.html": "a", "a/b.css": "b{}", "secret.sql": "x", ".env": "x", "umlaut-ü.txt": "ü", "with space.txt": "s",
		"404.html": "nothing here", "empty.txt": "", "typeless": "data", "upper.HTML": "up",
	})
	everyWay(t, func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler) {
		h := serve(t, dir, Options{})
		var names []string
		if err := h.List(t.Context(), func(name string) error { names = append(names, name); return nil }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		want := []string{"404.html", "a/b.css", "a/index.html", "empty.txt", "index.html", "typeless", "umlaut-ü.txt", "upper.HTML", "with space.txt"}
		if !slices.Equal(names, want) {
			t.Errorf("listed %q, want %q", names, want)
		}
		for path, has := range map[string]bool{"/": true, "/a/": true, "/a/b.css": true, "/secret.sql": false, "/.env": false, "/none": false, "/a": false} {
			if h.Has(path) != has {
				t.Errorf("it has %s: %t", path, !has)
			}
		}
		for target, c := range map[string]struct {
			status int
			body   string
		}{
			"/": {200, "home"}, "/a/": {200, "a"}, "/a": {301, ""}, "/secret.sql": {404, "nothing here"}, "/.env": {404, "nothing here"},
			"/umlaut-%C3%BC.txt": {200, "ü"}, "/with%20space.txt": {200, "s"}, "/empty.txt": {200, ""}, "/typeless": {200, "data"}, "/upper.HTML": {200, "up"}, "/upper.html": {404, "nothing here"},
		} {
			for _, method := range []string{"GET", "HEAD"} {
				w := ask(h, method, target)
				if method == "HEAD" {
					c.body = ""
				}
				if w.Code != c.status || c.status != 301 && w.Body.String() != c.body {
					t.Errorf("%s %s: %d %q, want %d %q", method, target, w.Code, w.Body, c.status, c.body)
				}
			}
		}
	})
}

func TestCacheControlRules(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.css": "", "sub/a.css": "", "img/x.png": "", "img/deep/x.png": "", "fonts/f/a.woff2": "", "a.html": ""})
	everyWay(t, func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler) {
		h := serve(t, dir, Options{CacheControl: []CacheRule{{"/a.css", "one"}, {"*.css", "two"}, {"/img/*.png", "three"}, {"/fonts/", "four"}, {"a.html", "five"}}})
		for target, want := range map[string]string{
			"/a.css": "one", "/sub/a.css": "two", "/img/x.png": "three", "/img/deep/x.png": otherCache, "/fonts/f/a.woff2": "four", "/a.html": "five",
		} {
			if got := ask(h, "GET", target).Header().Get("Cache-Control"); got != want {
				t.Errorf("%s: %q, want %q", target, got, want)
			}
		}
	})
}

func TestSeveralIndexNames(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a/index.htm": "htm", "b/index.htm": "htm", "b/default.html": "default"})
	everyWay(t, func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler) {
		h := serve(t, dir, Options{Index: []string{"default.html", "index.htm"}})
		for target, want := range map[string]string{"/a/": "htm", "/b/": "default"} {
			if w := ask(h, "GET", target); w.Body.String() != want {
				t.Errorf("%s: %q", target, w.Body)
			}
		}
	})
}
