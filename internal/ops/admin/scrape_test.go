package admin

import (
	"net/http/httptest"
	"testing"
)

// BenchmarkScrape measures a page of metrics, without the connection.
func BenchmarkScrape(b *testing.B) {
	h, err := newHandler(Deps{Meters: counted()}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/metrics", nil)); w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}
