package websocket_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/websocket"
)

// ask sends a request and reads the answer.
func (f front) ask(t testing.TB, raw string) *http.Response {
	t.Helper()
	nc := f.connect(t)
	defer nc.Close()
	if _, err := io.WriteString(nc, raw); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: http.MethodGet})
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res
}

// lines is a request without those of the usual one whose beginning is one of
// these names, and with more.
func lines(without string, more ...string) string {
	var kept []string
	for line := range strings.SplitSeq(strings.TrimSuffix(request(), "\r\n\r\n"), "\r\n") {
		if name, _, _ := strings.Cut(line, ":"); without == "" || name != without {
			kept = append(kept, line)
		}
	}
	return strings.Join(append(kept, more...), "\r\n") + "\r\n\r\n"
}

// TestRefusals are the handshakes that RFC 6455, 4.2.1, does not want.
func TestRefusals(t *testing.T) {
	const badKey = "Sec-WebSocket-Key: "
	post := strings.Replace(request(), "GET", "POST", 1)
	cases := []struct {
		name, raw string
		status    int
	}{
		{"no key", lines("Sec-WebSocket-Key"), 400},
		{"an empty key", lines("Sec-WebSocket-Key", badKey), 400},
		{"two keys", lines("", badKey+sampleKey), 400},
		{"a key of 15 bytes", lines("Sec-WebSocket-Key", badKey+"dGhlIHNhbXBsZSBub25j"), 400},
		{"a key of 17 bytes", lines("Sec-WebSocket-Key", badKey+"dGhlIHNhbXBsZSBub25jZTE="), 400},
		{"a key without padding", lines("Sec-WebSocket-Key", badKey+"dGhlIHNhbXBsZSBub25jZQ"), 400},
		{"a key for URLs", lines("Sec-WebSocket-Key", badKey+"dGhlIHNhbXBsZSBub25j_-=="), 400},
		{"a key that is none", lines("Sec-WebSocket-Key", badKey+"!!!!!!!!!!!!!!!!!!!!!!!!"), 400},
		{"a long key", lines("Sec-WebSocket-Key", badKey+strings.Repeat(sampleKey, 4)), 400},
		{"no version", lines("Sec-WebSocket-Version"), 426},
		{"version 8", lines("Sec-WebSocket-Version", "Sec-WebSocket-Version: 8"), 426},
		{"version 14", lines("Sec-WebSocket-Version", "Sec-WebSocket-Version: 14"), 426},
		{"version 013", lines("Sec-WebSocket-Version", "Sec-WebSocket-Version: 013"), 426},
		{"versions 8 and 13", lines("Sec-WebSocket-Version", "Sec-WebSocket-Version: 8, 13"), 426},
		{"version 13 twice", lines("", "Sec-WebSocket-Version: 13"), 426},
		{"version 0 of the drafts", lines("Sec-WebSocket-Version", "Sec-WebSocket-Key1: 4 @1  46546xW%0l 1 5", "Sec-WebSocket-Key2: 12998 5 Y3 1  .P00"), 426},
		{"no Connection", lines("Connection"), 400},
		{"Connection: keep-alive", lines("Connection", "Connection: keep-alive"), 400},
		{"Connection: Upgrades", lines("Connection", "Connection: Upgrades"), 400},
		{"no Upgrade", lines("Upgrade"), 426},
		{"Upgrade: h2c", lines("Upgrade", "Upgrade: h2c"), 426},
		{"HTTP/1.0", strings.Replace(request(), "HTTP/1.1", "HTTP/1.0", 1), 400},
		{"POST", post, 400},
		{"POST with a body", strings.Replace(post, "\r\n\r\n", "\r\nContent-Length: 2\r\n\r\nhi", 1), 400},
		{"a body", request("Content-Length: 2") + "hi", 400},
		{"a body in chunks", request("Transfer-Encoding: chunked") + "2\r\nhi\r\n0\r\n\r\n", 400},
		{"no Host", lines("Host"), 400},
		{"a strange origin", request("Origin: https://elsewhere.example"), 403},
	}
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		for _, c := range cases {
			res := f.ask(t, c.raw)
			if res.StatusCode != c.status {
				t.Errorf("%s: answered with %s", c.name, res.Status)
			}
			if v := res.Header.Get("Sec-Websocket-Version"); (v == "13") != (c.status == 426) {
				t.Errorf("%s: answered with %s and Sec-WebSocket-Version %q", c.name, res.Status, v)
			}
			if res.Header.Get("Sec-Websocket-Accept") != "" {
				t.Errorf("%s: the key is answered", c.name)
			}
			if up := res.Header.Get("Upgrade"); c.status == 426 && up != "websocket" && !strings.Contains(f.name, "proxy") {
				t.Errorf("%s: answered with Upgrade %q", c.name, up)
			}
		}
	})
}

