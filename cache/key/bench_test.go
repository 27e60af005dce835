package key

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func benchmark(b *testing.B, o Options, target string, lines ...string) {
	m := maker(b, o)
	r := request(b, target, "example.org", lines...)
	var key string
	b.ReportAllocs()
	for b.Loop() {
		key = m.Key(r, "")
	}
	if key == "" {
		b.Error("no key")
	}
}

// BenchmarkKey is the key of an ordinary request.
func BenchmarkKey(b *testing.B) {
	const target = "/api/comments?url=%2Fposts%2F1&utm_source=news&page=2"
	browser := "Cookie: theme=dark; lang=de; session=0123456789abcdef0123456789abcdef"
	b.Run("plain", func(b *testing.B) { benchmark(b, Options{}, target) })
	b.Run("edited", func(b *testing.B) { benchmark(b, Options{SortQuery: true, DropTracking: true}, target) })
	b.Run("listed", func(b *testing.B) { benchmark(b, Options{Query: []string{"url", "page"}}, target) })
	b.Run("cookie", func(b *testing.B) {
		benchmark(b, Options{Cookies: []string{"lang"}, Headers: []string{"X-Tenant"}}, target, browser, "X-Tenant: acme")
	})
}

// BenchmarkHostile is queries that are made to cost time: 8 KB, and as many
// parameters as are still sorted.
func BenchmarkHostile(b *testing.B) {
	all := Options{SortQuery: true, DropTracking: true, Query: []string{"a*", "b", "%63"}}
	var encoded strings.Builder
	for i := range maxParams {
		fmt.Fprintf(&encoded, "&%%6%d%%%02x[]=%d", i%8, 'z'-i%26, i)
	}
	for name, query := range map[string]string{
		"one of 8 KB":    "a=" + strings.Repeat("x", 8<<10),
		"thousands":      strings.Repeat("a&", 4<<10),
		"as many sorted": encoded.String()[1:],
	} {
		b.Run(name, func(b *testing.B) { benchmark(b, all, "/?"+query) })
	}
}

// BenchmarkPlain is the question that the fast lane asks of a hit.
func BenchmarkPlain(b *testing.B) {
	m := maker(b, Options{DropTracking: true})
	r := request(b, "/api/comments?url=%2Fposts%2F1&page=2", "example.org")
	b.ReportAllocs()
	for b.Loop() {
		if !m.Plain(r) {
			b.Fatal(http.StatusInternalServerError)
		}
	}
}
