package static

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
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
	by, down := query.Get("sort"), query.Get("order") == "desc"
	sortListed(entries, by, down)
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
		header["Content-Security-Policy"] = []string{"default-src 'none'; style-src 'unsafe-inline'"}
		body = h.listing(r.URL.Path, entries, all, by, down)
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
	accept := strings.Join(r.Header["Accept"], ",")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
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

func sortListed(list []listed, by string, down bool) {
	slices.SortStableFunc(list, func(a, b listed) int {
		c := 0
		switch by {
		case "size":
			c = cmp.Compare(a.Size, b.Size)
		case "date":
			c = a.Modified.Compare(b.Modified)
		}
		c = cmp.Or(c, strings.Compare(a.Name, b.Name))
		if down {
			c = -c
		}
		return cmp.Or(strings.Compare(b.Type, a.Type), c) // folders first
	})
}

// listing is the page.
func (h *Handler) listing(path string, list []listed, all bool, by string, down bool) []byte {
	var b bytes.Buffer
	title := html.EscapeString(path)
	fmt.Fprintf(&b, `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>%s</title>
<style>body{font:1rem/1.5 system-ui,sans-serif;margin:2rem}table{border-collapse:collapse}td,th{padding:.1rem 1rem .1rem 0;text-align:left}td.n{text-align:right;font-variant-numeric:tabular-nums}</style>
</head><body><h1>%s</h1>
<table><thead><tr>`, title, title)
	for _, column := range []string{"name", "size", "date"} {
		order := ""
		if column == cmp.Or(by, "name") && !down {
			order = "&amp;order=desc"
		}
		fmt.Fprintf(&b, `<th><a href="?sort=%s%s">%s</a></th>`, column, order, column)
	}
	b.WriteString("</tr></thead><tbody>\n")
	if path != "/" {
		b.WriteString("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n")
	}
	for _, e := range list {
		slash, size := "", strconv.FormatInt(e.Size, 10)
		if e.Type == "folder" {
			slash, size = "/", ""
		}
		fmt.Fprintf(&b, "<tr><td><a href=\"./%s%s\">%s%s</a></td><td class=\"n\">%s</td><td>%s</td></tr>\n",
			url.PathEscape(e.Name), slash, html.EscapeString(e.Name), slash, size, e.Modified.Format(time.DateTime))
	}
	b.WriteString("</tbody></table>\n")
	if !all {
		fmt.Fprintf(&b, "<p>Only %d of the names are shown.</p>\n", maxListed)
	}
	if h.options.Archives {
		b.WriteString("<p><a href=\"?archive=zip\">zip</a> <a href=\"?archive=tar.gz\">tar.gz</a></p>\n")
	}
	b.WriteString("</body></html>\n")
	return b.Bytes()
}
