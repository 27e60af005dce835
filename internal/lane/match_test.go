package lane

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"millrace/internal/wire/message"
)

const hostLine = "Host: a.example\r\n"

func TestMatchAccepts(t *testing.T) {
	for name, in := range map[string]string{
		"bare":            "GET / HTTP/1.1\r\n" + hostLine + "\r\n",
		"HEAD":            "HEAD / HTTP/1.1\r\n" + hostLine + "\r\n",
		"path":            "GET /a-b._~!$&'()*+,;=:@/c HTTP/1.1\r\n" + hostLine + "\r\n",
		"empty query":     "GET /? HTTP/1.1\r\n" + hostLine + "\r\n",
		"query":           "GET /?a=%zz&b=\"<>\\^`{|}?/ HTTP/1.1\r\n" + hostLine + "\r\n",
		"letter case":     "GET / HTTP/1.1\r\nhOsT: a.example\r\nACCEPT: */*\r\n\r\n",
		"port":            "GET / HTTP/1.1\r\nHost: a.example:8080\r\n\r\n",
		"IPv6":            "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
		"keep-alive":      "GET / HTTP/1.1\r\n" + hostLine + "Connection: keep-alive\r\n\r\n",
		"Keep-Alive":      "GET / HTTP/1.1\r\n" + hostLine + "Connection: Keep-Alive\r\n\r\n",
		"TE":              "GET / HTTP/1.1\r\n" + hostLine + "TE: trailers\r\n\r\n",
		"unknown":         "GET / HTTP/1.1\r\n" + hostLine + "X-Unknown: 1\r\nx-2: 2\r\n\r\n",
		"long name":       "GET / HTTP/1.1\r\n" + hostLine + strings.Repeat("X", 100) + ": 1\r\n\r\n",
		"no value":        "GET / HTTP/1.1\r\n" + hostLine + "X-Unknown:\r\nDNT: \r\n\r\n",
		"blanks":          "GET / HTTP/1.1\r\nHost:a.example\t\r\nAccept:  */*\r\nCookie:\ta \t\r\nX-Unknown:\tb\tc \r\n\r\n",
		"UTF-8":           "GET / HTTP/1.1\r\n" + hostLine + "User-Agent: \xc3\xa9\xff\r\nX-Unknown: \x80\r\n\r\n",
		"cookie twice":    "GET / HTTP/1.1\r\n" + hostLine + "Cookie: a=b\r\nCookie: c=d\r\n\r\n",
		"unknown twice":   "GET / HTTP/1.1\r\n" + hostLine + "X-Unknown: a\r\nX-Unknown: b\r\n\r\n",
		"keep-alive 2":    "GET / HTTP/1.1\r\n" + hostLine + "Connection: keep-alive\r\nConnection: keep-alive\r\n\r\n",
		"harmless twice":  "GET / HTTP/1.1\r\n" + hostLine + "DNT: 1\r\nDNT: 1\r\n\r\n",
		"cookie":          "GET / HTTP/1.1\r\n" + hostLine + "Cookie: a=b; c=d\r\n\r\n",
		"authorization":   "GET / HTTP/1.1\r\n" + hostLine + "Authorization: Basic eDp5\r\n\r\n",
		"codings":         "GET / HTTP/1.1\r\n" + hostLine + "Accept-Encoding: gzip,deflate, br,  zstd\r\n\r\n",
		"encoded path":    "GET /gr%C3%BC%C3%9Fe%20(1)/%25%3F%23 HTTP/1.1\r\n" + hostLine + "\r\n",
		"weights":         "GET / HTTP/1.1\r\n" + hostLine + "Accept-Encoding: GZIP;q=1,,new, br;q=0.5, *;q=0\r\n\r\n",
		"condition":       "GET / HTTP/1.1\r\n" + hostLine + "If-None-Match: \"x\"\r\n\r\n",
		"since":           "GET / HTTP/1.1\r\n" + hostLine + "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
		"colons in value": "GET / HTTP/1.1\r\n" + hostLine + "Referer: http://b.example:80/?x: y\r\n\r\n",
		"Chromium": "GET / HTTP/1.1\r\n" + hostLine + "Connection: keep-alive\r\nCache-Control: max-age=0\r\n" +
			"sec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\nsec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\n" +
			"Upgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: text/html,*/*;q=0.8\r\n" +
			"Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n" +
			"Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.9\r\nCookie: id=1\r\n\r\n",
		"longest": head4096(maxHead),
	} {
		var q request
		// What follows must not matter.
		n, v := match([]byte(in+"GARBAGE\x00"), &q)
		if v != matched || n != len(in) {
			t.Errorf("%s: %d of %d, verdict %d", name, n, len(in), v)
		}
		for i := range len(in) {
			if n, v := match([]byte(in[:i]), &q); v != short || n != 0 {
				t.Errorf("%s: the first %d bytes: %d, verdict %d, want short", name, i, n, v)
				break
			}
		}
	}
}