// TestForms are the ways in which a handshake may be written (RFC 9110, 5.1,
// 5.3 and 5.6.1; RFC 6455, 4.2.1).
func TestForms(t *testing.T) {
	cases := map[string]string{
		"as browsers write it": request("Connection: keep-alive, Upgrade", "Pragma: no-cache", "Cache-Control: no-cache", "User-Agent: x",
			"Accept-Encoding: gzip, deflate, br", "Accept-Language: de,en;q=0.5", "Cookie: a=b", "Origin: http://echo.example"),
		"Connection: keep-alive, Upgrade": lines("Connection", "Connection: keep-alive, Upgrade"),
		"Connection in two lines":         lines("Connection", "Connection: keep-alive", "Connection: upgrade"),
		"Connection in shouts":            lines("Connection", "CONNECTION: KEEP-ALIVE ,UPGRADE, "),
		"Upgrade in two lines":            lines("Upgrade", "Upgrade: h2c", "upgrade: WebSocket"),
		"Upgrade in one line":             lines("Upgrade", "UPGRADE: foo/1, WEBSOCKET"),
		"odd letters": strings.NewReplacer("Sec-WebSocket", "sEC-wEBsOCKET", "Upgrade:", "uPGRADE:", "Host:", "hOST:",
			"Connection:", "cONNECTION:").Replace(request()),
		"spaces":             strings.NewReplacer(": 13", ":\t 13  ", ": dGhl", ":   dGhl", ": websocket", ":websocket\t").Replace(request()),
		"an absolute target": strings.Replace(request(), "/echo", "http://echo.example/echo", 1),
		"a query":            strings.Replace(request(), "/echo", "/echo?room=%20&x=é", 1),
		"Content-Length: 0":  request("Content-Length: 0"),
		"many fields":        request(strings.Split(strings.Repeat("X-Field: value\r\n", 60)+"X-Last: 1", "\r\n")...),
		"unknown extensions": request("Sec-WebSocket-Extensions: foo, bar; baz=2", "Sec-WebSocket-Extensions: mux"),
	}
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		for name, raw := range cases {
			if strings.Contains(name, "absolute") && strings.Contains(f.name, "tls") {
				raw = strings.Replace(raw, "http://", "https://", 1)
			}
			if strings.Contains(name, "browsers") {
				if strings.Contains(f.name, "proxy") {
					continue // the server behind it knows itself under another name
				}
				if strings.Contains(f.name, "tls") {
					raw = strings.Replace(raw, "Origin: http:", "Origin: https:", 1)
				}
			}
			nc := f.connect(t)
			if _, err := io.WriteString(nc, raw+string(masked(fin|opText, "Hello"))); err != nil {
				t.Fatal(err)
			}
			c := &client{T: t, Conn: nc, r: bufio.NewReader(nc)}
			res, err := http.ReadResponse(c.r, nil)
			if err != nil || res.StatusCode != 101 || res.Header.Get("Sec-Websocket-Accept") != sampleAnswer ||
				!strings.EqualFold(res.Header.Get("Upgrade"), "websocket") || !strings.EqualFold(res.Header.Get("Connection"), "upgrade") {
				t.Fatalf("%s: %v, error %v", name, res, err)
			}
			if res.Header.Get("Sec-Websocket-Extensions")+res.Header.Get("Sec-Websocket-Protocol") != "" {
				t.Errorf("%s: what was not offered is agreed to: %v", name, res.Header)
			}
			c.want(event{opText, "Hello"})
			c.goodbye()
		}
	})
}

