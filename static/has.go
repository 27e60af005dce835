package static

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"millrace/internal/rulefile"
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
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler) // check reports what is wrong with rules
	}
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
	if f, ok := h.explainRules(path, true); ok {
		return f
	}
	f := h.explainFile(path)
	if f.Status == http.StatusNotFound {
		if by, ok := h.explainRules(path, false); ok {
			return by
		}
	}
	return f
}

// explainRules says what the folder's own rules make of a path.
func (h *Handler) explainRules(path string, forced bool) (f Finding, ok bool) {
	rules := h.rules.load()
	if rules == nil {
		return f, false
	}
	path = "/" + strings.TrimPrefix(path, "/")
	line, closed := rules.headers.Closed(path)
	if file := h.explainFile(path).File; file != "" && !closed {
		line, closed = rules.headers.Closed("/" + file)
	}
	if closed {
		return Finding{Status: http.StatusForbidden, Why: fmt.Sprintf("line %d and below of %s want a password, which only auth in the config asks for", line, rulefile.HeadersName)}, true
	}
	t, ok, _ := rules.redirects.Find(rulefile.Asked{Path: path}, forced)
	if !ok {
		return f, false
	}
	f = Finding{Status: t.Status, Why: fmt.Sprintf("line %d of %s leads to %s", t.Line, rulefile.RedirectsName, t.To)}
	if t.Status == http.StatusOK || t.Status >= http.StatusBadRequest {
		u, err := url.Parse(t.To)
		if err != nil {
			return f, false
		}
		if f.File = h.explainFile(u.Path).File; f.File == "" {
			return f, false
		}
	}
	return f, true
}

func (h *Handler) explainFile(path string) Finding {
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