// head4096 is a request whose head has n bytes.
func head4096(n int) string {
	const start, end = "GET / HTTP/1.1\r\n" + hostLine + "Referer: ", "\r\n\r\n"
	return start + strings.Repeat("x", n-len(start)-len(end)) + end
}

func TestMatchRefuses(t *testing.T) {
	with := func(line string) string { return "GET / HTTP/1.1\r\n" + hostLine + line + "\r\n\r\n" }
	line := func(line string) string { return line + "\r\n" + hostLine + "\r\n" }
	for name, in := range map[string]string{
		"HTTP/1.0":              line("GET / HTTP/1.0"),
		"HTTP/1.2":              line("GET / HTTP/1.2"),
		"HTTP/2.0":              line("GET / HTTP/2.0"),
		"HTTP/11":               line("GET / HTTP/11"),
		"http/1.1":              line("GET / http/1.1"),
		"HTTP/0.9":              "GET /\r\n\r\n",
		"lower-case method":     line("get / HTTP/1.1"),
		"POST":                  line("POST / HTTP/1.1"),
		"longer method":         line("GETX / HTTP/1.1"),
		"GGET":                  line("GGET / HTTP/1.1"),
		"PRI":                   "PRI * HTTP/2.0\r\n\r\n",
		"asterisk":              line("GET * HTTP/1.1"),
		"absolute-form":         line("GET http://a.example/ HTTP/1.1"),
		"authority-form":        line("GET a.example:80 HTTP/1.1"),
		"two spaces before":     line("GET  / HTTP/1.1"),
		"two spaces after":      line("GET /  HTTP/1.1"),
		"space at the end":      line("GET / HTTP/1.1 "),
		"tab":                   line("GET\t/ HTTP/1.1"),
		"space in path":         line("GET /a b HTTP/1.1"),
		"percent":               line("GET /%61 HTTP/1.1"),
		"encoded slash":         line("GET /a%2Fb HTTP/1.1"),
		"encoded dots":          line("GET /%2E%2E/a HTTP/1.1"),
		"small hex":             line("GET /%c3%9f HTTP/1.1"),
		"encoded control":       line("GET /a%0D HTTP/1.1"),
		"encoded NUL":           line("GET /a%00 HTTP/1.1"),
		"encoded DEL":           line("GET /a%7F HTTP/1.1"),
		"half an escape":        line("GET /a%2 HTTP/1.1"),
		"no escape":             line("GET /a% HTTP/1.1"),
		"no hex":                line("GET /a%2G HTTP/1.1"),
		"fragment":              line("GET /#a HTTP/1.1"),
		"fragment in query":     line("GET /?a#b HTTP/1.1"),
		"non-ASCII path":        line("GET /\xc3\xa9 HTTP/1.1"),
		"non-ASCII query":       line("GET /?\xc3\xa9 HTTP/1.1"),
		"NUL in path":           line("GET /\x00 HTTP/1.1"),
		"DEL in query":          line("GET /?\x7f HTTP/1.1"),
		"backslash":             line("GET /\\ HTTP/1.1"),
		"quote in path":         line("GET /\" HTTP/1.1"),
		"bare LF in line":       "GET / HTTP/1.1\n" + hostLine + "\r\n",
		"bare LF in header":     "GET / HTTP/1.1\r\nHost: a\nDNT: 1\r\n\r\n",
		"bare LF at end":        "GET / HTTP/1.1\r\n" + hostLine + "\n",
		"bare CR in line":       "GET /\rx HTTP/1.1\r\n" + hostLine + "\r\n",
		"bare CR in value":      with("DNT: a\rb"),
		"CR CR LF":              "GET / HTTP/1.1\r\n" + hostLine + "DNT: 1\r\r\n\r\n",
		"leading CRLF":          "\r\nGET / HTTP/1.1\r\n" + hostLine + "\r\n",
		"leading space":         " GET / HTTP/1.1\r\n" + hostLine + "\r\n",
		"obs-fold":              with("DNT: a\r\n b"),
		"obs-fold first":        "GET / HTTP/1.1\r\n " + hostLine + hostLine + "\r\n",
		"obs-fold tab":          with("DNT: a\r\n\tb"),
		"no Host":               "GET / HTTP/1.1\r\nDNT: 1\r\n\r\n",
		"no header":             "GET / HTTP/1.1\r\n\r\n",
		"double Host":           with("Host: a.example"),
		"other Host":            with("host: b.example"),
		"empty Host":            "GET / HTTP/1.1\r\nHost: \r\n\r\n",
		"empty Host, no space":  "GET / HTTP/1.1\r\nHost:\r\n\r\n",
		"upper-case Host":       "GET / HTTP/1.1\r\nHost: A.example\r\n\r\n",
		"userinfo in Host":      "GET / HTTP/1.1\r\nHost: u@a.example\r\n\r\n",
		"path in Host":          "GET / HTTP/1.1\r\nHost: a.example/b\r\n\r\n",
		"space in Host":         "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
		"Content-Length":        with("Content-Length: 5"),
		"Content-Length 0":      with("Content-Length: 0"),
		"content-length":        with("content-length: 0"),
		"Transfer-Encoding":     with("Transfer-Encoding: chunked"),
		"Transfer-Encoding, id": with("Transfer-Encoding: identity"),
		"Trailer":               with("Trailer: X"),
		"Upgrade":               with("Upgrade: websocket"),
		"HTTP2-Settings":        with("HTTP2-Settings: AAA"),
		"Expect":                with("Expect: 100-continue"),
		"Range twice":           with("Range: bytes=0-1\r\nRange: bytes=2-3"),
		"If-Match":              with("If-Match: \"x\""),
		"TE, others":            with("TE: gzip"),
		"TE, and others":        with("TE: trailers, gzip"),
		"Content-Encoding":      with("Content-Encoding: br"),
		"Content-Range":         with("Content-Range: bytes 0-1/2"),
		"no kept value":         with("Cookie:"),
		"blank kept value":      with("Cookie: \t "),
		"space in name":         with("X Y: z"),
		"space after name":      with("X-Unknown : z"),
		"space after harmless":  with("Sec-CH-UA : z"),
		"NUL in harmless":       with("Sec-Fetch-\x00: z"),
		"underscore in one":     with("CF-Access_Token: z"),
		"Content-Length, space": with("Content-Length : 5"),
		"Content-Length, tab":   with("Content-Length\t: 5"),
		"space before name":     with(" X-Unknown: z"),
		"non-ASCII name":        with("X-\xc3\xa9: z"),
		"long name, no token":   with(strings.Repeat("x", 100) + " : 1"),
		"NUL in name":           with("X-\x00: z"),
		"slash in name":         with("X/Y: z"),
		"underscore in name":    with("Content_Length: 5"),
		"period in name":        with("X.Api.Key: z"),
		"other tokens":          with("x!#$%&'*+-^`|~1: 2"),
		"If-Unmodified-Since":   with("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"),
		"empty name":            with(": x"),
		"no colon":              with("DNT"),
		"space before colon":    with("DNT : 1"),
		"NUL in value":          with("DNT: \x00"),
		"DEL in value":          with("DNT: \x7f"),
		"close":                 with("Connection: close"),
		"Keep-Alive, other":     with("Connection: keep-alive, upgrade"),
		"Proxy-Connection":      with("Proxy-Connection: keep-alive"),
		"condition twice":       with("If-None-Match: \"a\"\r\nIf-None-Match: \"b\""),
		"another site's":        with("Available-Dictionary: :a:\r\nSec-Fetch-Site: cross-site"),
		"a sibling's":           with("Sec-Fetch-Site: same-site\r\nAvailable-Dictionary: :a:"),
		"too long":              head4096(maxHead + 1),
		"endless":               "GET /" + strings.Repeat("a", 2*maxHead),
		"endless query":         "GET /?" + strings.Repeat("a", 2*maxHead),
		"TLS":                   "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	} {
		var q request
		if _, v := match([]byte(in), &q); v != refused {
			t.Errorf("%s: verdict %d, want refused", name, v)
		}
	}
}

