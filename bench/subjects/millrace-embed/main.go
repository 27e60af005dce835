// Command millrace-embed serves its embedded files with millrace's package
// static, as any Go program can: a plain http.Handler under net/http, without
// the fast lane that is part of millrace serve.
//
//	millrace-embed -listen 127.0.0.1:PORT
package main

import (
	"net/http"
	"os"

	"millrace/bench/subjects/internal/listen"
	"millrace/bench/subjects/internal/site"
	"millrace/bench/subjects/internal/site/embedded"
	"millrace/static"
)

func main() { os.Exit(listen.HTTP("millrace-embed", handler)) }

func handler(string) (http.Handler, error) {
	files, err := embedded.Files()
	if err != nil {
		return nil, err
	}
	v, err := site.ReadVerification(files)
	if err != nil {
		return nil, err
	}
	h, err := static.New(files, static.Options{})
	if err != nil {
		return nil, err
	}
	return listen.Site(h, v), nil
}
