//go:build !single || ldflags

package main

import (
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
)

// Set with -ldflags "-X main.NAME=…".
var (
	indexHTML, testHTML, testJS, verifyJSON string
	favicon16, favicon32, faviconICO        string // base64
	gitHash                                 string
)

// ldflags serves the site from variables that the linker has filled: text as it is,
// pictures in base64, which is decoded for each request. See lab/bench/subjects/README.md for
// how it is built; without the flags every page is empty.
func ldflags(options) (func(net.Listener) error, error) {
	h, err := linkedSite()
	return serveHTTP(h), err
}

func linkedSite() (http.Handler, error) {
	if indexHTML == "" {
		return nil, errors.New("it was built without its files: see lab/bench/subjects/README.md for the -ldflags")
	}
	v, err := parseVerification([]byte(verifyJSON))
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
	return withMethod(mux, v), nil
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
