package php

import (
	"bufio"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

// FuzzHead: of a head that is taken, the fields are those that the standard library reads,
// and a head is read as soon as its empty line has come, and not before.
func FuzzHead(f *testing.F) {
	for _, text := range []string{
		"Content-Type: text/html\r\n\r\nhello", "A: b\nA:c \n\n\r\n", "\r\n", "\nx", "Status: 404 Not Found\r\nX: y\r\n z\r\n\tw\r\n\r\n", " A: b\r\n\r\n",
		"A: b\r\n \r\n\r\n", "A : b\r\n\r\n", "Location: /x\r\n\r\n", "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "content-length: +5\n\n", "A: b\r\r\n\r\n", "A: \x00\r\n\r\n", "no head\r\n\r\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var h head
		n, err := h.read([]byte(text))
		if err != nil || n == 0 {
			if err == nil && (strings.Contains(text, "\n\n") || strings.Contains(text, "\n\r\n")) {
				t.Errorf("%q has an empty line", text)
			}
			return
		}
		in := bufio.NewReader(strings.NewReader(text))
		want, err := textproto.NewReader(in).ReadMIMEHeader()
		rest, _ := in.Peek(in.Buffered())
		if err != nil || string(rest) != text[n:] {
			t.Fatalf("%q: %v, and the body begins with %q; ours with %q", text, err, rest, text[n:])
		}
		for name, values := range h.fields.Header() {
			var had []string
			for spelled, values := range want { // a space behind a name, and one behind a folded line, are left there
				for _, value := range values {
					if textproto.CanonicalMIMEHeaderKey(strings.TrimRight(spelled, " ")) == name {
						had = append(had, strings.Trim(value, " \t"))
					}
				}
			}
			if slices.Sort(values); !slices.Equal(values, slices.Sorted(slices.Values(had))) {
				t.Errorf("%q: %s is %q, want %q", text, name, values, had)
			}
		}
		for n := range n {
			if early, err := new(head).read([]byte(text[:n])); early > 0 || err != nil {
				t.Fatalf("%q: read after %d bytes of %d: %v", text, n, early, err)
			}
		}
	})
}
