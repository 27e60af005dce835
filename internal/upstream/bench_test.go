package upstream

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"millrace/internal/wire/field"
)

// canned answers without a network: what is left is our own work.
type canned struct{}

func (canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok"))}, nil
}

// BenchmarkOwn is what a Pool adds to a request, over an answer that costs nothing.
func BenchmarkOwn(b *testing.B) {
	for name, to := range map[string][]string{"one": {"http://a"}, "three": {"http://a", "http://b", "http://c"}} {
		p, err := start(Options{To: to}, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range p.servers {
			s.client, s.transport = nil, canned{}
		}
		b.Run(name, func(b *testing.B) { does(b, p) })
		p.Close()
	}
	b.Run("none", func(b *testing.B) { roundTrips(b, canned{}, "http://a/x?y") })
}

// BenchmarkRoundTrip compares with net/http's Transport alone, over loopback
// with the server in the same process.
func BenchmarkRoundTrip(b *testing.B) {
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	defer ts.Close()
	bare := &http.Transport{DisableCompression: true}
	defer bare.CloseIdleConnections()
	b.Run("transport", func(b *testing.B) { roundTrips(b, bare, ts.URL) })
	p, err := New(Options{To: []string{ts.URL}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	b.Run("pool", func(b *testing.B) { does(b, p) })
}

// does makes requests as the proxy does.
func does(b *testing.B, p *Pool) {
	q := Request{Method: http.MethodGet, Path: "/x", Query: "y", Asks: true, Fields: field.Lines{{Name: "User-Agent", Value: "bench"}}}
	b.ReportAllocs()
	var buffer [512]byte
	before := cpuTime(b)
	defer func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") }()
	for b.Loop() {
		a, err := p.Do(b.Context(), &q, nil)
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = a.Body.Read(buffer[:])
		}
		a.Body.Close()
	}
}

func roundTrips(b *testing.B, rt http.RoundTripper, url string) {
	r, err := http.NewRequestWithContext(b.Context(), "GET", url, nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("User-Agent", "bench")
	b.ReportAllocs()
	var buffer [512]byte
	before := cpuTime(b)
	defer func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") }()
	for b.Loop() {
		resp, err := rt.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = resp.Body.Read(buffer[:])
		}
		resp.Body.Close()
	}
}

// cpuTime is what the process has used, in nanoseconds: on a busy machine it
// says more than the clock.
func cpuTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkUpgrade is what opening and closing a tunnel costs, without a network.
func BenchmarkUpgrade(b *testing.B) {
	p, err := start(Options{To: []string{"http://a"}}, slog.New(slog.DiscardHandler), func(context.Context, string, string) (net.Conn, error) {
		return &agrees{answer: strings.NewReader(switching)}, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	r := upgradeRequest(b, "/")
	r.Header.Set("User-Agent", "bench")
	b.ReportAllocs()
	before := cpuTime(b)
	defer func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") }()
	for b.Loop() {
		_, tunnel, err := p.UpgradeRequest(r)
		if err != nil {
			b.Fatal(err)
		}
		tunnel.Close()
	}
}

// BenchmarkUpgradeTCP is the same over loopback with the server in the same
// process, beside a RoundTrip that switches protocols.
func BenchmarkUpgradeTCP(b *testing.B) {
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, switching)
		io.Copy(io.Discard, c)
	}))
	defer ts.Close()
	p, err := New(Options{To: []string{ts.URL}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	r := upgradeRequest(b, "/")
	for name, open := range map[string]func() (io.Closer, error){
		"upgrade": func() (io.Closer, error) { _, tunnel, err := p.UpgradeRequest(r); return tunnel, err },
		"roundtrip": func() (io.Closer, error) {
			resp, err := p.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			return resp.Body, nil
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			before := cpuTime(b)
			defer func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") }()
			for b.Loop() {
				c, err := open()
				if err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
	}
}
