// Command nethttp-disk is the baseline of embed-vs-disk: http.FileServer on a
// folder, and one JSON method.
//
//	nethttp-disk -root DIR -listen 127.0.0.1:PORT
package main

import (
	"net/http"
	"os"

	"millrace/bench/subjects/internal/listen"
	"millrace/bench/subjects/internal/site"
)

func main() { os.Exit(listen.HTTP("nethttp-disk", handler)) }

func handler(root string) (http.Handler, error) {
	v, err := site.ReadVerification(os.DirFS(root))
	if err != nil {
		return nil, err
	}
	return listen.Site(http.FileServer(http.Dir(root)), v), nil
}
