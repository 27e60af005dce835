//go:build !single || page

package main

import (
	"net"
	"net/http"
	"os"
	"strconv"
)

// page answers every request with one page that it holds in memory, over TLS with HTTP/2:
// what net/http itself costs, with the least handler that there is. The experiment tls
// holds a cold stream of millrace against it.
func page(o options) (func(net.Listener) error, error) {
	body, err := os.ReadFile(o.page)
	if err != nil {
		return nil, err
	}
	length := []string{strconv.Itoa(len(body))}
	kind := []string{"text/html; charset=utf-8"}
	handler := func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Length"], h["Content-Type"] = length, kind
		_, _ = w.Write(body) // a client that went away has its own loss
	}
	server := &http.Server{Handler: http.HandlerFunc(handler)}
	return func(l net.Listener) error { return server.ServeTLS(l, o.cert, o.key) }, nil
}
