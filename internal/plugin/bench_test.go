//go:build !small

package plugin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	oracle "github.com/http-wasm/http-wasm-host-go/handler/nethttp"
)

// BenchmarkHandler is what a plugin adds to a request, beside the same logic in Go and
// beside the host of http-wasm-host-go. docs/plugins.md has the figures.
func BenchmarkHandler(b *testing.B) {
	job := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	asked := httptest.NewRequest(http.MethodGet, "/x", nil)
	asked.Header.Set("Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
	asked.Header.Set("Accept", "text/html")
	run := func(b *testing.B, h http.Handler) {
		b.ReportAllocs()
		for b.Loop() {
			h.ServeHTTP(httptest.NewRecorder(), asked)
		}
	}
	module := shipped(b, "examples/auth.wasm")
	b.Run("none", func(b *testing.B) { run(b, job) })
	b.Run("auth in Go", func(b *testing.B) {
		run(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			job.ServeHTTP(w, r)
		}))
	})
	b.Run("auth", func(b *testing.B) {
		p, _ := open(b, Options{}, module)
		run(b, Handler([]*Plugin{p}, job))
	})
	b.Run("auth by the library", func(b *testing.B) {
		m, err := oracle.NewMiddleware(b.Context(), module)
		if err != nil {
			b.Fatal(err)
		}
		defer m.Close(context.WithoutCancel(b.Context()))
		run(b, m.NewHandler(b.Context(), job))
	})
	b.Run("redact", func(b *testing.B) { // which holds the answer
		p, _ := open(b, Options{Config: "open sesame"}, shipped(b, "examples/redact.wasm"))
		run(b, Handler([]*Plugin{p}, job))
	})
	b.Run("compute", func(b *testing.B) { // 63 turns of a loop
		turns := []byte{0x41, 0, 0x21, 0, loop, noResult, 0x20, 0, 0x41, 1, 0x6a, 0x22, 0, 0x41, 63, 0x49, 0x0d, 0, end}
		p, _ := open(b, Options{}, guest{locals: 1, request: seq(turns, next())}.module())
		run(b, Handler([]*Plugin{p}, job))
	})
	b.Run("start", func(b *testing.B) { // what a failure or a first request costs
		p, _ := open(b, Options{}, module)
		for b.Loop() {
			i, err := p.start()
			if err != nil {
				b.Fatal(err)
			}
			_ = i.module.Close(context.Background())
		}
	})
}
