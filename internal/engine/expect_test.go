package engine_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A client that waits for 100 (Continue) before it sends a body gets it where
// somebody reads the body, and is not kept waiting where nobody does (RFC 9110,
// 10.1.1).
func TestClientsThatWaitToContinue(t *testing.T) {
	t.Parallel()                            // it mostly waits
	t.Cleanup(func() { _ = goleak.Find() }) // net/http lingers for half a second where it has refused something
	up := application(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-Of", "application")
		fmt.Fprintf(w, "%s %s", r.Method, body)
	})
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "index.html"), []byte("page"), 0o600); err != nil {
		t.Fatal(err)
	}
	everyWay(t, fmt.Sprintf(`
limits: {body_bytes: 1KiB, body_timeout: 20s}
sites:
- routes:
    /f/: {static: {root: %[1]q}}
    /p/: {proxy: {to: %[2]s}}
    /direct/: {proxy: {to: %[2]s, stream: true}}
    /c/: {cache: {to: %[2]s}}
`, files, up), func(w *way) {
		if tr, ok := w.client.Transport.(*http.Transport); ok {
			tr.ExpectContinueTimeout = time.Hour
		}
		for _, path := range []string{"/p/", "/direct/", "/c/"} {
			for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
				for _, length := range []int64{5, -1} {
					status, body := w.waits(method, path, length)
					if status != http.StatusOK || body != method+" hello" {
						w.Errorf("%s %s, length %d: %d %q", method, path, length, status, body)
					}
				}
			}
		}
		for _, c := range []struct {
			method, path string
			length       int64
			want         int
		}{
			{"POST", "/f/", 5, http.StatusMethodNotAllowed},
			{"POST", "/none", 5, http.StatusNotFound},
			{"PUT", "/p/", 2000, http.StatusRequestEntityTooLarge},
		} {
			if status, body := w.waits(c.method, c.path, c.length); status != c.want {
				w.Errorf("%s %s: %d %q, want %d", c.method, c.path, status, body, c.want)
			}
		}
	})
}

// waits sends a request as a client does that sends no byte of the body before it is
// told to go on.
func (w *way) waits(method, path string, length int64) (status int, body string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
	defer cancel()
	pr, pw := io.Pipe()
	defer pr.Close()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: func() {
		go func() { // ends with the pipe
			_, _ = io.WriteString(pw, "hello")
			_ = pw.Close()
		}()
	}})
	r, err := http.NewRequestWithContext(ctx, method, w.base+path, pr)
	if err != nil {
		w.Fatal(err)
	}
	r.ContentLength = length
	r.Header.Set("Expect", "100-continue")
	res, err := w.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(b)
}
