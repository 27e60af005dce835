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

// events is JSON of so many bytes, as sites send it.
func events(size int) []byte {
	var b []byte
	for i := 0; len(b) < size; i++ {
		b = fmt.Appendf(b, `{"id":%d,"user":"user-%d","text":"message number %d of this channel","at":"2026-10-01T12:%02d:%02dZ"},`,
			100000+i*7, i*i%97, i, i/60%60, i%60)
	}
	return b[:size]
}

func BenchmarkDeflate(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10} {
		message := events(size)
		for _, window := range []uint8{8, 12, 15} {
			p := frame.Params{On: true, Window: window}
			b.Run(fmt.Sprintf("%d/%d", size, window), func(b *testing.B) {
				b.SetBytes(int64(size))
				var dst []byte
				for b.Loop() {
					dst = p.Deflate(dst[:0], message)
				}
				b.ReportMetric(float64(size)/float64(len(dst)), "ratio")
			})
		}
	}
}

func BenchmarkInflate(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 16 << 10, 256 << 10} {
		message := events(size)
		deflated := frame.Params{On: true, Window: 15}.Deflate(nil, message)
		b.Run(fmt.Sprintf("%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			dst := make([]byte, 0, size)
			for b.Loop() {
				if _, err := frame.Inflate(dst, deflated, int64(size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("bomb", func(b *testing.B) {
		deflated := bomb(8 << 20)
		for b.Loop() {
			if _, err := frame.Inflate(nil, deflated, 64<<10); err == nil {
				b.Fatal("not refused")
			}
		}
	})
	b.Run("finals", func(b *testing.B) { // the most that final blocks can cost
		deflated := append(frame.Params{Window: 15}.Deflate(nil, events(40<<10)), bytes.Repeat([]byte("\x03\x00"), 10_000)...)
		for b.Loop() {
			if _, err := frame.Inflate(nil, deflated, 64<<10); err == nil {
				b.Fatal("not refused")
			}
		}
	})
}

// BenchmarkPrepared is what each subscriber of a broadcast costs here.
func BenchmarkPrepared(b *testing.B) {
	p := frame.Prepare(frame.Text, events(2<<10), 1<<10)
	for _, with := range []frame.Params{{}, {On: true, Window: 15}} {
		b.Run(fmt.Sprintf("compressed=%v", with.On), func(b *testing.B) {
			for b.Loop() {
				p.Bytes(with)
			}
		})
	}
	b.Run("prepare", func(b *testing.B) {
		b.ReportAllocs()
		message := events(512)
		for b.Loop() {
			frame.Prepare(frame.Text, message, 1<<10)
		}
	})
}