// TestOriginsOverTLS: a page without TLS is none of ours where we have it.
func TestOriginsOverTLS(t *testing.T) {
	f := serve(t, "tls", true, newHandler(t, newEngine(t), echoOptions(), nil))
	for origin, status := range map[string]int{"https://echo.example": 101, "https://echo.example:443": 101, "http://echo.example": 403} {
		if res := f.ask(t, request("Origin: "+origin)); res.StatusCode != status {
			t.Errorf("%s: %s, want %d", origin, res.Status, status)
		}
	}
}

// TestOrigins has pages of other sites refused, and of those allowed that the
// operator names.
func TestOrigins(t *testing.T) {
	for _, c := range []struct {
		allowed []string
		origin  string
		ok      bool
	}{
		{nil, "", true},
		{nil, "http://echo.example", true},
		{nil, "http://ECHO.example", true},
		{nil, "http://echo.example:80", true},
		{nil, "https://echo.example", true}, // TLS may have ended before us
		{nil, "https://echo.example:443", true},
		{nil, "http://echo.example:8080", false},
		{nil, "http://other.example", false},
		{nil, "http://echo.example.other.example", false},
		{nil, "http://other.example/echo.example", false},
		{nil, "http://notecho.example", false},
		{nil, "null", false},
		{nil, "file://", false},
		{nil, "echo.example", false},
		{nil, "http://%zz", false},
		{[]string{"https://app.example"}, "https://app.example", true},
		{[]string{"https://app.example"}, "HTTPS://APP.EXAMPLE", true},
		{[]string{"https://app.example"}, "http://app.example", false},
		{[]string{"https://app.example"}, "https://app.example:8443", false},
		{[]string{"https://app.example"}, "http://echo.example", true},
		{[]string{"https://*.example.org"}, "https://a.example.org", true},
		{[]string{"https://*.example.org"}, "https://a.b.example.org", true},
		{[]string{"https://*.example.org"}, "https://example.org", false},
		{[]string{"https://*.example.org"}, "https://badexample.org", false},
		{[]string{"https://*.example.org"}, "https://a.example.org.evil.example", false},
		{[]string{"https://*.example.org"}, "http://a.example.org", false},
		{[]string{"*"}, "https://anywhere.example", true},
		{[]string{"*"}, "null", true},
	} {
		o := echoOptions()
		o.Origins = c.allowed
		f := serve(t, "plain", false, newHandler(t, newEngine(t), o, nil))
		status := 101
		if !c.ok {
			status = 403
		}
		raw := request("Origin: " + c.origin)
		if c.origin == "" {
			raw = request()
		}
		if res := f.ask(t, raw); res.StatusCode != status {
			t.Errorf("%q with %q: %s", c.origin, c.allowed, res.Status)
		}
		if !c.ok {
			continue
		}
		if res := f.ask(t, request("Origin: http://echo.example", "Origin: http://echo.example")); res.StatusCode != 403 {
			t.Errorf("two origins: %s", res.Status)
		}
	}
}

