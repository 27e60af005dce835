package static

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// Has reports whether a path below the root is that of a file, or if it ends in a
// slash, of a folder with an index.
func (h *Handler) Has(path string) bool {
	name, ok := h.requestName(&url.URL{Path: path})
	if !ok {
		return false
	}
	_, _, err := h.probe(name)
	return err == nil
}

// Inspect opens a folder for Has and Explain alone: nothing watches it.
func Inspect(dir string, o Options) (*Handler, error) {
	t, err := openTree(dir)
	if err != nil {
		return nil, err
	}
	o.NoCompress = true
	h, err := start(t, o)
	if err != nil {
		t.close()
		return nil, err
	}
	h.expand = expand
	return h, nil
}

// Finding is what a request for a path leads to.
type Finding struct {
	File   string // below the root; "" for none
	Status int
	Why    string // there is no file, or another one
}

// Explain says which file answers for a path below the root, and why none does.
func (h *Handler) Explain(path string) Finding {
	name, ok := h.requestName(&url.URL{Path: path})
	if !ok {
		why := "no file can have this name"
		if h.private.covers(path) {
			why = "the name looks like that of a source or a secret (static.private)"
		} else if !h.options.Hidden && hidden(strings.TrimPrefix(path, "/")) {
			why = "names that begin with a dot are hidden (static.hidden)"
		}
		return Finding{Status: http.StatusNotFound, Why: why}
	}
	f, _, err := h.probe(name)
	switch {
	case err == nil:
		return Finding{File: f.file, Status: http.StatusOK}
	case errors.Is(err, errDirectory):
		return Finding{Status: http.StatusMovedPermanently, Why: "it is a folder: the client is sent to the path with a slash behind it"}
	case errors.Is(err, errNotFound) && h.options.Listing && h.isFolder(name):
		return Finding{Status: http.StatusOK, Why: "the folder is listed (static.listing)"}
	case errors.Is(err, errNotFound) && h.options.SPA != "":
		return Finding{Status: http.StatusNotFound, Why: "there is no such file; browsers that go there get " + h.options.SPA + " with 200 (static.spa)"}
	case errors.Is(err, errNotFound):
		return Finding{Status: http.StatusNotFound, Why: "there is no such file"}
	case errors.Is(err, errForbidden):
		return Finding{Status: http.StatusForbidden, Why: "this user may not read it"}
	}
	return Finding{Status: http.StatusServiceUnavailable, Why: err.Error()}
}
