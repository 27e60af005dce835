//go:build !single || millrace

package main

import (
	"errors"
	"net"

	"millrace/static"
)

// millraceStatic serves the embedded site with millrace's package static, as any Go
// program can: a plain http.Handler under net/http, without the fast lane that is part of
// millrace serve.
func millraceStatic(o options) (func(net.Listener) error, error) {
	if !o.embed {
		return nil, errors.New("for a folder there is `millrace serve DIR`; this is for -embed")
	}
	files, v, err := o.site()
	if err != nil {
		return nil, err
	}
	h, err := static.New(files, static.Options{})
	if err != nil {
		return nil, err
	}
	return serveHTTP(withMethod(h, v)), nil
}
