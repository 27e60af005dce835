package engine_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSlowReadersOfCachesHoldNoPlace: who reads a long answer slowly that a cache does not
// keep holds no place at the upstream, neither the first who asks nor those who ask when
// that is known.
func TestSlowReadersOfCachesHoldNoPlace(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 16<<20)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/long") {
			w.Header().Set("Cache-Control", "private")
			_, _ = w.Write(long)
			return
		}
		_, _ = io.WriteString(w, "short")
	}))
	t.Cleanup(up.Close)
	everyWay(t, fmt.Sprintf("sites:\n- routes:\n    /: {cache: {to: %q, concurrency: 1, queue_timeout: 3s}}\n", up.URL), func(w *way) {
		for range 2 {
			res, err := w.client.Get(w.base + "/long")
			if err != nil {
				w.Fatal(err)
			}
			defer res.Body.Close()
			if short, body := w.ask(http.MethodGet, "/"+w.Name(), ""); body != "short" {
				w.Errorf("beside a slow reader: %d %q", short.StatusCode, body)
			}
			if got, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(got, long) {
				w.Errorf("the slow reader got %d bytes (%v), %s", len(got), err, res.Header["Cache-Status"])
			}
		}
	})
}
