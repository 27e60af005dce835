package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/internal/lane"
)

// The oracle of the fast lane is the same server without it.
type pair struct{ with, without *rig }

func startPair(tb testing.TB) pair {
	p := pair{start(tb, plan{}), start(tb, plan{lane: lane.Options{Off: true}})}
	p.teach(tb)
	return p
}

// teach makes hot what the streams ask for.
func (p pair) teach(tb testing.TB) {
	c := p.with.dial(tb, "unix")
	for _, path := range []string{"/hot", pathBig, "/coding", "/lang", "/query", "/query?a=b"} {
		c.get(path)
	}
	for _, path := range apiPaths {
		c.write(request("GET", path))
		c.answer("GET")
	}
	for _, h := range []string{"Accept-Encoding: gzip", "Accept-Encoding: gzip, br", "Accept-Encoding: br"} {
		c.write(request("GET", "/coding", h))
		c.answer("GET")
	}
	_ = c.Close()
}

// changing are the lines that a second makes another, which the fast lane has at
// the end, wherever net/http has them, the names of log lines, and boundaries of parts.
var changing = regexp.MustCompile(`\r\n(?:Date|Age|Cache-Status): [^\r]*|Request id: [A-Z2-7]{10}|[A-Z2-7]{26}`)

// talk sends a stream, cut into pieces, and returns everything that comes back
// until the server closes, without dates and ages.
func talk(tb testing.TB, c net.Conn, stream string, cuts []byte) string {
	tb.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	go func() { // ends with the deadline at the latest
		for i := 0; len(stream) > 0; i++ {
			n := len(stream)
			if len(cuts) > 0 {
				cut := cuts[i%len(cuts)]
				n = min(n, 1+int(cut))
				if i >= 4*len(cuts) {
					n = len(stream)
				}
				for range cut % 8 {
					runtime.Gosched()
				}
				if cut%16 == 15 {
					time.Sleep(100 * time.Microsecond)
				}
			}
			if _, err := io.WriteString(c, stream[:n]); err != nil {
				return // the server has closed the connection
			}
			stream = stream[n:]
		}
		if cw, ok := c.(interface{ CloseWrite() error }); ok {
			_ = cw.CloseWrite()
		}
	}()
	got, err := io.ReadAll(c) // an error other than the timeout is a kind of end
	if errors.Is(err, os.ErrDeadlineExceeded) {
		tb.Errorf("no end of the answers to %q", stream)
	}
	return changing.ReplaceAllString(string(got), "")
}

// compare sends the same to both servers.
func (p pair) compare(tb testing.TB, transport, stream string, cuts []byte) string {
	tb.Helper()
	var got [2]string
	for i, r := range []*rig{p.with, p.without} {
		c, err := r.tryDial(transport)
		if err != nil {
			tb.Fatal(err)
		}
		got[i] = talk(tb, c, stream, cuts)
		_ = c.Close()
	}
	if got[0] != got[1] {
		tb.Errorf("%s: %q in pieces of %v:\n   with the lane %.3000q\nwithout the lane %.3000q", transport, stream, cuts, got[0], got[1])
	}
	return got[0]
}

func post(path, body string, headers ...string) string {
	return request("POST", path, append(headers, fmt.Sprintf("Content-Length: %d", len(body)))...) + body
}

