package sendfile

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"millrace/lab/record"
)

func TestDownload(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/zeros" {
			w.Write(make([]byte, 10_000))
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	if err := download(t.Context(), server.URL, "/zeros", 10_000); err != nil {
		t.Error(err)
	}
	for path, size := range map[string]int64{"/zeros": 10_001, "/other": 10} {
		if err := download(t.Context(), server.URL, path, size); err == nil || !strings.Contains(err.Error(), "instead of 200") {
			t.Errorf("%s of %d bytes: %v", path, size, err)
		}
	}
	if err := download(t.Context(), "unix:"+filepath.Join(t.TempDir(), "s"), "/zeros", 1); err == nil {
		t.Error("a download from nobody")
	}
}

func TestUsers(t *testing.T) {
	trace := record.Table{Rows: [][]string{
		{"ServeFile", "TCP", "3"}, {"ServeFile", "UNIX", "0"}, {"wrapped", "TCP", "0"}, {"wrapped", "UNIX", "0"}, {"millrace", "TCP", "2"},
	}}
	if got, want := users(trace), "over TCP sendfile is used by ServeFile and millrace; over UNIX sendfile is used by nobody"; got != want {
		t.Error(got)
	}
}
