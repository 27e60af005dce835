package server

import (
	"net/http"

	"millrace/internal/lane"
	"millrace/internal/route/site"
	"millrace/internal/wire/pages"
)

// noPage stands for a page that cannot be sent itself.
const noPage = "-"

// page sends the page that takes the place of what the job has answered. Of that
// the status remains, and the fields that say what the client may do about it.
func (w *writer) page(r *http.Request) {
	if w.replaced == "" {
		return
	}
	status := w.status
	header := w.rw.Header()
	onlyAdvice(header)
	lane.Decline(r)                  // a page is for its status, not for the path
	named := site.IsName(w.replaced) // which answers for the path that was asked for, and asks who it is
	route, path := w.visit.site.Page(w.replaced, r.URL.Path)
	w.status, w.replaced, w.pages, w.appPages, w.forced = 0, "", nil, nil, status
	if route != nil {
		h := route.Open
		if h == nil || named {
			h = route.Handler
		}
		h.ServeHTTP(w, asPage(r, path))
	} else {
		w.replaced = noPage
	}
	if w.replaced == "" && w.status != 0 {
		return
	}
	w.replaced, w.forced, w.status = "", 0, 0
	onlyAdvice(header)
	pages.Error(w, r, status, "")
}

// onlyAdvice keeps the fields of an answer that say what the client may do about it.
func onlyAdvice(header http.Header) {
	for name := range header {
		switch name {
		case "Www-Authenticate", "Retry-After", "Allow", "Set-Cookie", "Ratelimit", "Ratelimit-Policy":
		default:
			delete(header, name)
		}
	}
}

// asPage is the request for a page: a GET without a body, conditions and ranges.
func asPage(r *http.Request, path string) *http.Request {
	c := *site.WithPath(r, path, "")
	if c.Method != http.MethodHead {
		c.Method = http.MethodGet
	}
	c.Body, c.ContentLength, c.TransferEncoding = http.NoBody, 0, nil
	c.Header = r.Header.Clone()
	for _, name := range [...]string{"Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "Content-Length", "Content-Type", "Expect"} {
		delete(c.Header, name)
	}
	return &c
}
