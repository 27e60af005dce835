package s3

import (
	"fmt"
	"strings"
	"testing"

	"millrace/store/storetest"
)

// BenchmarkServer measures calls to a real server over loopback, without TLS.
func BenchmarkServer(b *testing.B) {
	s := start(b)
	st := open(b, Options{URL: s.url(s.addr, "")})
	for _, size := range []int{1 << 10, 1 << 20} {
		body := strings.Repeat("x", size)
		b.Run(fmt.Sprint("put/", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := storetest.PutText(st, "key", body); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprint("get/", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := storetest.GetText(st, "key"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	many := open(b, Options{URL: s.url(s.addr, "many")})
	for i := range page {
		if err := storetest.PutText(many, fmt.Sprint(i), "body"); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("list/100", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if names, err := many.list(b.Context(), ""); err != nil || len(names) != page {
				b.Fatal(len(names), err)
			}
		}
	})
}
