package message

import "bytes"

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