// pieces are what streams are put together from.
var pieces = []string{
	request("GET", "/hot"),
	request("GET", "/hot"), // twice: most of the traffic is hot
	request("HEAD", "/hot"),
	request("GET", "/hot?x=%41", "Cookie: a=b", "User-Agent: c"),
	request("GET", "/hot", `If-None-Match: "13"`),
	request("GET", "/hot", `If-None-Match: "14"`),
	request("GET", "/hot", `If-None-Match: "14", "13"`),
	request("GET", "/hot", "If-Modified-Since: Mon, 06 May 2024 07:08:09 GMT"),
	request("GET", "/hot", "If-Modified-Since: Mon, 06 May 2024 07:08:08 GMT"),
	request("GET", "/hot", "Range: bytes=1-2"),
	request("GET", "/hot", `If-None-Match: "14" , W/"13"`, "X-Unknown: 1"),
	request("GET", "/hot", `If-None-Match: W/"13"`),
	request("GET", "/hot", "If-None-Match: *"),
	request("GET", "/hot", `If-None-Match: "13`),
	request("GET", "/hot", `If-None-Match: "14"`, `If-None-Match: "13"`),
	request("GET", "/hot", `If-None-Match: "14"`, "If-Modified-Since: Mon, 06 May 2024 07:08:09 GMT"),
	request("HEAD", "/hot", "If-Modified-Since: Tue, 06 May 2025 07:08:09 GMT"),
	request("GET", "/hot", "If-Modified-Since: Monday, 06-May-24 07:08:09 GMT"),
	request("GET", "/hot", "If-Modified-Since: Mon May  6 07:08:09 2024"),
	request("GET", "/hot", "If-Modified-Since: tomorrow"),
	request("GET", "/hot", "If-Match: *"),
	request("GET", "/hot", "Range: bytes=0-0", "X-Unknown: 1"),
	request("GET", "/hot", "range:BYTES = 1-"),
	request("GET", "/hot", "Range: bytes=-1"),
	request("GET", "/hot", "Range: bytes=,0-0,"),
	request("GET", "/hot", "Range: bytes=0-0,2-2"),
	request("GET", "/hot", "Range: bytes=99-"),
	request("GET", "/hot", "Range: bytes=a-"),
	request("GET", "/hot", "Range: lines=0-0"),
	request("GET", "/hot", "Range: bytes=0-0", "Range: bytes=1-1"),
	request("HEAD", "/hot", "Range: bytes=0-0"),
	request("GET", "/hot", "Range: bytes=0-0", `If-Range: "13"`),
	request("GET", "/hot", "Range: bytes=0-0", `If-Range: W/"13"`),
	request("GET", "/hot", "Range: bytes=0-0", "If-Range: Mon, 06 May 2024 07:08:09 GMT"),
	request("GET", "/hot", "Range: bytes=0-0", "If-Range: Mon, 06 May 2024 07:08:08 GMT"),
	request("GET", "/hot", "Range: bytes=0-0", `If-None-Match: "13"`),
	request("GET", pathBig, "Range: bytes=10-19999"),
	request("GET", pathBig, "Range: bytes=-17000"),
	request("GET", "/hot", "X-Unknown: 1", "X-Unknown:", "x-other:\t\xff\ta \t", "TE: trailers"),
	request("GET", "/hot", "X_Unknown: 1", "Content_Length: 5", "Transfer.Encoding: chunked"),
	request("GET", "/hot", "X Unknown: 1"),
	request("GET", "/hot", "X-\xc3\xa9: 1"),
	request("GET", "/hot", "X-Unknown : 1"),
	request("GET", "/hot", "X-Unknown: a\rb"),
	request("GET", "/hot", "TE: gzip"),
	request("GET", "/hot", "Content-Encoding: br", "Proxy-Connection: close"),
	request("GET", "/hot", "Accept:a\t", "Accept: b", "Accept-Language:", "Connection: Keep-Alive"),
	request("GET", "/hot", strings.Split(strings.Repeat("X-Unknown: 1\n", 40)+"X: y", "\n")...),
	request("GET", "/lang", "Accept-Language:\tde "),
	request("GET", "/lang", "Accept-Language: de", "Accept-Language: en", "X-Unknown: 1"),
	request("GET", "/lang", "X-Unknown: de"),
	request("GET", "/coding", "Accept-Encoding:gzip\t,  br"),
	request("GET", pathBig),
	request("HEAD", pathBig),
	request("GET", "/coding", "Accept-Encoding: gzip, br"),
	request("GET", "/coding", "Accept-Encoding: gzip;q=0.5"),
	request("GET", "/lang", "Accept-Language: de"),
	request("GET", "/query?a=b"),
	request("GET", "/slow"),
	request("GET", "/%68ot"),
	request("HEAD", "/slow"),
	request("GET", "/slow", "Connection: keep-alive", "X-Unknown: 1"),
	request("GET", "/nowhere"),
	request("GET", "//hot"),
	request("GET", "/silent"),
	request("OPTIONS", "*"),
	"G" + request("GET", "/slow"),
	post("/echo", "hello"),
	post("/echo", ""),
	post("/echo", request("GET", "/hot")),
	post("/unread", request("GET", "/hot")+request("GET", "/hot")),
	post("/unread", strings.Repeat("x", 10_000)),
	post("/hot", "body"),
	request("GET", "/slow", "Content-Length: 5") + "GET /",
	request("GET", "/hot", "Content-Length: 36") + "GET /hot HTTP/1.1\r\nHost: smuggle\r\n\r\n",
	request("POST", "/echo", "Transfer-Encoding: chunked") + "5\r\nhello\r\n0\r\n\r\n",
	request("POST", "/unread", "Transfer-Encoding: chunked") + "5\r\nGET /\r\n0\r\n\r\n",
	post("/echo", "hello", "Expect: 100-continue"),
	"\r\n",
	"\n",
	"G",
	"GET",
	"GET /hot HTTP/1.1\r\nHost: a.example\r\n",
	"GET /hot HTTP/1.1\nHost: a.example\n\n",
	"GET /hot HTTP/1.1\r\nHost: a.example\r\n\n",
	"GET /hot HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n",
	"GET http://a.example/hot HTTP/1.1\r\nHost: b.example\r\n\r\n",
	request("GET", "/hot", "Connection: close"),
	request("GET", "/hot", "Host: a.example"),
	request("GET", "/hot", "X: a", " folded"),
	request("GET", "/hot", "Content-Length : 5"),
	request("GET", "/hot", "Content-Length: 5", "Content-Length: 5") + "hello",
	request("POST", "/echo", "Content-Length: 5", "Transfer-Encoding: chunked") + "0\r\n\r\n",
	request("GET", "/slow", "X: "+strings.Repeat("y", 5000)),
	request("GET", "/hot", "Referer: "+strings.Repeat("y", 4000)),
	request("GET", "/hot", "X: \x00"),
	request("GET", "/slow", "X: \xff\t"),
	" " + request("GET", "/hot"),
	request("GET", "/slow", "Upgrade: x", "Connection: Upgrade"),
	request("GET", "/slow", "Upgrade: websocket", "Connection: Upgrade"),
	request("GET", "/slow", "Upgrade: websocket", "Connection: keep-alive, Upgrade") + request("GET", "/slow"),
	request("GET", apiQuery),
	request("GET", apiQuery, "Cache-Control: no-cache", "Pragma: no-cache"),
	request("HEAD", apiQuery),
	request("GET", apiQuery, `If-None-Match: "api"`),
	request("GET", apiQuery, "If-Modified-Since: Mon, 06 May 2024 07:08:09 GMT"),
	request("GET", apiQuery, "Range: bytes=1-2"),
	request("GET", apiQuery, "Range: bytes=0-0", "X-Unknown: 1"),
	request("GET", apiQuery, `If-None-Match: "x", "api"`, "If-Modified-Since: tomorrow"),
	request("GET", apiQuery, "If-Modified-Since: Tue, 06 May 2025 07:08:09 GMT"),
	request("GET", apiQuery+"&d"),
	request("GET", "/api/gone"),
	request("GET", "/api/gone?other"),
	request("HEAD", "/api/gone"),
	request("GET", "/api/gone", `If-None-Match: "api"`),
	request("GET", "/api/gone", "Range: bytes=1-2"),
	request("GET", "/api/nothing"),
	request("HEAD", "/api/nothing"),
	request("GET", "/api/moved", `If-None-Match: "api"`),
	request("GET", "/api/directed"),
	request("GET", "/api/directed", "Cache-Control: no-cache"),
	request("GET", "/api/directed", "Cache-Control: no-cache", "Cache-Control: no-cache"),
	request("GET", "/api/directed", "Pragma: no-cache"),
}

