package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"
)

// fastRouter has fasthttp's handler for the API, and files beside it.
func fastRouter(files http.Handler) http.Handler {
	m := http.NewServeMux()
	m.Handle("/files/", files)
	m.Handle("/", fromFast(func(ctx *fasthttp.RequestCtx) {
		name, ok := strings.CutPrefix(string(ctx.Path()), "/api/hello/")
		if !ok || !ctx.IsGet() {
			ctx.NotFound()
			return
		}
		ctx.SetContentType("application/json")
		_ = json.NewEncoder(ctx).Encode(greeting{name}) // into memory
	}))
	return m
}

// fromFast lets a handler of fasthttp answer under any server for http.Handlers.
// The body of a request is read as the handler asks for it. Hijacking is not
// possible.
func fromFast(h fasthttp.RequestHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ctx fasthttp.RequestCtx
		peer, _ := net.ResolveTCPAddr("tcp", r.RemoteAddr) // nil for a UNIX socket
		ctx.Init(&fasthttp.Request{}, peer, nil)
		req := &ctx.Request
		req.Header.SetMethod(r.Method)
		req.SetRequestURI(r.RequestURI)
		req.Header.SetHost(r.Host)
		for name, values := range r.Header {
			for _, v := range values {
				req.Header.Add(name, v)
			}
		}
		if r.ContentLength != 0 {
			req.SetBodyStream(r.Body, int(r.ContentLength))
		}
		h(&ctx)
		header := w.Header()
		for name, value := range ctx.Response.Header.All() {
			switch n := string(name); n {
			case "Connection", "Transfer-Encoding": // the server's affair
			case "Content-Length":
				header.Set(n, string(value))
			default:
				header.Add(n, string(value))
			}
		}
		w.WriteHeader(ctx.Response.StatusCode())
		if stream := ctx.Response.BodyStream(); stream != nil {
			_, _ = io.Copy(w, stream) // an error means that the client is gone
			_ = ctx.Response.CloseBodyStream()
			return
		}
		_, _ = w.Write(ctx.Response.Body())
	})
}
