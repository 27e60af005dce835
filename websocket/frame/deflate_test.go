package frame_test

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"millrace/websocket/frame"
)

// words is text that compresses well, and repeats itself at all distances.
func words(size int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for len(b) < size {
		if len(b) > 40 && r.IntN(2) == 0 {
			from := r.IntN(len(b) - 30)
			b = append(b, b[from:from+10+r.IntN(20)]...)
		} else {
			b = fmt.Appendf(b, "%d words ", r.IntN(1000))
		}
	}
	return b[:size]
}

func noise(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b) // never fails
	return b
}

// checkDeflated decompresses what Deflate made, and sees that it keeps to the
// window and ends as RFC 7692 wants it.
func checkDeflated(t *testing.T, deflated, message []byte, window uint8) {
	t.Helper()
	p := puff{in: append(bytes.Clone(deflated), 0, 0, 0xff, 0xff)}
	if err := p.blocks(); err != nil || !bytes.Equal(p.out, message) {
		t.Fatalf("window %d, %d bytes: puff reads %d bytes, error %v", window, len(message), len(p.out), err)
	}
	if p.farthest > 1<<window {
		t.Fatalf("window %d, %d bytes: a match reaches %d bytes back", window, len(message), p.farthest)
	}
	r := flate.NewReader(io.MultiReader(bytes.NewReader(deflated), strings.NewReader("\x00\x00\xff\xff\x01\x00\x00\xff\xff")))
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, message) {
		t.Fatalf("window %d, %d bytes: the standard library reads %d bytes, error %v", window, len(message), len(got), err)
	}
}

func TestDeflate(t *testing.T) {
	messages := [][]byte{nil, []byte("a"), []byte("Hello"), noise(3000), noise(70_000)}
	for _, size := range []int{255, 256, 257, 513, 1000, 5000, 32769, 70_000, 150_000} {
		messages = append(messages, words(size))
	}
	for window := uint8(8); window <= 15; window++ {
		p := frame.Params{On: true, Window: window}
		for round := range 2 { // the second with what the pool gives back
			for _, message := range messages[round*6:] {
				before := []byte("before")
				got := p.Deflate(before, message)
				if string(got[:6]) != "before" {
					t.Fatalf("round %d: what was there before is %q", round, got[:6])
				}
				checkDeflated(t, got[6:], message, window)
				back, err := frame.Inflate([]byte("also"), got[6:], int64(len(message)))
				if err != nil || string(back) != "also"+string(message) {
					t.Fatalf("window %d, %d bytes: inflated to %d bytes, error %v", window, len(message), len(back)-4, err)
				}
			}
		}
		if got := p.Deflate(nil, words(5000)); len(got) > 4000 {
			t.Errorf("window %d: 5000 bytes of text are compressed to %d", window, len(got))
		}
	}
}

// TestDeflateReaches shows that the test for windows can fail: what is
// compressed for a large window reaches out of a small one.
func TestDeflateReaches(t *testing.T) {
	p := puff{in: append(frame.Params{On: true, Window: 15}.Deflate(nil, words(70_000)), 0, 0, 0xff, 0xff)}
	if err := p.blocks(); err != nil || p.farthest <= 1<<14 {
		t.Errorf("error %v, farthest match %d", err, p.farthest)
	}
}

