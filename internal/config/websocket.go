package config

import (
	"fmt"
	"slices"
	"strings"
)

// websockets checks what the options of WebSockets cannot check themselves: their route, and
// options that could not be read.
func (c *checker) websockets() {
	for _, r := range c.routes() {
		path := join(r.path, "websocket")
		if c.doc.unread[path] || c.doc.unread[path+unknownKey] || r.anyUnread(c, path) {
			// Which of the three was meant cannot be told.
			c.doc.unread[join(path, "echo")] = true
		}
		if r.WebSocket != nil && r.WebSocket.Channels != nil && !strings.HasSuffix(r.pattern, "/") {
			c.key(r.path, fmt.Sprintf("channels need a route that ends in \"/\": %s/ws, %s/sse and %s/publish are below it", r.pattern, r.pattern, r.pattern),
				fmt.Sprintf("did you mean %q?", r.pattern+"/"))
		}
	}
}

// anyUnread reports whether one of the ways to answer was written in a way that
// could not be read.
func (r route) anyUnread(c *checker, path string) bool {
	return slices.ContainsFunc([]string{"proxy", "channels"}, func(kind string) bool { return c.doc.unread[join(path, kind)] })
}
