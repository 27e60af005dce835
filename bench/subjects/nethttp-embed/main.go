// Command nethttp-embed serves the same as nethttp-disk from its executable,
// with http.FileServer on http.FS on fs.Sub on what go:embed put there.
//
//	nethttp-embed -listen 127.0.0.1:PORT
package main

import (
	"net/http"
	"os"

	"millrace/bench/subjects/internal/listen"
	"millrace/bench/subjects/internal/site"
	"millrace/bench/subjects/internal/site/embedded"
)

func main() { os.Exit(listen.HTTP("nethttp-embed", handler)) }

func handler(string) (http.Handler, error) {
	files, err := embedded.Files()
	if err != nil {
		return nil, err
	}
	v, err := site.ReadVerification(files)
	if err != nil {
		return nil, err
	}
	return listen.Site(http.FileServer(http.FS(files)), v), nil
}
