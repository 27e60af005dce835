package engine_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/internal/process/servertest"
)

// announcing dials like a load balancer: with a header in front of everything.
func announcing(t *testing.T, from, addr, header string) net.Conn {
	t.Helper()
	nc := dialFrom(t, from, addr)
	if _, err := io.WriteString(nc, header); err != nil {
		t.Fatal(err)
	}
	return nc
}

// TestProxyProtocol: who is named in front of a connection is the client, on every
// road; nobody else may name one, and who must name one says so.
func TestProxyProtocol(t *testing.T) {
	t.Parallel() // it mostly waits
	cert, key, pool := certificate(t)
	dir := folder(t, map[string]string{"index.html": "home"})
	servertest.WithLaneAndWithout(t, func(t *testing.T, off bool) {
		srv, said := startLoud(t, fmt.Sprintf(`
listen: 127.0.0.1:0
tls: {listen: "127.0.0.1:0", cert: %q, key: %q}
lane: {off: %v}
proxy_protocol: {from: [127.0.0.2]}
limits: {connections_per_address: 4}
sites:
- access: {allow: [198.51.100.1, '2001:db8::1', 127.0.0.1]}
  routes: {/: {static: {root: %q}}}
`, cert, key, off, dir))
		plain, secure := srv.Addrs()[0], strings.TrimPrefix(srv.Addrs()[1], "https://")
		v1 := func(client string) string {
			return "PROXY TCP4 " + client + " 10.0.0.1 4711 443\r\n"
		}
		v2 := "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc6\x33\x64\x01\x0a\x00\x00\x01\x12\x67\x01\xbb"
		for header, want := range map[string]int{
			v1("198.51.100.1"): 200, v2: 200, "PROXY TCP6 2001:db8::1 ::1 1 2\r\n": 200,
			v1("198.51.100.2"): 403, "PROXY UNKNOWN\r\n": 403, // the load balancer itself, which is not allowed
		} {
			nc := announcing(t, "127.0.0.2", plain, header)
			if got := fmt.Sprint(statuses(t, nc, 3, "/")); got != fmt.Sprint([]int{want, want, want}) {
				t.Errorf("%q: %s", header, got)
			}
			for _, protocol := range []string{"tls", "h2"} {
				w := wayTo(t, protocol, srv, &tls.Config{RootCAs: pool, ServerName: "localhost"})
				w.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
					return announcing(t, "127.0.0.2", secure, header), nil
				}
				for range 3 { // on one connection
					if resp, _ := w.ask(http.MethodGet, "/", "", "Host", "localhost"); resp.StatusCode != want {
						t.Errorf("%q over %s: %d", header, protocol, resp.StatusCode)
					}
				}
				w.close()
			}
			_ = nc.Close()
		}

		// Where none is expected.
		if got := fmt.Sprint(statuses(t, dialFrom(t, "127.0.0.1", plain), 2, "/")); got != "[200 200]" {
			t.Errorf("without: %s", got)
		}
		for _, header := range []string{v1("198.51.100.1"), v2} {
			resp, err := http.ReadResponse(bufio.NewReader(announcing(t, "127.0.0.1", plain, header+"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")), nil)
			if err != nil || resp.StatusCode != http.StatusBadRequest {
				t.Errorf("forged: %v, %v", resp, err)
			}
		}
		said.waitFor(t, "not in proxy_protocol.from")

		// None where one is, and broken ones.
		resp, err := http.ReadResponse(bufio.NewReader(announcing(t, "127.0.0.2", plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")), nil)
		if err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("no header: %v, %v", resp, err)
		} else if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), "PROXY header") {
			t.Errorf("%s", body)
		}
		for _, addr := range []string{plain, secure} {
			nc := announcing(t, "127.0.0.2", addr, "PROXY TCP4 nonsense\r\n")
			_ = nc.SetDeadline(time.Now().Add(5 * time.Second))
			if n, err := nc.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Error("a broken header is taken")
			}
		}

		// Each client has its share of connections, whoever brings them.
		refused := 0
		for range 8 {
			nc := announcing(t, "127.0.0.2", plain, v1("198.51.100.1")+"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1") // busy
			_ = nc.SetDeadline(time.Now().Add(300 * time.Millisecond))
			if resp, err := http.ReadResponse(bufio.NewReader(nc), nil); err == nil && resp.StatusCode == http.StatusServiceUnavailable {
				refused++
			}
		}
		if !off && refused == 0 {
			t.Error("nothing was refused")
		}
		_ = srv.Close()
	})
}
