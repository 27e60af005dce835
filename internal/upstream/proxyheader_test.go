package upstream

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"millrace/internal/process/servertest"
	"millrace/internal/wire/proxyline"
)

// introduced is a server that demands a PROXY header on each connection, and
// remembers the clients.
type introduced struct {
	net.Listener
	mu      sync.Mutex
	clients []string
}

func (l *introduced) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(c)
	client, err := proxyline.Read(r)
	name := "nobody"
	if err != nil {
		name = err.Error()
	} else if client.IsValid() {
		name = client.String()
	}
	l.mu.Lock()
	l.clients = append(l.clients, name)
	l.mu.Unlock()
	return &behind{c, r}, nil
}

type behind struct {
	net.Conn
	r io.Reader
}

func (c *behind) Read(p []byte) (int, error) { return c.r.Read(p) }

// TestIntroduction: each request has a connection of its own, which begins by
// naming the client, also before TLS and for a WebSocket.
func TestIntroduction(t *testing.T) {
	for _, version := range []string{"v1", "v2"} {
		for _, protocol := range []string{"h1", "h2"} {
			t.Run(version+" "+protocol, func(t *testing.T) {
				var ln *introduced
				back := servertest.Serve(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }), func(s *httptest.Server) {
					ln = &introduced{Listener: s.Listener}
					s.Listener = ln
				})
				p, err := New(Options{To: []string{back.URL}, ProxyProtocol: version, TLS: TLS{Insecure: protocol == "h2"}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				ask := func(from string, upgrade bool) {
					local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.9:443"))
					ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(local))
					r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
					r.RemoteAddr = from
					var resp *http.Response
					var err error
					if upgrade {
						r.Header.Set("Connection", "Upgrade")
						r.Header.Set("Upgrade", "websocket")
					}
					resp, err = p.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if string(body) != "HTTP/1.1" || err != nil {
						t.Errorf("%q, %v, want HTTP/1.1", body, err)
					}
				}
				ask("198.51.100.1:1", false)
				ask("198.51.100.2:2", false)
				ask("@", false)
				ask("198.51.100.3:3", true)
				ln.mu.Lock()
				defer ln.mu.Unlock()
				if got, want := strings.Join(ln.clients, " "), "198.51.100.1:1 198.51.100.2:2 nobody 198.51.100.3:3"; got != want {
					t.Errorf("connections of %s, want %s", got, want)
				}
			})
		}
	}
}

func TestIntroductionOptions(t *testing.T) {
	for _, c := range []struct {
		to, version string
		wrong       bool
	}{{"http://a", "v1", false}, {"unix:/a", "v2", false}, {"http://a", "3", true}, {"h2c://a", "v2", true}} {
		if got := (Options{To: []string{c.to}, ProxyProtocol: c.version}).Check()["proxy_protocol"] != nil; got != c.wrong {
			t.Errorf("%s over %s: refused is %t, want %t", c.version, c.to, got, c.wrong)
		}
	}
}
