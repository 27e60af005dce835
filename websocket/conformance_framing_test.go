package websocket_test

import (
	"fmt"
	"strings"
	"testing"
)

// sample is so many bytes of text, each place different from its neighbours.
func sample(n int) string {
	const piece = "The quick brown fox, Zwölf Boxkämpfer, いろは, 0123456789; "
	s := strings.Repeat(piece, n/len(piece)+1)[:n]
	for strings.ToValidUTF8(s, "") != s { // never cut within a character
		s = s[:len(s)-1]
	}
	return s + strings.Repeat("*", n-len(s))
}

// noise is so many bytes that are not text.
func noise(n int) string {
	b := make([]byte, n)
	x := uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return string(b)
}

// TestFraming is section 1: messages of all sizes around those at which a
// length is written differently.
func TestFraming(t *testing.T) {
	var list []ordeal
	for _, op := range []byte{opText, opBinary} {
		for _, size := range []int{0, 1, 2, 3, 4, 5, 7, 8, 31, 33, 124, 125, 126, 127, 128, 129, 255, 256, 1000, 4095, 4096, 65535, 65536, 65537, 65550, 131_072, 200_000} {
			payload := sample(size)
			if op == opBinary {
				payload = noise(size)
			}
			for _, chop := range []int{0, 997} {
				if chop > size {
					continue
				}
				list = append(list, ordeal{
					name:  fmt.Sprintf("opcode %d, %d bytes, %d a write", op, size, chop),
					parts: []part{{send: masked(fin|op, payload), chop: chop}},
					want:  []event{{op, payload}},
				})
			}
			if size < 300 {
				list = append(list, ordeal{
					name:  fmt.Sprintf("opcode %d, %d bytes, byte by byte", op, size),
					parts: []part{{send: masked(fin|op, payload), chop: 1}},
					want:  []event{{op, payload}},
				})
			}
		}
	}
	for _, mask := range []uint32{0, 0xffffffff, 1, 0x80000000, 0x00ff00ff} {
		list = append(list, ordeal{
			name:  fmt.Sprintf("mask %#x", mask),
			parts: atOnce(withMask(fin|opText, sample(301), mask), withMask(fin|opBinary, noise(70), mask)),
			want:  []event{{opText, sample(301)}, {opBinary, noise(70)}},
		})
	}
	ordeals(t, list)
}

// TestBadLengths are frames that RFC 6455, 5.2, forbids by their length or mask.
func TestBadLengths(t *testing.T) {
	var list []ordeal
	for _, c := range []struct{ name, bytes string }{
		{"125 bytes in 16 bits", "\x82\xfe\x00\x7d1234" + strings.Repeat("x", 125)},
		{"none in 16 bits", "\x82\xfe\x00\x001234"},
		{"65535 bytes in 64 bits", "\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff1234"},
		{"125 bytes in 64 bits", "\x82\xff\x00\x00\x00\x00\x00\x00\x00\x7d1234"},
		{"the highest bit", "\x82\xff\x80\x00\x00\x00\x00\x00\x00\x001234"},
		{"all bits", "\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff1234"},
		{"a text without a mask", "\x81\x05Hello"},
		{"an empty text without a mask", "\x81\x00"},
		{"a ping without a mask", "\x89\x05Hello"},
		{"a close frame without a mask", "\x88\x02\x03\xe8"},
		{"a large one without a mask", "\x82\x7e\x01\x00" + strings.Repeat("x", 256)},
	} {
		list = append(list, both(ordeal{
			name:  c.name,
			parts: atOnce(masked(fin|opText, "before"), []byte(c.bytes), masked(fin|opText, "behind")),
			want:  []event{{opText, "before"}},
			code:  1002,
		})...)
	}
	ordeals(t, list)
}

