package load

import (
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A head as nginx sends it for a small file.
const typicalHead = "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sun, 22 Nov 2026 00:31:26 GMT\r\nContent-Type: text/html\r\n" +
	"Content-Length: 501\r\nLast-Modified: Sun, 22 Nov 2026 00:31:25 GMT\r\nConnection: keep-alive\r\nETag: \"6b0237dd-1f5\"\r\nAccept-Ranges: bytes\r\n\r\n"

// The two ways to take an answer: by the known head, which is how nearly all
// are taken, and by parsing it, as once a second when the Date changes.
func BenchmarkAnswer(b *testing.B) {
	text := append([]byte(typicalHead), make([]byte, 501)...)
	b.Run("known", func(b *testing.B) {
		var k known
		if _, _, err := read(string(text), len(text), &k); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if len(text) != k.whole || !k.matches(text) {
				b.Fatal("it is not known")
			}
		}
	})
	b.Run("parsed", func(b *testing.B) {
		var (
			a answer
			k known
		)
		for b.Loop() {
			k.text = k.text[:0]
			a.reset()
			if _, err := a.feed(text, &k, nil); err != nil || a.at != whole {
				b.Fatal(err)
			}
		}
	})
	b.Run("chunked", func(b *testing.B) {
		text := []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1f5\r\n" + string(make([]byte, 501)) + "\r\n0\r\n\r\n")
		var (
			a answer
			k known
		)
		for b.Loop() {
			a.reset()
			if _, err := a.feed(text, &k, nil); err != nil || a.at != whole {
				b.Fatal(err)
			}
		}
	})
}

// Our histogram beside the usual one at the same exactness: why there is an own.
func BenchmarkRecord(b *testing.B) {
	var spread [1024]time.Duration
	for i := range spread {
		spread[i] = time.Duration(50_000 + i*i)
	}
	b.Run("own", func(b *testing.B) {
		var h Histogram
		for i := 0; b.Loop(); i++ {
			h.Record(spread[i%len(spread)])
		}
	})
	b.Run("hdrhistogram", func(b *testing.B) {
		h := hdrhistogram.New(int64(Shortest), int64(Longest), 2)
		for i := 0; b.Loop(); i++ {
			if err := h.RecordValue(int64(spread[i%len(spread)])); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkArrivals(b *testing.B) {
	for name, c := range map[string]Config{
		"constant": {Arrival: Constant, Rate: 1e5}, "Poisson": {Arrival: Poisson, Rate: 1e5},
		"stages": {Arrival: Constant, Rate: 1e5, Stages: []Stage{{2e5, time.Hour}}},
	} {
		b.Run(name, func(b *testing.B) {
			a := newArrivals(&c, 0, 1, 0)
			for b.Loop() {
				a.pop()
			}
		})
	}
}

// Whole requests, to a server in this process. What counts is the generator's
// own CPU time for each, system calls included; time passes mostly in net/http.
func BenchmarkRequest(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 501)) }))
	defer s.Close()
	for _, transport := range []string{"tcp", "unix"} {
		b.Run(transport, func(b *testing.B) {
			url := s.URL
			if transport == "unix" {
				path := b.TempDir() + "/s"
				l, err := net.Listen("unix", path)
				if err != nil {
					b.Skip(err)
				}
				server := http.Server{Handler: s.Config.Handler}
				go server.Serve(l) // ends with Close
				defer server.Close()
				url = "unix:" + path
			}
			r, err := Run(b.Context(), Config{URL: url, Requests: uint64(b.N), Duration: time.Hour})
			if err != nil {
				b.Fatal(err)
			}
			n := float64(b.N)
			b.ReportMetric(float64(r.CPU)/n, "cpu-ns/request")
			b.ReportMetric(float64(r.CPUUser)/n, "user-ns/request")
			runtime.KeepAlive(r)
		})
	}
}
