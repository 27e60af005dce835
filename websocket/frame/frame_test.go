package frame_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
	"unicode/utf8"

	"github.com/gobwas/ws"
	"github.com/google/go-cmp/cmp"

	"millrace/websocket/frame"
)

func codeOf(t *testing.T, err error) frame.Code {
	t.Helper()
	if err == nil {
		return 0
	}
	var e *frame.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error %v is a %T, want a *frame.Error", err, err)
	}
	if e.Reason == "" || len(e.Reason) > 123 {
		t.Errorf("the reason %q does not fit into a close frame", e.Reason)
	}
	return e.Code
}

func TestParse(t *testing.T) {
	key := [4]byte{1, 2, 3, 4}
	for _, c := range []struct {
		name  string
		bytes string
		want  frame.Header
		size  int // 0: not whole yet
		bad   bool
	}{
		{name: "nothing"},
		{name: "first byte alone", bytes: "\x81"},
		{name: "empty text", bytes: "\x81\x00", want: frame.Header{Fin: true, Op: frame.Text}, size: 2},
		{name: "what follows is not looked at", bytes: "\x81\x00\xff\xff", want: frame.Header{Fin: true, Op: frame.Text}, size: 2},
		{name: "first fragment", bytes: "\x02\x05", want: frame.Header{Op: frame.Binary, Length: 5}, size: 2},
		{name: "continuation", bytes: "\x00\x7d", want: frame.Header{Length: 125}, size: 2},
		{name: "last continuation", bytes: "\x80\x7d", want: frame.Header{Fin: true, Length: 125}, size: 2},
		{name: "compressed", bytes: "\xc1\x07", want: frame.Header{Fin: true, Rsv1: true, Op: frame.Text, Length: 7}, size: 2},
		{name: "compressed fragment", bytes: "\x42\x07", want: frame.Header{Rsv1: true, Op: frame.Binary, Length: 7}, size: 2},
		{name: "compressed continuation", bytes: "\xc0\x07", bad: true},
		{
			name: "masked", bytes: "\x81\x83\x01\x02\x03\x04",
			want: frame.Header{Fin: true, Op: frame.Text, Masked: true, Mask: key, Length: 3}, size: 6,
		},
		{name: "half a mask", bytes: "\x81\x83\x01\x02"},
		{name: "16 bits", bytes: "\x82\x7e\x00\x7e", want: frame.Header{Fin: true, Op: frame.Binary, Length: 126}, size: 4},
		{name: "16 bits, most", bytes: "\x82\x7e\xff\xff", want: frame.Header{Fin: true, Op: frame.Binary, Length: 65535}, size: 4},
		{name: "16 bits, half", bytes: "\x82\x7e\x00"},
		{name: "16 bits for 125", bytes: "\x82\x7e\x00\x7d", bad: true},
		{
			name: "64 bits", bytes: "\x82\xff\x00\x00\x00\x00\x00\x01\x00\x00\x01\x02\x03\x04",
			want: frame.Header{Fin: true, Op: frame.Binary, Masked: true, Mask: key, Length: 65536}, size: 14,
		},
		{
			name: "64 bits, most", bytes: "\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff",
			want: frame.Header{Fin: true, Op: frame.Binary, Length: math.MaxInt64}, size: 10,
		},
		{name: "64 bits, highest bit", bytes: "\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00", bad: true},
		{name: "64 bits for 65535", bytes: "\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff", bad: true},
		{name: "64 bits, half", bytes: "\x82\x7f\x00\x00\x00\x00\x00\x00\x01"},
		{name: "64 bits, no mask yet", bytes: "\x82\xff\x00\x00\x00\x00\x00\x01\x00\x00\x01\x02\x03"},
		{name: "ping", bytes: "\x89\x00", want: frame.Header{Fin: true, Op: frame.Ping}, size: 2},
		{name: "pong", bytes: "\x8a\x7d", want: frame.Header{Fin: true, Op: frame.Pong, Length: 125}, size: 2},
		{name: "close", bytes: "\x88\x02", want: frame.Header{Fin: true, Op: frame.Close, Length: 2}, size: 2},
		{name: "long ping", bytes: "\x89\x7e", bad: true},
		{name: "longer ping", bytes: "\x89\xff", bad: true},
		{name: "fragmented ping", bytes: "\x09\x00", bad: true},
		{name: "compressed close", bytes: "\xc8\x00", bad: true},
		{name: "reserved bit 2", bytes: "\xa1\x00", bad: true},
		{name: "reserved bit 3", bytes: "\x91\x00", bad: true},
		{name: "all reserved bits", bytes: "\xf1\x00", bad: true},
		{name: "reserved bit, first byte alone", bytes: "\x91", bad: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, n, err := frame.Parse([]byte(c.bytes))
			if (codeOf(t, err) == frame.ProtocolError) != c.bad {
				t.Fatalf("error %v, want one: %v", err, c.bad)
			}
			if n != c.size {
				t.Errorf("size %d, want %d", n, c.size)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if c.size > 0 {
				if again := got.Append(nil); string(again) != c.bytes[:n] {
					t.Errorf("appended again it is %x", again)
				}
			}
		})
	}
}

