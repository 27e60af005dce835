package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"millrace/internal/upstream"
)

// TestThroughUpgrade: a proxied WebSocket begins in the same way on the through road
// as by net/http, with what its client has sent ahead.
func TestThroughUpgrade(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { // ends when the proxy closes its connection
				defer nc.Close()
				br := bufio.NewReader(nc)
				if _, err := http.ReadRequest(br); err != nil {
					return
				}
				_, _ = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
				_, _ = io.Copy(nc, br)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	for name, off := range map[string]bool{"through": false, "net/http": true} {
		r := relay(t, l.Addr().String(), upstream.Options{}, off)
		for _, early := range []string{"", "sent ahead; "} {
			c := r.dial(t, "tcp")
			_, _ = io.WriteString(c.Conn, request("GET", "/s", "Connection: keep-alive, Upgrade", "Upgrade: websocket")+early)
			res, err := http.ReadResponse(c.br, nil)
			if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "websocket" {
				t.Fatalf("%s: %v, %v", name, res, err)
			}
			_, _ = io.WriteString(c.Conn, "and later")
			got := make([]byte, len(early)+len("and later"))
			if _, err := io.ReadFull(c.br, got); err != nil || string(got) != early+"and later" {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			_ = c.Close()
		}
	}
}
