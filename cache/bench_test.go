package cache

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// sink is a client that takes everything and keeps nothing.
type sink struct{ head http.Header }

func (s *sink) Header() http.Header         { return s.head }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(int)             {}

// benched is a cache in front of an upstream that answers with a body.
func benched(b *testing.B, body string) *Handler {
	b.Helper()
	o := Options{NoCompress: true}
	o.To = []string{"http://127.0.0.1:1"}
	up := &origin{answer: func(int, *http.Request) *http.Response {
		return say(200, body, "Cache-Control", "max-age=3600", "Content-Type", "application/json", "Etag", `"1"`)
	}}
	h, err := New(o, Deps{Transport: up, ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close() })
	return h
}

// BenchmarkHit is a hit that the fast lane does not take: HTTP/2, say. There is
// no connection of the lane here, so nothing is offered to it.
func BenchmarkHit(b *testing.B) {
	for name, size := range map[string]int{"40B": 40, "32KB": 32 << 10} {
		h := benched(b, strings.Repeat("x", size))
		r := httptest.NewRequest(http.MethodGet, "http://a.example/comments?url=/post", nil)
		h.ServeHTTP(httptest.NewRecorder(), r)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			w := &sink{http.Header{}}
			for b.Loop() {
				clear(w.head)
				h.ServeHTTP(w, r)
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				w := &sink{http.Header{}}
				for pb.Next() {
					clear(w.head)
					h.ServeHTTP(w, r)
				}
			})
		})
	}
}

// BenchmarkMiss is a fetch, without what it costs to ask an upstream.
func BenchmarkMiss(b *testing.B) {
	h := benched(b, strings.Repeat("x", 40))
	var n atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		w := &sink{http.Header{}}
		for pb.Next() {
			clear(w.head)
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://a.example/"+strconv.FormatInt(n.Add(1), 10), nil))
		}
	})
}
