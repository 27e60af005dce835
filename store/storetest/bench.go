package storetest

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"millrace/store"
)

// Bench measures an engine with a limit of at least 256 MiB: objects of 1 KiB
// and 64 KiB are read, then written. open is called for each measurement.
func Bench(b *testing.B, open func(b *testing.B) store.Store) {
	b.Helper()
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprint("get/", size), func(b *testing.B) { benchGet(b, open(b), size) })
	}
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprint("put/", size), func(b *testing.B) { benchPut(b, open(b), size) })
	}
}

// benchGet opens an object, reads its body and closes it.
func benchGet(b *testing.B, s store.Store, size int) {
	if err := put(b.Context(), s, "key", []byte("head"), content(1, size)); err != nil {
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
		if n, err := o.Body.ReadAt(buffer, 0); n != size || err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(n, err)
		}
		if err := o.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// benchPut writes objects under ever new keys; the older ones are evicted once
// the store is full.
func benchPut(b *testing.B, s store.Store, size int) {
	head, body := content(1, 300), content(2, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		if err := put(b.Context(), s, fmt.Sprint("https://example.com/page/", n), head, body); err != nil {
			b.Fatal(err)
		}
	}
}
