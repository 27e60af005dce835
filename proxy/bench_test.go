package proxy

import (
	"bufio"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"millrace/internal/upstream"
	"millrace/internal/upstream/http1"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// What a browser sends, and what an application answers.
const (
	browsers = "GET /app/page?x=1 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: de,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\nCookie: session=0123456789abcdef; theme=dark\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\nReferer: https://shop.example/\r\n\r\n"
	shops    = "HTTP/1.1 200 OK\r\nServer: app/1.0\r\nDate: Sat, 28 Nov 2026 06:00:00 GMT\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 501\r\nCache-Control: private, max-age=0\r\nVary: Accept-Encoding\r\nSet-Cookie: theme=dark; Path=/\r\nX-Powered-By: app\r\nEtag: \"0123456789\"\r\n\r\n"
)

func benchmarked(b *testing.B) (*Handler, *http.Request) {
	b.Helper()
	h, err := New(to("http://127.0.0.1:9"), failing(nil), nil)
	if err != nil {
		b.Fatal(err)
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(browsers)))
	if err != nil {
		b.Fatal(err)
	}
	r.RemoteAddr = "192.0.2.1:4711"
	return h, r
}

func write(b *testing.B, room []byte, q *upstream.Request) {
	head := http1.Request{Method: q.Method, Path: q.Path, Query: q.Query, Ask: q.Asks, Host: "127.0.0.1:9", Fields: q.Fields, Body: q.Length}
	if _, err := head.Append(room); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHeaders: all that is done for the header of a request or an answer, from the one
// side to the other.
func BenchmarkHeaders(b *testing.B) {
	h, r := benchmarked(b)
	room := make([]byte, 0, 8<<10)
	b.Run("request/goroutine", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			q := heads.Get().(*message.Request)
			Head(q, r)
			o := newOutgoing()
			h.outgoing(q, o)
			write(b, room, &o.Request)
			heads.Put(q)
		}
	})
	b.Run("request/loop", func(b *testing.B) {
		var q message.Request
		if !q.Parse(browsers) {
			b.Fatal("not for a loop")
		}
		q.Peer = netip.MustParseAddr("192.0.2.1")
		p := roundTrips.Get().(*roundTrip)
		b.ReportAllocs()
		for b.Loop() {
			h.outgoing(&q, &p.out)
			write(b, room, &p.out.Request)
		}
	})
	b.Run("answer/goroutine", func(b *testing.B) {
		asked := hop{proto: "http", host: "shop.example"}
		var in http1.Reader
		buf := make([]byte, 8<<10)
		b.ReportAllocs()
		for b.Loop() {
			in.Use(buf)
			in.Filled(copy(in.Space(), shops))
			var head http1.Head
			if _, err := http1.ReadHead(&in, 1<<20, "GET", &head); err != nil {
				b.Fatal(err)
			}
			a := &upstream.Answer{Status: head.Status, Major: 1, Minor: head.Minor, Fields: head.Fields, Length: head.Length}
			if err := checkAnswer(a); err != nil {
				b.Fatal(err)
			}
			h.edit(a, asked, nil)
			answerHeader(http.Header{}, r, a)
		}
	})
	b.Run("answer/loop", func(b *testing.B) {
		asked := hop{proto: "http", host: "shop.example"}
		var head http1.Head
		b.ReportAllocs()
		for b.Loop() {
			if _, s := http1.Scan(shops, "GET", &head); s != http1.Plain {
				b.Fatal(s)
			}
			a := upstream.Answer{Status: head.Status, Major: 1, Minor: head.Minor, Fields: head.Fields, Length: head.Length}
			h.edit(&a, asked, nil)
			field.SortLines(a.Fields)
			head.Fields = a.Fields
		}
	})
}
