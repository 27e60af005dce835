// Command gin-embed serves its embedded files with Gin's StaticFS.
//
//	gin-embed -listen 127.0.0.1:PORT
package main

import (
	"net/http"
	"os"

	"millrace/bench/subjects/internal/ginsite"
	"millrace/bench/subjects/internal/listen"
	"millrace/bench/subjects/internal/site"
	"millrace/bench/subjects/internal/site/embedded"
)

func main() { os.Exit(listen.HTTP("gin-embed", handler)) }

func handler(string) (http.Handler, error) {
	files, err := embedded.Files()
	if err != nil {
		return nil, err
	}
	v, err := site.ReadVerification(files)
	if err != nil {
		return nil, err
	}
	return ginsite.New(http.FS(files), v), nil
}
