package proxy

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"millrace/internal/process/servertest"
)

// A PUT whose connection breaks off is sent again with all of its body, from
// memory or a file; a POST is not.
func TestRepeatedUpload(t *testing.T) {
	for _, size := range []int{10, 70_000, 3 << 20} { // each with a pool of its own: repeats have a budget
		servertest.OverProtocols(t, func(t *testing.T, protocol string) {
			repeatedUpload(t, protocol, strings.Repeat("0123456789", size/10))
		})
	}
}

func repeatedUpload(t *testing.T, protocol, body string) {
	t.Helper()
	var asked atomic.Int32
	var got atomic.Pointer[string]
	r := pooled(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(io.LimitReader(r.Body, 100))
		if asked.Add(1) == 1 {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = c.Close() // in the middle of a long one
			}
			return
		}
		rest, _ := io.ReadAll(r.Body)
		text := string(b) + string(rest) + "|" + r.Trailer.Get("X-Sum")
		got.Store(&text)
	}))
	for method, want := range map[string]int{"PUT": 200, "DELETE": 200, "POST": 502} {
		asked.Store(0)
		got.Store(nil)
		q := r.request(method, "/", io.MultiReader(strings.NewReader(body)))
		q.Trailer = http.Header{"X-Sum": {"789"}}
		res, _ := r.do(q)
		if res.StatusCode != want || want == 200 && (got.Load() == nil || *got.Load() != body+"|789") {
			t.Errorf("%s of %d bytes: %s after %d tries", method, len(body), res.Status, asked.Load())
		}
	}
	if memory, disk := r.room.Used(); memory != 0 || disk != 0 {
		t.Errorf("%d bytes of memory and %d of disk are still taken", memory, disk)
	}
}
