package server

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"millrace/internal/lane"
)

// posting is a header block of a request with a body.
func posting(fields ...string) []byte {
	return literals(append([]string{":method", "POST", ":scheme", "https", ":authority", "a.example", ":path", "/echo"}, fields...)...)
}

// What a request over HTTP/2 says of its body must be so, its path must be one, and
// its scheme that of the connection (RFC 9113, 8.1.1 and 8.3.1).
func TestHTTP2Malformed(t *testing.T) {
	scheme := func(s, path string) []byte {
		return literals(":method", "GET", ":scheme", s, ":authority", "a.example", ":path", path)
	}
	// The body of a request that is refused already may end the stream before the answer
	// is written.
	const reset, either = "PROTOCOL_ERROR", "400 PROTOCOL_ERROR"
	for name, c := range map[string]struct {
		block []byte
		body  string // "": the header ends the stream
		want  string // the answers that may come
	}{
		"a length without a body":       {asking("/slow", "content-length", "5"), "", "400"},
		"the same, of a hot path":       {asking("/hot", "content-length", "5"), "", "400"},
		"length 0 without a body":       {asking("/slow", "content-length", "0"), "", "200"},
		"no number, without a body":     {asking("/slow", "content-length", "abc"), "", "400"},
		"no number":                     {posting("content-length", "abc"), "abc", either},
		"a sign":                        {posting("content-length", "+3"), "abc", either},
		"two lengths, without a body":   {asking("/slow", "content-length", "0", "content-length", "0"), "", "400"},
		"two lengths":                   {posting("content-length", "3", "content-length", "3"), "abc", "400"},
		"a list":                        {posting("content-length", "3, 3"), "abc", either},
		"more than the length":          {posting("content-length", "2"), "abc", reset},
		"the length":                    {posting("content-length", "3"), "abc", "200"},
		"no length":                     {posting(), "abc", "200"},
		"an expectation":                {asking("/slow", "expect", "foo"), "", "417"},
		"an expectation, of a hot path": {asking("/hot", "expect", "foo"), "", "417"},
		"another, with a body":          {posting("expect", "foo"), "abc", "417"},
		"http":                          {scheme("http", "/slow"), "", "421"},
		"http, of a hot path":           {scheme("http", "/hot"), "", "421"},
		"another scheme":                {scheme("ftp", "/slow"), "", "400"},
		"capitals":                      {scheme("HTTPS", "/slow"), "", "200"},
		"a bare percent sign":           {asking("/a%"), "", "400"},
		"half of an escape":             {asking("/a%2"), "", "400"},
		"no escape":                     {asking("/%zz"), "", "400"},
		"a space":                       {asking("/a b"), "", "400"},
		"a percent sign in the query":   {asking("/slow?a=%"), "", "200"},
		"no path":                       {asking("slow"), "", "400"},
		"the server itself":             {literals(":method", "OPTIONS", ":scheme", "https", ":authority", "a.example", ":path", "*"), "", "200"},
		"an address in place of a path": {asking("https://a.example/slow"), "", "400"},
	} {
		for _, off := range []bool{false, true} {
			r := start(t, plan{lane: lane.Options{Off: off}})
			r.teach(t, "tls", "/hot")
			h := r.http2(t)
			_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block, EndStream: c.body == "", EndHeaders: true})
			if c.body != "" {
				_ = h.WriteData(1, true, []byte(c.body))
			}
			if got, body := h.answer(t, 1); !slices.Contains(strings.Fields(c.want), got) {
				t.Errorf("%s, lane off %v: %s %q, want %s", name, off, got, body, c.want)
			}
			if got, _ := h.get(t, 3, "/slow"); got != "200" { // the connection goes on
				t.Errorf("%s, lane off %v: then %s", name, off, got)
			}
			r.srv.Close()
		}
	}
}

