package compress

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/andybalholm/brotli/matchfinder"
	"github.com/klauspost/compress/zstd"

	"millrace/internal/wire/negotiate"
)

// asOneStream is a stream without a dictionary that decodes to the dictionary and
// the content: the dictionary stands in it as it is (RFC 7932, 9.2), and what
// follows finds it where Shared Brotli has it (RFC 9841, 2: before the content).
func asOneStream(dictionary, packed []byte) []byte {
	var out []byte
	var acc uint64
	var bits uint
	put := func(n uint, v uint64) {
		acc |= v << bits
		for bits += n; bits >= 8; bits -= 8 {
			out = append(out, byte(acc))
			acc >>= 8
		}
	}
	const header = 4 // bits, for a window of 2^24 bytes
	put(header, uint64(packed[0]&0xf))
	if len(dictionary) > 0 {
		put(1, 0) // not the last
		nibbles := uint(4)
		for len(dictionary)-1 >= 1<<(4*nibbles) {
			nibbles++
		}
		put(2, uint64(nibbles-4))
		put(4*nibbles, uint64(len(dictionary)-1))
		put(1, 1) // uncompressed
		if bits > 0 {
			put(8-bits, 0)
		}
		out = append(out, dictionary...)
	}
	put(8-header, uint64(packed[0]>>header))
	for _, b := range packed[1:] {
		put(8, uint64(b))
	}
	if bits > 0 {
		put(8-bits, 0)
	}
	return bytes.TrimSuffix(out, []byte{0}) // the two last bits are ones
}

func checkWith(t *testing.T, dictionary, plain []byte) (br, zs int) {
	t.Helper()
	var tools Tools
	packed, err := tools.PackWith(negotiate.Brotli, dictionary, plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(brotli.NewReader(bytes.NewReader(asOneStream(dictionary, packed))))
	if err != nil || !bytes.Equal(got, append(bytes.Clone(dictionary), plain...)) {
		t.Fatalf("brotli: %d bytes with %d come back as %d: %v", len(plain), len(dictionary), len(got)-len(dictionary), err)
	}
	squeezed, err := tools.PackWith(negotiate.Zstd, dictionary, plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderDictRaw(0, dictionary))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got, err = d.DecodeAll(squeezed, nil); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("zstd: %d bytes with %d come back as %d: %v", len(plain), len(dictionary), len(got), err)
	}
	return len(packed), len(squeezed)
}

// edited is text with a few changes, as a new version has them.
func edited(r *rand.Rand, text []byte) []byte {
	text = bytes.Clone(text)
	for range 20 {
		at := r.IntN(len(text))
		text = append(text[:at], append([]byte("changed"[:r.IntN(7)]), text[min(len(text), at+r.IntN(9)):]...)...)
	}
	return text
}

func TestPackWith(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	old := document(100 << 10)
	br, zs := checkWith(t, old, edited(r, old))
	if br > 2000 || zs > 2000 {
		t.Errorf("20 changes in 100 KiB take %d and %d bytes", br, zs)
	}
	for _, dictionary := range [][]byte{{'a'}, bytes.Repeat([]byte("ab"), 500), old[:300], old} {
		for _, plain := range [][]byte{{}, {'a'}, []byte("aaaa"), bytes.Repeat([]byte("ab"), 5000), old, old[50:400], append(old[len(old)-9:len(old):len(old)], old...)} {
			checkWith(t, dictionary, plain)
		}
	}
	for range 200 { // ends of the dictionary that go on as the content begins
		dictionary := make([]byte, 1+r.IntN(40))
		plain := make([]byte, r.IntN(120))
		for _, b := range [][]byte{dictionary, plain} {
			for i := range b {
				b[i] = byte(r.IntN(2))
			}
		}
		checkWith(t, dictionary, plain)
	}
	var tools Tools
	if _, err := tools.PackWith(negotiate.Gzip, old, old, nil); err == nil {
		t.Error("gzip has a dictionary")
	}
	stop := make(chan struct{})
	close(stop)
	if _, err := tools.PackWith(negotiate.Brotli, old, old, stop); err != ErrStopped { //nolint:errorlint // itself
		t.Errorf("told to stop: %v", err)
	}
}

// A copy that begins in the dictionary ends there, or decoders refuse it.
func TestCopiesEndWithTheDictionary(t *testing.T) {
	type copied [3]int // literals before it, length, distance
	for _, c := range []struct{ in, want []copied }{
		{[]copied{{0, 10, 4}}, []copied{{0, 4, 4}, {0, 6, 4}}},
		{[]copied{{2, 10, 5}}, []copied{{2, 3, 5}, {0, 7, 5}}},
		{[]copied{{2, 10, 3}}, []copied{{3, 9, 3}}},
		{[]copied{{0, 5, 4}, {1, 4, 6}}, []copied{{0, 4, 4}, {2, 4, 6}}},
		{[]copied{{0, 5, 4}}, []copied{{0, 4, 4}, {1, 0, 0}}},
		{[]copied{{0, 4, 4}, {3, 4, 2}}, []copied{{0, 4, 4}, {3, 4, 2}}},
		{[]copied{{0, 4, 40}, {3, 0, 0}}, []copied{{0, 4, 40}, {3, 0, 0}}},
	} {
		var in []matchfinder.Match
		for _, m := range c.in {
			in = append(in, matchfinder.Match{Unmatched: m[0], Length: m[1], Distance: m[2]})
		}
		var got []copied
		for _, m := range cutAtEnd(in) {
			got = append(got, copied{m.Unmatched, m.Length, m.Distance})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.in, got, c.want)
		}
	}
}

func FuzzPackWith(f *testing.F) {
	f.Add([]byte("a dictionary"), []byte("a dictionary and what follows"))
	f.Add([]byte("abababab"), []byte("abababababababab"))
	f.Fuzz(func(t *testing.T, dictionary, plain []byte) {
		if len(dictionary) > 0 {
			checkWith(t, dictionary, plain)
		}
	})
}

// BenchmarkPackWith is what the bounds on sizes were chosen by: also what is hardest.
func BenchmarkPackWith(b *testing.B) {
	r := rand.New(rand.NewPCG(7, 8))
	text := document(1 << 20)
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = "ab"[r.IntN(2)]
	}
	for name, c := range map[string][2][]byte{
		"text": {text, edited(r, text)}, "zeros": {make([]byte, 1<<20), make([]byte, 1<<20)},
		"two letters": {noise, edited(r, noise)}, "period": {bytes.Repeat([]byte("abcdefgh0"), 116508), bytes.Repeat([]byte("abcdefgh1"), 116508)},
	} {
		for _, coding := range []negotiate.Coding{negotiate.Brotli, negotiate.Zstd} {
			b.Run(name+"/"+coding.String(), func(b *testing.B) {
				var tools Tools
				for b.Loop() {
					packed, err := tools.PackWith(coding, c[0], c[1], nil)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(len(packed)), "bytes")
				}
			})
		}
	}
}
