package static

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func benchmark(b *testing.B, h http.Handler, target string, kv ...string) {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(kv); i += 2 {
		r.Header.Add(kv[i], kv[i+1])
	}
	w := discard{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}

// BenchmarkHeld is a file whose bytes are held, in the slow lane.
func BenchmarkHeld(b *testing.B) {
	benchmark(b, open(b, "testdata/site", Options{}), "/assets/site.css", "Accept-Encoding", "gzip, deflate, br, zstd")
}

// BenchmarkNotModified is its revalidation.
func BenchmarkNotModified(b *testing.B) {
	h := open(b, "testdata/site", Options{NoCompress: true})
	tag := ask(h, http.MethodGet, "/robots.txt").Header().Get("ETag")
	benchmark(b, h, "/robots.txt", "If-None-Match", tag)
}

// BenchmarkMissing is a name that leads to the site's 404 page.
func BenchmarkMissing(b *testing.B) {
	benchmark(b, open(b, "testdata/site", Options{}), "/missing")
}

// BenchmarkFileServer is what net/http takes for the same file.
func BenchmarkFileServer(b *testing.B) {
	benchmark(b, http.FileServerFS(os.DirFS("testdata/site")), "/assets/site.css")
}

// BenchmarkSweep is a look at a site of 1000 held files.
func BenchmarkSweep(b *testing.B) {
	dir := b.TempDir()
	files := map[string]string{}
	for i := range 1000 {
		files[string(rune('a'+i%26))+"/"+string(rune('a'+i/26%26))+"/"+string(rune('a'+i/676))+".txt"] = "x"
	}
	write(b, dir, files)
	h := opener(0)(b, dir, Options{})
	for name := range files {
		ask(h, http.MethodGet, "/"+name)
	}
	h.sweep()
	for name := range files {
		ask(h, http.MethodGet, "/"+name)
	}
	for b.Loop() {
		h.sweep()
	}
}
