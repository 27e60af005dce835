// Package fastsite is the site in fasthttp: FS and one JSON method. FS and
// Server keep their defaults, but the index page, which FS has to be told about.
package fastsite

import (
	"flag"
	"fmt"
	"os"

	"github.com/valyala/fasthttp"

	"millrace/bench/subjects/internal/site"
)

// Main parses the flags, makes the handler and serves until the listener fails;
// SIGTERM ends the process as it is. It returns the exit code.
func Main(name string, newHandler func(root string) (fasthttp.RequestHandler, error)) int {
	root := flag.String("root", ".", "the `folder` to serve, where it is not in the executable")
	address := flag.String("listen", "127.0.0.1:8080", "the TCP `address`")
	flag.Parse()
	h, err := newHandler(*root)
	if err == nil {
		err = fasthttp.ListenAndServe(*address, h)
	}
	_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return 1
}

// New serves files. The caller has filled what says where they are.
func New(files *fasthttp.FS, v *site.Verification) fasthttp.RequestHandler {
	files.IndexNames = []string{"index.html"}
	serve := files.NewRequestHandler()
	return func(ctx *fasthttp.RequestCtx) {
		if string(ctx.Path()) != site.VerifyPath {
			serve(ctx)
			return
		}
		b, err := v.JSON()
		if err != nil {
			ctx.Error(err.Error(), fasthttp.StatusInternalServerError)
			return
		}
		ctx.SetContentType("application/json")
		ctx.SetBody(b)
	}
}
