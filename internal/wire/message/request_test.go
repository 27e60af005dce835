package message

import (
	"strings"
	"testing"
)

const head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// TestEnd: a head that may still become one of ours is waited for.
func TestEnd(t *testing.T) {
	for in, want := range map[string]Verdict{
		"": Short, "G": Short, "GET /": Short, "POST / HTTP/1.1\r\nHost: a\r\n": Short, "P": Short,
		"X": Refused, "OPTIONS *": Refused, "get /": Refused, "\r\n": Refused, head: Whole, head + "x": Whole,
		// Nothing more comes where net/http sees an end.
		"GET / HTTP/1.1\nHost: a\n\n": Refused, "GET / HTTP/1.1\r\nHost: a\n\n": Refused, "GET / HTTP/1.1\nHost: a\n\r\n": Refused, "GET / HTTP/1.1\nHost: a\n": Short,
	} {
		if n, v := End([]byte(in)); v != want || v == Whole && n != len(head) {
			t.Errorf("%q is %d, %d bytes; want %d", in, v, n, want)
		}
	}
}

// TestCookieInParts: a client of HTTP/2 sends a Cookie in parts, of which each costs it
// a byte; many are for net/http.
func TestCookieInParts(t *testing.T) {
	var h Request
	for range 2 {
		if !h.Assemble("GET", "/", "a") {
			t.Fatal("the request is not ours")
		}
		n := 0
		for n < 10*maxFields && h.Add("cookie", "a=1") {
			n++
		}
		if n != maxFields {
			t.Errorf("a Cookie in %d parts is ours", n)
		}
		if got := h.Value("Cookie"); got != strings.Repeat("a=1; ", maxFields-1)+"a=1" {
			t.Errorf("it is %q", got)
		}
	}
}
