package static

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/process/servertest"
)

func TestCleanURLs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"index.html": "home", "about.html": "about", "docs/index.html": "docs", "docs.html": "not this", "both": "file", "both.html": "page",
		"folder/x.txt": "x", "folder.html": "folder page", "a.php.html": "no", "404.html": "none", "docs/deep.html": "deep",
	})
	h := open(t, dir, Options{CleanURLs: true, HTMLRedirect: true})
	for _, c := range []struct {
		path, want, to string
		status         int
	}{
		{"/about", "about", "", 200},
		{"/about/", "none", "", 404},
		{"/about.html?x=1", "", "./about?x=1", 301},
		{"/index.html", "", "./", 301},
		{"/docs/index.html", "", "./", 301},
		{"/docs/deep.html", "", "./deep", 301},
		{"/docs/deep", "deep", "", 200},
		{"/docs", "", "./docs/", 301},
		{"/docs.html", "not this", "", 200}, // its clean URL leads elsewhere
		{"/both", "file", "", 200},
		{"/both.html", "page", "", 200},
		{"/folder", "folder page", "", 200},
		{"/a.php", "none", "", 404},
		{"/none", "none", "", 404},
	} {
		for range 2 {
			w := ask(h, http.MethodGet, c.path)
			if w.Code != c.status || c.status != 301 && w.Body.String() != c.want || w.Header().Get("Location") != c.to {
				t.Errorf("%s: %d %q %q", c.path, w.Code, w.Body, w.Header().Get("Location"))
			}
		}
	}
	v := versionOf(t, h, "/about", "about")
	write(t, dir, map[string]string{"about": "now a file"})
	servertest.Eventually(t, "a file that comes before a page shows", func() bool {
		return !v.Valid() && ask(h, http.MethodGet, "/about").Body.String() == "now a file"
	})
	v = versionOf(t, h, "/docs/deep", "deep")
	write(t, dir, map[string]string{"docs/deep.html": "changed page"})
	servertest.Eventually(t, "a page's change shows", func() bool {
		return !v.Valid() && ask(h, http.MethodGet, "/docs/deep").Body.String() == "changed page"
	})
}

func TestSPA(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"index.html": "shell", "app.js": "js", "404.html": "none"})
	h := open(t, dir, Options{SPA: "/index.html"})
	browser := []string{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8"}
	for _, c := range []struct {
		path   string
		header []string
		status int
		want   string
	}{
		{"/users/7", browser, 200, "shell"},
		{"/users/7", []string{"Sec-Fetch-Mode", "navigate", "Accept", "*/*"}, 200, "shell"},
		{"/users/7", []string{"Sec-Fetch-Mode", "cors", "Accept", "text/html"}, 404, "none"},
		{"/users/john.doe", browser, 200, "shell"},
		{"/users/7", []string{"Accept", "*/*"}, 404, "none"},
		{"/users/7", nil, 404, "none"},
		{"/gone.js", browser, 404, "none"},
		{"/gone.png", browser, 404, "none"},
		{"/.git/config", browser, 404, "none"},
		{"/app.js", browser, 200, "js"},
	} {
		w := ask(h, http.MethodGet, c.path, c.header...)
		if w.Code != c.status || w.Body.String() != c.want {
			t.Errorf("%s %v: %d %q", c.path, c.header, w.Code, w.Body)
		}
		if c.want == "shell" && !strings.Contains(strings.Join(w.Header()["Vary"], ","), "Sec-Fetch-Mode") {
			t.Errorf("%s: Vary is %q", c.path, w.Header()["Vary"])
		}
	}
}

