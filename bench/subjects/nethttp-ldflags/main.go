// Command nethttp-ldflags serves the site from variables that the linker has
// filled: text as it is, pictures in base64, which is decoded for each request.
// See bench/subjects/README.md for how it is built; without the flags every
// page is empty.
//
//	nethttp-ldflags -listen 127.0.0.1:PORT
package main

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"os"

	"millrace/bench/subjects/internal/listen"
	"millrace/bench/subjects/internal/site"
)

// Set with -ldflags "-X main.NAME=…".
var (
	indexHTML, testHTML, testJS, verifyJSON string
	favicon16, favicon32, faviconICO        string // base64
	gitHash                                 string
)

func main() { os.Exit(listen.HTTP("nethttp-ldflags", handler)) }

func handler(string) (http.Handler, error) {
	if indexHTML == "" {
		return nil, errors.New("it was built without its files: see bench/subjects/README.md for the -ldflags")
	}
	v, err := site.ParseVerification([]byte(verifyJSON))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/{$}", text("text/html; charset=utf-8", indexHTML))
	mux.Handle("/test.html", text("text/html; charset=utf-8", testHTML))
	mux.Handle("/assets/js/test.js", text("text/javascript; charset=utf-8", testJS))
	mux.Handle("/favicon-16x16.png", picture("image/png", favicon16))
	mux.Handle("/favicon-32x32.png", picture("image/png", favicon32))
	mux.Handle("/favicon.ico", picture("image/x-icon", faviconICO))
	mux.Handle("/git-hash", text("text/plain; charset=utf-8", gitHash))
	return listen.Site(mux, v), nil
}

func text(kind, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, content)
	}
}

func picture(kind, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		b, err := base64.StdEncoding.DecodeString(content)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Write(b)
	}
}
