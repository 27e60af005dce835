package static

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/process/servertest"
	"millrace/static/packer"
	"millrace/static/packfile"
)

// layered are two folders of one site.
func layered(t *testing.T) (first, second string) {
	t.Helper()
	first, second = t.TempDir(), t.TempDir()
	write(t, first, map[string]string{
		"both.txt": "first", "docs/last.html": "first docs", "plain.css": "first css", "about.html": "first about",
		"hidden.txt/deeper.txt": "a folder of the name of a file", "lone.json.gz": "zipped", "_headers": "/*\n  X-From: first\n",
	})
	write(t, second, map[string]string{
		"both.txt": "second", "only.txt": "second only", "docs/index.html": "second docs", "plain.css": "second css",
		"plain.css.gz": "zipped second css", "about": "second about", "hidden.txt": "below a folder", "404.html": "second 404",
		"deep/er/a.txt": "deep", "lone.json": "second json", "_headers": "/*\n  X-From: second\n", "_redirects": "/moved /only.txt\n",
	})
	return first, second
}

// TestFallback: the first folder with an answer to a path has it, with all that
// belongs to it.
func TestFallback(t *testing.T) {
	first, second := layered(t)
	o := Options{
		Fallback: []string{second}, Index: []string{"index.html", "last.html"}, CleanURLs: true, Listing: true, Archives: false,
		Decompress: true, RuleFiles: true, Log: slog.New(slog.DiscardHandler),
	}
	for kind, serve := range map[string]func(t testing.TB, dir string, o Options) *Handler{"disk": open, "packed": packedLayers} {
		t.Run(kind, func(t *testing.T) {
			h := serve(t, first, o)
			for _, c := range []struct {
				target, encoding string
				status           int
				want             string
			}{
				{"/both.txt", "", 200, "first"},
				{"/only.txt", "", 200, "second only"},
				{"/docs/", "", 200, "first docs"}, // whatever index comes first in the list
				{"/docs/index.html", "", 200, "second docs"},
				{"/plain.css", "gzip", 200, "first css"}, // the encoding is that of another file
				{"/plain.css.gz", "", 200, "zipped second css"},
				{"/about", "", 200, "first about"},
				{"/hidden.txt", "", 301, ""}, // a folder that is listed
				{"/deep/er/a.txt", "", 200, "deep"},
				{"/nowhere", "", 404, "second 404"},
				{"/moved", "", 301, "301 Moved Permanently\n"},
				{"/../both.txt", "", 404, "second 404"},
			} {
				for range 2 { // read, and held
					w := ask(h, "GET", c.target, "Accept-Encoding", c.encoding)
					if w.Code != c.status || w.Body.String() != c.want {
						t.Errorf("%s: %d %q, want %d %q", c.target, w.Code, w.Body, c.status, c.want)
					}
					if from := w.Header().Get("X-From"); from != "first" {
						t.Errorf("%s: fields of %q", c.target, from)
					}
				}
			}
			w := ask(h, "GET", "/?format=json")
			if n := strings.Count(w.Body.String(), `"both.txt"`); n != 1 || !strings.Contains(w.Body.String(), `"only.txt"`) {
				t.Errorf("listing: %s", w.Body)
			}
			if kind == "disk" { // a packed site has no decoder
				if w := ask(h, "GET", "/lone.json", "Accept-Encoding", "gzip"); w.Body.String() != "zipped" {
					t.Errorf("a lone form comes before a later folder's file: %d %q", w.Code, w.Body)
				}
			}
		})
	}
}

// packedLayers packs each folder, and serves them in turn.
func packedLayers(t testing.TB, dir string, o Options) *Handler {
	t.Helper()
	temp := t.TempDir()
	write(t, temp, map[string]string{"base": ""})
	o.Root = dir
	plan := packer.Plan{Base: filepath.Join(temp, "base"), Out: filepath.Join(temp, "site")}
	for _, dir := range o.Folders() {
		plan.Folders = append(plan.Folders, packer.Folder{Name: dir, Dir: dir, Takes: o.Packs(), Enters: o.Packs(), Type: TypeOf})
	}
	if _, err := packer.Make(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	site, err := packfile.Open(plan.Out)
	if err != nil {
		t.Fatal(err)
	}
	h, err := OpenPacked(site, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Close()
		site.Close()
	})
	return h
}

// appearances are changes in an earlier folder, whose file then comes first, or leaves
// the place to a later one's.
var appearances = []struct {
	name, target, was, want string
	change                  func(first, second string) error
}{
	{"the file itself", "/docs/a.txt", "old", "new", func(first, _ string) error {
		return os.WriteFile(filepath.Join(first, "docs/a.txt"), []byte("new"), 0o600)
	}},
	{"with its folders", "/x/y/a.txt", "old", "new", func(first, _ string) error {
		if err := os.MkdirAll(filepath.Join(first, "x/y"), 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(first, "x/y/a.txt"), []byte("new"), 0o600)
	}},
	{"its folders, moved there", "/x/y/a.txt", "old", "new", func(first, _ string) error {
		if err := os.MkdirAll(filepath.Join(first, "tmp/y"), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(first, "tmp/y/a.txt"), []byte("new"), 0o600); err != nil {
			return err
		}
		return os.Rename(filepath.Join(first, "tmp"), filepath.Join(first, "x"))
	}},
	{"an index", "/docs/", "old", "new", func(first, _ string) error {
		return os.WriteFile(filepath.Join(first, "docs/second.html"), []byte("new"), 0o600)
	}},
	{"a page", "/page", "old", "new", func(first, _ string) error {
		return os.WriteFile(filepath.Join(first, "page.html"), []byte("new"), 0o600)
	}},
	{"gone", "/gone.txt", "old", "new", func(first, _ string) error { return os.Remove(filepath.Join(first, "gone.txt")) }},
	{"edited behind", "/x/y/a.txt", "old", "new", func(_, second string) error {
		return os.WriteFile(filepath.Join(second, "x/y/a.txt"), []byte("new"), 0o600)
	}},
}

