package server

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"millrace/internal/lane"
)

// Whose length is contradictory is refused at once, and nothing behind it is
// read (RFC 9112, 6.1 and 6.3); whose length is only doubtful is the last of
// its connection; what is clear, is not.
func TestFraming(t *testing.T) {
	const chunk, last = "5\r\nhello\r\n", "0\r\n\r\n"
	old := func(lines string) string { return "POST /echo HTTP/1.0\r\nHost: a.example\r\n" + lines + "\r\n\r\n" }
	with := func(lines ...string) string { return request("POST", "/echo", lines...) }
	hot := request("GET", "/hot")
	for name, q := range map[string]struct {
		in     string
		status string // of the first answer
		more   bool   // whether what follows is answered
	}{
		"length and coding":           {with("Content-Length: 5", "Transfer-Encoding: chunked") + chunk + last, "400", false},
		"coding and length":           {with("Transfer-Encoding: chunked", "Content-Length: 5") + chunk + last, "400", false},
		"length, coding and space":    {with("Content-Length: 5", "Transfer-Encoding : chunked") + chunk + last, "400", false},
		"length, coding and LF":       {"POST /echo HTTP/1.1\nHost: a\nContent-Length: 5\nTransfer-Encoding: chunked\n\n" + chunk + last, "400", false},
		"length, coding and control":  {with("Content-Length: 5", "Transfer-Encoding:\tchunked") + chunk + last, "400", false},
		"behind a chunked request":    {with("Transfer-Encoding: chunked") + last + with("Content-Length: 5", "Transfer-Encoding: chunked") + chunk + last, "200", false},
		"behind an upgrade":           {request("GET", "/slow", "Connection: Upgrade", "Upgrade: h2c") + with("Content-Length: 5", "Transfer-Encoding: chunked") + chunk + last, "200", false},
		"behind HTTP/1.0":             {old("Connection: keep-alive\r\nContent-Length: 0") + with("Content-Length: 5", "Transfer-Encoding: chunked") + chunk + last, "200", false},
		"coding in HTTP/1.0":          {old("Connection: keep-alive\r\nTransfer-Encoding: chunked") + chunk + last, "400", false},
		"length, coding in HTTP/1.0":  {old("Connection: keep-alive\r\nContent-Length: 5\r\nTransfer-Encoding: chunked") + chunk + last, "400", false},
		"two lengths":                 {with("Content-Length: 5", "Content-Length: 6") + "hello", "400", false},
		"one length twice":            {with("Content-Length: 5", "Content-Length: 5") + "hello", "400", false},
		"a list of lengths":           {with("Content-Length: 5, 5") + "hello", "400", false},
		"a signed length":             {with("Content-Length: +5") + "hello", "400", false},
		"chunked twice":               {with("Transfer-Encoding: chunked, chunked") + chunk + last, "501", false},
		"chunked in two fields":       {with("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + chunk + last, "501", false},
		"identity":                    {with("Transfer-Encoding: identity") + "hello", "501", false},
		"chunked, identity":           {with("Transfer-Encoding: chunked, identity") + chunk + last, "501", false},
		"a vertical tab":              {with("Transfer-Encoding: \x0bchunked") + chunk + last, "400", false},
		"a folded line":               {with("X: y\r\n z", "Content-Length: 5") + "hello", "400", false},
		"a folded coding":             {with("Transfer-Encoding:\r\n chunked") + chunk + last, "400", false},
		"bare LF in the head":         {"POST /echo HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello", "200", false},
		"bare LF in a chunk's line":   {with("Transfer-Encoding: chunked") + "5\nhello\r\n" + last, "200", false},
		"LF in a chunk's extension":   {with("Transfer-Encoding: chunked") + "5;a\nhello\r\n" + last, "200", false},
		"a chunk longer than it says": {with("Transfer-Encoding: chunked") + "4\r\nhello\r\n" + last, "200", false},
		"a length":                    {with("Content-Length: 5") + "hello", "200", true},
		"chunked":                     {with("Transfer-Encoding: chunked") + chunk + last, "200", true},
		"an extension and a trailer":  {with("Transfer-Encoding: chunked") + "5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n", "200", true},
		"HTTP/1.0":                    {old("Connection: keep-alive\r\nContent-Length: 5") + "hello", "200", true},
		"obs-text":                    {with("X: \xe9\ty", "Content-Length: 5") + "hello", "200", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, off := range []bool{false, true} {
				r := start(t, plan{lane: lane.Options{Off: off}})
				for _, transport := range []string{"tcp", "tls"} {
					// Once more behind another request: a connection is not new then.
					for _, before := range []string{"", hot} {
						got := talk(t, r.dial(t, transport).Conn, before+q.in+hot, nil)
						first := got
						if before != "" {
							_, first, _ = strings.Cut(got, smallBody)
						}
						if proto := "HTTP/1.x "; len(first) < len(proto) || !strings.HasPrefix(first[len(proto):], q.status) {
							t.Errorf("over %s, lane off %t: %q", transport, off, got)
						}
						if more := strings.HasSuffix(got, smallBody) && strings.Count(got, smallBody) > strings.Count(before, "/hot"); more != q.more {
							t.Errorf("over %s, lane off %t: what follows is answered: %t; %q", transport, off, more, got)
						}
					}
				}
			}
		})
	}
}

// What HTTP/1.1 could not say is refused over HTTP/2, before any job sees it.
func TestPseudoFields(t *testing.T) {
	r := start(t, plan{})
	tr := &http.Transport{TLSClientConfig: r.clientTLS.Clone(), ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	for target, want := range map[string]int{"/slow": 200, "/slow /x": 400, "/slow HTTP/1.1": 400} {
		req := &http.Request{Method: "GET", URL: &url.URL{Scheme: "https", Host: r.secure, Opaque: target}}
		resp, err := (&http.Client{Transport: tr, Timeout: patience}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want || resp.ProtoMajor != 2 {
			t.Errorf("%q: %s %s, want %d", target, resp.Proto, resp.Status, want)
		}
	}
	for name, q := range map[string]http.Request{
		"a space in the host":   {Method: "GET", Host: "a b", RequestURI: "/"},
		"a path in the host":    {Method: "GET", Host: "a/b", RequestURI: "/"},
		"a user in the host":    {Method: "GET", Host: "u@a", RequestURI: "/"},
		"a space in the method": {Method: "GET /x", Host: "a", RequestURI: "/"},
		"a control character":   {Method: "GET", Host: "a", RequestURI: "/\x7f"},
	} {
		if q.ProtoMajor = 2; !malformed(&q) {
			t.Errorf("%s is taken", name)
		}
	}
	if ok := (&http.Request{ProtoMajor: 2, Method: "M-SEARCH", Host: "[::1]:443", RequestURI: "/\u00e9?a=%20"}); malformed(ok) {
		t.Error("a good request is refused")
	}
}

// A CONNECT is told what else there is (RFC 9110, 15.5.6).
func TestConnectIsRefused(t *testing.T) {
	r := start(t, plan{})
	overAll(t, func(t *testing.T, transport string) {
		c := r.dial(t, transport)
		c.write("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n")
		if resp, _ := c.answer("GET"); resp.StatusCode != 405 || resp.Header.Get("Allow") == "" {
			t.Errorf("%s, Allow %q", resp.Status, resp.Header.Get("Allow"))
		}
	})
}

// Who expects 100 and is refused gets the answer without having to send the
// body (RFC 9110, 10.1.1).
func TestExpectationRefused(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/refuse", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	mux.HandleFunc("/take", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	})
	r := start(t, plan{handler: mux, limits: Options{BodyBytes: 1000}})
	overAll(t, func(t *testing.T, transport string) {
		for _, body := range []string{"Content-Length: 5", "Transfer-Encoding: chunked", "Content-Length: 2000"} {
			want := 403
			if strings.HasSuffix(body, "2000") {
				want = 413
			}
			c := r.dial(t, transport)
			c.write(request("POST", "/refuse", "Expect: 100-continue", body))
			if resp, _ := c.answer("POST"); resp.StatusCode != want || !resp.Close {
				t.Errorf("%s: %s, close %t", body, resp.Status, resp.Close)
			}
			if !c.ends() {
				t.Errorf("%s: the connection stays", body)
			}
		}
		c := r.dial(t, transport)
		c.write(request("POST", "/take", "Expect: 100-continue", "Content-Length: 5"))
		if resp, _ := c.answer("POST"); resp.StatusCode != http.StatusContinue {
			t.Fatalf("taken: %s", resp.Status)
		}
		c.write("hello")
		if resp, body := c.answer("POST"); resp.StatusCode != 200 || body != "hello" {
			t.Errorf("taken: %s %q", resp.Status, body)
		}
	})
}
