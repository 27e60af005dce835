package compress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"millrace/internal/wire/negotiate"
)

// document is JSON as an API answers it: the same keys again and again, values
// that differ.
func document(size int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("river mill wheel water race stone grain flour bread baker sack cart horse road town market")
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `{"id":%d,"author":"%s-%d","created":"2024-0%d-1%dT0%d:2%d:00Z","score":%.4f,"text":"`,
			i, words[r.IntN(len(words))], r.IntN(1000), 1+r.IntN(9), r.IntN(10), r.IntN(10), r.IntN(10), r.Float64())
		for range 8 + r.IntN(8) {
			b.WriteString(words[r.IntN(len(words))] + " ")
		}
		b.WriteString(`"},`)
	}
	return b.Bytes()[:size]
}

func unpack(t *testing.T, c negotiate.Coding, packed []byte) []byte {
	t.Helper()
	var r io.Reader
	var err error
	switch c {
	case negotiate.Brotli:
		r = brotli.NewReader(bytes.NewReader(packed))
	case negotiate.Gzip:
		r, err = gzip.NewReader(bytes.NewReader(packed))
	case negotiate.Zstd:
		var d *zstd.Decoder
		if d, err = zstd.NewReader(bytes.NewReader(packed)); err == nil {
			defer d.Close()
			r = d
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Tools give the same again after whatever they were used for before.
func TestPack(t *testing.T) {
	var tools Tools
	stopped := make(chan struct{})
	close(stopped)
	for _, size := range []int{0, 1, MinSize, piece + 1, bestSize + 1} {
		plain := document(size)
		for c := negotiate.Gzip; c < negotiate.Codings; c++ {
			for e := range efforts {
				if _, err := tools.Pack(c, e, plain, stopped); size > 0 && !errors.Is(err, ErrStopped) {
					t.Fatalf("told to stop: %v", err)
				}
				packed, err := tools.Pack(c, e, plain, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got := unpack(t, c, packed); !bytes.Equal(got, plain) {
					t.Errorf("%d bytes with %s and effort %d become %d others", size, c, e, len(got))
				}
				if size >= piece && (!Pays(size, len(packed)) || len(packed) > size/2) {
					t.Errorf("%d bytes with %s and effort %d: %d are left", size, c, e, len(packed))
				}
			}
		}
	}
	tools.FreeMemory()
	if tools != (Tools{}) {
		t.Error("encoders are kept at rest")
	}
	if _, err := tools.Pack(negotiate.Identity, Best, []byte("x"), nil); err == nil {
		t.Error("identity is packed")
	}
}

// Best is never larger than Quick by more than noise, or it would be for nothing.
func TestBestIsBetter(t *testing.T) {
	var tools Tools
	plain := document(8 << 10)
	for c := negotiate.Gzip; c < negotiate.Codings; c++ {
		best, err := tools.Pack(c, Best, plain, nil)
		if err != nil {
			t.Fatal(err)
		}
		quick, err := tools.Pack(c, Quick, plain, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(best) > len(quick) {
			t.Errorf("%s: %d bytes at best, %d quickly", c, len(best), len(quick))
		}
	}
}

func TestPays(t *testing.T) {
	for _, c := range []struct {
		plain, packed int
		want          bool
	}{{1000, 950, true}, {1000, 951, false}, {1000, 2000, false}, {0, 1, false}} {
		if Pays(c.plain, c.packed) != c.want {
			t.Errorf("%d to %d: %t", c.plain, c.packed, !c.want)
		}
	}
}

func TestWorth(t *testing.T) {
	for _, kind := range []string{
		"application/json", "application/json; charset=utf-8", "Application/JSON ;charset=utf-8", "application/problem+json",
		"application/vnd.api+json", "application/atom+xml", "image/svg+xml", "text/html", "text/plain;charset=x", "text/javascript",
		"application/javascript", "application/wasm", "application/x-ndjson", "font/ttf",
	} {
		if !Worth(kind, 1000) {
			t.Errorf("%s is not worth it", kind)
		}
		if Worth(kind, MinSize-1) || Worth(kind, MaxSize+1) || !Worth(kind, MinSize) || !Worth(kind, MaxSize) {
			t.Errorf("%s: the bounds do not hold", kind)
		}
	}
	for _, kind := range []string{
		"", "image/png", "image/jpeg", "application/octet-stream", "application/zip", "font/woff2", "video/mp4",
		"text/event-stream", "json", "application/jsonx", "multipart/form-data",
	} {
		if Worth(kind, 1000) {
			t.Errorf("%q is worth it", kind)
		}
	}
}

// BenchmarkPack is what the levels of Quick were chosen by. The part of the
// size that is left is reported as well.
func BenchmarkPack(b *testing.B) {
	for _, size := range []int{2 << 10, 32 << 10} {
		plain := document(size)
		for c := negotiate.Gzip; c < negotiate.Codings; c++ {
			for e, name := range map[Effort]string{Best: "best", Quick: "quick"} {
				b.Run(fmt.Sprintf("%d KiB/%s/%s", size>>10, c, name), func(b *testing.B) {
					var tools Tools
					var packed []byte
					for b.Loop() {
						var err error
						if packed, err = tools.Pack(c, e, plain, nil); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(100*float64(len(packed))/float64(size), "%left")
				})
			}
		}
	}
}