// TestSubprotocols agrees to the first of ours that a client offers.
func TestSubprotocols(t *testing.T) {
	o := echoOptions()
	o.Subprotocols = []string{"v2.chat", "v1.chat"}
	onAll(t, o, func(t *testing.T, f front) {
		for offered, want := range map[string]string{
			"v1.chat":                           "v1.chat",
			"v1.chat, v2.chat":                  "v2.chat",
			"other ,\tv1.chat":                  "v1.chat",
			"V1.CHAT":                           "",
			"other":                             "",
			"v1.chatter":                        "",
			"":                                  "",
			"a|Sec-WebSocket-Protocol: v1.chat": "v1.chat", // two lines
		} {
			c := f.open(t, nil, strings.Split("Sec-WebSocket-Protocol: "+offered, "|")...)
			if got := c.answer["Sec-Websocket-Protocol"]; strings.Join(got, "|") != want {
				t.Errorf("%q: answered with %q, want %q", offered, got, want)
			}
			c.goodbye()
		}
		c := f.open(t, nil)
		if got := c.answer["Sec-Websocket-Protocol"]; got != nil {
			t.Errorf("nothing offered: answered with %q", got)
		}
		c.goodbye()
	})
}

// TestEarly sends frames together with the handshake: none is lost, however
// many there are, and however they are cut.
func TestEarly(t *testing.T) {
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		for _, size := range []int{0, 1, 125, 3000, 4096, 5000, 65536, 100_000, 1 << 20} {
			var frames [][]byte
			var want []event
			for total := 0; total <= size; total += 1 + size/20 {
				e := event{opBinary, noise(1 + size/20)}
				frames, want = append(frames, masked(fin|e.op, e.payload)), append(want, e)
			}
			c := f.open(t, join(frames...))
			for _, e := range want {
				c.want(e)
			}
			c.goodbye()
		}
		// A broken one; half of one; one that ends it all.
		c := f.open(t, join(masked(fin|opText, "good"), masked(fin|opText, "\xff")))
		c.want(event{opText, "good"})
		c.wantClosed(1007, true)
		half := masked(fin|opText, "in two parts")
		c = f.open(t, half[:9])
		c.write(half[9:])
		c.want(event{opText, "in two parts"})
		c.goodbye()
		c = f.open(t, masked(fin|opClose, closing(4000, "")))
		c.wantClosed(4000, false)
		// Byte by byte, handshake and all.
		nc := f.connect(t)
		c = &client{T: t, Conn: nc, r: bufio.NewReader(nc)}
		if err := c.chopped(append([]byte(request()), masked(fin|opText, "slowly")...), 1); err != nil {
			t.Fatal(err)
		}
		if res, err := http.ReadResponse(c.r, nil); err != nil || res.StatusCode != 101 {
			t.Fatalf("%v, error %v", res, err)
		}
		c.want(event{opText, "slowly"})
		c.goodbye()
	})
}

// TestConnections is the limit, of which a place is free again when a client goes.
func TestConnections(t *testing.T) {
	o := echoOptions()
	o.Connections = 2
	e := newEngine(t)
	for _, f := range []front{
		serve(t, "plain", false, newHandler(t, e, o, nil)),
		serve(t, "tls", true, newHandler(t, e, o, nil)),
	} {
		one, two := f.open(t, nil), f.open(t, nil)
		res := f.ask(t, request())
		if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
			t.Fatalf("the third: %s %v", res.Status, res.Header)
		}
		one.goodbye()
		for f.ask(t, request()).StatusCode != 101 { // the server takes note a moment later
			time.Sleep(time.Millisecond)
		}
		two.write(masked(fin|opText, "still here"))
		two.want(event{opText, "still here"})
		two.goodbye()
	}
}

