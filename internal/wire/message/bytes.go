package message

import (
	"bytes"
	"encoding/binary"
	"net/textproto"
	"unsafe"

	"millrace/internal/wire/field"
)

// Classes of bytes, for those who read heads.
const (
	TokenByte  = 1 << iota // RFC 9110, 5.6.2
	LowerByte              // a small letter
	UpperByte              // a capital letter
	PathByte               // unreserved, sub-delims, ":", "@" and "/" (RFC 3986, 3.3), no percent sign
	TargetByte             // what net/http accepts in a target, except "#" and non-ASCII bytes
	SimpleByte             // of a path, stands for itself, and net/url writes it so
	HostByte               // lower-case names, addresses and a port
)

// Class has the classes of each byte.
var Class = classes()

func classes() (t [256]uint8) {
	set := func(bit uint8, chars string) {
		for _, c := range []byte(chars) {
			t[c] |= bit
		}
	}
	const digits, lower, upper = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	set(LowerByte, lower)
	set(UpperByte, upper)
	set(PathByte, digits+lower+upper+"-._~!$&'()*+,;=:@/")
	set(SimpleByte, digits+lower+upper+"-._~$&+,;=:@/")
	set(HostByte, digits+lower+"-.:[]")
	for c := byte(0x21); c < 0x7f; c++ {
		if c != '#' {
			t[c] |= TargetByte
		}
		if field.TokenByte(c) {
			t[c] |= TokenByte
		}
	}
	return t
}

// all reports whether all bytes of s have a class.
func all(s string, bit uint8) bool {
	for i := range len(s) {
		if Class[s[i]]&bit == 0 {
			return false
		}
	}
	return true
}

// Printable reports whether b holds printable ASCII and spaces only, eight bytes at a time:
// no control byte (below 0x20, 0x7f), nothing above 0x7e.
func Printable(b []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		w := binary.LittleEndian.Uint64(b)
		low := (w - 0x20*ones) & ^w // high bit set where a byte is below 0x20
		del := w ^ 0x7f*ones        // zero where a byte is 0x7f
		del = (del - ones) & ^del   // high bit set there
		if (w|low|del)&high != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c < 0x20 || c >= 0x7f {
			return false
		}
	}
	return true
}

// Text reports whether b may be the value of a field (RFC 9110, 5.5): it has no control byte
// but the tab.
func Text(b []byte) bool {
	for _, c := range b {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// printable is Printable for a string.
func printable(s string) bool { return Printable(unsafe.Slice(unsafe.StringData(s), len(s))) }

// canonical returns the name of a field as net/http writes it; false: it is no token.
func canonical(name string) (string, bool) {
	is, begins := true, true // canonical so far; a part of it begins here
	for i := range len(name) {
		c := Class[name[i]]
		if c&TokenByte == 0 {
			return "", false
		}
		if begins && c&LowerByte != 0 || !begins && c&UpperByte != 0 {
			is = false
		}
		begins = name[i] == '-'
	}
	if !is {
		name = textproto.CanonicalMIMEHeaderKey(name)
	}
	return name, true
}

// Verdict is the result of End.
type Verdict uint8

// The verdicts.
const (
	Refused Verdict = iota // not in the subset: for net/http
	Short                  // fine so far, but the head is not complete
	Whole                  // the head is complete
)

// End finds the end of the head at the start of b. n is its length if it is Whole. Of its
// content it checks only the method.
func End(b []byte) (n int, v Verdict) {
	v = Refused
	for _, m := range methods {
		k := min(len(m), len(b))
		if string(b[:k]) == m[:k] {
			v = Short
			break
		}
	}
	if v == Refused {
		return 0, Refused
	}
	if n = bytes.Index(b, []byte("\r\n\r\n")); n < 0 {
		if bytes.Contains(b, []byte("\n\n")) || bytes.Contains(b, []byte("\n\r\n")) { // net/http takes this for the end (RFC 9112, 2.2)
			return 0, Refused
		}
		return 0, Short
	}
	return n + 4, Whole
}
