package proxy

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
	"millrace/internal/wire/message"
)

// pooled puts the real pool behind a rig whose upstream is up.
func pooled(t *testing.T, protocol string, up http.Handler) *rig {
	t.Helper()
	back := httptest.NewServer(up)
	t.Cleanup(back.Close)
	return pooledTo(t, protocol, back.URL)
}

// pooledTo puts the real pool behind a rig whose upstream is at an address.
func pooledTo(t *testing.T, protocol, addr string) *rig {
	t.Helper()
	r := rigTo(t, protocol, to(addr))
	pool, err := upstream.New(upstream.Options{To: []string{r.back}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	r.way = pool
	return r
}

// What the proxy promises holds with the pool that it is made for.
func TestWithPool(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		var trailer http.Header
		r := pooled(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "GET" {
				tell(w, r)
				return
			}
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(http.StatusEarlyHints)
			b, _ := io.ReadAll(r.Body)
			trailer = r.Trailer
			w.Header().Set("Trailer", "X-Sum")
			w.Write(b)
			w.Header().Set("X-Sum", "123")
		}))
		if got := r.told(r.request("GET", "/a%2fb//?x;y=%zz", nil)); got.URI != "/a%2fb//?x;y=%zz" || got.Header.Get("User-Agent") != "Go-http-client/1.1" && protocol != "h2" {
			t.Errorf("asked %q %v", got.URI, got.Header)
		}
		hints := 0
		q := r.request("POST", "/", io.MultiReader(strings.NewReader("upload")))
		q.Trailer = http.Header{"X-Up": {"789"}}
		q = q.WithContext(httptrace.WithClientTrace(q.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
			hints++
			return nil
		}}))
		res, body := r.do(q)
		if body != "upload" || hints != 1 {
			t.Errorf("body %q after %d hints", body, hints)
		}
		if diff := cmp.Diff([]http.Header{{"X-Up": {"789"}}, {"X-Sum": {"123"}}}, []http.Header{trailer, res.Trailer}); diff != "" {
			t.Errorf("trailers (-want +got):\n%s", diff)
		}
	})
}

func TestUpgradeWithPool(t *testing.T) {
	heard := make(chan string, 1)
	r := pooled(t, "h1", switching(func(nc net.Conn, in *bufio.Reader) {
		b, _ := io.ReadAll(in)
		heard <- string(b)
		io.WriteString(nc, "bye")
	}))
	nc := r.dial()
	in := bufio.NewReader(nc)
	io.WriteString(nc, askEcho+"hello")
	switched(t, in)
	nc.(*net.TCPConn).CloseWrite()
	if got := <-heard; got != "hello" {
		t.Errorf("the upstream heard %q", got)
	}
	if b, err := io.ReadAll(in); err != nil || string(b) != "bye" {
		t.Errorf("the client heard %q: %v", b, err)
	}
}

// A pool that reaches nobody is a 502, over every protocol.
func TestPoolUnreachable(t *testing.T) {
	r := pooled(t, "h1", http.NotFoundHandler())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	pool, err := upstream.New(upstream.Options{To: []string{"http://" + addr}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	r.way = pool
	if res, body := r.get("/"); res.StatusCode != 502 || strings.Contains(body, addr) || !strings.Contains(r.log.String(), addr) {
		t.Errorf("status %d %q; the log says %s", res.StatusCode, body, r.log)
	}
}

// TestRemote: balancers and the queue go by the client that a trusted proxy names.
func TestRemote(t *testing.T) {
	for _, c := range []struct{ from, xff, want string }{
		{"192.0.2.1:5", "198.51.100.7", "198.51.100.7:0"},
		{"192.0.2.1:5", "192.0.2.1", "192.0.2.1:5"},
		{"192.0.2.1:5", "6.6.6.6, 2001:db8::7", "[2001:db8::7]:0"},
		{"192.0.2.1:5", "", "192.0.2.1:5"},
		{"192.0.2.2:5", "198.51.100.7", "192.0.2.2:5"},
		{"@", "198.51.100.7", "invalid AddrPort"},
	} {
		o := to("http://a")
		o.TrustForwarded = []string{"192.0.2.1"}
		h, err := New(o, failing(nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = c.from
		if c.xff != "" {
			r.Header.Set("X-Forwarded-For", c.xff)
		}
		var q message.Request
		Head(&q, r)
		if got := h.Outgoing(&q).Client.String(); got != c.want {
			t.Errorf("%s for %q: %s, want %s", c.from, c.xff, got, c.want)
		}
	}
}

// TestFieldsOfTheConnection: what an upstream names in Connection goes no further, also
// where the connection ends with the answer.
func TestFieldsOfTheConnection(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		for _, names := range []string{"X-Foo", "close, X-Foo", "X-Foo, keep-alive"} {
			r := pooledTo(t, protocol, rawUpstream(t, "HTTP/1.1 200 OK\r\nConnection: "+names+"\r\nX-Foo: 1\r\nX-Bar: 2\r\nContent-Length: 2\r\n\r\nok"))
			if res, body := r.get("/"); body != "ok" || res.Header.Get("X-Foo") != "" || res.Header.Get("X-Bar") != "2" {
				t.Errorf("Connection: %s: %q with %v", names, body, res.Header)
			}
		}
	})
}

// TestMalformedFirstChunk: where the first chunk has come with the head and is malformed,
// the client gets an answer.
func TestMalformedFirstChunk(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		r := pooledTo(t, protocol, rawUpstream(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\nhello\r\n0\r\n\r\n"))
		if res, _ := r.get("/"); res.StatusCode != http.StatusBadGateway {
			t.Errorf("status %d", res.StatusCode)
		}
		r = pooledTo(t, protocol, rawUpstream(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))
		if res, body := r.get("/"); res.StatusCode != http.StatusOK || body != "hello" {
			t.Errorf("status %d with %q", res.StatusCode, body)
		}
	})
}
