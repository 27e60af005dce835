package engine_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// TestStaleWhileDown: preset rfc9111 serves stale answers while the upstream cannot be
// reached (RFC 9111, 4.2.4), unless they forbid it; one that is merely bad is not hidden.
func TestStaleWhileDown(t *testing.T) {
	var asked sync.Map
	up := application(t, func(w http.ResponseWriter, r *http.Request) {
		if _, again := asked.LoadOrStore(r.URL.RequestURI(), true); again {
			if strings.HasSuffix(r.URL.Path, "/bad") {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			panic(http.ErrAbortHandler) // it hangs up
		}
		w.Header().Set("Cache-Control", r.URL.Query().Get("say"))
		w.Header().Set("Age", "100")
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Etag", `"1"`)
		fmt.Fprint(w, "stored")
	})
	sites := fmt.Sprintf(`
sites:
- routes:
    /rfc/: {cache: {to: %[1]s, preset: rfc9111, breaker: {requests: 10000}}}
    /window/: {cache: {to: %[1]s, preset: rfc9111, stale_if_error: 10s, breaker: {requests: 10000}}}
`, up)
	n := 0
	everyWay(t, sites, func(w *way) {
		n++
		for _, c := range []struct {
			path, say string
			want      int
		}{
			{"/rfc/down", "max-age=10", 200},
			{"/rfc/down", "max-age=10, public", 200},
			{"/rfc/down", "max-age=10, must-revalidate", 502},
			{"/rfc/down", "max-age=10, proxy-revalidate", 502},
			{"/rfc/down", "s-maxage=10", 502},
			{"/rfc/down", "max-age=10, no-cache", 502},
			{"/rfc/bad", "max-age=10", 500},
			{"/window/down", "max-age=10", 502},
			{"/window/down", "max-age=95", 200},
		} {
			target := fmt.Sprintf("%s?n=%d&say=%s", c.path, n, url.QueryEscape(c.say))
			if res, body := w.ask("GET", target, ""); res.StatusCode != 200 || body != "stored" {
				w.Fatalf("%s: %d %q at first", target, res.StatusCode, body)
			}
			for range 2 {
				if res, body := w.ask("GET", target, ""); res.StatusCode != c.want || c.want == 200 && body != "stored" {
					w.Errorf("%s: %d %q, want %d; %s", target, res.StatusCode, body, c.want, res.Header["Cache-Status"])
				}
			}
		}
	})
}
