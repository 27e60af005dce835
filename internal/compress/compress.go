// Package compress makes the encodings of finished content, once and at the
// best settings that pay: brotli, zstd and gzip. It does not choose between
// them: see package negotiate.
package compress

import "millrace/internal/negotiate"

// Tools are encoders that are kept from one use to the next. They belong to one
// goroutine. The zero value is ready.
type Tools struct{}

// Pack compresses in one coding. stop ends it early with an error.
func (t *Tools) Pack(c negotiate.Coding, plain []byte, stop <-chan struct{}) ([]byte, error) {
	panic("not built")
}

// Rest gives the encoders' memory back to the system.
func (t *Tools) Rest() { panic("not built") }

// Pays reports whether a packed form saves enough to be kept.
func Pays(plain, packed int) bool { panic("not built") }

// Worth reports whether content of a media type and size is worth compressing.
func Worth(contentType string, size int64) bool { panic("not built") }
