package engine_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestUnreadRequests: what cannot be read as a request is answered with a page as well.
func TestUnreadRequests(t *testing.T) {
	t.Parallel() // it mostly waits
	const rest = "Host: localhost\r\n"
	everyWay(t, fmt.Sprintf("sites: [{hosts: [localhost, 127.0.0.1], routes: {/: {static: {root: %q}}}}]", folder(t, map[string]string{"index.html": "page"})), func(w *way) {
		if !w.http1() {
			return
		}
		for name, c := range map[string]struct {
			request string
			status  int
			says    string
		}{
			"a bare percent":  {"GET /a% HTTP/1.1\r\n" + rest + "Accept: */*\r\n\r\n", 400, "<h1>Bad request</h1>"},
			"HEAD":            {"HEAD /a% HTTP/1.1\r\n" + rest + "\r\n", 400, "<h1>Bad request</h1>"},
			"no host":         {"GET / HTTP/1.1\r\n\r\n", 400, "this request: missing required Host header."},
			"no request":      {"hello\r\n\r\n", 400, "The server does not understand this request."},
			"another version": {"GET / HTTP/3.1\r\n" + rest + "\r\n", 505, "unsupported protocol version"},
			"another coding":  {"POST / HTTP/1.1\r\n" + rest + "Transfer-Encoding: gzip\r\n\r\n", 501, "no such transfer coding"},
			"many cookies":    {"GET / HTTP/1.1\r\n" + rest + "Cookie: a=" + strings.Repeat("x", 200<<10) + "\r\n\r\n", 431, "Delete the cookies of this site"},
		} {
			nc := w.dial()
			if _, err := io.WriteString(nc, c.request); err != nil {
				w.Fatal(err)
			}
			res, err := http.ReadResponse(bufio.NewReader(nc), nil) // of HEAD too: net/http cannot tell
			if err != nil {
				w.Errorf("%s: %v", name, err)
				continue
			}
			body, err := io.ReadAll(res.Body)
			h := res.Header
			if err != nil || res.StatusCode != c.status || h.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(string(body), c.says) || !res.Close ||
				h.Get("Date") == "" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Security-Policy") == "" {
				w.Errorf("%s: %s %v\n%s, %v", name, res.Status, h, body, err)
			}
			_ = nc.Close()
		}
	})
}

// TestHTTPAtTheTLSPort: who forgets the s of https is told so by a page.
func TestHTTPAtTheTLSPort(t *testing.T) {
	t.Parallel() // it mostly waits
	everyWay(t, fmt.Sprintf("sites: [{routes: {/: {static: {root: %q}}}}]", folder(t, map[string]string{"index.html": "page"})), func(w *way) {
		if w.protocol != "tls" {
			return
		}
		nc, err := net.Dial("tcp", strings.TrimPrefix(w.base, "https://"))
		if err != nil {
			w.Fatal(err)
		}
		defer nc.Close()
		_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			w.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 400 || res.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(string(body), "use https:// in the address") {
			w.Errorf("%s %v\n%s", res.Status, res.Header, body)
		}
	})
}

// TestBodyLikeUnread: a body that reads as net/http's answer to what it cannot read stays as it is.
func TestBodyLikeUnread(t *testing.T) {
	t.Parallel() // it mostly waits
	const body = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_ = http.NewResponseController(w).Flush() // so that the body comes alone
		time.Sleep(50 * time.Millisecond)
		_, _ = io.WriteString(w, body)
	}))
	defer app.Close()
	everyWay(t, fmt.Sprintf("sites: [{routes: {/: {proxy: %q}}}]", app.URL), func(w *way) {
		for range 2 {
			if _, got, _ := w.visit("/", anything{}); got != body {
				w.Errorf("%q", got)
			}
		}
	})
}
