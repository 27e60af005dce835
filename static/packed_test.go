package static

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"millrace/internal/packer"
	"millrace/internal/packfile"
)

//go:embed all:testdata/site
var embedded embed.FS

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

// packFolder packs a folder behind no program at all.
func packFolder(t testing.TB, dir string, o Options) string {
	t.Helper()
	temp := t.TempDir()
	base, out := filepath.Join(temp, "base"), filepath.Join(temp, "site")
	if err := os.WriteFile(base, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := packer.Make(t.Context(), packer.Plan{Base: base, Out: out, Folders: []packer.Folder{{
		Name: ".", Dir: dir, Takes: o.Serves(), Enters: o.Serves(), Type: TypeOf,
		NoPrecompressed: o.NoPrecompressed, NoCompress: o.NoCompress,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func servePacked(t testing.TB, dir string, o Options) *Handler {
	t.Helper()
	site, err := packfile.Open(packFolder(t, dir, o))
	if err != nil {
		t.Fatal(err)
	}
	h, err := OpenPacked(site.Folder("."), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Close()
		site.Close()
	})
	return h
}

func embeddedSite(t testing.TB, o Options) *Handler {
	t.Helper()
	files, err := fs.Sub(embedded, "testdata/site")
	if err != nil {
		t.Fatal(err)
	}
	return serveFS(t, files, o)
}

// What is packed has every encoding from the first request on, and the same tag
// for a small file as one on disk.
func TestPackedEncodings(t *testing.T) {
	dir := t.TempDir()
	text := strings.Repeat("all work and no play; ", 100)
	write(t, dir, map[string]string{"a.css": text, "large.css": strings.Repeat(text, 100), "a.png": text, "tiny.css": "a{}"})
	h := servePacked(t, dir, Options{})
	for _, name := range []string{"/a.css", "/large.css"} {
		for _, coding := range []string{"br", "zstd", "gzip"} {
			w := ask(h, "GET", name, "Accept-Encoding", coding)
			if w.Header().Get("Content-Encoding") != coding || w.Header().Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s in %s: %v", name, coding, w.Header())
			}
		}
	}
	for _, name := range []string{"/a.png", "/tiny.css"} {
		if w := ask(h, "GET", name, "Accept-Encoding", "br"); w.Header().Get("Content-Encoding") != "" || w.Header().Get("Vary") != "" {
			t.Errorf("%s: %v", name, w.Header())
		}
	}
	want := ask(open(t, dir, Options{}), "GET", "/a.css").Header().Get("ETag")
	if got := ask(h, "GET", "/a.css").Header().Get("ETag"); got != want {
		t.Errorf("tag %s, on disk %s", got, want)
	}
}

// A body that is too large to be looked at when the site starts is looked
// at before it is sent.
func TestPackedBodiesAreCheckedBeforeTheyAreSent(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.bin": strings.Repeat("x", 17<<20), "b.txt": "small"})
	packed := packFolder(t, dir, Options{})
	all, err := os.ReadFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	all[strings.LastIndex(string(all), "xxxxxxxxxxxx")] = 'n'
	if err := os.WriteFile(packed, all, 0o600); err != nil {
		t.Fatal(err)
	}
	site, err := packfile.Open(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer site.Close()
	h, err := OpenPacked(site.Folder("."), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for range 2 {
		if w := ask(h, "GET", "/a.bin"); w.Code != 503 || strings.Contains(w.Body.String(), "xxx") {
			t.Errorf("altered: %d", w.Code)
		}
	}
	if w := ask(h, "GET", "/b.txt"); w.Body.String() != "small" {
		t.Errorf("another file: %d %q", w.Code, w.Body)
	}
	if err := site.Verify(func() {}); err == nil || !strings.Contains(err.Error(), "a.bin") {
		t.Errorf("verify: %v", err)
	}
}