func testAppearances(t *testing.T, how freshness, after func(h *Handler)) {
	for _, c := range appearances {
		t.Run(c.name, func(t *testing.T) {
			first, second := t.TempDir(), t.TempDir()
			write(t, first, map[string]string{"docs/other.txt": "x", "gone.txt": "old"})
			write(t, second, map[string]string{"docs/a.txt": "old", "docs/index.html": "old", "x/y/a.txt": "old", "page": "old", "gone.txt": "new"})
			h := opener(how)(t, first, Options{Fallback: []string{second}, Index: []string{"index.html", "second.html"}, CleanURLs: true})
			m := settled(t, h, c.target, c.was)
			if err := c.change(first, second); err != nil {
				t.Fatal(err)
			}
			after(h)
			servertest.Eventually(t, "the lane's answer falls", func() bool { return !m.Valid() })
			servertest.Eventually(t, "the new state is served", func() bool { return ask(h, "GET", c.target).Body.String() == c.want })
		})
	}
}

func TestFallbackIsWatched(t *testing.T) { testAppearances(t, watched, func(*Handler) {}) }

func TestFallbackIsSwept(t *testing.T) { testAppearances(t, 0, (*Handler).sweep) }

// TestFallbackAlone: as long as nothing changes, sweeping voids nothing, also where an
// earlier folder has no such directory.
func TestFallbackAlone(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write(t, second, map[string]string{"x/y/a.txt": "a", "b.txt": "b"})
	h := opener(0)(t, first, Options{Fallback: []string{second}})
	for target, want := range map[string]string{"/x/y/a.txt": "a", "/b.txt": "b"} {
		m := settled(t, h, target, want)
		h.sweep()
		h.sweep()
		if !m.Valid() {
			t.Errorf("%s fell", target)
		}
	}
}

// TestFallbackRules: rule files that appear in an earlier folder hold.
func TestFallbackRules(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write(t, second, map[string]string{"a.txt": "a", "_headers": "/*\n  X-From: second\n"})
	h := opener(watched)(t, first, Options{Fallback: []string{second}, RuleFiles: true, Log: slog.New(slog.DiscardHandler)})
	if got := ask(h, "GET", "/a.txt").Header().Get("X-From"); got != "second" {
		t.Errorf("at first: %q", got)
	}
	write(t, first, map[string]string{"_headers": "/*\n  X-From: first\n"})
	servertest.Eventually(t, "the new rules hold", func() bool { return ask(h, "GET", "/a.txt").Header().Get("X-From") == "first" })
}

// TestFallbackIsNoWayAround: what the first folder has and nobody may read is not
// answered from the next.
func TestFallbackIsNoWayAround(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	first, second := t.TempDir(), t.TempDir()
	write(t, first, map[string]string{"a.txt": "first", "dir/b.txt": "first"})
	write(t, second, map[string]string{"a.txt": "second", "dir/b.txt": "second"})
	for name, mode := range map[string]os.FileMode{"a.txt": 0, "dir": 0} {
		if err := os.Chmod(filepath.Join(first, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Chmod(filepath.Join(first, "dir"), 0o700)
	h := open(t, first, Options{Fallback: []string{second}})
	for _, target := range []string{"/a.txt", "/dir/b.txt"} {
		if w := ask(h, "GET", target); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %q", target, w.Code, w.Body)
		}
	}
}

// TestFallbackArchive: an archive has each name once.
func TestFallbackArchive(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write(t, first, map[string]string{"docs/a.txt": "first"})
	write(t, second, map[string]string{"docs/a.txt": "second", "docs/b.txt": "second", "only/c.txt": "c"})
	h := open(t, first, Options{Fallback: []string{second}, Listing: true, Archives: true})
	w := ask(h, "GET", "/?archive=zip")
	z, err := zip.NewReader(bytes.NewReader(w.Body.Bytes()), int64(w.Body.Len()))
	if err != nil {
		t.Fatalf("%d: %v", w.Code, err)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
		if f.Name == "docs/a.txt" && f.UncompressedSize64 != uint64(len("first")) {
			t.Error("the second folder's file hides the first's")
		}
	}
	slices.Sort(names)
	if want := []string{"docs/a.txt", "docs/b.txt", "only/c.txt"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	var listed []string
	err = h.List(context.Background(), func(name string) error { listed = append(listed, name); return nil })
	slices.Sort(listed)
	if err != nil || !slices.Equal(listed, names) {
		t.Errorf("for images: %q, %v", listed, err)
	}
}

// TestFallbackOptions: what cannot be is refused.
func TestFallbackOptions(t *testing.T) {
	dir := t.TempDir()
	for _, wrong := range [][]string{{""}, {dir}, {"a", "./a"}, slices.Repeat([]string{"x"}, maxFallback+1)} {
		if (Options{Root: dir, Fallback: wrong}).Check()["fallback"] == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
	if _, err := Open(dir, Options{Fallback: []string{filepath.Join(dir, "none")}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