func TestMatchResult(t *testing.T) {
	var q request
	// What an earlier request left behind must not shine through.
	dirty := "GET /old?q HTTP/1.1\r\n" + hostLine + "Cookie: c\r\nIf-None-Match: x\r\nAccept-Encoding: br\r\n\r\n"
	if _, v := match([]byte(dirty), &q); v != matched {
		t.Fatal("does not match")
	}
	in := []byte("HEAD /new HTTP/1.1\r\n" + hostLine + "User-Agent: u\r\n\r\n")
	if _, v := match(in, &q); v != matched {
		t.Fatal("does not match")
	}
	if !q.headOnly || q.hasQuery || q.has(hdrAcceptEncoding) || q.has(hdrCookie) || q.has(hdrIfNoneMatch) ||
		string(in[q.path.from:q.path.to]) != "/new" || string(q.value(in, hdrUserAgent)) != "u" ||
		string(q.value(in, hdrHost)) != "a.example" || len(q.value(in, hdrReferer)) != 0 {
		t.Errorf("%+v", q)
	}
	in = []byte("GET /p?x=?y HTTP/1.1\r\n" + hostLine + "Accept-Encoding: br, gzip\r\n\r\n")
	if _, v := match(in, &q); v != matched {
		t.Fatal("does not match")
	}
	if q.headOnly || !q.hasQuery || string(in[q.query.from:q.query.to]) != "x=?y" || string(q.value(in, hdrAcceptEncoding)) != "br, gzip" {
		t.Errorf("%+v", q)
	}
}

