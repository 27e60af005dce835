package static

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/static/packer"
	"millrace/static/packfile"
)

//go:embed all:testdata/site
var embedded embed.FS

// packFolder packs a folder behind no program at all.
func packFolder(t testing.TB, dir string, o Options) string {
	t.Helper()
	temp := t.TempDir()
	base, out := filepath.Join(temp, "base"), filepath.Join(temp, "site")
	if err := os.WriteFile(base, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := packer.Make(t.Context(), packer.Plan{Base: base, Out: out, Folders: []packer.Folder{{
		Name: ".", Dir: dir, Takes: o.Packs(), Enters: o.Packs(), Type: TypeOf,
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
	o.Root = "."
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
	h, err := OpenPacked(site, Options{Root: "."})
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

// TestPackedImages: a browser gets the smallest format that it names, by the same
// address, with rules and tags of their own.
func TestPackedImages(t *testing.T) {
	dir, variants, temp := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, dir, map[string]string{"img/a.jpg": "the original", "img/b.jpg": "alone", "a.html": "page", "c.png": "with both", "c.png.gz": "gzipped"})
	write(t, variants, map[string]string{"img/a.jpg.webp": "as webp", "img/a.jpg.avif": "as av", "c.png.webp": "c as webp"})
	base, out := filepath.Join(temp, "base"), filepath.Join(temp, "site")
	write(t, temp, map[string]string{"base": ""})
	o := Options{CacheControl: []CacheRule{{"*.jpg", "max-age=7"}}}
	_, err := packer.Make(t.Context(), packer.Plan{Base: base, Out: out, Folders: []packer.Folder{{
		Name: ".", Dir: dir, Takes: o.Packs(), Enters: o.Packs(), Type: TypeOf, Variants: variants, Below: PackedVariants,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	site, err := packfile.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer site.Close()
	o.Root = "."
	h, err := OpenPacked(site, o)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	tags := map[string]string{}
	for _, c := range []struct{ target, accept, body, kind, vary string }{
		{"/img/a.jpg", "", "the original", "image/jpeg", "Accept"},
		{"/img/a.jpg", "*/*", "the original", "image/jpeg", "Accept"},
		{"/img/a.jpg", "image/webp", "as webp", "image/webp", "Accept"},
		{"/img/a.jpg", "image/avif,image/webp,*/*;q=0.8", "as av", "image/avif", "Accept"},
		{"/img/a.jpg", "image/avif;q=0.5, image/webp", "as webp", "image/webp", "Accept"},
		{"/img/a.jpg", "image/avif;q=0, image/webp;q=0", "the original", "image/jpeg", "Accept"},
		{"/img/b.jpg", "image/webp", "alone", "image/jpeg", ""},
		{"/a.html", "image/webp", "page", "text/html; charset=utf-8", ""},
		{"/c.png", "image/webp", "c as webp", "image/webp", "Accept"},
		{"/c.png", "", "with both", "image/png", "Accept, Accept-Encoding"},
	} {
		var header []string
		if c.accept != "" {
			header = []string{"Accept", c.accept}
		}
		w := ask(h, "GET", c.target, header...)
		got := w.Header()
		if w.Body.String() != c.body || got.Get("Content-Type") != c.kind || strings.Join(got["Vary"], ", ") != c.vary {
			t.Errorf("%s for %q: %q, %v", c.target, c.accept, w.Body, got)
		}
		if strings.HasSuffix(c.target, ".jpg") && got.Get("Cache-Control") != "max-age=7" {
			t.Errorf("%s for %q: Cache-Control %q", c.target, c.accept, got.Get("Cache-Control"))
		}
		if other := tags[got.Get("ETag")]; other != "" && other != c.body {
			t.Errorf("%q and %q have the same tag", other, c.body)
		}
		tags[got.Get("ETag")] = c.body
		if again := ask(h, "GET", c.target, append(header, "If-None-Match", got.Get("ETag"))...); again.Code != 304 || strings.Join(again.Header()["Vary"], ", ") != c.vary {
			t.Errorf("%s for %q by its tag: %d, %v", c.target, c.accept, again.Code, again.Header())
		}
	}
	if w := ask(h, "GET", "/.millrace/images/img/a.jpg.webp"); w.Code != 404 {
		t.Errorf("a variant by its own name: %d", w.Code)
	}
	err = h.List(t.Context(), func(name string) error {
		if strings.HasPrefix(name, ".") {
			t.Errorf("listed: %s", name)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
