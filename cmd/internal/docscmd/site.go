package docscmd

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed page.html style.css
var assets embed.FS

// view is what the page's template shows.
type view struct {
	Title    string
	Now      string // the page's name
	Body     template.HTML
	Query    string
	Searched bool
	Found    []section
	Groups   []group
}

// group is a list of pages in the menu.
type group struct {
	Title string
	Pages []entry
	Open  bool
}

type entry struct{ Name, Title string }

// groups is the menu.
func (m *manual) groups(now string) []group {
	all := []group{{Title: "Manual", Open: true}, {Title: "Coming from", Open: true}, {Title: "Decisions", Open: strings.HasPrefix(now, "decisions/")}}
	for _, p := range m.pages {
		to := 0
		switch path.Dir(p.name) {
		case "coming-from":
			to = 1
		case "decisions":
			to = 2
		}
		all[to].Pages = append(all[to].Pages, entry{p.name, p.title})
	}
	return all
}

// ServeHTTP implements [http.Handler].
func (m *manual) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "The manual can only be read.", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/"), ".md")
	switch {
	case name == "style.css":
		http.ServeFileFS(w, r, assets, name)
		return
	case path.Ext(name) == ".svg":
		http.ServeFileFS(w, r, m.files, name)
		return
	case name == "":
		m.write(w, r, http.StatusOK, view{Title: "Millrace", Query: r.FormValue("q"), Searched: r.Form.Has("q")})
		return
	}
	for _, p := range m.pages {
		if p.name == name {
			m.write(w, r, http.StatusOK, view{Title: p.title, Now: p.name, Body: p.html})
			return
		}
	}
	m.write(w, r, http.StatusNotFound, view{Title: "No such page", Body: "<h1>No such page</h1><p>The manual has no page here. The search may find what it was about.</p>"})
}

// write sends a page.
func (m *manual) write(w http.ResponseWriter, r *http.Request, status int, v view) {
	v.Groups = m.groups(v.Now)
	if v.Searched {
		v.Found = m.search(v.Query)
	}
	var b bytes.Buffer
	t, err := template.ParseFS(assets, "page.html")
	if err == nil {
		err = t.Execute(&b, v)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if status != http.StatusOK {
		w.WriteHeader(status)
		_, _ = w.Write(b.Bytes()) // the client may be gone
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.Bytes()))
}
