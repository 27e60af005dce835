package lane

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// What is passed on is one request; the next one's first byte is not.
func TestLedgerSplits(t *testing.T) {
	for name, in := range map[string]string{
		"GET":              "GET /%61 HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST":             "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
		"no body":          "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
		"hidden in a body": "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\nGET /hot HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"many headers":     "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-Y: z\r\n", 100) + "\r\n",
	} {
		const next = "GET / HTTP/1.1\r\nHost: b\r\n\r\n"
		for _, step := range []int{1, 2, 3, 7, 1000} {
			var l ledger
			all, at := []byte(in+next), 0
			for at < len(in) {
				end := min(at+step, len(all))
				n := l.pass(all[at:end])
				if at += n; n == 0 || n < end-(at-n) && at != len(in) {
					t.Fatalf("%s in steps of %d: %d bytes at %d, of %d", name, step, n, at-n, len(in))
				}
				if l.exact() != (at == len(in)) || l.lost {
					t.Fatalf("%s in steps of %d: exact %t at %d of %d, lost %t", name, step, l.exact(), at, len(in), l.lost)
				}
			}
			if at != len(in) {
				t.Fatalf("%s in steps of %d: %d bytes were passed on, not %d", name, step, at, len(in))
			}
			if l.reset(); !l.clean() {
				t.Errorf("%s in steps of %d: not clean afterwards", name, step)
			}
		}
	}
}

func TestLedgerLosesCount(t *testing.T) {
	with := func(line string) string { return "POST / HTTP/1.1\r\nHost: a\r\n" + line + "\r\n\r\n" }
	for name, in := range map[string]string{
		"chunked":              with("Transfer-Encoding: chunked"),
		"two lengths":          with("Content-Length: 5\r\nContent-Length: 5"),
		"length and coding":    with("Content-Length: 5\r\nTransfer-Encoding: chunked"),
		"signed length":        with("Content-Length: +5"),
		"list of lengths":      with("Content-Length: 5, 5"),
		"hexadecimal length":   with("Content-Length: 0x5"),
		"huge length":          with("Content-Length: 1" + strings.Repeat("0", 18)),
		"empty length":         with("Content-Length: "),
		"space before colon":   with("Content-Length : 5"),
		"Upgrade":              with("Upgrade: websocket"),
		"Expect":               with("Expect: 100-continue"),
		"TE":                   with("TE: trailers"),
		"fold":                 with("X: a\r\n Content-Length: 5"),
		"tab":                  with("X:\ta"),
		"no colon":             with("X"),
		"bare LF":              "GET / HTTP/1.1\nHost: a\n\n",
		"bare LF at the end":   "GET / HTTP/1.1\r\nHost: a\r\n\n",
		"leading CRLF":         "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"HTTP/1.0":             "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
		"lower-case method":    "get / HTTP/1.1\r\nHost: a\r\n\r\n",
		"no target":            "GET HTTP/1.1\r\nHost: a\r\n\r\n",
		"too many spaces":      "GET / x HTTP/1.1\r\nHost: a\r\n\r\n",
		"NUL":                  "GET / HTTP/1.1\r\nHost: \x00\r\n\r\n",
		"non-ASCII":            "GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
		"longer than it keeps": "GET / HTTP/1.1\r\nX: " + strings.Repeat("a", maxSince+1),
	} {
		for _, step := range []int{1, 5, 100_000} {
			var l ledger
			all := []byte(in)
			for len(all) > 0 {
				n := l.pass(all[:min(step, len(all))])
				if n == 0 {
					t.Fatalf("%s: passes nothing on", name)
				}
				all = all[n:]
			}
			if l.exact() {
				t.Errorf("%s in steps of %d: taken for one request", name, step)
			}
			if l.reset(); l.clean() || !l.lost {
				t.Errorf("%s in steps of %d: clean again", name, step)
			}
		}
	}
}

// Where the ledger sees one request, net/http does, with the same length.
func FuzzLedger(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n"), 5)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET"), 50)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		if step <= 0 || step > len(in) {
			step = len(in)
		}
		var l ledger
		passed := 0
		for passed < len(in) && !l.exact() && !l.lost {
			n := l.pass(in[passed:min(passed+step, len(in))])
			if n <= 0 {
				t.Fatalf("%q: %d bytes at %d", in, n, passed)
			}
			passed += n
		}
		if !l.exact() {
			return
		}
		whole := bytes.NewReader(in)
		br := bufio.NewReaderSize(whole, len(in)+16)
		r, err := http.ReadRequest(br)
		if err != nil {
			return // net/http answers 400 and closes: nothing follows
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Fatalf("%q: net/http does not find the body's end: %v", in, err)
		}
		if used := len(in) - br.Buffered() - whole.Len(); used != passed {
			t.Fatalf("%q: %d bytes were passed on, net/http used %d", in, passed, used)
		}
	})
}
