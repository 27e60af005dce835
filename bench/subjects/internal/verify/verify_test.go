package verify

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"millrace/bench/subjects/internal/testsite"
	"millrace/bench/subjects/internal/workload"
)

func TestSmall(t *testing.T) {
	site := t.TempDir()
	if err := testsite.Write(site); err != nil {
		t.Fatal(err)
	}
	files := http.FileServer(http.Dir(site))
	right := func(f testsite.File) ([]byte, error) { return os.ReadFile(filepath.Join(site, f.Name)) }
	serve := func(path string, instead http.HandlerFunc) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == path {
				instead(w, r)
				return
			}
			files.ServeHTTP(w, r)
		})
	}
	for _, c := range []struct {
		name    string
		handler http.Handler
		problem string // in the error; empty: none
	}{
		{"the files", files, ""},
		{"one is missing", serve("/favicon.ico", http.NotFound), "/favicon.ico"},
		{"one is another", serve("/test.html", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") }), "/test.html"},
		{"one is a redirect", serve("/", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/test.html", http.StatusFound) }), "302"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(c.handler)
			defer server.Close()
			address := server.Listener.Addr().String()
			for _, w := range workload.All()[1:] {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				err = Small(conn, w.Requests(address), right)
				conn.Close()
				if c.problem == "" && err != nil || c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
					t.Errorf("%s: the error is %v, want %q", w.Name, err, c.problem)
				}
			}
		})
	}
}

func TestDecode(t *testing.T) {
	const want = "what was sown last year, what was sown last year"
	for encoding, writer := range map[string]func(io.Writer) io.WriteCloser{
		"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"br":   func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
		"zstd": func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z },
	} {
		var packed bytes.Buffer
		w := writer(&packed)
		io.WriteString(w, want)
		w.Close()
		if got, err := decode(packed.Bytes(), encoding); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", encoding, got, err)
		}
		if got, err := decode([]byte("no "+encoding), encoding); err == nil {
			t.Errorf("%s: garbage became %q", encoding, got)
		}
	}
	if _, err := decode(nil, "compress"); err == nil {
		t.Error("an encoding that nobody asked for was accepted")
	}
}
