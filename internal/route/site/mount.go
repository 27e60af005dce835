package site

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// Mount strips the route's prefix from paths for jobs that serve a folder. The
// other jobs see the whole path.
func Mount(pattern string, h http.Handler, folder bool) http.Handler {
	if !folder || pattern == "/" || !strings.HasSuffix(pattern, "/") {
		return h
	}
	prefix := strings.TrimSuffix(pattern, "/")
	return &Mounted{Job: h, Prefix: prefix, inner: http.StripPrefix(prefix, h)}
}

// Mounted is a job that gets paths without its route's prefix.
type Mounted struct {
	Job    http.Handler
	Prefix string // what is stripped, without a slash at its end
	inner  http.Handler
}

// ServeHTTP implements [http.Handler].
func (m *Mounted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != m.Prefix {
		m.inner.ServeHTTP(w, r)
		return
	}
	// Relative, so that it is right behind another proxy's prefix, too.
	to := url.URL{Path: path.Base(m.Prefix) + "/", RawQuery: r.URL.RawQuery}
	w.Header().Set("Location", to.String())
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusMovedPermanently)
}
