package http1_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"millrace/internal/upstream/faulty"
	"millrace/internal/upstream/http1"
)

// outcome is what a client makes of a server's bytes.
type outcome struct {
	answers []string // one line for each, interim ones included
	refused bool     // the last one was not whole
	left    int      // bytes behind the last answer
}

// describe is an answer as one line, with its fields in order.
func describe(status int, length int64, header, trailer http.Header, body []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d length %d", status, length)
	for _, h := range []http.Header{header, trailer} {
		for _, name := range slices.Sorted(maps.Keys(h)) {
			for _, v := range h[name] {
				fmt.Fprintf(&b, " %s=%q", name, strings.TrimRight(v, " ")) // what an empty fold leaves
			}
		}
		b.WriteString(" |")
	}
	fmt.Fprintf(&b, " %q", body)
	return b.String()
}

// ours reads answers to requests with a method as package upstream does.
func ours(method, wire string, source func(io.Reader) io.Reader) outcome {
	var o outcome
	r := &http1.Reader{Source: source(strings.NewReader(wire))}
	r.Use(make([]byte, http1.BufferSize))
	for {
		head := new(http1.Head)
		_, err := http1.ReadHead(r, 64<<10, method, head)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || head.Status < 100 {
			o.refused = true
			break
		}
		var body http1.Body
		body.Begin(r, head)
		if head.Framing == http1.Chunks && body.Start() != nil {
			o.refused = true
			break
		}
		var content []byte
		if head.Status >= 200 {
			if content, err = io.ReadAll(&body); err != nil {
				o.refused = true
				break
			}
		}
		if head.Minor > 0 && head.Fields.Lists("Connection", "close") { // net/http drops it, with what else it names
			head.Fields.Delete("Connection")
		}
		o.answers = append(o.answers, describe(head.Status, head.Length, head.Fields.Header(), head.Trailer, content))
		if head.Status >= 200 && !head.Keep || head.Status == 101 {
			break
		}
	}
	rest, _ := io.ReadAll(r)
	o.left = len(rest)
	return o
}

// theirs reads them as net/http does.
func theirs(method, wire string) outcome {
	var o outcome
	in := strings.NewReader(wire)
	r := bufio.NewReaderSize(in, 4096) // as http.Transport has it
	for {
		if _, err := r.Peek(1); err != nil {
			break
		}
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			o.refused = true
			break
		}
		var content []byte
		if resp.StatusCode >= 200 {
			if content, err = io.ReadAll(resp.Body); err != nil {
				o.refused = true
				break
			}
		}
		o.answers = append(o.answers, describe(resp.StatusCode, resp.ContentLength, resp.Header, resp.Trailer, content))
		if resp.StatusCode >= 200 && resp.Close || resp.StatusCode == 101 {
			break
		}
	}
	rest, _ := io.ReadAll(r)
	o.left = len(rest)
	return o
}

// compare demands that ours be theirs, or the beginning of theirs: what we take
// for an answer, net/http takes for the same one. The differences that are named
// in the package's comment end ours early, or are normalised here.
func compare(t *testing.T, method, wire string) {
	scans(t, method, wire)
	whole := func(r io.Reader) io.Reader { return r }
	o, n := ours(method, wire, whole), theirs(method, wire)
	for name, source := range map[string]func(io.Reader) io.Reader{"byte by byte": iotest.OneByteReader, "with EOF": iotest.DataErrReader} {
		if other := ours(method, wire, source); !slices.Equal(other.answers, o.answers) || other.refused != o.refused {
			t.Errorf("%s: %+v, as a whole %+v", name, other, o)
		}
	}
	if len(o.answers) > len(n.answers) {
		t.Fatalf("we take %d answers from %q, net/http %d:\n%q\n%q", len(o.answers), wire, len(n.answers), o.answers, n.answers)
	}
	for i, answer := range o.answers {
		if theirs := n.answers[i]; answer != theirs && !repaired(wire) {
			t.Fatalf("of %q we make\n%s\nnet/http\n%s", wire, answer, theirs)
		}
	}
	if !o.refused && !n.refused && len(o.answers) == len(n.answers) && o.left != n.left {
		t.Fatalf("behind the answers in %q are %d bytes for us, %d for net/http", wire, o.left, n.left)
	}
}

// scans demands that a loop, which sees an answer while it comes, sees the same as who
// waits for all of it, or leaves it to that one.
func scans(t *testing.T, method, wire string) {
	var whole http1.Head
	r := &http1.Reader{Source: strings.NewReader(wire)}
	r.Use(make([]byte, http1.BufferSize))
	used, err := http1.ReadHead(r, 64<<10, method, &whole)
	for n := range len(wire) + 1 {
		var h http1.Head
		size, s := http1.Scan(wire[:n], method, &h)
		switch {
		case s == http1.Partial && err == nil && n >= used:
			t.Fatalf("%q has a head of %d bytes, and more is waited for", wire[:n], used)
		case s == http1.Plain && (err != nil || size != used || n < used):
			t.Fatalf("the head of %q has %d bytes, or %d: %v", wire[:n], size, used, err)
		case s == http1.Plain && (h.Status != whole.Status || h.Length != whole.Length || !slices.Equal(h.Fields, whole.Fields) || h.Framing > http1.Length):
			t.Fatalf("%q is %+v, or %+v", wire[:n], h, whole)
		}
	}
}

