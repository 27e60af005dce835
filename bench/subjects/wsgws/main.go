// Command wsgws is an echo server over github.com/lxzan/gws with its default
// options: the read loop runs in a goroutine of its own, as its manual shows,
// so that net/http's buffers are given back after the upgrade.
//
//	wsgws -listen 127.0.0.1:PORT
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"

	"github.com/lxzan/gws"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "the TCP `address`")
	flag.Parse()
	if err := http.ListenAndServe(*listen, handler()); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "wsgws:", err)
		os.Exit(1)
	}
}

// echo answers each message with itself.
type echo struct{ gws.BuiltinEventHandler }

// OnMessage sends the message back. A failed write ends the read loop by
// itself.
func (echo) OnMessage(c *gws.Conn, m *gws.Message) {
	defer func() { _ = m.Close() }()
	_ = c.WriteMessage(m.Opcode, m.Bytes())
}

// handler upgrades every request. The goroutine it starts ends with its
// connection.
func handler() http.Handler {
	upgrader := gws.NewUpgrader(echo{}, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r)
		if err != nil {
			return // gws has answered
		}
		go c.ReadLoop()
	})
}