// TestPlain is who comes without a WebSocket, with and without the page.
func TestPlain(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: echo.example\r\n\r\n"
	e := newEngine(t)
	f := serve(t, "plain", false, newHandler(t, e, echoOptions(), nil))
	res := f.ask(t, get)
	if res.StatusCode != 426 || res.Header.Get("Upgrade") != "websocket" || res.Header.Get("Connection") != "Upgrade" || res.Header.Get("Sec-Websocket-Version") != "13" {
		t.Errorf("%s %v", res.Status, res.Header)
	}
	o := echoOptions()
	o.Page = true
	f = serve(t, "page", false, newHandler(t, e, o, nil))
	if res := f.ask(t, get); res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		t.Errorf("with a page: %s %v", res.Status, res.Header)
	}
	f.open(t, nil).goodbye()
}

// TestLeaving is the end of the server: every client is told when to come
// back, each another time, in the middle of a message, too; and no more come.
func TestLeaving(t *testing.T) {
	o := echoOptions()
	o.Reconnect = 10 * time.Second
	hint := regexp.MustCompile(`^reconnect in ([0-9]+\.[0-9]) s$`)
	for _, f := range slices.Backward(allFronts(t, o)) { // the proxies before what is behind them
		t.Run(f.name, func(t *testing.T) {
			var clients []*client
			for i := range 12 {
				c := f.open(t, nil)
				if i%2 == 0 {
					c.write(masked(opText, "a message that never ends"))
				}
				c.write(masked(fin|opPing, "there?"))
				for {
					first, _, err := c.frame()
					if err != nil {
						t.Fatal(err)
					}
					if first&0xf == opPong {
						break
					}
				}
				clients = append(clients, c)
			}
			var wg sync.WaitGroup
			wg.Go(func() { f.handler.Close() })
			hints := map[string]bool{}
			for _, c := range clients {
				e, err := c.next()
				if err != nil || e.op != opClose || !strings.HasPrefix(e.payload, closing(1012, "")) || !hint.MatchString(e.payload[2:]) {
					t.Fatalf("got %v, error %v", e, err)
				}
				hints[e.payload] = true
				c.write(masked(fin|opClose, closing(1012, "")))
				c.wantEnd()
			}
			if len(hints) < 3 {
				t.Errorf("all come back at the same time: %v", hints)
			}
			wg.Wait()
			if res := f.ask(t, request()); res.StatusCode != 503 {
				t.Errorf("afterwards: %s", res.Status)
			}
		})
	}
}

// TestLateComers is who connects while the others are told to come back: it is not
// refused, which would tell a page nothing, but told the same. After the end it is.
func TestLateComers(t *testing.T) {
	for _, f := range slices.Backward(allFronts(t, echoOptions())) {
		t.Run(f.name, func(t *testing.T) {
			f.handler.Leave()
			for range 3 {
				c := f.open(t, nil)
				if e, err := c.next(); err != nil || e.op != opClose || !strings.HasPrefix(e.payload, closing(1012, "")+"reconnect in ") {
					t.Errorf("got %v, error %v", e, err)
				}
				c.write(masked(fin|opClose, closing(1012, "")))
				c.wantEnd()
			}
			f.handler.Close()
			if res := f.ask(t, request()); res.StatusCode != 503 {
				t.Errorf("afterwards: %s", res.Status)
			}
		})
	}
}

// TestLeavingDeaf is a client that does not answer when it is sent away: the
// end does not wait for it much longer than its grace.
func TestLeavingDeaf(t *testing.T) {
	t.Parallel() // it waits
	e := newEngine(t)
	f := serve(t, "plain", false, newHandler(t, e, echoOptions(), nil))
	c := f.open(t, nil)
	done := make(chan struct{})
	go func() {
		f.handler.Close()
		close(done)
	}()
	if e, err := c.next(); err != nil || e.op != opClose {
		t.Fatalf("got %v, error %v", e, err)
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("it waits for a client that says nothing")
	}
}

// TestNoKind are options without a kind.
func TestNoKind(t *testing.T) {
	if _, err := websocket.New(websocket.Options{}, websocket.Deps{Engine: newEngine(t)}); err == nil || fmt.Sprint(err) == "" {
		t.Error("a handler without echo, proxy and channels")
	}
}
