package main

import (
	"io"
	"net/http"

	"golang.org/x/net/websocket"
)

// xnetEcho is the echo server of the published WebSocket test: the Handler of
// golang.org/x/net/websocket with one io.Copy per connection. Built with GOARCH=386 it
// is the same server for 32 bits, which its author suspected of the crash above 1,500
// connections.
func xnetEcho() http.Handler {
	return websocket.Handler(func(c *websocket.Conn) {
		// What a client that went away did not get is its own loss.
		_, _ = io.Copy(c, c)
	})
}
