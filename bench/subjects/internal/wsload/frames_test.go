package wsload

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestCut(t *testing.T) {
	for _, size := range []int{0, 1, 125, 126, 127, 65535, 65536, maxFrame} {
		payload := bytes.Repeat([]byte{'x'}, size)
		whole := plain(nil, opBinary, payload)
		f, n, err := cut(append(whole, 0x81))
		if err != nil || n != len(whole) || !f.fin || f.op != opBinary || !bytes.Equal(f.payload, payload) {
			t.Errorf("%d bytes: %d, %v", size, n, err)
		}
		for _, short := range []int{0, 1, 2, 3, 9, len(whole) - 1} {
			if short >= len(whole) {
				continue
			}
			if _, n, err := cut(whole[:short]); n != 0 || err != nil {
				t.Errorf("%d of %d bytes: %d, %v", short, len(whole), n, err)
			}
		}
	}
	for name, data := range map[string][]byte{
		"masked":   masked(nil, opText, []byte("hi")),
		"reserved": {0xC1, 0},
		"too long": {0x81, 127, 0, 0, 0, 0, 0, 0xFF, 0, 0},
		"absurd":   {0x81, 127, 0xFF, 0, 0, 0, 0, 0, 0, 0},
	} {
		if _, _, err := cut(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMasked(t *testing.T) {
	f := masked(nil, opText, []byte("Hello"))
	f[1] &^= mask
	for i := range f[6:] {
		f[6+i] ^= masking[i%4]
	}
	if got := string(f[6:]); f[0] != 0x81 || f[1] != 5 || got != "Hello" {
		t.Errorf("% x", f)
	}
}

func TestAnswered(t *testing.T) {
	good := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nsec-websocket-accept:  abc="
	if err := answered(good, "abc="); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "HTTP/1.1 404 Not Found\r\nSec-WebSocket-Accept: abc=", strings.Replace(good, "abc=", "abd=", 1)} {
		if err := answered(bad, "abc="); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add([]byte{0x81, 2, 'h', 'i'})
	f.Add([]byte{0x82, 126, 0, 3, 'a', 'b', 'c'})
	f.Add([]byte{0x82, 127, 0, 0, 0, 0, 0, 0, 0, 1, 'x'})
	f.Add([]byte{0x82, 127, 255, 255, 255, 255, 0, 0, 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, n, err := cut(data)
		if err == nil && n > 0 && (n > len(data) || len(got.payload) > n || !bytes.HasSuffix(data[:n], got.payload)) {
			t.Fatalf("%d bytes, %q", n, got.payload)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(data(7, -3, MinData)))
	f.Add([]byte(`{"data":"mrb@18446744073709551616@1@"}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		if number, due, ok := parse(message); ok {
			if n, d, ok := parse([]byte(data(number, due, MinData))); !ok || n != number || d != due {
				t.Fatalf("%d, %d came back as %d, %d", number, due, n, d)
			}
		}
	})
}

func TestData(t *testing.T) {
	for _, size := range []int{MinData, 100, 4000} {
		if text := data(1<<64-1, -1<<63, size); len(text) != size || text[0] != '"' || text[size-1] != '"' {
			t.Errorf("%d bytes: %q", size, text)
		}
	}
	if number, due, ok := parse([]byte(`{"channel":"a","data":"` + data(12, 34, MinData)[1:])); number != 12 || due != 34 || !ok {
		t.Errorf("%d, %d, %v", number, due, ok)
	}
	for _, bad := range []string{"", "mrb@", "mrb@1", "mrb@1@", "mrb@1@2", "mrb@x@2@", "mrb@1@@"} {
		if _, _, ok := parse([]byte(bad)); ok {
			t.Errorf("%q was parsed", bad)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	if h.times() != (Times{}) {
		t.Errorf("of nothing: %+v", h.times())
	}
	for i := range int64(1000) {
		h.add((i + 1) * 1000)
	}
	h.add(-5)
	got := h.times()
	if got.P50 < 495_000 || got.P50 > 505_000 || got.P99 < 980_000 || got.P99 > 995_000 || got.Max != 1_000_000 {
		t.Errorf("%+v", got)
	}
}

// TestBuckets: a bucket's least is not above what it counts, and less than 1 %
// below.
func TestBuckets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, ns := range []uint64{0, 1, 127, 128, 255, 256, 1 << 40, 1<<63 - 1} {
		checkBucket(t, ns)
	}
	for range 10_000 {
		checkBucket(t, random.Uint64()>>(1+random.IntN(62)))
	}
}

func checkBucket(t *testing.T, ns uint64) {
	t.Helper()
	low := uint64(least(bucket(ns)))
	if low > ns || float64(ns-low) > float64(ns)*0.01 {
		t.Errorf("%d is counted as %d", ns, low)
	}
}
