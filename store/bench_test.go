//go:build linux

package store_test

import (
	"fmt"
	"io"
	"testing"

	"millrace/store"
)

func engines(b *testing.B, run func(b *testing.B, s store.Store)) {
	b.Run("memory", func(b *testing.B) { run(b, store.NewMemory(256<<20)) })
	b.Run("disk", func(b *testing.B) {
		run(b, openDisk(b, store.DiskOptions{Dir: b.TempDir(), Limit: 256 << 20}))
	})
}

// BenchmarkGet opens an object, reads its body and closes it.
func BenchmarkGet(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			engines(b, func(b *testing.B, s store.Store) {
				if err := put(s, "key", 1, size, true); err != nil {
					b.Fatal(err)
				}
				buffer := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					o, err := s.Get(b.Context(), "key")
					if err != nil {
						b.Fatal(err)
					}
					if n, err := o.Body.ReadAt(buffer, 0); n != size || err != nil && err != io.EOF {
						b.Fatal(n, err)
					}
					o.Close()
				}
			})
		})
	}
}

// BenchmarkPut writes objects under ever new keys; the older ones are evicted
// once the store is full.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			engines(b, func(b *testing.B, s store.Store) {
				content, head := body(1, size), body(2, 300)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					n++
					w, err := s.Create(b.Context(), fmt.Sprint("https://example.com/page/", n), int64(size))
					if err != nil {
						b.Fatal(err)
					}
					if _, err := w.Write(content); err != nil {
						b.Fatal(err)
					}
					if err := w.Commit(head); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
