//go:build !single || nethttp

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
)

// sendfile sends one file in one of the four published ways: the subjects of
// sendfile-paths.
func sendfile(o options) (func(net.Listener) error, error) {
	h, err := sendHandler(o.how, o.root)
	return serveHTTP(h), err
}

// sendHandler sends the file that the URL's path names in root, in the way called how.
func sendHandler(how, root string) (http.Handler, error) {
	name := func(r *http.Request) string {
		return filepath.Join(root, filepath.FromSlash(path.Clean("/"+r.URL.Path)))
	}
	switch how {
	case "servefile":
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, name(r))
		}), nil
	case "copy":
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			send(w, w, name(r), true)
		}), nil
	case "wrapped":
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			send(w, wrapper{w}, name(r), true)
		}), nil
	case "nolength":
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			send(w, w, name(r), false)
		}), nil
	}
	return nil, fmt.Errorf("%q is none of the ways to send: servefile, copy, wrapped, nolength", how)
}

// wrapper is what a middleware wraps around an answer to see its status or its
// length, and what hides the answer's ReadFrom, which io.Copy looks for.
type wrapper struct{ w http.ResponseWriter }

func (w wrapper) Write(p []byte) (int, error) { return w.w.Write(p) }

// send copies the file called name to body, which is w or around it.
func send(w http.ResponseWriter, body io.Writer, name string, length bool) {
	f, err := os.Open(name)
	if err != nil {
		http.Error(w, "no such file", http.StatusNotFound)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		http.Error(w, "no such file", http.StatusNotFound)
		return
	}
	// Named, so that net/http does not have to look at the first bytes.
	w.Header().Set("Content-Type", "application/octet-stream")
	if length {
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	}
	_, _ = io.Copy(body, f) // a client that went away has lost what it did not get
}
