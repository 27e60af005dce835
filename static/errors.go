package static

import (
	"errors"
	"net/http"

	"millrace/internal/wire/pages"
	"millrace/internal/wire/send"
)

// fail answers a request whose name led to no file.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, name string, err error) {
	rules := h.rules.load()
	rules.applyHeaders(w.Header(), pathOf(r), false)
	switch {
	case errors.Is(err, errDirectory):
		redirect(w, r, directorySegment(name))
	case errors.Is(err, errNotFound):
		if !h.list(w, r, name) && !h.ruled(w, r, rules, false) && !h.application(w, r, name) {
			h.notFound(w, r)
		}
	case errors.Is(err, errNotAcceptable):
		respondStatus(w, r, http.StatusNotAcceptable)
	case errors.Is(err, errForbidden):
		respondStatus(w, r, http.StatusForbidden)
	default:
		w.Header()["Retry-After"] = []string{"1"}
		respondStatus(w, r, http.StatusServiceUnavailable)
	}
}

// notFound answers 404 with the site's page for it, if it has one.
func (h *Handler) notFound(w http.ResponseWriter, r *http.Request) {
	rules := h.rules.load()
	rules.applyHeaders(w.Header(), pathOf(r), false)
	if h.private.covers(h.options.NotFound) {
		respondStatus(w, r, http.StatusNotFound)
		return
	}
	u, err := h.use(h.options.NotFound, r.Header)
	if err != nil {
		respondStatus(w, r, http.StatusNotFound)
		return
	}
	defer u.done()
	send.ServeStatus(w, r, http.StatusNotFound, rules.under(u.answer, pathOf(r), false))
}

// respondStatus answers with an error.
func respondStatus(w http.ResponseWriter, r *http.Request, status int) {
	w.Header()["Cache-Control"] = []string{pageCache} // 404 and 405 may be cached without it (RFC 9110, 15.1)
	pages.Error(w, r, status, "")
}
