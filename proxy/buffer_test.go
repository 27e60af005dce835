package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"millrace/internal/process/servertest"
)

// TestUploadIsTakenIn: the upstream is asked once, with all of a body that is
// longer than what is kept in memory, and never with one that is too long.
func TestUploadIsTakenIn(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		o := Options{Buffer: Buffer{Request: 1, File: 300_000}}
		r := newRig(t, protocol, o, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			body, err := io.ReadAll(q.Body)
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(body) // what is missing is seen at the other end
		}))
		for n, want := range map[int]int{1: 200, 300_000: 200, 300_002: 413} {
			sent := strings.Repeat("x", n)
			for _, body := range []io.Reader{strings.NewReader(sent), io.MultiReader(strings.NewReader(sent))} {
				res, err := r.client.Post(r.front.URL, "text/plain", body)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || res.StatusCode != want || want == 200 && string(got) != sent {
					t.Errorf("%d bytes: got %d with %d bytes (%v)", n, res.StatusCode, len(got), err)
				}
			}
		}
	})
}
