package engine_test

import (
	"bufio"
	"crypto/sha1" // RFC 6455, 1.3: it proves no identity
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// literal is an upstream that compares the names of fields as they are written, as
// some programs of a few lines do. It answers with what it was asked.
func literal(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener; what it has accepted, with its client
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go serveLiteral(nc)
		}
	}()
	return l.Addr().String()
}

func serveLiteral(nc net.Conn) {
	defer nc.Close()
	in := bufio.NewReader(nc)
	for {
		var head []string
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if line = strings.TrimSpace(line); line == "" {
				break
			}
			head = append(head, line)
		}
		i := slices.IndexFunc(head, func(s string) bool { return strings.HasPrefix(s, "Sec-WebSocket-Key: ") })
		if i < 0 {
			body := strings.Join(head, "\n")
			fmt.Fprintf(nc, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			continue
		}
		sum := sha1.Sum([]byte(strings.TrimPrefix(head[i], "Sec-WebSocket-Key: ") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		text := strings.Join(head, "\n")
		fmt.Fprintf(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: chat\r\nSec-WebSocket-Accept: %s\r\n\r\n\x81\x7e%c%c%s", base64.StdEncoding.EncodeToString(sum[:]), len(text)>>8, len(text)&255, text)
	}
}

// TestSpelling: upstreams, and clients that switch protocols, get the names of
// fields as their standards write them, on every road.
func TestSpelling(t *testing.T) {
	up := literal(t)
	sites := fmt.Sprintf("sites: [{routes: {/: {proxy: 'http://%s'}, /c: {cache: 'http://%[1]s'}, /ws: {websocket: {proxy: 'ws://%[1]s'}}}}]\n", up)
	everyWay(t, sites, func(w *way) {
		for _, path := range []string{"/", "/ws", "/c"} {
			resp, got := w.ask("GET", path, "", "Dnt", "1", "Sec-Gpc", "1", "Soapaction", "x", "Content-Md5", "y")
			if resp.StatusCode != http.StatusOK {
				w.Fatalf("%s: %s", path, resp.Status)
			}
			for _, want := range []string{"DNT: 1", "Sec-GPC: 1", "SOAPAction: x", "Content-MD5: y"} {
				passed := path != "/c" || strings.Contains(strings.ToLower(got), strings.ToLower(want)) // a cache leaves some out
				if passed && !strings.Contains(got, "\n"+want) {
					w.Errorf("%s: no %s in\n%s", path, want, got)
				}
			}
		}
		if after, ok := strings.CutPrefix(w.base, "http://"); ok {
			for _, path := range []string{"/", "/ws"} {
				switchLiteral(w.T, after, path)
			}
		}
	})
}

// switchLiteral opens a WebSocket, and reads how the upstream was asked for it.
func switchLiteral(t *testing.T, addr, path string) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-protocol: chat\r\nSec-WebSocket-Extensions: x\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path)
	in := bufio.NewReader(nc)
	var answer strings.Builder
	for line := ""; line != "\r\n"; {
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatalf("%s: %v after %q", path, err, answer.String())
		}
		answer.WriteString(line)
	}
	for _, want := range []string{"HTTP/1.1 101 ", "\nSec-WebSocket-Accept: ", "\nSec-WebSocket-Protocol: chat"} {
		if !strings.Contains(answer.String(), want) {
			t.Errorf("%s: no %q in\n%s", path, want, answer.String())
		}
	}
	if t.Failed() {
		return
	}
	frame := make([]byte, 4)
	if _, err := io.ReadFull(in, frame); err != nil {
		t.Fatal(err)
	}
	asked := make([]byte, int(frame[2])<<8|int(frame[3]))
	if _, err := io.ReadFull(in, asked); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Sec-WebSocket-Key: ", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: chat", "Sec-WebSocket-Extensions: x"} {
		if !strings.Contains(string(asked), "\n"+want) {
			t.Errorf("%s: the upstream hears no %q but\n%s", path, want, asked)
		}
	}
}
