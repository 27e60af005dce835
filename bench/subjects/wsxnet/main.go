// Command wsxnet is the echo server of the published WebSocket test: the
// Handler of golang.org/x/net/websocket with one io.Copy per connection, and
// nothing tuned. Built with GOARCH=386 it is the same server for 32 bits,
// which its author suspected of the crash above 1,500 connections.
//
//	wsxnet -listen 127.0.0.1:PORT
package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"

	"golang.org/x/net/websocket"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "the TCP `address`")
	flag.Parse()
	if err := http.ListenAndServe(*listen, handler()); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "wsxnet:", err)
		os.Exit(1)
	}
}

// handler echoes until the client closes.
func handler() http.Handler {
	return websocket.Handler(func(c *websocket.Conn) {
		// What a client that went away did not get is its own loss.
		_, _ = io.Copy(c, c)
	})
}
