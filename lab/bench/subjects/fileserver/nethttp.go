//go:build !single || nethttp

package main

import (
	"net"
	"net/http"
)

// netHTTP is the published program: http.FileServer on a folder before the change, and
// on http.FS on fs.Sub on what go:embed put there after it (-embed); and one JSON method.
func netHTTP(o options) (func(net.Listener) error, error) {
	files, v, err := o.siteFiles()
	if err != nil {
		return nil, err
	}
	return serveHTTP(withMethod(http.FileServer(files), v)), nil
}

// netHTTPPlain is the http.FileServer that the experiment files compares with: what a Go
// program has before anybody makes it faster.
func netHTTPPlain(o options) (func(net.Listener) error, error) {
	return serveHTTP(http.FileServer(http.Dir(o.root))), nil
}
