package engine_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSocketsRefusedSayWhy: a WebSocket for which there is no place is refused
// with the limit in a word, and the log has the key to change.
func TestSocketsRefusedSayWhy(t *testing.T) {
	t.Parallel()
	srv, log := startLoud(t, `
listen: 127.0.0.1:0
limits: {websockets: 3, websockets_per_address: 2}
sites: [{routes: {/: {websocket: echo}, /one: {websocket: {echo: {}, connections: 1}}}}]
`)
	ask := func(from, path string) (status int, body string) {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		nc, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(srv.Addrs()[0], "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(60 * time.Second))
		fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path)
		res, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode == http.StatusServiceUnavailable {
			text, _ := io.ReadAll(res.Body)
			body = string(text)
		}
		return res.StatusCode, body
	}
	for _, step := range []struct {
		from, path, body, log string // body: of the refusal
	}{
		{from: "127.0.0.2", path: "/one"},
		{"127.0.0.3", "/one", "This route has", "limit=websocket.connections"},
		{from: "127.0.0.2", path: "/"},
		{"127.0.0.2", "/", "This address has", "limits.websockets_per_address"},
		{from: "127.0.0.3", path: "/"},
		{"127.0.0.4", "/", "This server has", "limit=\"limits.websockets (up to"},
	} {
		status, body := ask(step.from, step.path)
		if want := http.StatusSwitchingProtocols; step.body == "" && status != want {
			t.Errorf("%+v: %d %q", step, status, body)
		} else if step.body != "" && (status != http.StatusServiceUnavailable || !strings.HasPrefix(body, step.body)) {
			t.Errorf("%+v: %d %q", step, status, body)
		}
		log.waitFor(t, step.log)
	}
}

// TestSocketShare: where only WebSockets are served they have nearly all
// descriptors; more than there are is told of.
func TestSocketShare(t *testing.T) {
	t.Parallel()
	const site = "listen: 127.0.0.1:0\nlimits: {%s}\nsites: [{routes: {/echo: {websocket: echo}, /r: {redirect: {to: /echo}}%s}}]\n"
	srv, log := startLoud(t, fmt.Sprintf(site, "", ""))
	only, ok := srv.WebSocketShare()
	if !ok || only.Descriptors == 0 {
		t.Skip("descriptors have no limit here")
	}
	if least := only.Descriptors * 9 / 10; only.WebSockets < least && only.Descriptors >= 1024 {
		t.Errorf("of %d descriptors %d are for WebSockets, at least %d should be", only.Descriptors, only.WebSockets, least)
	}
	reload(t, srv, parse(t, fmt.Sprintf(site, "", ", /f/: {static: {root: "+t.TempDir()+"}}")))
	if mixed, _ := srv.WebSocketShare(); mixed.WebSockets >= only.WebSockets {
		t.Errorf("beside files %d of %d descriptors are for WebSockets", mixed.WebSockets, mixed.Descriptors)
	}
	reload(t, srv, parse(t, fmt.Sprintf(site, "websockets: 9999999", ", /f/: {static: {root: "+t.TempDir()+"}}")))
	if asked, _ := srv.WebSocketShare(); asked.WebSockets != only.WebSockets {
		t.Errorf("%+v", asked)
	}
	log.waitFor(t, "limits.websockets asks for more")
	reload(t, srv, parse(t, fmt.Sprintf(site, "websockets: 9", ", /p: {websocket: {proxy: 'ws://127.0.0.1:1'}}")))
	if asked, _ := srv.WebSocketShare(); asked.WebSockets != 9 || asked.PerAddress != 4 {
		t.Errorf("%+v", asked)
	}
}
