package dashboard

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed assets
var assets embed.FS

//go:embed page.html
var pages string

// policy lets the page load what is its own and nothing else; nothing is inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func (d *Dashboard) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Prefix+"{$}", d.front)
	mux.HandleFunc("GET "+Prefix+"{panel}", d.one)
	mux.HandleFunc("GET "+Prefix+"events", d.events)
	mux.HandleFunc("GET "+Prefix+"profile.svg", d.flame)
	mux.HandleFunc("GET "+Prefix+"log.rows", d.logRows)
	mux.HandleFunc("POST "+Prefix+"do", d.act)
	mux.HandleFunc("GET "+Prefix+"assets/{file}", asset)
	return mux
}

// asset answers with one of the page's own files.
func asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	b, err := assets.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(b) // the client may have gone
}

// What a page may be asked for as.
type kind int

const (
	asHTML kind = iota
	asJSON
	asCSV
)

// kindOf is what a request accepts: the first of those that we have.
func kindOf(r *http.Request) kind {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		switch mediaType, _, _ := mime.ParseMediaType(part); mediaType {
		case "text/html", "application/xhtml+xml":
			return asHTML
		case "application/json":
			return asJSON
		case "text/csv":
			return asCSV
		}
	}
	return asHTML
}

// front is the page with all panels.
func (d *Dashboard) front(w http.ResponseWriter, r *http.Request) {
	if kindOf(r) == asJSON {
		d.all(w)
		return
	}
	d.write(w, r, &view{Panels: d.panels()})
}

func (d *Dashboard) all(w http.ResponseWriter) { writeJSON(w, d.panels()) }

func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n'))
}

// one is a single panel.
func (d *Dashboard) one(w http.ResponseWriter, r *http.Request) {
	id, as := r.PathValue("panel"), kindOf(r)
	switch ext := path.Ext(id); ext {
	case ".json":
		id, as = strings.TrimSuffix(id, ext), asJSON
	case ".csv":
		id, as = strings.TrimSuffix(id, ext), asCSV
	}
	if at := slices.IndexFunc(d.source.Pages, func(p Page) bool { return p.ID == id }); at >= 0 {
		d.own(w, r, &d.source.Pages[at], as)
		return
	}
	all := d.panels()
	if id == "all" && as == asJSON {
		d.all(w)
		return
	}
	i := slices.IndexFunc(all, func(p Panel) bool { return p.ID == id })
	if i < 0 {
		names := make([]string, 0, len(all))
		for _, p := range all {
			names = append(names, p.ID)
		}
		for _, p := range d.source.Pages {
			names = append(names, p.ID)
		}
		http.Error(w, fmt.Sprintf("There is no panel %q. There are: %s.", printable(id), strings.Join(names, ", ")), http.StatusNotFound)
		return
	}
	p := all[i]
	if id == tailID {
		p = d.tail(r.URL.Query().Get("filter"), allRows)
	}
	w.Header().Set("Vary", "Accept")
	switch as {
	case asJSON:
		writeJSON(w, p)
	case asCSV:
		writeCSV(w, &p)
	default:
		d.write(w, r, &view{Title: p.Title, Panels: []Panel{p}, One: true})
	}
}

func writeCSV(w http.ResponseWriter, p *Panel) {
	w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
	w.Header().Set("Content-Disposition", `inline; filename="`+p.ID+`.csv"`)
	_ = p.WriteCSV(w) // the client may have gone
}

// pageTime bounds what a page of its own may take.
const pageTime = 5 * time.Second

// own is a page of its own.
func (d *Dashboard) own(w http.ResponseWriter, r *http.Request, page *Page, as kind) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	panels := page.Panels(ctx, r.URL.Query())
	w.Header().Set("Vary", "Accept")
	switch as {
	case asJSON:
		writeJSON(w, panels)
	case asCSV:
		writeCSV(w, &panels[0])
	default:
		d.write(w, r, &view{Title: page.Title, Panels: panels, One: true, Page: page})
	}
}

// logRows is the log's panel with a filter, for the page's script.
func (d *Dashboard) logRows(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	d.guard(w)
	p := d.tail(r.URL.Query().Get("filter"), tailRows)
	_, _ = w.Write(d.fill("inner", &p)) // the client may have gone
}

// flame draws the last profile; against says the how many-th before it is compared.
func (d *Dashboard) flame(w http.ResponseWriter, r *http.Request) {
	nth, _ := strconv.Atoi(r.URL.Query().Get("against")) // 0: with none
	var b bytes.Buffer
	found, err := d.profiles.flame(&b, max(0, nth))
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case !found:
		http.Error(w, "There is no such CPU profile.", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = w.Write(b.Bytes())
	}
}

