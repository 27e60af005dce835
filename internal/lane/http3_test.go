package lane

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

// What matchParsed takes of a request that another parser has read, match takes
// in the form of HTTP/1.1, and finds the same in it.
func FuzzMatchParsed(f *testing.F) {
	f.Add("GET", "/", "a.example", "")
	f.Add("HEAD", "/a/b?c=%zz", "[::1]:80", "Cookie: a; b\nAccept-Encoding: gzip, br\nTe: trailers\nUser-Agent: u")
	f.Add("GET", "/a%20b", "a", "If-None-Match: \"x\"\nif-none-match: \"y\"")
	f.Add("POST", "/", "A.example", "Content-Length: 1\nX-Unknown: 1")
	f.Add("GET", "/?#", "", "Host: b\nConnection: keep-alive\nkeep-alive: 1\nContent-Type: a\nExpect: 100-continue")
	f.Add("GET", "/", "a", "X-Unknown: \t\nX-Unknown: a\tb\nX-Unknown: \xff\nX-: \nAccept: a\nAccept: b")
	f.Add("GET", "/", "a", "X_Unknown: 1\nRange: bytes=0-1\nX-Unknown : 1")
	f.Add("GET", "//..", "a", "Sec-Fetch-Mode: \x00\nX-Forwarded-For: 1.1.1.1 \nPriority: u=1")
	f.Fuzz(func(t *testing.T, method, target, host, lines string) {
		r := &http.Request{Method: method, RequestURI: target, Host: host, Header: http.Header{}}
		for line := range strings.SplitSeq(lines, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				r.Header.Add(name, value) // quic-go does so, too
			}
		}
		var q request
		buf := make([]byte, 0, maxHead)
		n, ok := matchParsed(buf, r, &q)
		if !ok {
			return
		}
		in := buf[:n]
		var text bytes.Buffer
		text.WriteString(method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n")
		for name, values := range r.Header {
			for _, value := range values {
				if !strings.EqualFold(name, "te") {
					text.WriteString(name + ": " + value + "\r\n")
				}
			}
		}
		text.WriteString("\r\n")
		if text.Len() > maxHead {
			return // the names count there, and here they do not
		}
		var same request
		if m, v := match(text.Bytes(), &same); v != matched || m != text.Len() {
			t.Fatalf("match does not take %q", text.Bytes())
		}
		if q.headOnly != same.headOnly || q.unknown != same.unknown && r.Header["Content-Type"] == nil || q.hasQuery != same.hasQuery {
			t.Errorf("%+v, and for match %+v", q, same)
		}
		for name := range r.Header {
			if !q.hasField(in, name) || !strings.EqualFold(name, "te") && !same.hasField(text.Bytes(), name) {
				t.Errorf("%s is not there", name)
			}
		}
		part := func(b []byte, s span) string { return string(b[s.from:s.to]) }
		if part(in, q.path) != part(text.Bytes(), same.path) || q.hasQuery && part(in, q.query) != part(text.Bytes(), same.query) {
			t.Errorf("target %q", target)
		}
		for id := range numKept {
			if id == hdrCookie { // may come in parts
				continue
			}
			if got, want := string(q.value(in, id)), string(same.value(text.Bytes(), id)); got != want || q.repeats(id) != same.repeats(id) {
				t.Errorf("field %d: %q, and for match %q", id, got, want)
			}
		}
	})
}