// TestPingPong is section 2.
func TestPingPong(t *testing.T) {
	ping := func(payload string) []byte { return masked(fin|opPing, payload) }
	list := []ordeal{
		{name: "unasked pong", parts: atOnce(masked(fin|opPong, ""))},
		{name: "unasked pong with a payload", parts: atOnce(masked(fin|opPong, "unasked"))},
		{name: "unasked pong, then a ping", parts: atOnce(masked(fin|opPong, "unasked"), ping("asked")), want: []event{{opPong, "asked"}}},
	}
	for _, payload := range []string{"", "Hello, world!", "\x00\xff\xfe\xfd\xfc\xfb\x00\xff", "\xed\xa0\x80", noise(124), strings.Repeat("\xfe", 125), noise(125)} {
		list = append(list, both(ordeal{
			name:  fmt.Sprintf("a ping of %d bytes %.4q", len(payload), payload),
			parts: atOnce(ping(payload)),
			want:  []event{{opPong, payload}},
		})...)
	}
	var ten [][]byte
	var pongs []event
	for i := range 10 {
		ten = append(ten, ping(fmt.Sprintf("payload-%d", i)))
		pongs = append(pongs, event{opPong, fmt.Sprintf("payload-%d", i)})
	}
	list = append(list, both(ordeal{name: "ten pings", parts: atOnce(ten...), want: pongs})...)
	for _, size := range []int{126, 127, 1000, 65536} {
		for _, op := range []byte{opPing, opPong} {
			list = append(list, ordeal{
				name:  fmt.Sprintf("control frame %d of %d bytes", op, size),
				parts: atOnce(masked(fin|opText, "before"), masked(fin|op, noise(size)), masked(fin|opText, "behind")),
				want:  []event{{opText, "before"}},
				code:  1002,
			})
		}
	}
	// Without its payload: the header is enough to refuse it.
	list = append(list, ordeal{name: "the header of a large ping", parts: atOnce([]byte("\x89\xfe")), code: 1002})
	ordeals(t, list)
}

// TestReservedBits is section 3: no extension that uses them is agreed to.
func TestReservedBits(t *testing.T) {
	var list []ordeal
	for bits := byte(rsv3); bits <= rsv1|rsv2|rsv3; bits += rsv3 {
		for _, op := range []byte{opText, opBinary, opPing, opPong, opClose} {
			payload := "Hello, world!"
			if op == opClose {
				payload = closing(1000, "")
			}
			bad := masked(fin|bits|op, payload)
			name := fmt.Sprintf("bits %#x, opcode %d", bits, op)
			list = append(list,
				ordeal{name: name, parts: atOnce(bad), code: 1002},
				ordeal{
					name:  name + ", behind a message",
					parts: atOnce(masked(fin|opText, "before"), bad, masked(fin|opPing, "")),
					want:  []event{{opText, "before"}}, code: 1002,
				},
				ordeal{
					name:  name + ", behind a message, byte by byte",
					parts: []part{{send: join(masked(fin|opText, "before"), bad), chop: 1}},
					want:  []event{{opText, "before"}}, code: 1002,
				},
				ordeal{
					name:  name + ", in a message",
					parts: atOnce(masked(opText, "before"), bad, masked(fin|opMore, "behind")),
					code:  1002,
				})
		}
		list = append(list, ordeal{
			name:  fmt.Sprintf("bits %#x, continuation", bits),
			parts: atOnce(masked(opText, "before"), masked(fin|bits|opMore, "behind"), masked(fin|opPing, "")),
			code:  1002,
		})
	}
	ordeals(t, list)
}

// TestOpcodes is section 4: those that mean nothing.
func TestOpcodes(t *testing.T) {
	var list []ordeal
	for _, op := range []byte{3, 4, 5, 6, 7, 0xB, 0xC, 0xD, 0xE, 0xF} {
		for _, payload := range []string{"", "reserved opcode payload"} {
			for _, first := range []byte{fin | op, op} {
				bad := masked(first, payload)
				name := fmt.Sprintf("first byte %#x, %d bytes", first, len(payload))
				list = append(list, ordeal{name: name, parts: atOnce(bad), code: 1002})
				list = append(list, both(ordeal{
					name:  name + ", between messages",
					parts: atOnce(masked(fin|opText, "before"), bad, masked(fin|opPing, "")),
					want:  []event{{opText, "before"}}, code: 1002,
				})...)
			}
		}
	}
	ordeals(t, list)
}