func TestTypes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.md": "x", "LICENSE": "x", "b.html": "x", "c.data": "x"})
	for path, want := range map[string]string{"/a.md": "text/x-md; charset=latin1", "/LICENSE": "text/plain; charset=latin1", "/b.html": "text/html; charset=latin1", "/c.data": "application/x; charset=y"} {
		h := open(t, dir, Options{Charset: "latin1", Types: map[string]string{".md": "text/x-md", "license": "text/plain", ".data": "application/x; charset=y"}})
		if got := ask(h, http.MethodGet, path).Header().Get("Content-Type"); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := ask(open(t, dir, Options{Charset: "off"}), http.MethodGet, "/b.html").Header().Get("Content-Type"); got != "text/html" {
		t.Errorf("without a charset: %s", got)
	}
	for _, o := range []Options{
		{Types: map[string]string{".md": "x"}},
		{Types: map[string]string{".md": "a/b\r\nX: y"}},
		{Types: map[string]string{"/a": "text/plain"}},
		{Charset: "a b"},
		{SPA: "../x"},
		{HTMLRedirect: true},
		{Archives: true},
	} {
		if len(o.Check()) == 0 {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestDecompress(t *testing.T) {
	dir := t.TempDir()
	zip := func(plain []byte) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(plain)
		_ = z.Close()
		return b.String()
	}
	write(t, dir, map[string]string{
		"a.json.gz": zip([]byte(`{"a": 1}`)), "bomb.txt.gz": zip(make([]byte, maxExpanded+1)), "broken.txt.gz": "no gzip", "dump.sql.gz": zip([]byte("secret")),
	})
	h := open(t, dir, Options{Decompress: true})
	for _, c := range []struct {
		path, accept, want string
		status             int
	}{
		{"/a.json", "", `{"a": 1}`, 200},
		{"/a.json", "br", `{"a": 1}`, 200},
		{"/bomb.txt", "", "", 406},
		{"/broken.txt", "", "", 406},
		{"/dump.sql", "", "", 404},
		{"/none.json", "", "", 404},
	} {
		w := ask(h, http.MethodGet, c.path, "Accept-Encoding", c.accept)
		if w.Code != c.status || c.want != "" && w.Body.String() != c.want || w.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: %d %q %v", c.path, w.Code, w.Body, w.Header())
		}
	}
	w := ask(h, http.MethodGet, "/a.json", "Accept-Encoding", "gzip")
	if w.Header().Get("Content-Encoding") != "gzip" || w.Header().Get("Content-Type") != "application/json" || unpack(t, "gzip", w.Body.Bytes()) != `{"a": 1}` {
		t.Errorf("as it is: %v", w.Header())
	}
	write(t, dir, map[string]string{"a.json": "plain"})
	servertest.Eventually(t, "the plain file shows", func() bool { return ask(h, http.MethodGet, "/a.json").Body.String() == "plain" })
	if w := ask(open(t, dir, Options{}), http.MethodGet, "/bomb.txt"); w.Code != 404 {
		t.Errorf("without the option: %d", w.Code)
	}
}

func TestListing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"d/b.txt": "bb", "d/a.txt": "aaaa", "d/sub/x.txt": "x", "d/.hidden": "h", "d/secret.sql": "s", "d/<i>\".txt": "evil", "d/sub/.git/config": "c",
		"indexed/index.html": "index", "d/a:b": "colon",
	})
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "d", "link")); err != nil {
		t.Fatal(err)
	}
	h := open(t, dir, Options{Listing: true, Archives: true})
	w := ask(h, http.MethodGet, "/d/")
	body := w.Body.String()
	for _, want := range []string{`href="./a.txt"`, `href="./sub/"`, `&lt;i&gt;&#34;.txt`, `href="./%3Ci%3E%22.txt"`, `href="./a:b"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the listing has no %s:\n%s", want, body)
		}
	}
	for _, hidden := range []string{".hidden", "secret", "link", "<i>"} {
		if strings.Contains(body, hidden) {
			t.Errorf("the listing has %s", hidden)
		}
	}
	var list []listed
	for query, first := range map[string]string{"": "sub", "?sort=size&order=desc": "sub", "?sort=nonsense": "sub"} {
		w = ask(h, http.MethodGet, "/d/"+query, "Accept", "application/json")
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list) != 5 || list[0].Name != first {
			t.Errorf("%s: %v, %+v", query, err, list)
		}
	}
	w = ask(h, http.MethodGet, "/d/?format=json&sort=size&order=desc")
	if _ = json.Unmarshal(w.Body.Bytes(), &list); list[1].Name != "a:b" || list[2].Name != "a.txt" {
		t.Errorf("by size: %+v", list)
	}
	h.listsForPeople(t)
	if w := ask(h, http.MethodGet, "/d"); w.Code != 301 {
		t.Errorf("/d: %d", w.Code)
	}
	if w := ask(h, http.MethodGet, "/indexed/"); w.Body.String() != "index" {
		t.Errorf("a folder with an index: %q", w.Body)
	}
	if w := ask(h, http.MethodGet, "/none/"); w.Code != 404 {
		t.Errorf("no folder: %d", w.Code)
	}
	if w := ask(open(t, dir, Options{}), http.MethodGet, "/d/"); w.Code != 404 {
		t.Errorf("without the option: %d", w.Code)
	}
	want := []string{"<i>\".txt", "a.txt", "a:b", "b.txt", "sub/x.txt"}
	w = ask(h, http.MethodGet, "/d/?archive=zip")
	z, err := zip.NewReader(bytes.NewReader(w.Body.Bytes()), int64(w.Body.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range z.File {
		got = append(got, f.Name)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the zip has %q", got)
	}
	w = ask(h, http.MethodGet, "/d/?archive=tar.gz")
	in, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	for tr := tar.NewReader(in); ; {
		f, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, f.Name)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the tar has %q", got)
	}
	if w := ask(h, http.MethodGet, "/d/?archive=rar"); w.Code != 400 {
		t.Errorf("an archive of another kind: %d", w.Code)
	}
	if w := ask(open(t, dir, Options{Listing: true}), http.MethodGet, "/d/?archive=zip"); !strings.Contains(w.Header().Get("Content-Type"), "html") {
		t.Errorf("archives are off: %v", w.Header())
	}
}
