package static

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"millrace/internal/route/rulefile"
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
	o.Root = dir
	all, err := openTrees(o.Folders())
	if err != nil {
		return nil, err
	}
	o.NoCompress = true
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler) // check reports what is wrong with rules
	}
	h, err := start(all, o)
	if err != nil {
		all.close()
		return nil, err
	}
	h.expand = expand
	return h, nil
}

// Finding is what a request leads to.
type Finding struct {
	Folder string // in which the file is, as the options name it
	File   string // below that; "" for none
	To     string // where a rule of the folder redirects to
	Status int
	Why    string // there is no file, or another one
	By     string // the rule of the folder that decides, as in line 4 of _redirects
	Cold   string // why the fast lane cannot have the answer, if that is known
	Fields []int  // the lines of _headers with a path that is this one
}

// Explain says which file answers a request, or why none does. The request's path is
// the one below the root.
func (h *Handler) Explain(r *http.Request) Finding {
	rules := h.rules.load()
	if rules == nil {
		return h.explainFile(r)
	}
	line, closed := rules.headers.Closed(pathOf(r))
	if file := h.explainFile(r).File; file != "" && !closed {
		line, closed = rules.headers.Closed("/" + file)
	}
	if closed {
		return Finding{Status: http.StatusForbidden, Why: fmt.Sprintf("line %d and below of %s want a password, which only auth in the config asks for", line, rulefile.HeadersName)}
	}
	f, ok := h.explainRules(r, rules, readsOnly(r) || h.Has(r.URL.Path))
	if !ok {
		if f = h.explainFile(r); f.Status == http.StatusNotFound {
			if by, ok := h.explainRules(r, rules, false); ok {
				f = by
			}
		}
	}
	if _, _, byQuery := rules.find(r, f.Status != http.StatusNotFound); byQuery && f.Cold == "" {
		f.Cold = "a rule of " + rulefile.RedirectsName + " looks at the query"
	}
	f.Fields = rules.headers.Lines(pathOf(r))
	return f
}

// readsOnly reports whether files answer a request.
func readsOnly(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}

// explainRules says which of the folder's own rules decides a request.
func (h *Handler) explainRules(r *http.Request, rules *folderRules, forced bool) (f Finding, ok bool) {
	t, ok, _ := rules.find(r, forced)
	if !ok {
		return f, false
	}
	f = Finding{Status: t.Status, By: fmt.Sprintf("line %d of %s", t.Line, rulefile.RedirectsName)}
	f.Why = f.By + " leads to " + t.To
	if t.Status >= 300 && t.Status < 400 {
		f.To = h.location(t)
		return f, true
	}
	u, err := url.Parse(t.To)
	if err != nil || !readsOnly(r) {
		return f, false
	}
	if rules.closes(strings.TrimPrefix(u.Path, "/")) {
		f.Status = http.StatusForbidden
		return f, true
	}
	to := &http.Request{Method: r.Method, URL: u}
	by := h.explainFile(to)
	if by.Status == http.StatusMovedPermanently {
		u.Path += "/"
		by = h.explainFile(to)
	}
	if rules.closes(by.File) {
		f.Status = http.StatusForbidden
		return f, true
	}
	f.Folder, f.File = by.Folder, by.File
	if !forced || t.Status != http.StatusOK {
		f.Cold = "what a rule without ! says is looked up each time"
	}
	return f, f.File != ""
}

func (h *Handler) explainFile(r *http.Request) Finding {
	if !readsOnly(r) {
		return Finding{Status: http.StatusMethodNotAllowed, Why: "files are only read"}
	}
	path := r.URL.Path
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
		return Finding{Folder: f.tree.name, File: f.file, Status: http.StatusOK}
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
