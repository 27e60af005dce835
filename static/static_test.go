package static

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/process/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// past is a date at which no test changes a file.
var past = time.Date(2021, 3, 4, 5, 6, 7, 0, time.UTC)

// write makes files below dir, dated in the past.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, past, past); err != nil {
			t.Fatal(err)
		}
	}
}

func open(t testing.TB, dir string, o Options) *Handler {
	t.Helper()
	h, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func serveFS(t testing.TB, fsys fs.FS, o Options) *Handler {
	t.Helper()
	h, err := New(fsys, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// ask sends one request to a handler.
func ask(h http.Handler, method, target string, kv ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/", nil)
	r.RequestURI = target
	if u, err := url.ParseRequestURI(target); err == nil {
		r.URL = u
	}
	for i := 0; i < len(kv); i += 2 {
		r.Header.Add(kv[i], kv[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// eachProtocol runs a test over each protocol. No answer is without a length.
func eachProtocol(t *testing.T, h http.Handler, test func(t *testing.T, ask func(method, target string, kv ...string) (*http.Response, string))) {
	t.Helper()
	servertest.EachProtocol(t, h, func(t *testing.T, f *servertest.Front) {
		test(t, func(method, target string, kv ...string) (*http.Response, string) {
			t.Helper()
			res, body := f.Ask(t, method, target, kv...)
			if len(res.TransferEncoding) > 0 {
				t.Errorf("%s %s: chunked", method, target)
			}
			return res, body
		})
	})
}

func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/site", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSite(t *testing.T) {
	index, docs, missing := page(t, "index.html"), page(t, "docs/index.html"), page(t, "404.html")
	for kind, h := range map[string]*Handler{
		"disk":  open(t, "testdata/site", Options{}),
		"fs":    serveFS(t, os.DirFS("testdata/site"), Options{}),
		"embed": embeddedSite(t, Options{}), "packed": servePacked(t, "testdata/site", Options{}),
	} {
		eachProtocol(t, h, func(t *testing.T, ask func(method, target string, kv ...string) (*http.Response, string)) {
			for _, c := range []struct {
				method, target string
				status         int
				body, ctype    string
				cache          string
			}{
				{"GET", "/", 200, index, "text/html; charset=utf-8", pageCache},
				{"HEAD", "/", 200, "", "text/html; charset=utf-8", pageCache},
				{"GET", "/?a=b", 200, index, "text/html; charset=utf-8", pageCache},
				{"GET", "/index.html", 200, index, "text/html; charset=utf-8", pageCache},
				{"GET", "/%69ndex.html", 200, index, "text/html; charset=utf-8", pageCache},
				{"GET", "/docs/", 200, docs, "text/html; charset=utf-8", pageCache},
				{"GET", "/robots.txt", 200, page(t, "robots.txt"), "text/plain; charset=utf-8", otherCache},
				{"GET", "/.well-known/security.txt", 200, page(t, ".well-known/security.txt"), "text/plain; charset=utf-8", otherCache},
				{"GET", "/assets/app.3f9a1c2b.js", 200, page(t, "assets/app.3f9a1c2b.js"), "text/javascript; charset=utf-8", hashedCache},
				{"GET", "/assets/", 404, missing, "text/html; charset=utf-8", pageCache}, // no index, no listing
				{"GET", "/assets", 404, missing, "text/html; charset=utf-8", pageCache},
				{"GET", "/nothing", 404, missing, "text/html; charset=utf-8", pageCache},
				{"HEAD", "/nothing", 404, "", "text/html; charset=utf-8", pageCache},
				{"GET", "/robots.txt/", 404, missing, "text/html; charset=utf-8", pageCache},
				{"GET", "/robots.txt/x", 404, missing, "text/html; charset=utf-8", pageCache},
				{"POST", "/", 405, "Requests with this method are not possible here.\n", "text/plain; charset=utf-8", pageCache},
				{"OPTIONS", "/", 405, "Requests with this method are not possible here.\n", "text/plain; charset=utf-8", pageCache},
			} {
				res, body := ask(c.method, c.target)
				got := res.Header
				if res.StatusCode != c.status || body != c.body || got.Get("Content-Type") != c.ctype || got.Get("Cache-Control") != c.cache {
					t.Errorf("%s: %s %s: %d %q %q %q, want %d %q %q %q", kind, c.method, c.target, res.StatusCode,
						got.Get("Content-Type"), got.Get("Cache-Control"), body, c.status, c.ctype, c.cache, c.body)
				}
				if got.Get("X-Content-Type-Options") != "nosniff" || res.ContentLength < 0 {
					t.Errorf("%s: %s %s: %v", kind, c.method, c.target, got)
				}
				if allow := got.Get("Allow"); (allow == "GET, HEAD") != (c.status == 405) {
					t.Errorf("%s: %s %s: Allow %q", kind, c.method, c.target, allow)
				}
				if validators := got.Get("ETag") != "" && got.Get("Last-Modified") != ""; validators != (c.status == 200) {
					t.Errorf("%s: %s %s: ETag %q, Last-Modified %q", kind, c.method, c.target, got.Get("ETag"), got.Get("Last-Modified"))
				}
			}
		})
	}
}

func TestConditionsAndRanges(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": "0123456789", "large.bin": strings.Repeat("0123456789", heldBytes/5)})
	everyWay(t, func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler) {
		dated := !undated(t)
		h := serve(t, dir, Options{})
		eachProtocol(t, h, func(t *testing.T, ask func(method, target string, kv ...string) (*http.Response, string)) {
			for _, target := range []string{"/a.txt", "/large.bin"} {
				res, whole := ask("GET", target)
				tag, date := res.Header.Get("ETag"), res.Header.Get("Last-Modified")
				if dated && date != past.Format(http.TimeFormat) || date == "" || !strings.HasPrefix(tag, `"`) {
					t.Errorf("%s: ETag %s, Last-Modified %s", target, tag, date)
				}
				for _, c := range []struct {
					status int
					header []string
					body   string
				}{
					{304, []string{"If-None-Match", tag}, ""},
					{304, []string{"If-Modified-Since", date}, ""},
					{200, []string{"If-None-Match", `"x"`}, whole},
					{412, []string{"If-Match", `"x"`}, ""},
					{412, []string{"If-Unmodified-Since", past.Add(-time.Hour).Format(http.TimeFormat)}, ""},
					{206, []string{"Range", "bytes=2-4"}, "234"},
					{206, []string{"Range", "bytes=2-4", "If-Range", tag}, "234"},
					{206, []string{"Range", "bytes=2-4", "If-Range", date}, "234"},
					{200, []string{"Range", "bytes=2-4", "If-Range", `"x"`}, whole},
					{416, []string{"Range", "bytes=99999999-"}, ""},
				} {
					res, body := ask("GET", target, c.header...)
					if res.StatusCode != c.status || body != c.body {
						t.Errorf("%s %v: %d, %d bytes; want %d, %d bytes", target, c.header, res.StatusCode, len(body), c.status, len(c.body))
					}
				}
			}
		})
	})
}

func TestRedirects(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"docs/index.html": "docs", "a/b c?:d/index.html": "odd", "a:b/index.html": "scheme?", "empty/x.txt": "x"})
	everyWay(t, func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler) {
		h := serve(t, dir, Options{})
		mounted := http.NewServeMux()
		mounted.Handle("/", h)
		mounted.Handle("/under/this/", http.StripPrefix("/under/this", h))
		mounted.Handle("/bare", http.StripPrefix("/bare", h))
		eachProtocol(t, mounted, func(t *testing.T, ask func(method, target string, kv ...string) (*http.Response, string)) {
			for target, want := range map[string]string{
				"/docs":                      "/docs/",
				"/docs?a=b&c=%2F":            "/docs/?a=b&c=%2F",
				"/a/b%20c%3F:d":              "/a/b%20c%3F:d/",
				"/a:b":                       "/a:b/",
				"/under/this/docs?q":         "/under/this/docs/?q",
				"/under/this/a/b%20c%3f%3Ad": "/under/this/a/b%20c%3F:d/",
				"/bare":                      "/bare/",
				"/bare?x":                    "/bare/?x",
				"/empty":                     "",
			} {
				res, _ := ask("GET", target)
				if want == "" {
					if res.StatusCode != 404 {
						t.Errorf("%s: %d", target, res.StatusCode)
					}
					continue
				}
				if res.StatusCode != http.StatusMovedPermanently || res.ContentLength != 0 {
					t.Errorf("%s: %d, length %d", target, res.StatusCode, res.ContentLength)
					continue
				}
				to, err := res.Location() // resolved against the request
				if err != nil || to.RequestURI() != want {
					t.Errorf("%s: goes to %v, %v; want %s", target, to, err, want)
				}
			}
		})
	})
}

func TestRedirectNeverLeavesTheHost(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"evil.com/index.html": "x", "index.html": "root"})
	everyWay(t, func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler) {
		h := serve(t, dir, Options{})
		for _, target := range []string{"//evil.com", "///evil.com", "//evil.com/..", "/%2fevil.com", "/%5cevil.com", `/\evil.com`, "//evil.com/%2e%2e"} {
			for _, path := range []string{"", target} { // also with the path stripped away
				r := httptest.NewRequest("GET", "/", nil)
				r.RequestURI, r.URL.Path = target, path
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				location := w.Header().Get("Location")
				if location != "" && (!strings.HasPrefix(location, "./") || strings.HasPrefix(location, ".//") || strings.Contains(location, `\`)) {
					t.Errorf("%s: Location %q", target, location)
				}
			}
		}
	})
}

func TestTraversal(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "site")
	write(t, top, map[string]string{
		"secret.txt": "secret", "site/a/b.txt": "public", "site/.git/config": "secret", "site/.env": "secret",
		"site/a/.hidden": "secret", "site/.well-known/ok": "public", "site/.well-known/.x": "secret", "site/...": "secret",
		"site/a..b": "public", "site/dot.": "public", "site/%2e": "public", "site/.well-known-not/x": "secret",
	})
	everyWay(t, func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler) {
		h := serve(t, dir, Options{})
		for _, p := range []string{
			"/../secret.txt", "/a/../../secret.txt", "/%2e%2e/secret.txt", "/%2e%2e%2fsecret.txt", "/..%2fsecret.txt",
			"/a/%2e%2e/%2e%2e/secret.txt", `/..\secret.txt`, "/..%5csecret.txt", "/a%2fb.txt", "/a%2Fb.txt", "/a%5Cb.txt",
			"/a/./b.txt", "/./a/b.txt", "/a//b.txt", "//a/b.txt", "/a/b.txt%00", "/a/b.txt%00.html", "/%00",
			"/.git/config", "/.env", "/%2eenv", "/a/.hidden", "/.well-known/.x", "/...", "/.well-known/../.env", "/.well-known-not/x",
			"/%252e%252e/secret.txt", "/a/b.txt/../b.txt", "/%ff", "/" + strings.Repeat("a/", maxPath), "/.", "/..",
		} {
			if w := ask(h, "GET", p); w.Code != 404 || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%s: %d %q", p, w.Code, w.Body)
			}
		}
		for _, p := range []string{"/a/b.txt", "/.well-known/ok", "/a..b", "/dot.", "/%252e"} {
			if w := ask(h, "GET", p); w.Code != 200 || w.Body.String() != "public" {
				t.Errorf("%s: %d %q", p, w.Code, w.Body)
			}
		}
		shown := serve(t, dir, Options{Hidden: true})
		if w := ask(shown, "GET", "/a/.hidden"); w.Code != 200 {
			t.Errorf("hidden files were asked for: %d", w.Code)
		}
		if w := ask(shown, "GET", "/.env"); w.Code != 404 {
			t.Errorf("hidden files were asked for, but not private ones: %d", w.Code)
		}
		if w := ask(serve(t, dir, Options{Hidden: true, Private: []string{"off"}}), "GET", "/.env"); w.Code != 200 {
			t.Errorf("hidden and private files were asked for: %d", w.Code)
		}
		if w := ask(shown, "GET", "/../secret.txt"); w.Code != 404 {
			t.Errorf("with Hidden: %d", w.Code)
		}
	})
}

func TestSymbolicLinks(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "site")
	write(t, top, map[string]string{"secret.txt": "secret", "site/real/a.txt": "inside"})
	for link, target := range map[string]string{
		"in.txt": "real/a.txt", "indir": "real", "out.txt": "../secret.txt", "outdir": "..",
		"absolute": filepath.Join(top, "secret.txt"), "loop": "loop", "dangling": "nothing", "real/up.txt": "../../secret.txt",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for kind, h := range map[string]*Handler{"disk": open(t, dir, Options{}), "packed": servePacked(t, dir, Options{})} {
		for p, want := range map[string]int{
			"/in.txt": 200, "/indir/a.txt": 200, "/out.txt": 404, "/outdir/secret.txt": 404, "/outdir/": 404, "/outdir": 404,
			"/absolute": 404, "/loop": 404, "/dangling": 404, "/real/up.txt": 404,
		} {
			if w := ask(h, "GET", p); w.Code != want || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%s: %s: %d %q, want %d", kind, p, w.Code, w.Body, want)
			}
		}
	}
}

func TestSpecialFilesDoNotBlock(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.txt"), 0o644); err != nil {
		t.Skip("needs named pipes:", err)
	}
	if err := os.Symlink("pipe.txt", filepath.Join(dir, "link.txt")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"a.txt": "a"})
	if err := syscall.Mkfifo(filepath.Join(dir, "a.txt.gz"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := open(t, dir, Options{})
	for p, want := range map[string]int{"/pipe.txt": 404, "/link.txt": 404, "/a.txt.gz": 404, "/a.txt": 200} {
		if w := ask(h, "GET", p, "Accept-Encoding", "gzip"); w.Code != want {
			t.Errorf("%s: %d, want %d", p, w.Code, want)
		}
	}
	// Also if it takes a file's place after the file was looked at.
	if _, _, err := h.trees.open("pipe.txt"); err == nil {
		t.Error("opened a named pipe")
	}
}

func TestNoPermission(t *testing.T) {
	if os.Getuid() == 0 {
		t.Log("as root only through a file system that says so")
	} else {
		dir := t.TempDir()
		write(t, dir, map[string]string{"a.txt": "secret"})
		if err := os.Chmod(filepath.Join(dir, "a.txt"), 0); err != nil {
			t.Fatal(err)
		}
		if w := ask(open(t, dir, Options{}), "GET", "/a.txt"); w.Code != 403 {
			t.Errorf("on disk: %d", w.Code)
		}
	}
	for err, want := range map[error]int{fs.ErrPermission: 403, fs.ErrNotExist: 404, syscall.EIO: 503, syscall.EMFILE: 503, syscall.ENOTDIR: 404} {
		h := serveFS(t, failing{err}, Options{})
		if w := ask(h, "GET", "/a.txt"); w.Code != want {
			t.Errorf("%v: %d, want %d", err, w.Code, want)
		}
	}
}

type failing struct{ err error }

func (f failing) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
}

func TestOpenSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"file": "x"})
	for path, want := range map[string]string{
		"":                            "name the directory",
		filepath.Join(dir, "missing"): "create it",
		filepath.Join(dir, "file"):    "is not a directory",
	} {
		h, err := Open(path, Options{})
		if err == nil {
			h.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want it to say %q", path, err, want)
		}
	}
	for _, o := range []Options{
		{Index: []string{"a/b"}},
		{NotFound: "../x"},
		{Memory: -1},
		{Files: -1},
		{CacheControl: []CacheRule{{"[", "x"}}},
		{CacheControl: []CacheRule{{"*", "a\nb"}}},
		{CacheControl: []CacheRule{{"", "x"}}},
	} {
		if h, err := Open(dir, o); err == nil {
			h.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestPrecompressed(t *testing.T) {
	dir := t.TempDir()
	big := strings.Repeat("x", heldBytes+1)
	write(t, dir, map[string]string{
		"a.js": "plain", "a.js.br": "as br", "a.js.gz": "as gz", "b.png": "plain", "b.png.zst": "as zst",
		"stale.css": "plain", "stale.css.gz": "old", "big.css": "plain", "big.css.gz": big,
	})
	if err := os.Chtimes(filepath.Join(dir, "stale.css.gz"), past, past.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	everyWay(t, func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler) {
		stale := "" // a sibling that is older than its file answers for nothing
		if undated(t) {
			stale = "gzip" // nobody can tell
		}
		h := serve(t, dir, Options{})
		eachProtocol(t, h, func(t *testing.T, ask func(method, target string, kv ...string) (*http.Response, string)) {
			tags := map[string]bool{}
			for _, c := range []struct{ target, accept, body, encoding string }{
				{"/a.js", "", "plain", ""},
				{"/a.js", "gzip, deflate, br, zstd", "as br", "br"},
				{"/a.js", "gzip", "as gz", "gzip"},
				{"/a.js", "br;q=0.1, gzip;q=0.2", "as gz", "gzip"},
				{"/a.js", "zstd", "plain", ""},
				{"/a.js", "identity;q=0, br", "as br", "br"},
				{"/b.png", "zstd", "as zst", "zstd"},
				{"/stale.css", "gzip", map[string]string{"": "plain", "gzip": "old"}[stale], stale},
				{"/big.css", "gzip", big, "gzip"},
			} {
				res, body := ask("GET", c.target, "Accept-Encoding", c.accept)
				if body != c.body || res.Header.Get("Content-Encoding") != c.encoding {
					t.Errorf("%s for %q: %.20q in %q", c.target, c.accept, body, res.Header.Get("Content-Encoding"))
				}
				if vary := res.Header.Get("Vary"); (vary == "Accept-Encoding") != (c.target != "/stale.css" || stale != "") {
					t.Errorf("%s for %q: Vary %q", c.target, c.accept, vary)
				}
				tag := res.Header.Get("ETag")
				tags[tag] = true
				res, _ = ask("GET", c.target, "Accept-Encoding", c.accept, "If-None-Match", tag)
				if res.StatusCode != 304 || res.Header.Get("ETag") != tag || c.target != "/stale.css" && res.Header.Get("Vary") == "" {
					t.Errorf("%s for %q: %d with %v", c.target, c.accept, res.StatusCode, res.Header)
				}
			}
			want := 5 // the two plain ones are the same bytes
			if stale != "" {
				want++
			}
			if len(tags) != want {
				t.Errorf("%d entity tags for %d different contents: %v", len(tags), want, tags)
			}
			res, body := ask("GET", "/a.js.gz", "Accept-Encoding", "gzip")
			if body != "as gz" || res.Header.Get("Content-Encoding") != "" || res.Header.Get("Content-Type") != "application/gzip" {
				t.Errorf("a sibling by its own name: %q, %v", body, res.Header)
			}
		})
		off := serve(t, dir, Options{NoPrecompressed: true})
		if w := ask(off, "GET", "/a.js", "Accept-Encoding", "br"); w.Body.String() != "plain" || w.Header().Get("Vary") != "" {
			t.Errorf("switched off: %q, Vary %q", w.Body, w.Header().Get("Vary"))
		}
	})
}

func TestEmbeddedFilesHaveWorkingValidators(t *testing.T) {
	var zip bytes.Buffer
	zw := gzip.NewWriter(&zip)
	fmt.Fprint(zw, "hello")
	zw.Close()
	files := fstest.MapFS{ // like go:embed: no dates
		"index.html":   {Data: []byte("home")},
		"a.txt":        {Data: []byte("hello")},
		"a.txt.gz":     {Data: zip.Bytes()},
		"epoch.txt":    {Data: []byte("x"), ModTime: time.Unix(1, 0)},
		"future.txt":   {Data: []byte("x"), ModTime: time.Now().Add(24 * time.Hour)},
		"sub/big.webm": {Data: bytes.Repeat([]byte("0123456789"), heldWithoutDescriptor/8)},
	}
	h := serveFS(t, files, Options{})
	for _, target := range []string{"/", "/a.txt", "/epoch.txt", "/sub/big.webm", "/future.txt"} {
		w := ask(h, "GET", target)
		tag, date := w.Header().Get("ETag"), w.Header().Get("Last-Modified")
		at, err := http.ParseTime(date)
		if err != nil || at.Year() < 2020 || at.After(time.Now()) || tag == "" {
			t.Fatalf("%s: ETag %q, Last-Modified %q", target, tag, date)
		}
		if w := ask(h, "GET", target, "If-None-Match", tag); w.Code != 304 {
			t.Errorf("%s by tag: %d", target, w.Code)
		}
		if w := ask(h, "GET", target, "If-Modified-Since", date); w.Code != 304 {
			t.Errorf("%s by date: %d", target, w.Code)
		}
	}
	if w := ask(h, "GET", "/a.txt", "Accept-Encoding", "gzip"); w.Header().Get("Content-Encoding") != "gzip" {
		t.Error("the embedded sibling was not used")
	}
	if w := ask(h, "GET", "/sub/big.webm", "Range", "bytes=10-12"); w.Body.String() != "012" {
		t.Errorf("range: %q", w.Body)
	}
}

// frontOnly hides everything but Read from files, as zip archives do.
type frontOnly struct{ fs.FS }

func (f frontOnly) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if _, ok := file.(fs.ReadDirFile); ok {
		return file, nil
	}
	return struct{ fs.File }{file}, nil
}

func TestFilesThatCanOnlyBeReadFromTheFront(t *testing.T) {
	data := make([]byte, heldWithoutDescriptor+100_000)
	r := rand.NewChaCha8([32]byte{})
	r.Read(data)
	h := serveFS(t, frontOnly{fstest.MapFS{"big.bin": {Data: data, ModTime: past}}}, Options{})
	eachProtocol(t, h, func(t *testing.T, ask func(method, target string, kv ...string) (*http.Response, string)) {
		if _, body := ask("GET", "/big.bin"); body != string(data) {
			t.Errorf("%d of %d bytes", len(body), len(data))
		}
		if _, body := ask("GET", "/big.bin", "Range", "bytes=500000-500009"); body != string(data[500000:500010]) {
			t.Errorf("range: %d bytes", len(body))
		}
		if res, body := ask("GET", "/big.bin", "Range", "bytes=500000-500009, 3-4"); res.StatusCode != 206 || !strings.Contains(body, string(data[3:5])) {
			t.Errorf("ranges backwards: %d", res.StatusCode)
		}
	})
}

func TestClosedHandlerAnswers503(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": "a"})
	everyWay(t, func(t *testing.T, serve func(t testing.TB, dir string, o Options) *Handler) {
		h := serve(t, dir, Options{})
		ask(h, "GET", "/a.txt")
		version := h.table.get("a.txt").snapshot.Load().version
		h.Close()
		h.Close()
		if w := ask(h, "GET", "/a.txt"); w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d", w.Code)
		}
		if version.Valid() {
			t.Error("the lane would go on answering for a closed handler")
		}
	})
}
