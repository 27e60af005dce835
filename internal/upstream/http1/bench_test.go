package http1_test

import (
	"testing"

	"millrace/internal/upstream/http1"
	"millrace/internal/wire/field"
)

const answer = "HTTP/1.1 200 OK\r\nServer: nginx/1.24.0\r\nDate: Sat, 28 Nov 2026 05:48:48 GMT\r\nContent-Type: application/json\r\nContent-Length: 501\r\nConnection: keep-alive\r\nCache-Control: public, max-age=60\r\nX-Request-Id: 0123456789abcdef\r\nETag: \"65675645-1f5\"\r\n\r\n"

// BenchmarkScan is what reading the head of an answer costs an event loop.
func BenchmarkScan(b *testing.B) {
	var h http1.Head
	b.ReportAllocs()
	for b.Loop() {
		if _, s := http1.Scan(answer, "GET", &h); s != http1.Plain {
			b.Fatal("it is not plain")
		}
	}
}

// BenchmarkAppend is what writing the head of a request costs.
func BenchmarkAppend(b *testing.B) {
	q := http1.Request{Method: "GET", Path: "/a/b/c", Query: "d=e", Host: "www.example.org", Fields: field.Lines{
		{Name: "User-Agent", Value: "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"},
		{Name: "Accept", Value: "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
		{Name: "Accept-Language", Value: "en-US,en;q=0.5"},
		{Name: "Accept-Encoding", Value: "gzip, deflate, br, zstd"},
		{Name: "X-Forwarded-Proto", Value: "https"},
		{Name: "X-Forwarded-Host", Value: "www.example.org"},
		{Name: "Forwarded", Value: "for=192.0.2.1;proto=https;host=www.example.org"},
		{Name: "X-Forwarded-For", Value: "192.0.2.1"},
		{Name: "Via", Value: "1.1 millrace"},
	}}
	room := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := q.Append(room); err != nil {
			b.Fatal(err)
		}
	}
}
