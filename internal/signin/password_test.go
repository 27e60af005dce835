package signin

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// The password is "myPassword"; made by htpasswd -s.
const weakHash = "{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE="

// TestFileOfPasswords: while the file is gone nobody of it is let in, and who is
// taken out of it is out within a second, remembered or not.
func TestFileOfPasswords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "users")
		put := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		put("alice:" + weakHash + "\n")
		g, err := New(Options{File: file}, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
		try := func(when string, want int) {
			t.Helper()
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.SetBasicAuth("alice", "myPassword")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s: %d, want %d", when, w.Code, want)
			}
		}
		try("at first", 200)
		try("remembered", 200)
		put("carol:" + weakHash + "\n")
		time.Sleep(lookEvery)
		try("taken out", 401)
		put("alice:" + weakHash + "\ncarol:" + weakHash + "\n")
		time.Sleep(lookEvery)
		try("again in", 200)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		try("the file is gone", 401)
		put("alice:" + weakHash + "\n")
		time.Sleep(lookEvery)
		try("it is back", 200)
	})
}
