package engine_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestOneBadPageClosesNothing: a page that crashes the application, asked for again and
// again by one visitor, leaves all others open, with one server and with two.
func TestOneBadPageClosesNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	crash := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/cut"):
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("half"))
			_ = http.NewResponseController(w).Flush()
			fallthrough
		case strings.HasSuffix(r.URL.Path, "/crash"):
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "fine")
	}
	sites := fmt.Sprintf(`
sites:
- routes:
    /one/: {proxy: {to: %[1]s}}
    /two/: {proxy: {to: ["%[1]s", "%[2]s"]}}
    /cached/: {cache: {to: %[3]s}}
`, application(t, crash), application(t, crash), application(t, crash))
	everyWay(t, sites, func(w *way) {
		for i := range 40 {
			for _, route := range []string{"/one", "/two", "/cached"} {
				if res, _ := w.ask("GET", route+"/crash", ""); res.StatusCode != http.StatusBadGateway {
					w.Fatalf("%s, crash %d: %d", route, i, res.StatusCode)
				}
				if r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.base+route+"/cut", nil); err == nil {
					if res, err := w.client.Do(r); err == nil {
						res.Body.Close()
					}
				}
				if res, body := w.ask("GET", fmt.Sprint(route, "/", i), ""); res.StatusCode != http.StatusOK || body != "fine" {
					w.Fatalf("%s, another page after crash %d: %d", route, i, res.StatusCode)
				}
			}
		}
	})
}