func piece(i byte) string { return pieces[int(i)%len(pieces)] }

// Every piece alone, between hot requests, and behind every kind of request
// that leaves net/http in a different state.
func TestStreams(t *testing.T) {
	p := startPair(t)
	before := map[string]string{
		"first":         "",
		"after hot":     request("GET", "/hot"),
		"after slow":    request("GET", "/slow"),
		"after post":    post("/echo", "x"),
		"post, hot":     post("/echo", "x") + request("GET", "/hot"),
		"after chunked": request("POST", "/echo", "Transfer-Encoding: chunked") + "1\r\nx\r\n0\r\n\r\n",
	}
	for name, head := range before {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range pieces {
				stream := head + piece(byte(i)) + request("GET", "/hot") + request("GET", "/slow") + request("GET", "/hot")
				for _, cuts := range [][]byte{nil, {byte(len(head) + 2)}, {30, 7}} {
					p.compare(t, "unix", stream, cuts)
				}
			}
		})
	}
}

func TestStreamsOverAll(t *testing.T) {
	p := startPair(t)
	p.with.teach(t, "tls", "/hot", pathBig)
	overAll(t, func(t *testing.T, transport string) {
		t.Parallel()
		for i := range pieces {
			p.compare(t, transport, request("GET", "/slow")+piece(byte(i))+request("GET", "/hot"), []byte{63, 40})
		}
	})
}

