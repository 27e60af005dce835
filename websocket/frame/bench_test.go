package frame_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"millrace/websocket/frame"
)

// clientFrame is a masked frame with so many bytes of payload.
func clientFrame(size int) []byte {
	h := frame.Header{Fin: true, Op: frame.Text, Masked: true, Mask: [4]byte{1, 2, 3, 4}, Length: int64(size)}
	return append(h.Append(nil), make([]byte, size)...)
}

func BenchmarkParse(b *testing.B) {
	for _, size := range []int{20, 1 << 10, 64 << 10} {
		whole := clientFrame(size)
		b.Run(fmt.Sprintf("%d", size), func(b *testing.B) {
			for b.Loop() {
				if _, n, err := frame.Parse(whole); n == 0 || err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d/gobwas", size), func(b *testing.B) {
			r := bytes.NewReader(whole)
			buffer := make([]byte, ws.MaxHeaderSize)
			for b.Loop() {
				r.Reset(whole)
				h, err := ws.ReadHeaderBuffer(r, buffer)
				if err == nil {
					err = ws.CheckHeader(h, ws.StateServerSide)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMask(b *testing.B) {
	key := [4]byte{1, 2, 3, 4}
	for _, size := range []int{20, 125, 1 << 10, 64 << 10} {
		p := make([]byte, size)
		b.Run(fmt.Sprintf("%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				frame.Mask(p, key, 0)
			}
		})
		b.Run(fmt.Sprintf("%d/gobwas", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				ws.Cipher(p, key, 0)
			}
		})
	}
}

func BenchmarkUTF8(b *testing.B) {
	for _, text := range []struct{ name, piece string }{
		{"ascii", "twenty bytes of text"},
		{"mixed", "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. "},
		{"cyrillic", "Съешь же ещё этих мягких французских булок, да выпей чаю. "},
		{"japanese", "いろはにほへと ちりぬるを わかよたれそ つねならむ "},
		{"emoji", "\U0001f600\U0001f680\U0001f30d"},
	} {
		for _, size := range []int{20, 64 << 10} {
			p := []byte(strings.Repeat(text.piece, size/len(text.piece)+1))[:size]
			for !utf8.Valid(p) {
				p = p[:len(p)-1]
			}
			b.Run(fmt.Sprintf("%s/%d", text.name, size), func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				for b.Loop() {
					var u frame.UTF8
					if !u.Feed(p) || !u.Done() {
						b.Fatal("not valid")
					}
				}
			})
			b.Run(fmt.Sprintf("%s/%d/stdlib", text.name, size), func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				for b.Loop() {
					if !utf8.Valid(p) {
						b.Fatal("not valid")
					}
				}
			})
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	for _, size := range []int{20, 64 << 10} {
		one := clientFrame(size)
		read := bytes.Repeat(one, max(1, 64<<10/len(one)))
		b.Run(fmt.Sprintf("%d", size), func(b *testing.B) {
			b.SetBytes(int64(len(read)))
			var w frame.Walker
			for b.Loop() {
				if _, err := w.Walk(read); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*(len(read)/len(one))), "ns/frame")
		})
	}
}
