package images

import (
	"cmp"
	"errors"
	"maps"
	"net/http"

	"millrace/images/convert"
	"millrace/internal/wire/pages"
	"millrace/internal/wire/send"
	"millrace/static/original"
)

// mayHaveLocation reports whether files with an extension may say where they were made,
// beside those that are converted: so they are looked at, too.
func mayHaveLocation(ext string) bool {
	return map[string]bool{
		".jpg": true, ".jpeg": true, ".jpe": true, ".jfif": true, ".png": true, ".apng": true, ".webp": true, ".tif": true, ".tiff": true,
		".avif": true, ".heic": true, ".heif": true, ".hif": true,
	}[ext]
}

// instead is what is sent in the place of an original that may not be sent as it is: a variant of any
// file. Nothing else can be sent, so a visitor waits for it.
func instead(f format, id string) wanted {
	return wanted{format: f, spec: convert.Spec{Format: f.Format}, id: id, wait: waitAtMost, any: true}
}

// serveStripped sends the original without its location. It reports false where there is none to
// remove: then the original may be sent.
func (h *Handler) serveStripped(w http.ResponseWriter, r *http.Request, f original.File, c choice) bool {
	if f.Open == nil { // it changed this very moment
		h.withhold(w, r, interim(c.label))
		return true
	}
	s := h.choose(r.Context(), f, []wanted{instead(format{Format: convert.Stripped, level: "embedded", quick: true}, "stripped gps")})
	defer s.done()
	switch {
	case s.answer == nil && s.label == "smaller" && !s.interim:
		return false
	case s.answer == nil:
		h.withhold(w, r, s)
		return true
	}
	h.meters.Served.Add("original " + c.label)
	a := *s.answer
	a.Header = maps.Clone(a.Header)
	a.Header[statusHeader] = []string{"original; reason=" + c.label}
	if f.ApplyHeaders != nil {
		f.ApplyHeaders(a.Header)
	}
	if c.interim {
		a.Header["Cache-Control"] = []string{original.Shorten(f.CacheControl, interimSeconds)}
	} else {
		h.offer(r, f, choice{answer: &a, version: cmp.Or(c.version, s.version), used: s.used})
	}
	send.Serve(w, r, &a)
	return true
}

// withhold answers where an original may not be sent as it is, and is not ready otherwise.
func (h *Handler) withhold(w http.ResponseWriter, r *http.Request, c choice) {
	h.meters.Served.Add("withheld " + c.label)
	w.Header()["Cache-Control"] = []string{"no-store"}
	w.Header()[statusHeader] = []string{"none; reason=" + c.label}
	switch {
	case c.interim:
		w.Header()["Retry-After"] = []string{"1"}
		pages.Error(w, r, http.StatusServiceUnavailable, "This image is being prepared; ask again in a second.")
	case c.refused != nil:
		pages.Error(w, r, http.StatusUnprocessableEntity, c.refused.Error())
	default:
		pages.Error(w, r, http.StatusForbidden, "This image may not be sent as it is, and could not be prepared ("+c.label+").")
	}
}

// svgPolicy keeps a drawing that is shown by itself from running and loading anything.
const svgPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"

// serveSVG answers for a drawing.
func (h *Handler) serveSVG(w http.ResponseWriter, r *http.Request) {
	if h.options.SVG == "download" {
		h.source.ServeOriginal(w, r, original.Terms{Header: http.Header{
			"Content-Disposition": {"attachment"}, "Content-Security-Policy": {svgPolicy}, "X-Content-Type-Options": {"nosniff"},
		}})
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.source.ServeHTTP(w, r) // says 405
		return
	}
	f, err := h.source.Original(r)
	switch {
	case errors.Is(err, original.ErrYoung):
		h.withhold(w, r, interim("new"))
		return
	case err != nil:
		h.meters.Served.Add("none")
		h.source.ServeHTTP(w, r)
		return
	}
	c := h.choose(r.Context(), f, []wanted{instead(format{Format: convert.SVG, level: "embedded", quick: true}, "svg")})
	defer c.done()
	if c.answer == nil {
		h.withhold(w, r, c)
		return
	}
	h.meters.Served.Add(c.label)
	a := *c.answer
	a.Header = maps.Clone(a.Header)
	delete(a.Header, "Vary")
	a.Header["Content-Security-Policy"] = []string{svgPolicy}
	if f.ApplyHeaders != nil {
		f.ApplyHeaders(a.Header)
	}
	if !c.interim {
		c.answer = &a
		h.offer(r, f, c)
	}
	send.Serve(w, r, &a)
}
