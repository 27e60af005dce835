package static

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzPath asks for whatever net/http can parse: nothing outside the root and
// nothing hidden may come out, no redirect may lead to another host, and what
// the two kinds of trees answer must be the same.
func FuzzPath(f *testing.F) {
	top := f.TempDir()
	write(f, top, map[string]string{
		"secret": "secret", "site/a/b.txt": "public", "site/a/index.html": "public", "site/.env": "secret",
		"site/..a": "secret", "site/.well-known/x": "public", "site/evil.com/index.html": "public", "site/a b": "public",
	})
	for link, target := range map[string]string{"site/out": "../secret", "site/up": "..", "site/a/abs": filepath.Join(top, "secret")} {
		if err := os.Symlink(target, filepath.Join(top, link)); err != nil {
			f.Fatal(err)
		}
	}
	h := open(f, filepath.Join(top, "site"), Options{})
	for _, s := range []string{
		"/", "/a", "/a/b.txt", "/../secret", "/%2e%2e/secret", "/a/..%2f..%2fsecret", "//evil.com", "/evil.com", "/\\evil.com", "/out",
		"/up/secret", "/a/abs", "/.env", "/%2eenv", "/a%00", "/..a", "/a%20b", "/%25", "/a?//b", "/.well-known/../.env", "/a/./b.txt",
	} {
		f.Add(s, "")
		f.Add(s, "/a")
	}
	f.Fuzz(func(t *testing.T, target, prefix string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL, r.RequestURI = u, prefix+target
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK:
			if body := w.Body.String(); body != "public" {
				t.Errorf("%q gave %q", target, body)
			}
		case http.StatusMovedPermanently:
			to, err := (&url.URL{Scheme: "http", Host: "here", Path: "/x/y"}).Parse(w.Header().Get("Location"))
			if err != nil || to.Host != "here" || to.Scheme != "http" || !strings.HasPrefix(to.Path, "/x/") || !strings.HasSuffix(to.Path, "/") {
				t.Errorf("%q leads to %v, %v", target, to, err)
			}
		case http.StatusNotFound:
		default:
			t.Errorf("%q: %d", target, w.Code)
		}
	})
}

// FuzzContentHashed looks for panics only: what is a hash is a judgement.
func FuzzContentHashed(f *testing.F) {
	for _, s := range []string{"app.3f9a1c2b.js", "a-BX3k9Lq2.min.js.map", ".", "", "-.", "12345678-1234-1234-1234-123456789012.x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if contentHashed(name) && len(name) < minHash+2 {
			t.Errorf("%q", name)
		}
	})
}
