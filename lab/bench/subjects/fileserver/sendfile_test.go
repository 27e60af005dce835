//go:build !single

package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryWaySendsTheFile(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcdef"), 20_000) // more than one buffer of io.Copy
	if err := os.WriteFile(filepath.Join(dir, "zeros.bin"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"servefile", "copy", "wrapped", "nolength"} {
		t.Run(how, func(t *testing.T) {
			h, err := sendHandler(how, dir)
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(h)
			defer server.Close()
			r, err := http.Get(server.URL + "/zeros.bin")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			if err != nil || r.StatusCode != http.StatusOK || !bytes.Equal(body, content) {
				t.Errorf("status %d, %d bytes instead of %d, or others (%v)", r.StatusCode, len(body), len(content), err)
			}
			chunked := len(r.TransferEncoding) > 0 && r.TransferEncoding[0] == "chunked"
			if chunked != (how == "nolength") {
				t.Errorf("Transfer-Encoding is %q", r.TransferEncoding)
			}
			for _, path := range []string{"/other.bin", "/", "/../main.go"} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				if w.Code == http.StatusOK && !strings.Contains(w.Body.String(), "zeros.bin") {
					t.Errorf("%s: status %d", path, w.Code)
				}
			}
		})
	}
}

func TestWrapperHidesReadFrom(t *testing.T) {
	var w io.Writer = wrapper{httptest.NewRecorder()}
	if _, ok := w.(io.ReaderFrom); ok {
		t.Error("the wrapper has ReadFrom: nothing would be copied")
	}
}

func TestUnknownWay(t *testing.T) {
	if _, err := sendHandler("teleport", "."); err == nil {
		t.Error("an unknown way was accepted")
	}
}