func TestInflate(t *testing.T) {
	hello := "\xf2\x48\xcd\xc9\xc9\x07\x00"
	final := "\xf3\x48\xcd\xc9\xc9\x07\x00"
	for _, c := range []struct {
		name string
		in   string
		want string
		bad  bool
	}{
		// The examples of RFC 7692, 7.2.3.
		{name: "one block", in: hello, want: "Hello"},
		{name: "a window that is not used", in: "\xf2\x00\x11\x00\x00", want: "", bad: true}, // not without the message before
		{name: "stored", in: "\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", want: "Hello"},
		{name: "final", in: final + "\x00", want: "Hello"},
		{name: "two blocks", in: "\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", want: "Hello"},
		{name: "empty", in: "\x00", want: ""},
		{name: "empty, fixed", in: "\x02\x00", want: ""},

		{name: "nothing", in: "", want: ""},
		{name: "final, nothing behind it", in: final, want: "Hello"},
		{name: "final and empty and stored", in: "\x01", want: ""},
		{name: "two final blocks", in: final + final + "\x00", want: "HelloHello"},
		{name: "behind a final block", in: final + hello, want: "HelloHello"},
		{name: "as many final blocks as may be", in: strings.Repeat("\x03\x00", 64), want: ""},
		{name: "too many final blocks", in: strings.Repeat("\x03\x00", 66), bad: true},
		{name: "noise behind a final block", in: final + "\xff\xff", bad: true},
		{name: "reserved block type", in: "\x07", bad: true},
		{name: "text", in: "this is not compressed", bad: true},
		{name: "cut", in: hello[:3], bad: true},
		{name: "a match before the beginning", in: "\x02\x01", bad: true},
		{name: "stored block with a wrong length", in: "\x00\x05\x00\xfb\xff\x48\x65\x6c\x6c\x6f\x00", bad: true},
		{name: "stored block, cut", in: "\x00\x50\x00\xaf\xff\x48\x65\x6c\x6c\x6f", bad: true},
		{name: "all ones", in: "\xff\xff\xff\xff", bad: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := frame.Inflate([]byte("x"), []byte(c.in), 100)
			if (codeOf(t, err) == frame.InvalidPayload) != c.bad {
				t.Fatalf("%q, error %v", got, err)
			}
			if string(got) != "x"+c.want {
				t.Errorf("got %q, want %q", got, "x"+c.want)
			}
		})
	}
}

// TestInflateKeepsTheWindow has a match reach back over a final block.
func TestInflateKeepsTheWindow(t *testing.T) {
	message := words(3000)
	var first, second bytes.Buffer
	w, _ := flate.NewWriter(&first, 6)
	_, _ = w.Write(message)
	_ = w.Close()
	w, _ = flate.NewWriterDict(&second, 6, message)
	_, _ = w.Write(message)
	_ = w.Close()
	if second.Len() > first.Len()/4 {
		t.Fatal("the second does not refer to the first")
	}
	in := append(append(first.Bytes(), second.Bytes()...), 0)
	got, err := frame.Inflate(nil, in, 6000)
	if err != nil || !bytes.Equal(got, append(bytes.Clone(message), message...)) {
		t.Errorf("%d bytes, error %v", len(got), err)
	}
}

func TestInflateLimit(t *testing.T) {
	p := frame.Params{On: true, Window: 15}
	for _, size := range []int{1, 100, 511, 512, 513, 5000, 100_000} {
		message := words(size)
		deflated := p.Deflate(nil, message)
		for _, dst := range [][]byte{nil, make([]byte, 0, size), make([]byte, 0, size+100), make([]byte, 3, 10)} {
			for _, limit := range []int64{int64(size), int64(size) + 1, math.MaxInt64} {
				got, err := frame.Inflate(dst, deflated, limit)
				if err != nil || !bytes.Equal(got[len(dst):], message) {
					t.Errorf("%d bytes, limit %d: %d bytes, error %v", size, limit, len(got), err)
				}
			}
			for _, limit := range []int64{int64(size) - 1, int64(size) / 2, 0, -1} {
				got, err := frame.Inflate(dst, deflated, limit)
				if codeOf(t, err) != frame.TooBig || len(got) != len(dst) {
					t.Errorf("%d bytes, limit %d: %d bytes, error %v", size, limit, len(got), err)
				}
			}
		}
	}
	if got, err := frame.Inflate(nil, []byte{0}, 0); err != nil || len(got) != 0 {
		t.Errorf("the empty message: %d bytes, error %v", len(got), err)
	}
}

// bomb is what becomes size bytes.
func bomb(size int) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, 9)
	_, _ = w.Write(make([]byte, size))
	_ = w.Flush()
	return b.Bytes()[:b.Len()-4]
}

// TestBomb refuses 8 MB in 8 KB without making room for them.
func TestBomb(t *testing.T) {
	in := bomb(8 << 20)
	got, err := frame.Inflate(nil, in, 1<<20)
	if codeOf(t, err) != frame.TooBig {
		t.Fatalf("a bomb of %d bytes: error %v", len(in), err)
	}
	if cap(got) > 2<<20 {
		t.Errorf("%d bytes were taken for a limit of 1 MB", cap(got))
	}
}

