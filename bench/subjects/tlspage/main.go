// Command tlspage answers every request with one page that it holds in memory,
// over TLS with HTTP/2: what net/http itself costs, with the least handler that
// there is. The experiment tls holds a cold stream of millrace against it.
//
//	tlspage -page FILE -listen 127.0.0.1:PORT -cert FILE -key FILE
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
)

func main() {
	page := flag.String("page", "", "the `file` to answer with")
	listen := flag.String("listen", "127.0.0.1:0", "the TCP `address`")
	cert := flag.String("cert", "", "the certificate's `file` (PEM)")
	key := flag.String("key", "", "the private key's `file` (PEM)")
	flag.Parse()
	if err := run(*page, *listen, *cert, *key); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "tlspage:", err)
		os.Exit(1)
	}
}

// run serves until the listener fails; SIGTERM ends the process as it is.
func run(page, listen, cert, key string) error {
	body, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	length := []string{strconv.Itoa(len(body))}
	kind := []string{"text/html; charset=utf-8"}
	handler := func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Length"], h["Content-Type"] = length, kind
		_, _ = w.Write(body) // a client that went away has its own loss
	}
	server := &http.Server{Addr: listen, Handler: http.HandlerFunc(handler)}
	return server.ListenAndServeTLS(cert, key)
}
