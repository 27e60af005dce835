// Command fasthttp-embed serves its embedded files with fasthttp's FS.
//
//	fasthttp-embed -listen 127.0.0.1:PORT
package main

import (
	"os"

	"github.com/valyala/fasthttp"

	"millrace/bench/subjects/internal/fastsite"
	"millrace/bench/subjects/internal/site"
	"millrace/bench/subjects/internal/site/embedded"
)

func main() { os.Exit(fastsite.Main("fasthttp-embed", handler)) }

func handler(string) (fasthttp.RequestHandler, error) {
	files, err := embedded.Files()
	if err != nil {
		return nil, err
	}
	v, err := site.ReadVerification(files)
	if err != nil {
		return nil, err
	}
	return fastsite.New(&fasthttp.FS{FS: files, AllowEmptyRoot: true}, v), nil
}
