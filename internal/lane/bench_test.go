package lane

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"millrace/internal/wire/send"
)

// BenchmarkWriteSizes compares the ways of sending a header with a body that
// is held in memory: copied together in advance, or as two parts of one call.
// It is what the constant contiguous was chosen by.
func BenchmarkWriteSizes(b *testing.B) {
	head := make([]byte, 330)
	for _, size := range []int{1 << 10, 4 << 10, 16 << 10, 64 << 10} {
		body := make([]byte, size)
		together := append(append([]byte(nil), head...), body...)
		for way, parts := range map[string][2][]byte{"contiguous": {together, nil}, "two parts": {head, body}} {
			b.Run(fmt.Sprintf("%d KiB/%s", size>>10, way), func(b *testing.B) {
				server, client := tcpPair(b)
				drained := make(chan struct{})
				go func() { // ends with the connection
					defer close(drained)
					_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{client}, make([]byte, 256<<10))
				}()
				sock := send.NewSocket(server, nil)
				b.SetBytes(int64(len(together)))
				for b.Loop() {
					if _, err := sock.Write(parts[0], parts[1]); err != nil {
						b.Fatal(err)
					}
				}
				_ = server.Close()
				<-drained
			})
		}
	}
}

const browserRequest = "GET /assets/app.js?v=3 HTTP/1.1\r\nHost: example.org\r\nConnection: keep-alive\r\n" +
	"sec-ch-ua-platform: \"Linux\"\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n" +
	"sec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\nsec-ch-ua-mobile: ?0\r\nAccept: */*\r\nSec-Fetch-Site: same-origin\r\n" +
	"Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\nReferer: https://example.org/\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n" +
	"Accept-Language: en-GB,en;q=0.9\r\nCookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=yes\r\n\r\n"

// BenchmarkMatch is the look at one request: wrk's, and one of a browser.
func BenchmarkMatch(b *testing.B) {
	for name, head := range map[string]string{
		"bare":    hotRequest,
		"browser": browserRequest,
	} {
		b.Run(name, func(b *testing.B) {
			var r request
			bytes := []byte(head)
			b.SetBytes(int64(len(bytes)))
			b.ReportAllocs()
			for b.Loop() {
				if _, v := match(bytes, &r); v != matched {
					b.Fatal(v)
				}
			}
		})
	}
}

// BenchmarkHit is everything the lane does for a hot request but its system
// calls: with one answer, and with more than the processor's caches hold.
func BenchmarkHit(b *testing.B) {
	bench := newBench(b, patient)
	defer bench.lane.Close()
	const many = 8192
	targets := make([][]byte, many)
	for i := range targets {
		target := fmt.Sprintf("/api/comments/count?url=https://example.org/%d", i)
		r := newResponse(answerOf(`{"count":4,"of":"https://example.org/1"}`), Rule{}, bench.meters.Job("test"))
		bench.lane.table.put(key{1, target, true}, demands{}, variant{response: r})
		targets[i] = []byte("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	nc, _ := FromNet(bench.lane.NewConn(&countingConn{}, bench.scope, nil))
	defer nc.Close()
	s := new(scratch)
	for name, requests := range map[string][][]byte{"path": {[]byte(hotRequest)}, "query": targets[:1], "queries": targets} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				in := requests[i%len(requests)]
				if used, _ := nc.answerHot(s, in, noDescriptor); used != len(in) {
					b.Fatal("not answered")
				}
				i += 4099 // not in the order in which they were put there
			}
		})
	}
}

// BenchmarkOffer is what an answer costs that may never be asked for again: in a
// table that is full, offered for the first time and declined, offered again
// and taken, and offered although it is held.
func BenchmarkOffer(b *testing.B) {
	bench := newBench(b, patient)
	defer bench.lane.Close()
	nc, _ := FromNet(bench.lane.NewConn(&countingConn{}, bench.scope, nil))
	defer nc.Close()
	a := apiAnswer(string(make([]byte, 1000)))
	rule := Rule{
		VaryOn: []string{"Accept-Encoding", "Host", "Cookie", "Authorization", "Origin"}, WithQuery: true,
		Lines: func(b []byte, _ int64) []byte { return append(b, "Age: 1\r\n"...) },
	}
	ctx := WithConn(b.Context(), nc)
	offer := func(target string) bool {
		before := bench.meters.LaneOffers.Load()
		r := (&http.Request{Method: "GET", RequestURI: target, Host: "a"}).WithContext(ctx)
		Begin(r)
		SetJob(r, 1, bench.meters.Job("test"))
		Offer(r, a, rule)
		return bench.meters.LaneOffers.Load() > before
	}
	next := 0
	fresh := func() string { next++; return fmt.Sprint("/api/comments/count?url=", next) }
	for !bench.lane.table.full.Load() {
		offer(fresh())
	}
	held := fresh()
	offer(held)
	offer(held)
	b.Run("held", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if offer(held) {
				b.Fatal("taken")
			}
		}
	})
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if offer(fresh()) {
				b.Fatal("taken")
			}
		}
	})
	b.Run("second", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			target := fresh()
			if offer(target); !offer(target) {
				b.Fatal("not taken")
			}
		}
	})
}

func tcpPair(tb testing.TB) (server, client net.Conn) {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = server.Close(), client.Close() })
	return server, client
}

// BenchmarkDemands is what it costs to find out that a browser's request lacks a field.
func BenchmarkDemands(b *testing.B) {
	head := []byte(browserRequest)
	var r request
	if _, v := match(head, &r); v != matched {
		b.Fatal(v)
	}
	d := demands{absent: []string{"X-Api-Key"}}
	for b.Loop() {
		if !d.allow(head, &r) {
			b.Fatal("the field is there")
		}
	}
}
