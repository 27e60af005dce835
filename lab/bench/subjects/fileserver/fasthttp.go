//go:build !single || fasthttp

package main

import (
	"net"

	"github.com/valyala/fasthttp"
)

// fastHTTP serves the site with fasthttp's FS and one JSON method. FS and Server keep
// their defaults, but the index page, which FS has to be told about.
func fastHTTP(o options) (func(net.Listener) error, error) {
	files, v, err := o.site()
	if err != nil {
		return nil, err
	}
	fs := &fasthttp.FS{Root: o.root}
	if o.embed {
		fs = &fasthttp.FS{FS: files, AllowEmptyRoot: true}
	}
	fs.IndexNames = []string{"index.html"}
	serve := fs.NewRequestHandler()
	return serveFast(func(ctx *fasthttp.RequestCtx) {
		if string(ctx.Path()) != verifyPath {
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
	}), nil
}

// fastHTTPPlain is fasthttp's own file server, which the experiment files compares with,
// with ranges.
func fastHTTPPlain(o options) (func(net.Listener) error, error) {
	fs := &fasthttp.FS{Root: o.root, IndexNames: []string{"index.html"}, AcceptByteRange: true}
	return serveFast(fs.NewRequestHandler()), nil
}

// serveFast serves a handler with fasthttp as it is.
func serveFast(h fasthttp.RequestHandler) func(net.Listener) error {
	return (&fasthttp.Server{Handler: h}).Serve
}