// TestFirstBytes goes through all opcodes and bits.
func TestFirstBytes(t *testing.T) {
	good := map[byte]bool{}
	for _, b := range []byte{0x00, 0x01, 0x02, 0x41, 0x42, 0x80, 0x81, 0x82, 0xc1, 0xc2, 0x88, 0x89, 0x8a} {
		good[b] = true
	}
	for first := range 256 {
		_, n, err := frame.Parse([]byte{byte(first), 0})
		if (err == nil) != good[byte(first)] || (n == 2) != (err == nil) {
			t.Errorf("%#02x: n %d, error %v", first, n, err)
		}
		if _, _, alone := frame.Parse([]byte{byte(first)}); (alone == nil) != (err == nil) {
			t.Errorf("%#02x alone: error %v", first, alone)
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	var state frame.UTF8
	var w frame.Walker
	b := append([]byte("\x81\xfe\x00\x80\x01\x02\x03\x04"), make([]byte, 128)...)
	if n := testing.AllocsPerRun(100, func() {
		h, n, err := frame.Parse(b)
		if err != nil {
			t.Error(err)
		}
		frame.Mask(b[n:], h.Mask, 0)
		frame.Mask(b[n:], h.Mask, 0)
		state.Feed(b[n:])
		state.Done()
		if _, err := w.Walk(b); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestMask compares with a mask of one byte at a time, for every length that
// the steps of the quick one can meet and every way to cut it.
func TestMask(t *testing.T) {
	key := [4]byte{0xde, 0xad, 0xbe, 0xef}
	const most = 150
	for length := range most {
		text := make([]byte, length+1)
		want := make([]byte, length)
		for i := range want {
			text[i] = byte(i * 7)
			want[i] = text[i] ^ key[i%4]
		}
		text[length] = 'x' // is not to be touched
		for cut := range length + 1 {
			got := bytes.Clone(text)
			frame.Mask(got[:cut], key, 0)
			frame.Mask(got[cut:length], key, int64(cut))
			if !bytes.Equal(got[:length], want) || got[length] != 'x' {
				t.Fatalf("length %d, cut at %d: got %x, want %x", length, cut, got, want)
			}
		}
	}
	big := []byte{0}
	frame.Mask(big, key, math.MaxInt64) // …ff is 3 modulo 4
	if big[0] != key[3] {
		t.Errorf("at the greatest position the key's byte is %#x, want %#x", big[0], key[3])
	}
}

func TestUTF8(t *testing.T) {
	for _, c := range []struct {
		text string
		fine int // bytes that can be a beginning; -1: it is all valid
	}{
		{"", -1},
		{"Hello-µ@ßöäüàá-UTF-8!!", -1},
		{"κόσμε", -1},
		{"日本語の長いテキスト、八バイトより", -1},
		{"\U00010000\U0010ffff\U000fffff", -1},
		{"\ud7ff\ue000\ufffd\ufeff\uffff", -1},
		{"plain ASCII text of more than sixteen bytes \x80", 44},
		{"\xc0\xaf", 0},                     // too long for a slash
		{"\xc1\xbf", 0},                     // the same
		{"\xe0\x80\xaf", 1},                 // the same, in three
		{"\xe0\x9f\xbf", 1},                 // U+07FF in three
		{"\xf0\x8f\xbf\xbf", 1},             // U+FFFF in four
		{"\xed\xa0\x80", 1},                 // a surrogate
		{"\xce\xba\xed\xbf\xbf", 3},         // another
		{"\xf4\x90\x80\x80", 1},             // above U+10FFFF
		{"\xf5\x80\x80\x80", 0},             // further above
		{"\xfe", 0},                         // never
		{"\xff", 0},                         // never
		{"abc\x80", 3},                      // a second byte without a first
		{"\xe2\x82a", 2},                    // ends too early
		{"\xce\xba\xe1\xbd\xb9\xf4\x90", 6}, // as the conformance suite sends it
	} {
		valid := c.fine < 0
		if valid != utf8.ValidString(c.text) {
			t.Fatalf("%q: the test is wrong", c.text)
		}
		var u frame.UTF8
		for round := range 2 { // the second shows that Done makes ready
			for i := range len(c.text) {
				got := u.Feed([]byte(c.text[i : i+1]))
				if want := valid || i < c.fine; got != want {
					t.Errorf("%q, round %d: byte %d: %v, want %v", c.text, round, i, got, want)
				}
			}
			if got := u.Done(); got != valid {
				t.Errorf("%q, round %d: done: %v", c.text, round, got)
			}
			if got := u.Feed([]byte(c.text)); got != valid {
				t.Errorf("%q, round %d: as a whole: %v", c.text, round, got)
			}
			if got := u.Feed(nil); got != valid {
				t.Errorf("%q, round %d: nothing more: %v", c.text, round, got)
			}
			if got := u.Done(); got != valid {
				t.Errorf("%q, round %d: done as a whole: %v", c.text, round, got)
			}
		}
	}
}

// TestUTF8Ends refuses texts that end within a character, and only at the end.
func TestUTF8Ends(t *testing.T) {
	var u frame.UTF8
	for _, text := range []string{"\xc3", "ab\xe2\x82", "\xf0\x90\x80"} {
		if !u.Feed([]byte(text)) {
			t.Errorf("%q can be the beginning of a text", text)
		}
		if u.Done() {
			t.Errorf("%q cannot be all of it", text)
		}
	}
	if !u.Feed([]byte("a")) || !u.Done() {
		t.Error("it remembers the text before")
	}
}

func ExampleParse() {
	b := []byte("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58") // RFC 6455, 5.7
	h, n, err := frame.Parse(b)
	if err != nil || n == 0 || int64(len(b)-n) < h.Length {
		return // wrong, or not all there yet
	}
	frame.Mask(b[n:], h.Mask, 0)
	fmt.Printf("%s\n", b[n:])
	// Output: Hello
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"\x81\x00", "\x81\xfe\x00\x80\x01\x02\x03\x04", "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00", "\x88\x7e\x00\x80", "\x0b\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := frame.Parse(b)
		if n < 0 || n > len(b) || n > frame.MaxHeader || err != nil && n != 0 {
			t.Fatalf("n is %d of %d, error %v", n, len(b), err)
		}
		for k := range b { // less of it fails no earlier, and is whole no earlier
			_, less, early := frame.Parse(b[:k])
			if early != nil && err == nil || less != 0 && less != n {
				t.Fatalf("of %d bytes: n %d, error %v; of all: n %d, error %v", k, less, early, n, err)
			}
		}
		if n > 0 {
			if again := h.Append(nil); !bytes.Equal(again, b[:n]) {
				t.Fatalf("%x is written as %x", b[:n], again)
			}
		}
		compareHeaders(t, b, h, n, err)
	})
}

// compareHeaders holds Parse against gobwas/ws, which does not see that a
// length is not in its shortest form, that a continuation is marked as
// compressed, or which way RSV1 may be used.
func compareHeaders(t *testing.T, b []byte, h frame.Header, n int, err error) {
	t.Helper()
	r := bytes.NewReader(b)
	want, wantErr := ws.ReadHeader(r)
	if wantErr != nil {
		if n > 0 {
			t.Fatalf("%x: gobwas says %v, we nothing", b, wantErr)
		}
		return
	}
	rsv1, rsv2, rsv3 := ws.RsvBits(want.Rsv)
	state := ws.State(0) // neither side: masked or not is both right
	if want.OpCode == ws.OpContinuation {
		state = ws.StateFragmented
	}
	wantErr = ws.CheckHeader(ws.Header{Fin: want.Fin, OpCode: want.OpCode, Length: want.Length, Rsv: ws.Rsv(false, rsv2, rsv3)}, state)
	minimal := want.Length < 126 && b[1]&0x7f < 126 || want.Length >= 126 && b[1]&0x7f == 126 || want.Length >= 65536 && b[1]&0x7f == 127
	stricter := !minimal || rsv1 && (want.OpCode == ws.OpContinuation || want.OpCode.IsControl())
	if (err != nil) != (wantErr != nil || stricter) {
		t.Fatalf("%x: error %v, gobwas says %v, stricter %v", b, err, wantErr, stricter)
	}
	if err != nil {
		return
	}
	got := ws.Header{Fin: h.Fin, Rsv: ws.Rsv(h.Rsv1, false, false), OpCode: ws.OpCode(h.Op), Masked: h.Masked, Mask: h.Mask, Length: h.Length}
	if got != want || n != len(b)-r.Len() {
		t.Fatalf("%x: %+v in %d bytes, gobwas says %+v in %d", b, got, n, want, len(b)-r.Len())
	}
}

func FuzzMask(f *testing.F) {
	f.Add([]byte("a text of more than thirty-two bytes, to be masked"), uint32(0x01020304), 5)
	f.Fuzz(func(t *testing.T, p []byte, k uint32, cut int) {
		key := [4]byte{byte(k), byte(k >> 8), byte(k >> 16), byte(k >> 24)}
		cut = max(0, min(cut, len(p)))
		want := bytes.Clone(p)
		ws.Cipher(want, key, 0)
		got := bytes.Clone(p)
		frame.Mask(got[cut:], key, int64(cut))
		frame.Mask(got[:cut], key, 0)
		if !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	})
}

func FuzzUTF8(f *testing.F) {
	for _, seed := range []string{"", "ASCII and more of it", "κόσμε", "\xed\xa0\x80", "\U0010ffff", "\xf4\x90\x80\x80", "0123456\xe2\x82"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		p = p[:min(len(p), 200)] // every way to cut it takes the square of that
		valid := utf8.Valid(p)
		for cut := range len(p) + 1 {
			var u frame.UTF8
			first := u.Feed(p[:cut])
			second := u.Feed(p[cut:])
			if second && !first {
				t.Fatalf("%q: cut at %d it fails, and then no more", p, cut)
			}
			if first != canBegin(p[:cut]) {
				t.Fatalf("%q: can begin a text: %v", p[:cut], first)
			}
			if done := u.Done(); done != valid || done && !second {
				t.Fatalf("%q: cut at %d it is valid: %v", p, cut, done)
			}
		}
	})
}

// canBegin says what Feed has to, in terms of unicode/utf8: all but the last
// bytes are valid, and those are the beginning of some character.
func canBegin(p []byte) bool {
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		if r == utf8.RuneError && n == 1 {
			return !utf8.FullRune(p)
		}
		p = p[n:]
	}
	return true
}
