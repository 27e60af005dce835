package engine_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/internal/engine"
)

// handshakeFrom asks for a WebSocket from an address of this machine.
func handshakeFrom(t *testing.T, srv *engine.Server, from, path string) (*socket, int) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	nc, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(srv.Addrs()[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(60 * time.Second))
	return shake(t, nc, path)
}

// TestSocketsOfOneAddress: one address has a share of the WebSockets of all
// kinds of routes together, which it gets back when they end; proxies in front
// have no such limit.
func TestSocketsOfOneAddress(t *testing.T) {
	const client, other, proxy = "127.0.0.2", "127.0.0.3", "127.0.0.4"
	back := start(t, parse(t, "listen: 127.0.0.1:0\nsites: [{routes: {/: {websocket: echo}}}]\n"))
	srv := start(t, parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
limits: {websockets: 6, trusted_proxies: [%s]}
sites: [{routes: {/echo: {websocket: echo}, /live/: {websocket: {channels: {}}}, /proxy: {websocket: {proxy: %q}}}}]
`, proxy, strings.Replace(back.Addrs()[0], "http:", "ws:", 1))))
	paths := []string{"/echo", "/live/ws", "/proxy"}
	for round := range 3 {
		var mine []*socket
		for _, path := range paths {
			for { // the server takes note of an end a moment later
				s, status := handshakeFrom(t, srv, client, path)
				if status == http.StatusSwitchingProtocols {
					mine = append(mine, s)
					break
				}
				if round == 0 || status != http.StatusServiceUnavailable {
					t.Fatalf("round %d: %s answers with %d", round, path, status)
				}
				time.Sleep(time.Millisecond)
			}
		}
		for _, path := range paths {
			if _, status := handshakeFrom(t, srv, client, path); status != http.StatusServiceUnavailable {
				t.Errorf("round %d: one too many at %s: %d", round, path, status)
			}
		}
		if s, status := handshakeFrom(t, srv, other, "/echo"); status != http.StatusSwitchingProtocols {
			t.Errorf("round %d: another address is refused with %d", round, status)
		} else {
			s.nc.Close()
		}
		for _, s := range mine {
			s.nc.Close()
		}
	}
	for n := 0; n < 4; { // more than half
		if _, status := handshakeFrom(t, srv, proxy, "/echo"); status == http.StatusSwitchingProtocols {
			n++
		} else {
			time.Sleep(time.Millisecond) // those before have not all ended
		}
	}
}
