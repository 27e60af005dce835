package cache

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"millrace/internal/lane"
	"millrace/internal/wire/message"
)

// answering is an upstream that sends the same answer to each request without a body,
// and allocates nothing for it.
func answering(b *testing.B, answer string) (url string) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf, text, end := make([]byte, 4<<10), []byte(answer), []byte("\r\n\r\n")
				for n := 0; ; {
					k, err := c.Read(buf[n:])
					if err != nil {
						return
					}
					if n += k; bytes.HasSuffix(buf[:n], end) {
						n = 0
						_, _ = c.Write(text)
					}
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

// BenchmarkOnLoop is what an event loop does with a request that a cache does not have:
// one that it fetches and stores, and one that bypasses the cache.
func BenchmarkOnLoop(b *testing.B) {
	o := Options{NoCompress: true}
	o.To = []string{answering(b, "HTTP/1.1 200 OK\r\nDate: Sat, 28 Nov 2026 05:00:00 GMT\r\nCache-Control: max-age=36000000\r\n"+
		"Content-Type: application/json\r\nEtag: \"1\"\r\nContent-Length: 2\r\n\r\n{}")}
	h, err := New(o, Deps{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close() })
	h.ServeHTTP(&sink{http.Header{}}, httptest.NewRequest(http.MethodGet, "http://a.example/warm", nil)) // opens a connection
	n, client, conn := 0, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, new(lane.Conn)
	var head message.Request
	out, buf := make([]byte, 0, 4<<10), make([]byte, 64<<10)
	for name, more := range map[string]string{"miss": "", "bypass": "Cookie: a=b\r\n"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n++
				text := "GET /comments?page=" + strconv.Itoa(n) + " HTTP/1.1\r\nHost: a.example\r\nUser-Agent: x\r\nAccept: */*\r\n" + more + "\r\n"
				if !head.Parse(text) {
					b.Fatal("no request")
				}
				q := lane.ForwardRequest{Head: &head, Scope: new(lane.Scope), Client: client, Out: out}
				trip := h.Pass(&q)
				if trip == nil || trip.Waits() {
					b.Fatal("it is not sent at once")
				}
				trip.Line(nil)
				var reply lane.Reply
				for {
					p := trip.Take(buf, &reply)
					if p == lane.Complete {
						break
					}
					if p == lane.NeedsHandler {
						b.Fatal("a handler has to go on")
					}
					time.Sleep(20 * time.Microsecond)
				}
				if string(reply.Body) != "{}" {
					b.Fatalf("%d %q", reply.Status, reply.Body)
				}
				trip.Sent(conn, &reply)
			}
		})
	}
}