// The eight bytes at once agree with the plain loop, at every place of every byte.
func TestClearText(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			b := []byte("abcdefghij klmnopqrs")
			b[at] = byte(c)
			if got, want := message.Printable(b), c >= 0x20 && c < 0x7f; got != want {
				t.Fatalf("Printable with %#x at %d: %t", c, at, got)
			}
		}
	}
}

func TestMatchAllocates(t *testing.T) {
	in := []byte("GET /a?b HTTP/1.1\r\n" + hostLine + "Accept-Encoding: gzip, br\r\nX-Unknown: 1\r\n\r\n")
	var q request
	if n := testing.AllocsPerRun(100, func() { match(in, &q) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever matches is a whole request to net/http too, with the same method,
// target and host, and without a body. What is short holds no byte that
// net/http would have refused already, and grows into nothing else.
func FuzzMatch(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 10)
	f.Add([]byte("HEAD /a?%zz HTTP/1.1\r\nhost: [::1]:80\r\nCookie: a\r\nAccept-Encoding: gzip, br\r\nConnection: keep-alive\r\n\r\nGET"), 30)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"), 40)
	f.Add([]byte("GET /gr%C3%BC%C3%9Fe%20(1)?%zz HTTP/1.1\r\nHost: a\r\n\r\nGET"), 8)
	f.Add([]byte("GET / HTTP/1.1\nHost: a\r\n\r\n"), 20)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nX-Unknown:\t\xff\tb \r\nTE: trailers\r\nAccept: a\r\nAccept:b\r\n\r\n"), 50)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\nX Y: z\r\nx_y:\r\n\r\n"), 40)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		var q, again request
		n, v := match(in, &q)
		if cut >= 0 && cut < len(in) {
			_, early := match(in[:cut], &again)
			switch {
			case early == matched && (v != matched || !reflect.DeepEqual(again, q)):
				t.Fatalf("matched %d bytes, but not with those that follow", cut)
			case early == refused && v == matched:
				t.Fatalf("refused %d bytes of a request that matches", cut)
			case early == short && v == matched && cut >= n:
				t.Fatalf("short with %d of %d bytes", cut, n)
			}
		}
		if v == short {
			for _, c := range in {
				if c != '\r' && c != '\n' && (c < 0x20 && c != '\t' || c == 0x7f) {
					t.Fatalf("waits for more after %q", in)
				}
			}
		}
		if v != matched {
			return
		}
		checkWithNetHTTP(t, in[:n], &q)
	})
}

