package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"testing"
)

// read feeds an answer in pieces of a size, and the end of the connection.
func read(text string, piece int, k *known) (a answer, used int, err error) {
	for used < len(text) && err == nil && a.at != whole {
		var n int
		n, err = a.feed([]byte(text[used:min(used+piece, len(text))]), k, nil)
		used += n
	}
	if err == nil && a.at != whole {
		err = a.end()
	}
	return a, used, err
}

func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		name, text string
		status     int
		body       int64
		last       bool
		rest       int // bytes behind it
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, 5, false, 0},
		{"length, twice the same", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length:5 \r\n\r\nhello", 200, 5, false, 0},
		{"no body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, 0, false, 0},
		{"no reason", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, 0, false, 0},
		{"bare line feeds", "HTTP/1.1 200 OK\nContent-Length: 2\n\nab", 200, 2, false, 0},
		{"something behind", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 200", 200, 2, false, 12},
		{"close", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: foo, CLOSE\r\n\r\nab", 200, 2, true, 0},
		{"to the end", "HTTP/1.1 200 OK\r\n\r\nuntil it ends", 200, 13, true, 0},
		{"HTTP/1.0", "HTTP/1.0 404 Not Found\r\nContent-Length: 2\r\n\r\nab", 404, 2, true, 0},
		{"HTTP/1.0 kept alive", "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nab", 200, 2, false, 0},
		{"204", "HTTP/1.1 204 No Content\r\n\r\n", 204, 0, false, 0},
		{"304 with the length of what it stands for", "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n", 304, 0, false, 0},
		{"304, chunked", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", 304, 0, false, 0},
		{"interim", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, 1, false, 0},
		{"folded", "HTTP/1.1 200 OK\r\nX-Long: a\r\n  b\r\nContent-Length: 1\r\n\r\nx", 200, 1, false, 0},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0006\r\n world\r\n0\r\n\r\n", 200, 11, false, 0},
		{"chunked, not by its length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, 5, false, 0},
		{"chunked, with extensions", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA;x=\"y\";z\r\n0123456789\r\n1 \r\nx\r\n0;last\r\n\r\n", 200, 11, false, 0},
		{"chunked, with trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: b\r\nLonger: trailer\r\n\r\nmore", 200, 1, false, 4},
		{"chunked, empty", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, 0, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var k known
			for piece := len(c.text); piece > 0; piece-- {
				for _, when := range []string{"first", "again"} { // as the known one, the second time
					a, used, err := read(c.text, piece, &k)
					if err != nil {
						t.Fatalf("pieces of %d bytes, %s: %v", piece, when, err)
					}
					if a.head.status != c.status || a.body != c.body || a.head.last != c.last {
						t.Fatalf("pieces of %d bytes, %s: status %d, body %d, last %v", piece, when, a.head.status, a.body, a.head.last)
					}
					if len(c.text)-used != c.rest || a.bytes != int64(used) {
						t.Fatalf("pieces of %d bytes, %s: %d bytes used, %d counted, of %d", piece, when, used, a.bytes, len(c.text))
					}
				}
			}
		})
	}
}

func TestAnswerRefuses(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct {
		name, text string
		broken     bool // it ends too early; else it is malformed
	}{
		{"nothing", "", true},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-", true},
		{"half a body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", true},
		{"half a chunk", chunked + "5\r\nhel", true},
		{"no last chunk", chunked + "5\r\nhello\r\n", true},
		{"no end of the trailers", chunked + "0\r\nA: b\r\n", true},
		{"another protocol", "SSH-2.0-OpenSSH_9.2\r\n", false},
		{"another protocol without a line", "\x15\x03\x01\x00\x02\x02\x46", false},
		{"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", false},
		{"an odd status", "HTTP/1.1 20 OK\r\n\r\n", false},
		{"a status too long", "HTTP/1.1 2000 OK\r\n\r\n", false},
		{"a status below 100", "HTTP/1.1 099 OK\r\n\r\n", false},
		{"an empty first line", "\r\nHTTP/1.1 200 OK\r\n\r\n", false},
		{"no colon", "HTTP/1.1 200 OK\r\nfoo\r\n\r\n", false},
		{"a space before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello", false},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", false},
		{"a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello", false},
		{"a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", false},
		{"an empty length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", false},
		{"an endless length", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", false},
		{"a folded length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n 0\r\n\r\n", false},
		{"folded at once", "HTTP/1.1 200 OK\r\n X: y\r\n\r\n", false},
		{"another coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", false},
		{"two codings", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", false},
		{"chunks in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false},
		{"switching protocols", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", false},
		{"nothing but interim answers", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInterim+1), false},
		{"an endless head", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", maxHead) + "\r\n\r\n", false},
		{"a chunk without a size", chunked + "\r\nhello\r\n", false},
		{"a chunk with two sizes", chunked + "5 5\r\nhello\r\n0\r\n\r\n", false},
		{"a chunk with a signed size", chunked + "+5\r\nhello\r\n0\r\n\r\n", false},
		{"a chunk with a huge size", chunked + "fffffffffffffffff\r\n", false},
		{"a chunk longer than it says", chunked + "4\r\nhello\r\n0\r\n\r\n", false},
		{"a chunk's line with a bare line feed", chunked + "5\nhello\r\n0\r\n\r\n", false},
		{"a chunk's extension with a bare line feed", chunked + "5;x\nhello\r\n0\r\n\r\n", false},
		{"an endless extension", chunked + "5;" + strings.Repeat("x", maxChunkLine) + "\r\nhello", false},
		{"endless trailers", chunked + "0\r\n" + strings.Repeat("a: b\r\n", maxHead/6+1) + "\r\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := errMalformed
			if c.broken {
				want = errBroken
			}
			for _, piece := range []int{len(c.text) + 1, 7, 1} {
				var k known
				if _, _, err := read(c.text, piece, &k); !errors.Is(err, want) {
					t.Errorf("pieces of %d bytes: %v, want %v", piece, err, want)
				}
			}
		})
	}
}

// A head that differs in one byte anywhere from the known one is parsed anew.
func TestKnownHeadIsTheSameToTheByte(t *testing.T) {
	const text = "HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Length: 17\r\nA: b\r\n\r\n"
	body := strings.Repeat("x", 200)
	var k known
	if _, _, err := read(text+body, 1000, &k); err != nil {
		t.Fatal(err)
	}
	if !k.matches([]byte(text)) || k.whole != len(text)+17 {
		t.Fatalf("it learned %q, %d bytes in all", k.text, k.whole)
	}
	for at := range len(text) {
		other := text[:at] + string(text[at]+1) + text[at+1:]
		if k.matches([]byte(other)) {
			t.Errorf("%q counts as known", other)
		}
	}
	longer := strings.Replace(text, "17", "117", 1)
	a, _, err := read(longer+body, 1000, &k)
	if err != nil || a.body != 117 {
		t.Errorf("a longer answer: body %d, %v", a.body, err)
	}
}

// The first answer is kept: its header, and the hash of its body without the
// framing of chunks.
func TestSample(t *testing.T) {
	const text = "HTTP/1.1 200 OK\r\nX-Test: yes\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
	want := fnv.New64a()
	want.Write([]byte("hello world"))
	for piece := 1; piece <= len(text); piece++ {
		var (
			a answer
			k known
			s sample
		)
		for at := 0; at < len(text); at += piece {
			if _, err := a.feed([]byte(text[at:min(at+piece, len(text))]), &k, &s); err != nil {
				t.Fatal(err)
			}
		}
		a.sampled()
		if !s.done || s.Hash != want.Sum64() || s.Head.Get("X-Test") != "yes" || s.Status != 200 || s.Length != 11 || s.Bytes != len(text) {
			t.Fatalf("pieces of %d bytes: %+v", piece, s)
		}
	}
}

// The oracle reads an answer as net/http does: past interim answers, to the end
// of the body.
func oracle(text []byte) (status int, body int64, err error) {
	r := bufio.NewReader(bytes.NewReader(text))
	for range maxInterim + 1 {
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			return 0, 0, fmt.Errorf("head: %w", err)
		}
		if response.StatusCode >= 200 || response.StatusCode == 101 || response.StatusCode < 100 {
			body, err = io.Copy(io.Discard, response.Body)
			return response.StatusCode, body, err
		}
	}
	return 0, 0, errors.New("too many interim answers")
}

// Whatever the bytes and however they are cut: what is taken for an answer is
// the answer that net/http sees, and being known changes nothing.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.0 200 OK\r\n\r\nhello",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\nConnection: close\n\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0a\r\n0123456789\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: a\r\n\tb\r\nContent-Length: 1\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
	} {
		f.Add([]byte(text), uint16(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, piece uint16) {
		var k known
		a, used, err := read(string(text), len(text)+1, &k)
		for _, again := range []struct {
			name  string
			piece int
			known *known
		}{
			{"in pieces", int(piece) + 1, new(known)},
			{"byte by byte", 1, new(known)},
			{"with a known head", len(text) + 1, &k},
		} {
			b, used2, err2 := read(string(text), again.piece, again.known)
			if (err == nil) != (err2 == nil) {
				t.Fatalf("%s: %v, and at once: %v", again.name, err2, err)
			}
			if err == nil && (a.head != b.head || a.body != b.body || a.bytes != b.bytes || used != used2) {
				t.Fatalf("%s: %+v, and at once: %+v", again.name, b, a)
			}
		}
		if err != nil {
			return
		}
		status, body, err := oracle(text[:used])
		if err != nil {
			// net/http checks the bytes of header values and trailers too, and
			// its limits are others. Framing is what must not differ.
			for _, framing := range []string{"bad Content-Length", "multiple Content-Length", "transfer encoding", "malformed chunked", "bare LF", "invalid CR"} {
				if strings.Contains(err.Error(), framing) {
					t.Fatalf("taken for an answer with %d bytes of body: %v", a.body, err)
				}
			}
			return
		}
		if status != a.head.status || body != a.body {
			t.Fatalf("status %d with %d bytes, and net/http says %d with %d", a.head.status, a.body, status, body)
		}
	})
}
