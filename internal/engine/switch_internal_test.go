package engine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/config"
)

const handshake = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// TestSwitch: WebSockets that leave the fast lane as descriptors get all that their
// clients have sent, and hear of the server's end. So do those of net/http.
func TestSwitch(t *testing.T) {
	for _, off := range []bool{false, true} {
		cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, "admin: {listen: off}\nlog: {format: off}\nlisten: 127.0.0.1:0\nlane: {off: %v}\nsites:\n- routes:\n    /: {websocket: echo}\n", off))
		if err != nil {
			t.Fatal(err)
		}
		srv, err := New(cfg, Options{ErrorLog: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- srv.Run(ctx) }() // waited for below
		var ready, all sync.WaitGroup
		for i := range 50 {
			ready.Add(1)
			all.Go(func() {
				br, nc := switched(t, strings.TrimPrefix(srv.Addrs()[0], "http://"), i)
				ready.Done()
				if nc == nil {
					return
				}
				defer nc.Close()
				if op, err := br.ReadByte(); err != nil || op != 0x88 {
					t.Errorf("lane off: %v: at the end %x, %v", off, op, err)
				}
			})
		}
		ready.Wait()
		stop()
		all.Wait()
		_ = srv.Close()
		<-ended
	}
}

// switched opens a WebSocket, sends a message with the handshake and one behind it,
// and gets both back.
func switched(t *testing.T, addr string, i int) (*bufio.Reader, net.Conn) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	one, two := fmt.Sprintf("one %02d", i), fmt.Sprintf("two %02d", i)
	_, _ = io.WriteString(nc, "GET /s HTTP/1.1\r\nHost: a\r\n"+handshake+"\r\n"+masked(one))
	br := bufio.NewReader(nc)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Errorf("the handshake: %v, %v", res, err)
		return nil, nil
	}
	_, _ = io.WriteString(nc, masked(two))
	got := make([]byte, 2*(2+len(one)))
	want := "\x81\x06" + one + "\x81\x06" + two
	if _, err := io.ReadFull(br, got); err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	return br, nc
}

// masked is a client's message, with a mask of zeros.
func masked(text string) string {
	return string([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}) + text
}

// A reload that brings the first WebSockets: a client that comes as soon as they can be
// reached is let in.
func TestFirstWebSocketOfAReload(t *testing.T) {
	load := func(route string) *config.Config {
		cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, "admin: {listen: off}\nlog: {format: off}\nlisten: 127.0.0.1:0\nsites:\n- routes:\n    /: {%s}\n", route))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	srv, err := New(load("respond: {text: a}"), Options{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(context.Background()) }() // waited for below
	defer func() { _ = srv.Close(); <-ended }()
	next, err := srv.build(load("websocket: echo"), srv.graph)
	if err != nil {
		t.Fatal(err)
	}
	defer next.close(srv.graph)
	front := httptest.NewServer(next.websockets["/"].handler) // as its listeners do, before serves is called
	defer front.Close()
	if _, nc := switched(t, strings.TrimPrefix(front.URL, "http://"), 1); nc != nil {
		nc.Close()
	}
}