// A path that is none is refused with the same page over HTTP/1.1 and HTTP/2, and what
// comes of a body behind it is not in the way.
func TestHTTP2BadTarget(t *testing.T) {
	r := start(t, plan{})
	c := r.dial(t, "tls")
	c.write("GET /a% HTTP/1.1\r\nHost: a.example\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	html, _ := io.ReadAll(res.Body)
	h := r.http2(t)
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: asking("/a%", "accept", "text/html"), EndStream: true, EndHeaders: true})
	if status, body := h.answer(t, 1); status != "400" || body != string(html) {
		t.Errorf("%s %q, want %q", status, body, html)
	}
	block := literals(":method", "POST", ":scheme", "https", ":authority", "a.example", ":path", "/%")
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block, EndHeaders: true})
	_ = h.WriteData(3, false, make([]byte, 1000))
	_ = h.WriteData(3, false, make([]byte, 1000))
	if status, _ := h.answer(t, 3); status != "400" {
		t.Error(status)
	}
	_ = h.WriteData(3, false, make([]byte, 1000)) // it was on its way
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: literals("x", "y"), EndHeaders: true, EndStream: true})
	if status, _ := h.get(t, 5, "/slow"); status != "200" {
		t.Error(status)
	}
}

// A request whose body ends before its length is never a whole one for a server behind.
func TestHTTP2ShortBody(t *testing.T) {
	p := newRelays(t)
	for i, r := range []*rig{p.with, p.without} {
		p.set(false, okHead+"Content-Length: 5\r\n\r\nhello")
		h := r.http2(t)
		_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: posting("content-length", "5"), EndHeaders: true})
		_ = h.WriteData(1, true, []byte("abc"))
		status, body := h.answer(t, 1)
		if status == "200" {
			t.Errorf("%d: %s %q", i, status, body)
		}
		for _, got := range p.requests() {
			if _, body, ok := strings.Cut(got, "\r\n\r\n"); ok && strings.HasPrefix(got, "POST") && len(body) >= 5 {
				t.Errorf("%d: the server got %q", i, got)
			}
		}
	}
}

// An address in place of a path names the scheme of the connection.
func TestMisdirected(t *testing.T) {
	for _, off := range []bool{false, true} {
		r := start(t, plan{lane: lane.Options{Off: off}})
		for _, transport := range transports {
			for scheme, want := range map[string]int{"http": 200, "https": 421, "ftp": 400} {
				if transport == "tls" {
					want = map[string]int{"http": 421, "https": 200, "ftp": 400}[scheme]
				}
				c := r.dial(t, transport)
				c.write("GET " + scheme + "://a.example/slow HTTP/1.1\r\nHost: a.example\r\n\r\n")
				res, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				if res.StatusCode != want {
					t.Errorf("%s over %s, lane off %v: %s", scheme, transport, off, res.Status)
				}
			}
		}
	}
}

// A header that is too long is answered with the page for that, and the connection goes
// on.
func TestHTTP2LongHeader(t *testing.T) {
	for _, off := range []bool{false, true} {
		r := start(t, plan{lane: lane.Options{Off: off}})
		h := r.http2(t)
		var many []string
		for range 900 {
			many = append(many, "x-part", strings.Repeat("p", 40))
		}
		block := asking("/slow", many...)
		const most = 16 << 10
		_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:most], EndStream: true})
		for block = block[most:]; len(block) > 0; {
			n := min(most, len(block))
			_ = h.WriteContinuation(1, n == len(block), block[:n])
			block = block[n:]
		}
		if status, body := h.answer(t, 1); status != "431" || !strings.HasPrefix(body, "The header of this request is larger") {
			t.Errorf("lane off %v: %s %q", off, status, body)
		}
		if status, body := h.get(t, 3, "/slow"); status != "200" {
			t.Errorf("lane off %v: then %s %q", off, status, body)
		}
		// No client may say what only the server does.
		_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: asking("/slow", "millrace-refused", "431 https /"), EndStream: true, EndHeaders: true})
		if status, body := h.answer(t, 5); status != "200" {
			t.Errorf("lane off %v: %s %q", off, status, body)
		}
	}
}