func checkWithNetHTTP(t *testing.T, in []byte, q *request) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(in)))
	if err != nil {
		t.Fatalf("net/http does not take %q: %v", in, err)
	}
	target := string(in[q.path.from:q.path.to])
	if r.URL.EscapedPath() != target || r.URL.Host != "" {
		t.Errorf("path %q, host %q; net/http %q, %q", target, "", r.URL.EscapedPath(), r.URL.Host)
	}
	spelling := "" // the only one that is accepted
	for _, c := range []byte(r.URL.Path) {
		if message.Class[c]&message.PathByte != 0 {
			spelling += string(c)
		} else {
			spelling += fmt.Sprintf("%%%02X", c)
		}
	}
	if spelling != target {
		t.Errorf("the path %q is accepted as %q, too", spelling, target)
	}
	if q.hasQuery {
		target += "?" + string(in[q.query.from:q.query.to])
	}
	method := http.MethodGet
	if q.headOnly {
		method = http.MethodHead
	}
	if r.Method != method || r.RequestURI != target || r.Host != string(q.value(in, hdrHost)) || r.Proto != "HTTP/1.1" {
		t.Errorf("%s %s %s %s; net/http %s %s %s %s", method, target, q.value(in, hdrHost), "HTTP/1.1", r.Method, r.RequestURI, r.Host, r.Proto)
	}
	if r.ContentLength != 0 || r.Body != http.NoBody || len(r.TransferEncoding) != 0 || r.Close {
		t.Errorf("net/http sees a body or a close in %q", in)
	}
	for id := range numKept {
		values := r.Header[names[id]]
		switch {
		case id == hdrHost:
		case len(values) == 0 && q.has(id), len(values) > 0 && values[0] != string(q.value(in, id)), len(values) > 1 != q.repeats(id):
			t.Errorf("%s is %q, repeated %t; to net/http %q", names[id], q.value(in, id), q.repeats(id), values)
		}
	}
	known := func(name string) bool { // by a list
		id := lookupHeader([]byte(name))
		return id < numKept || id == hdrHarmless || id == hdrConnection || id == hdrTE
	}
	unknown := false
	for name := range r.Header {
		unknown = unknown || !known(name)
		if !q.hasField(in, name) {
			t.Errorf("%s is not there", name)
		}
	}
	if q.unknown != unknown {
		t.Errorf("unknown fields: %t, to net/http %t", q.unknown, unknown)
	}
	for _, name := range []string{"Content-Length", "Transfer-Encoding", "If-Match", "If-Unmodified-Since", "Expect", "Upgrade", "Trailer"} {
		if r.Header[name] != nil || q.hasField(in, name) {
			t.Errorf("%q has %s", in, name)
		}
	}
}
