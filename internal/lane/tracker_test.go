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
func TestTrackerSplits(t *testing.T) {
	for name, in := range map[string]string{
		"GET":              "GET /%61 HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST":             "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
		"no body":          "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
		"hidden in a body": "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\nGET /hot HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"HTTP/1.0":         "POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
		"Expect":           "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
		"any method":       "m-search /\xff HTTP/1.1\r\nHost: a\r\nX:\ta\r\nY: \xfc\r\nTE: trailers\r\n\r\n",
		"chunked":          "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n00a;x=\"y z\"\r\n0\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n",
		"trailer":          "POST / HTTP/1.1\r\nHost: a\r\nTrailer: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n0\r\nX: y\r\nZ:\r\n\r\n",
		"long":             "GET / HTTP/1.1\r\nX: " + strings.Repeat("a", 100<<10) + "\r\n\r\n",
		"many headers":     "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-Y: z\r\n", 100) + "\r\n",
	} {
		const next = "GET / HTTP/1.1\r\nHost: b\r\n\r\n"
		for _, step := range []int{1, 2, 3, 7, 1000} {
			var l tracker
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

func TestTrackerLosesCount(t *testing.T) {
	with := func(line string) string { return "POST / HTTP/1.1\r\nHost: a\r\n" + line + "\r\n\r\n" }
	for name, in := range map[string]string{
		"two lengths":          with("Content-Length: 5\r\nContent-Length: 5"),
		"length and coding":    with("Content-Length: 5\r\nTransfer-Encoding: chunked"),
		"signed length":        with("Content-Length: +5"),
		"list of lengths":      with("Content-Length: 5, 5"),
		"hexadecimal length":   with("Content-Length: 0x5"),
		"huge length":          with("Content-Length: 1" + strings.Repeat("0", 18)),
		"empty length":         with("Content-Length: "),
		"chunked and more":     with("Transfer-Encoding: chunked, identity"),
		"coded":                with("Transfer-Encoding: gzip"),
		"identity":             with("Transfer-Encoding: identity"),
		"two codings":          with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
		"coded HTTP/1.0":       "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
		"bare LF in a size":    with("Transfer-Encoding: chunked") + "5\nhello\r\n0\r\n\r\n",
		"LF in an extension":   with("Transfer-Encoding: chunked") + "5;\nhello\r\n0\r\n\r\n",
		"no CRLF after data":   with("Transfer-Encoding: chunked") + "5\r\nhello0\r\n\r\n",
		"signed size":          with("Transfer-Encoding: chunked") + "+5\r\nhello\r\n0\r\n\r\n",
		"prefixed size":        with("Transfer-Encoding: chunked") + "0x5\r\nhello\r\n0\r\n\r\n",
		"space behind a size":  with("Transfer-Encoding: chunked") + "5 \r\nhello\r\n0\r\n\r\n",
		"no size":              with("Transfer-Encoding: chunked") + "\r\nhello\r\n0\r\n\r\n",
		"huge size":            with("Transfer-Encoding: chunked") + "1000000000000000\r\nhello\r\n",
		"long extension":       with("Transfer-Encoding: chunked") + "5;" + strings.Repeat("x", maxChunkLine+1),
		"folded trailer":       with("Transfer-Encoding: chunked") + "0\r\n X: y\r\n\r\n",
		"bare LF in a trailer": with("Transfer-Encoding: chunked") + "0\r\nX: y\n\r\n",
		"space before colon":   with("Content-Length : 5"),
		"fold":                 with("X: a\r\n Content-Length: 5"),
		"no colon":             with("X"),
		"bare LF":              "GET / HTTP/1.1\nHost: a\n\n",
		"bare LF at the end":   "GET / HTTP/1.1\r\nHost: a\r\n\n",
		"leading CRLF":         "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"no target":            "GET HTTP/1.1\r\nHost: a\r\n\r\n",
		"too many spaces":      "GET / x HTTP/1.1\r\nHost: a\r\n\r\n",
		"NUL":                  "GET / HTTP/1.1\r\nHost: \x00\r\n\r\n",
		"longer than it keeps": "GET / HTTP/1.1\r\nX: " + strings.Repeat("a", maxHeadSoFar+1),
	} {
		for _, step := range []int{1, 5, 100_000} {
			var l tracker
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

// What contradicts itself is found in whatever form it comes, and however.
func TestFaults(t *testing.T) {
	const both, lengths, fold = "Content-Length: 5\r\nTransfer-Encoding: chunked", "Content-Length: 5\r\nContent-Length: 5", "X: y\r\n z"
	for in, want := range map[string]fault{
		"POST / HTTP/1.1\r\nHost: a\r\n" + both + "\r\n\r\n":                                     faultBoth,
		"POST / HTTP/1.1\r\n" + both + "\r\nX: " + strings.Repeat("y", 20<<10) + "\r\n\r\n":      faultBoth,
		"POST / HTTP/1.1\nTransfer-Encoding: chunked\nContent-Length: 5\n\n":                     faultBoth,
		"POST / HTTP/1.1\r\nX: \x01\r\nTRANSFER-ENCODING :chunked\r\ncontent-length\t:5\r\n\r\n": faultBoth,
		"POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n":            faultBoth,
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5, 5\r\n\r\n":          faultBoth,
		"POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n":        faultOld,
		"POST / HTTP/1.0\nTransfer-Encoding: gzip\n\n":                                           faultOld,
		"POST / HTTP/1.1\r\nHost: a\r\n" + lengths + "\r\n\r\n":                                  faultLengths,
		"GET / HTTP/1.1\r\nHost: a\r\n" + fold + "\r\n\r\n":                                      faultFold,
		"GET / HTTP/1.1\nHost: a\n\n":                                                            "",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nContent-Length: 5\r\n\r\n":         "",
		"POST / HTTP/1.1\nContent-Length: 40\n\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n":      "",
	} {
		for _, step := range []int{1, 7, 100_000} {
			var l tracker
			for all := []byte(in); len(all) > 0; {
				all = all[l.pass(all[:min(step, len(all))]):]
			}
			last, got := l.judge()
			if got != want || want != "" && !last {
				t.Errorf("%.60q in steps of %d: %q, last %t; want %q", in, step, got, last, want)
			}
		}
	}
}

// Where the tracker sees one request, net/http does, with the same length.
func FuzzTracker(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n"), 5)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET"), 50)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), 1)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nA: b\r\n\r\nGET"), 9)
	f.Add([]byte("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		if step <= 0 || step > len(in) {
			step = len(in)
		}
		var l tracker
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