// repaired reports whether a name may have lost the spaces before its colon,
// which net/http keeps in it: package upstream repairs those for it.
func repaired(wire string) bool { return strings.Contains(wire, " :") }

// FuzzOracle: the bytes of a hostile server lead to what net/http makes of
// them, or to less.
func FuzzOracle(f *testing.F) {
	for _, wire := range seeds() {
		f.Add(false, wire)
	}
	f.Add(true, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
	f.Fuzz(func(t *testing.T, head bool, wire string) {
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		if len(wire) > 3000 { // beyond net/http's buffer other limits count, of which TestLimits knows
			return
		}
		compare(t, method, wire)
	})
}

// TestOracle is FuzzOracle for what is known to be tricky, cut off and
// extended at every byte.
func TestOracle(t *testing.T) {
	for _, wire := range seeds() {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			compare(t, method, wire)
			for n := range min(len(wire), 200) {
				compare(t, method, wire[:n])
				for _, bad := range []string{"\r", "\n", " ", "\x00", ":", "0"} {
					compare(t, method, wire[:n]+bad+wire[n:])
				}
			}
		}
	}
}

// seeds are answers of all kinds, good and bad.
func seeds() []string {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	all := []string{
		head + "Content-Length: 5\r\n\r\nhello",
		head + "content-length:5\r\n\r\nhelloHTTP/1.1 304 Not Modified\r\nEtag: \"a\"\r\nContent-Length: 5\r\n\r\n",
		head + "\r\nuntil the end",
		"HTTP/1.0 200 OK\r\n\r\nold", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: Upgrade\r\n\r\nbytes",
		head + "Transfer-Encoding: chunked\r\nTrailer: X-Sum, X-Other\r\n\r\n5;a=b\r\nhello\r\nA \r\n0123456789\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n" + head + "Content-Length: 0\r\n\r\n",
		head + "Transfer-Encoding: Chunked\r\nContent-Length: 3\r\n\r\n0;x\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", head + "Transfer-Encoding: chunked\r\n\r\n0\r\n\n",
		head + "Transfer-Encoding: chunked\r\n\r\n0\r\n X: y\r\n\r\n", head + "Transfer-Encoding: chunked\r\n\r\n0\r\nX\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n",
		head + "Transfer-Encoding: identity\r\n\r\nhello", head + "Transfer-Encoding:\r\nContent-Length: 1\r\n\r\nx",
		head + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", head + "Content-Length: 5, 5\r\n\r\nhello", head + "Content-Length:\r\n\r\n",
		"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\tc\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: \r\n 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nX: a\r\n \r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nPragma: no-cache\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close, x\r\nContent-Length: 0\r\n\r\nmore", "HTTP/1.1 200 OK\r\n: a\r\n\r\n",
		"HTTP/1.1 204\r\n\r\nHTTP/1.1 200  OK\r\n\r\n", "HTTP/1.1 200 a\rb\r\nContent-Length: 0\r\n\r\n",
		"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n", "\r\nHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 +20 OK\r\n\r\n", "http/1.1 200 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n",
	}
	for _, s := range faulty.Scenarios() {
		if text := s.Output(); text != "" && len(text) < 3000 {
			all = append(all, text)
		}
	}
	return all
}

// TestLimits: nothing makes us collect more than we said, and what is just
// within the limits is taken.
func TestLimits(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, c := range map[string]struct {
		wire string
		want error
	}{
		"line":             {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10), http1.ErrTooMuch},
		"lines":            {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 20<<10), http1.ErrTooMuch},
		"within":           {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 10<<10) + "Content-Length: 0\r\n\r\n", nil},
		"extension":        {head + "1;" + strings.Repeat("x", 5000), http1.ErrChunk},
		"extension within": {head + "1;" + strings.Repeat("x", 4000) + "\r\nx\r\n0\r\n\r\n", nil},
		"extensions":       {head + strings.Repeat("1;"+strings.Repeat("x", 1000)+"\r\nx\r\n", 30) + "0\r\n\r\n", http1.ErrChunk},
		"bytewise":         {head + strings.Repeat("1\r\nx\r\n", 30000) + "0\r\n\r\n", nil},
		"trailer":          {head + "0\r\n" + strings.Repeat("X: y\r\n", 1000) + "\r\n", http1.ErrTrailer},
		"trailer within":   {head + "0\r\n" + strings.Repeat("X: y\r\n", 600) + "\r\n", nil},
		"size":             {head + "7fffffffffffffff\r\n", http1.ErrChunk},
		"zeros":            {head + strings.Repeat("0", 17) + "\r\n\r\n", http1.ErrChunk},
	} {
		t.Run(name, func(t *testing.T) {
			r := &http1.Reader{Source: strings.NewReader(c.wire)}
			r.Use(make([]byte, http1.BufferSize))
			h := new(http1.Head)
			_, err := http1.ReadHead(r, 64<<10, "", h)
			if err == nil {
				var b http1.Body
				b.Begin(r, h)
				_, err = io.Copy(io.Discard, &b)
			}
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}