func (d *Dashboard) guard(w http.ResponseWriter) {
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("Referrer-Policy", "no-referrer")
}

// A view is what a page shows.
type view struct {
	Title    string
	Panels   []Panel
	One      bool   // a page of one panel, or of its own
	Page     *Page  // of its own; nil: it is not
	Links    []link // to the other panels and pages
	Filter   string // of the log, or the page
	Now      time.Time
	Where    []string
	Closed   bool // for maintenance
	profiles      // of the profile's own page
}

// link is one in the list of what there is.
type link struct {
	Href, Title string
	For         string // the panel that it is to; "": a page
	Here        bool   // it is to this page
	Hidden      bool   // the panel has nothing to show
}

// links lists what there is, for a page of these panels or, if one is set, of that alone.
func (d *Dashboard) links(one string) (list []link) {
	add := func(l link) {
		if l.Here = one != "" && l.Href == Prefix+one; l.Here || one == "" || !l.Hidden {
			list = append(list, l)
		}
	}
	top := ""
	if one != "" {
		top = Prefix
	}
	for _, p := range d.panels() {
		l := link{Href: top + "#" + p.ID, Title: p.Title, For: p.ID, Hidden: !p.Shown()}
		if p.ID == one {
			l.Href = Prefix + one
		}
		add(l)
		for _, page := range d.source.Pages {
			if page.Beside == p.ID {
				add(link{Href: Prefix + page.ID, Title: page.Title, For: p.ID, Hidden: l.Hidden})
			}
		}
	}
	add(link{Href: top + "#controls", Title: "Controls"})
	return list
}

// profiles are the drawings of CPU profiles.
type profiles struct {
	Flame, Difference template.HTML
	Earlier           []int // those that can be compared with
}

// write writes a page.
func (d *Dashboard) write(w http.ResponseWriter, r *http.Request, v *view) {
	v.Now, v.Filter = time.Now(), r.URL.Query().Get("filter")
	if d.source.Addrs != nil {
		v.Where = d.source.Addrs()
	}
	if d.source.Maintenance != nil {
		v.Closed, _ = d.source.Maintenance()
	}
	one := ""
	switch {
	case v.Page != nil:
		one = v.Page.ID
	case v.One:
		one = v.Panels[0].ID
	}
	v.Links = d.links(one)
	if v.Title += " · Millrace"; !v.One {
		v.Title = "Millrace"
	}
	if one == profileID {
		v.profiles = d.drawProfiles(r)
	}
	d.guard(w)
	page := d.fill("page", v)
	if page == nil {
		http.Error(w, "The page could not be made: see the server's messages.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page) // the client may have gone
}

func (d *Dashboard) drawProfiles(r *http.Request) (p profiles) {
	var b bytes.Buffer
	if found, err := d.profiles.flame(&b, 0); found && err == nil {
		p.Flame = template.HTML(b.String()) // chart escapes all texts
	}
	nth, _ := strconv.Atoi(r.URL.Query().Get("against"))
	b.Reset()
	if found, err := d.profiles.flame(&b, max(1, nth)); found && err == nil {
		p.Difference = template.HTML(b.String())
	}
	for i := 1; i < maxProfiles; i++ {
		if _, before := d.profiles.two(i); before != nil {
			p.Earlier = append(p.Earlier, i)
		}
	}
	return p
}

// parsePages reads the templates. They are read for the first page: a server that
// nobody looks at does without.
func (d *Dashboard) parsePages() *template.Template {
	return template.Must(template.New("dashboard").Funcs(template.FuncMap{
		"show":    Show,
		"ticked":  func(text string) []string { return strings.Split(text, "`") }, // what a person types is between the ticks
		"odd":     func(i int) bool { return i%2 == 1 },
		"beside":  d.beside,
		"secret":  func() string { return d.secret },
		"actions": func() *Actions { return &d.actions },
	}).Parse(pages))
}

// beside are the pages that belong to a panel.
func (d *Dashboard) beside(id string) (list []Page) {
	for _, p := range d.source.Pages {
		if p.Beside == id {
			list = append(list, p)
		}
	}
	return list
}

// fill fills in one of the templates. That fails only by a fault of ours, which is
// logged; then there is nil.
func (d *Dashboard) fill(name string, with any) []byte {
	var b bytes.Buffer
	if err := d.pages().ExecuteTemplate(&b, name, with); err != nil {
		d.errors.Error("a page of the dashboard could not be made", "err", err)
		return nil
	}
	return b.Bytes()
}

// render makes the part of each panel that changes.
func (d *Dashboard) render(panels []Panel) map[string]string {
	out := make(map[string]string, len(panels))
	for i := range panels {
		out[panels[i].ID] = string(d.fill("inner", &panels[i]))
	}
	return out
}
