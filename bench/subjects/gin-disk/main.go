// Command gin-disk serves a folder with Gin's StaticFS.
//
//	gin-disk -root DIR -listen 127.0.0.1:PORT
package main

import (
	"net/http"
	"os"

	"millrace/bench/subjects/internal/ginsite"
	"millrace/bench/subjects/internal/listen"
	"millrace/bench/subjects/internal/site"
)

func main() { os.Exit(listen.HTTP("gin-disk", handler)) }

func handler(root string) (http.Handler, error) {
	v, err := site.ReadVerification(os.DirFS(root))
	if err != nil {
		return nil, err
	}
	return ginsite.New(http.Dir(root), v), nil
}