// TestDeflateDoesNotAllocate has all memory come from the caller and the pools.
func TestDeflateDoesNotAllocate(t *testing.T) {
	if underRace {
		t.Skip("the race detector has pools lose a part of what they are given")
	}
	message := words(3000)
	for _, p := range []frame.Params{{On: true, Window: 15}, {On: true, Window: 9}} {
		dst := make([]byte, 0, 4000)
		deflated := p.Deflate(nil, message)
		if n := testing.AllocsPerRun(200, func() { p.Deflate(dst, message) }); n >= 1 {
			t.Errorf("window %d: deflating takes %v allocations", p.Window, n)
		}
		if n := testing.AllocsPerRun(200, func() {
			if _, err := frame.Inflate(dst, deflated, 4000); err != nil {
				t.Error(err)
			}
		}); n >= 1 {
			t.Errorf("window %d: inflating takes %v allocations", p.Window, n)
		}
	}
}

// TestPools has many use them at once.
func TestPools(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			p := frame.Params{On: true, Window: 8 + uint8(i)}
			message := words(2000 + 100*i)
			for range 30 {
				got, err := frame.Inflate(nil, p.Deflate(nil, message), 10_000)
				if err != nil || !bytes.Equal(got, message) {
					t.Errorf("window %d: %d bytes, error %v", p.Window, len(got), err)
				}
				if _, err := frame.Inflate(nil, []byte("not compressed"), 100); err == nil {
					t.Error("that is not compressed")
				}
			}
		})
	}
	wg.Wait()
}

// FuzzInflate compares with the standard library's, and looks at the limit.
func FuzzInflate(f *testing.F) {
	f.Add([]byte("\xf2\x48\xcd\xc9\xc9\x07\x00"), uint16(5))
	f.Add([]byte("\xf3\x48\xcd\xc9\xc9\x07\x00\x00"), uint16(4))
	f.Add([]byte("\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00"), uint16(100))
	f.Add(bomb(100_000), uint16(60_000))
	f.Add(frame.Params{Window: 15}.Deflate(nil, words(700)), uint16(700))
	f.Fuzz(func(t *testing.T, in []byte, limit uint16) {
		got, err := frame.Inflate([]byte("dst"), in, int64(limit))
		if string(got[:3]) != "dst" || len(got)-3 > int(limit) || err != nil && len(got) != 3 {
			t.Fatalf("%q, error %v", got, err)
		}
		want, ok := oracle(in)
		code := codeOf(t, err)
		switch {
		case code == frame.TooBig && len(want) > int(limit):
		case code == frame.InvalidPayload && !ok:
		case code == 0 && ok && bytes.Equal(got[3:], want):
		default:
			t.Fatalf("%x: got %d bytes, error %v; want %d bytes, ok %v", in, len(got)-3, err, len(want), ok)
		}
	})
}

// oracle is Inflate without a limit. It returns what came out before an error.
func oracle(in []byte) (message []byte, ok bool) {
	if len(in) == 0 {
		return nil, true
	}
	const trailer = "\x00\x00\xff\xff\x01\x00\x00\xff\xff"
	r := bytes.NewReader(append(bytes.Clone(in), trailer...))
	for range 65 {
		out, err := io.ReadAll(flate.NewReaderDict(r, message))
		message = append(message, out...)
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, new(flate.CorruptInputError)) {
				panic(err)
			}
			return message, false
		}
		switch left := r.Len(); {
		case left == 0 || left == 5 || left == 9:
			return message, true
		case left < 9:
			return message, false
		}
	}
	return message, false
}

func FuzzDeflate(f *testing.F) {
	f.Add([]byte("Hello"), uint8(15), 1)
	f.Add(words(600), uint8(8), 3)
	f.Add(noise(300), uint8(9), 2)
	f.Fuzz(func(t *testing.T, message []byte, window uint8, times int) {
		p := frame.Params{On: true, Window: 8 + window%8}
		message = message[:min(len(message), 5000)]
		message = bytes.Repeat(message, max(1, min(times, 10)))
		deflated := p.Deflate(nil, message)
		checkDeflated(t, deflated, message, p.Window)
		if got, err := frame.Inflate(nil, deflated, int64(len(message))); err != nil || !bytes.Equal(got, message) {
			t.Fatalf("%d bytes, error %v, want %d bytes", len(got), err, len(message))
		}
	})
}
