package websocket_test

import (
	"bufio"
	"log/slog"
	"net"
	"strings"
	"testing"

	"millrace/internal/upstream"
	"millrace/proxy"
	"millrace/websocket"
)

// TestIntroduced: with proxy_protocol the server of a WebSocket is told who the client is.
func TestIntroduced(t *testing.T) {
	for _, secure := range []bool{false, true} {
		back, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		said := make(chan string, 1)
		go func() {
			nc, err := back.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			line, _ := bufio.NewReader(nc).ReadString('\n')
			said <- line
		}()
		o := websocket.Options{Proxy: &proxy.Options{Options: upstream.Options{To: []string{"ws://" + back.Addr().String()}, ProxyProtocol: "v1"}}}
		pool, err := upstream.New(o.ProxyOptions().Options, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		f := serve(t, "introduced", secure, newHandler(t, newEngine(t), o, pool))
		var nc net.Conn
		if f.h2 = secure && extended(); f.h2 {
			s := f.dialH2(t).open(false)
			nc = s
		} else {
			nc = f.connect(t)
			_, _ = nc.Write([]byte(request()))
		}
		defer nc.Close()
		if line := <-said; !strings.HasPrefix(line, "PROXY TCP4 127.0.0.1 127.0.0.1 ") || !strings.HasSuffix(line, " "+f.addr[strings.LastIndexByte(f.addr, ':')+1:]+"\r\n") {
			t.Errorf("TLS %v: the server is told %q", secure, line)
		}
	}
}
