package static

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire/pages"
)

// maxListed bounds the names of one listing: each is looked at.
const maxListed = 10_000

// listed is one name in a listing.
type listed struct {
	Name     string    `json:"name"`
	Type     string    `json:"type"` // file or folder
	Size     int64     `json:"size,omitempty"`
	Modified time.Time `json:"modified"`
}

// isFolder reports whether a name, which ends in a slash, is that of a folder.
func (h *Handler) isFolder(name string) bool {
	if name != "" && !strings.HasSuffix(name, "/") {
		return false
	}
	return slices.ContainsFunc(h.trees, func(t *tree) bool {
		info, err := t.stat(folderName(name))
		return err == nil && info.IsDir()
	})
}

// folderName is a folder's name as a file system has it.
func folderName(name string) string { return cmp.Or(strings.TrimSuffix(name, "/"), ".") }

// list answers with a listing of a folder that has no index. It reports false, having
// written nothing, where listings are off or name is no folder.
func (h *Handler) list(w http.ResponseWriter, r *http.Request, name string) bool {
	if !h.options.Listing || !h.isFolder(name) {
		return false
	}
	query := r.URL.Query()
	if kind := query.Get("archive"); kind != "" && h.options.Archives {
		h.archive(w, r, name, kind)
		return true
	}
	entries, all, err := h.entries(name)
	if err != nil {
		return false
	}
	o := orderOf(query)
	o.sort(entries)
	header := w.Header()
	header["Cache-Control"] = []string{pageCache}
	header["Vary"] = []string{"Accept"}
	header["X-Content-Type-Options"] = nosniff
	var body []byte
	if asJSON(r, query) {
		header["Content-Type"] = []string{"application/json"}
		if body, err = json.Marshal(entries); err != nil {
			return false
		}
	} else {
		header["Content-Type"] = []string{"text/html" + charset}
		header["Content-Security-Policy"] = []string{pages.Policy(listStyle)}
		p := listPage{path: r.URL.Path, list: entries, order: o, all: all, archives: h.options.Archives}
		body = p.html()
	}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client has gone
	}
	return true
}

// asJSON reports whether a listing is for a program.
func asJSON(r *http.Request, query url.Values) bool {
	if f := query.Get("format"); f != "" {
		return f == "json"
	}
	return pages.FormOf(r.Header["Accept"]) == pages.JSON
}

// entries are the names in a folder that clients may see; all is false where
// there are more.
func (h *Handler) entries(name string) (list []listed, all bool, err error) {
	names, err := h.trees.names(folderName(name), maxListed+1)
	if err != nil {
		return nil, false, err
	}
	list = []listed{} // [] in JSON
	for _, base := range names[:min(len(names), maxListed)] {
		file := strings.TrimPrefix(name+base, "/")
		if !h.shown(file) {
			continue
		}
		_, info, err := h.trees.stat(file)
		switch {
		case err != nil:
		case info.IsDir():
			list = append(list, listed{Name: base, Type: "folder", Modified: info.ModTime().UTC().Truncate(time.Second)})
		case info.Mode().IsRegular():
			list = append(list, listed{Name: base, Type: "file", Size: info.Size(), Modified: info.ModTime().UTC().Truncate(time.Second)})
		}
	}
	return list, len(names) <= maxListed, nil
}

// shown reports whether a request can name a file.
func (h *Handler) shown(file string) bool {
	return fs.ValidPath(file) && !strings.ContainsAny(file, "\\\x00") &&
		(h.options.Hidden || !hidden(file)) && !h.private.covers(file)
}

// names are those in a folder, at most n, each once.
func (all trees) names(dir string, n int) (names []string, err error) {
	if len(all) == 1 {
		return all[0].names(dir, n)
	}
	seen := map[string]bool{}
	some := false
	for _, t := range all {
		if info, err := t.stat(dir); err != nil || !info.IsDir() {
			continue
		}
		own, err := t.names(dir, n)
		if err != nil {
			return nil, err
		}
		some = true
		for _, name := range own {
			if !seen[name] && len(names) < n {
				seen[name], names = true, append(names, name)
			}
		}
	}
	if !some {
		return nil, errNotFound
	}
	return names, nil
}

// names are those in a folder, at most n.
func (t *tree) names(dir string, n int) (names []string, err error) {
	f, err := t.openFile(dir, os.O_RDONLY)
	if err != nil {
		return nil, classify(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, errNotFound
	}
	entries, err := d.ReadDir(n)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) > 0 || len(entries) == 0 {
		err = nil // io.EOF of an empty folder, too
	}
	return names, err
}