// The named ways to desynchronise a connection. Each must give the answers of
// net/http, and what is hidden must not be answered.
func TestSmuggling(t *testing.T) {
	p := startPair(t)
	hot := request("GET", "/hot")
	for name, s := range map[string]struct {
		stream  string
		answers int
	}{
		"GGET behind a slow request":          {request("GET", "/slow") + "G" + hot, 2},
		"GGET split behind a slow request":    {request("GET", "/slow") + "G" + hot, 2},
		"a header that looks like a request":  {request("GET", "/slow", "X: GET /hot HTTP/1.1") + hot, 2},
		"a request in a body":                 {post("/echo", hot) + hot, 2},
		"a request in an unread body":         {post("/unread", hot) + hot, 2},
		"a request in a GET's body":           {request("GET", "/hot", fmt.Sprint("Content-Length: ", len(hot))) + hot + hot, 2},
		"a request in a chunk":                {request("POST", "/echo", "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n", len(hot)) + hot + "\r\n0\r\n\r\n" + hot, 2},
		"length and coding":                   {request("POST", "/echo", "Content-Length: 5", "Transfer-Encoding: chunked") + "0\r\n\r\n" + hot, 1},
		"bare LF ends the head":               {"POST /echo HTTP/1.1\nHost: a\nContent-Length: 5\n\nGET /" + hot, 1},
		"a length with a space in front":      {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nGET /" + hot, 1},
		"a folded length":                     {"POST /echo HTTP/1.1\r\nHost: a\r\nX: y\r\n Content-Length: 5\r\n\r\n" + hot, 1},
		"an empty line after a POST":          {post("/echo", "x") + "\r\n" + hot, 2},
		"an empty line after POST and hot":    {post("/echo", "x") + hot + "\r\n" + hot, 3},
		"two empty lines after POST and slow": {post("/echo", "x") + request("GET", "/slow") + "\r\n\r\n" + hot, 3},
		"a request behind an upgrade":         {request("GET", "/slow", "Upgrade: x", "Connection: Upgrade") + hot, 2},
		"expecting to continue":               {post("/echo", hot, "Expect: 100-continue") + hot, 3},
		"unread, expecting to continue":       {post("/unread", hot, "Expect: 100-continue") + hot, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range len(s.stream) {
				cuts := []byte(nil)
				if i > 0 && i < 200 {
					cuts = []byte{byte(i - 1), 255, 255, 255}
				}
				got := p.compare(t, "unix", s.stream, cuts)
				if n := strings.Count(got, "HTTP/1.1 "); n < s.answers {
					t.Fatalf("%d answers, want %d: %q", n, s.answers, got)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// Random streams, cut at random points, get the same answers from both servers.
func FuzzStreams(f *testing.F) {
	f.Add([]byte{0, 16, 0, 16}, []byte{}, []byte{})
	f.Add([]byte{16, 24, 0}, []byte{80}, []byte{})
	f.Add([]byte{27, 36, 0, 36, 0}, []byte{3, 200}, []byte("GET /hot HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte{33, 0, 28, 0, 1, 2, 3}, []byte{1, 2, 3, 4}, []byte("\x00"))
	for i := range pieces {
		f.Add([]byte{byte(i), 0, 16, byte(i), 0}, []byte{byte(i), 15}, []byte{})
	}
	p := startPair(f)
	f.Fuzz(func(t *testing.T, ops, cuts, tail []byte) {
		const most = 24 // requests: enough for every pair of states
		var stream strings.Builder
		for _, op := range ops[:min(len(ops), most)] {
			stream.WriteString(piece(op))
		}
		stream.Write(tail[:min(len(tail), 8<<10)])
		p.compare(t, "unix", stream.String(), cuts[:min(len(cuts), 64)])
	})
}

// One request, whatever its bytes: the lane must not answer what the server
// refuses, nor answer anything else than it.
func FuzzOracle(f *testing.F) {
	for _, s := range pieces {
		f.Add([]byte(s))
	}
	p := startPair(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		p.compare(t, "unix", string(in[:min(len(in), 16<<10)]), nil)
	})
}
