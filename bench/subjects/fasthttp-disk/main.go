// Command fasthttp-disk serves a folder with fasthttp's FS.
//
//	fasthttp-disk -root DIR -listen 127.0.0.1:PORT
package main

import (
	"os"

	"github.com/valyala/fasthttp"

	"millrace/bench/subjects/internal/fastsite"
	"millrace/bench/subjects/internal/site"
)

func main() { os.Exit(fastsite.Main("fasthttp-disk", handler)) }

func handler(root string) (fasthttp.RequestHandler, error) {
	v, err := site.ReadVerification(os.DirFS(root))
	if err != nil {
		return nil, err
	}
	return fastsite.New(&fasthttp.FS{Root: root}, v), nil
}
