package headers

import (
	"fmt"
	"net/http"
	"testing"
)

// BenchmarkApply is what CORS costs an answer.
func BenchmarkApply(b *testing.B) {
	many := []string{"https://*.example.org", "https://*.example.net"}
	for i := range 100 {
		many = append(many, fmt.Sprintf("https://blog%d.example", i))
	}
	for _, c := range []struct {
		name    string
		origins []string
		origin  string
	}{
		{"any", []string{"*"}, "https://blog.example"},
		{"single", []string{"https://blog.example"}, "https://blog.example"},
		{"listed", many, "https://blog99.example"},
		{"pattern", many, "https://www.example.net"},
		{"denied", many, "https://www.example.com"},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := policy(b, CORSOptions{Origins: c.origins})
			r := request(http.MethodGet, "Origin", c.origin)
			h := http.Header{}
			b.ReportAllocs()
			for b.Loop() {
				clear(h)
				p.Apply(h, r)
			}
		})
	}
}
