package engine_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// A request that is refused gets the same answer over every protocol and from every
// job: its text, and what it is.
func TestRefusalsAreAlike(t *testing.T) {
	t.Cleanup(func() { _ = goleak.Find() }) // net/http lingers for half a second where it has refused a body
	up := application(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // else net/http waits for half a second before it closes
		}
		fmt.Fprint(w, "taken")
	})
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "index.html"), []byte("page"), 0o600); err != nil {
		t.Fatal(err)
	}
	const tooLarge = "The request's body is larger than this server accepts.\n"
	everyWay(t, fmt.Sprintf(`
limits: {body_bytes: 1KiB}
sites:
- routes:
    /: {static: {root: %[1]q}}
    /p/: {proxy: {to: %[2]s}}
    /direct/: {proxy: {to: %[2]s, stream: true}}
    /c/: {cache: {to: %[2]s}}
`, files, up), func(w *way) {
		for _, path := range []string{"/", "/p/", "/direct/", "/c/"} {
			w.ask("GET", path, "") // some are hot then
			res, body := w.ask("GET", path, "", "Expect", "foo")
			if res.StatusCode != http.StatusExpectationFailed || body != "" {
				w.Errorf("GET %s with Expect: %s %q", path, res.Status, body)
			}
			for _, length := range []int64{2000, -1} {
				if path == "/" && length < 0 {
					continue // who does not read the body does not know
				}
				r, err := http.NewRequestWithContext(w.Context(), "POST", w.base+path, struct{ io.Reader }{strings.NewReader(strings.Repeat("a", 2000))})
				if err != nil {
					w.Fatal(err)
				}
				r.ContentLength = length
				res, err := w.client.Do(r)
				if err != nil {
					w.Errorf("POST %s, length %d: %v", path, length, err)
					continue
				}
				body, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusRequestEntityTooLarge || string(body) != tooLarge || kind != "text/plain; charset=utf-8" {
					w.Errorf("POST %s, length %d: %s %q %s", path, length, res.Status, body, kind)
				}
			}
			for _, method := range []string{"POST", "PUT"} {
				res, body := w.ask(method, path, "small", "Expect", "100-continue")
				if path != "/" && (res.StatusCode != http.StatusOK || body != "taken") {
					w.Errorf("%s %s: %s %q", method, path, res.Status, body)
				}
			}
		}
	})
}
