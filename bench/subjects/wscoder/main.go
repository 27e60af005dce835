// Command wscoder is an echo server over github.com/coder/websocket with its
// default options: each message is read whole and written back.
//
//	wscoder -listen 127.0.0.1:PORT
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"

	"github.com/coder/websocket"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "the TCP `address`")
	flag.Parse()
	if err := http.ListenAndServe(*listen, handler()); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "wscoder:", err)
		os.Exit(1)
	}
}

// handler echoes until the client closes.
func handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // the library has answered
		}
		defer func() { _ = c.CloseNow() }()
		for {
			kind, message, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, message); err != nil {
				return
			}
		}
	})
}
