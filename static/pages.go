package static

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"millrace/internal/wire/send"
)

// pageExtension is what clean URLs leave out.
const pageExtension = ".html"

// checkPages is the part of Check about names of pages and types.
func (o Options) checkPages(faults map[string]error) {
	if o.HTMLRedirect && !o.CleanURLs {
		faults["html_redirect"] = errors.New("the addresses that it leads to need clean_urls: true")
	}
	if o.Archives && !o.Listing {
		faults["archives"] = errors.New("archives are those of listed folders: they need listing: true")
	} else if o.Archives && o.RuleFiles {
		faults["archives"] = errors.New("an archive asks neither _redirects nor _headers for its files: rule_files cannot stand beside it")
	}
	if name := strings.TrimPrefix(o.SPA, "/"); o.SPA != "" && (!fs.ValidPath(name) || name == ".") {
		faults["spa"] = fmt.Errorf("%q is not a page of the site: write one like index.html", o.SPA)
	}
	for key, kind := range o.Types {
		if _, _, err := mime.ParseMediaType(kind); err != nil || !strings.Contains(kind, "/") || !inHeader(kind) {
			faults["types["+key+"]"] = fmt.Errorf("%q is not a media type: write one like text/plain", kind)
		} else if key == "" || strings.ContainsAny(key, "/*") {
			faults["types["+key+"]"] = fmt.Errorf("%q is neither an extension like .md nor a file's name", key)
		}
	}
	if o.Charset != "" && strings.ContainsFunc(o.Charset, func(c rune) bool {
		return (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.:+", c)
	}) {
		faults["charset"] = fmt.Errorf("%q is not the name of a charset: write one like utf-8", o.Charset)
	}
}

func inHeader(value string) bool {
	return !strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' })
}

// ownTypes are the media types of the options.
func ownTypes(o Options) map[string]mediaType {
	own := map[string]mediaType{}
	for key, kind := range o.Types {
		base, params, _ := mime.ParseMediaType(kind) // was checked
		t := mediaType{name: kind, page: base == "text/html", compressible: packable(base)}
		if _, ok := params["charset"]; !ok && strings.HasPrefix(base, "text/") {
			t.name += charset
		}
		own[strings.ToLower(key)] = t
	}
	return own
}

// packable reports whether files of a type get smaller.
func packable(kind string) bool {
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") ||
		slices.Contains([]string{"application/json", "application/xml", "application/javascript", "application/wasm"}, kind)
}

// typeOf is the media type of a file, by the options first.
func (h *Handler) typeOf(file string) mediaType {
	base := strings.ToLower(path.Base(file))
	t, ok := h.types[base]
	if !ok {
		t, ok = h.types[path.Ext(base)]
	}
	if !ok {
		t = typeOf(file)
	}
	switch plain, has := strings.CutSuffix(t.name, charset); {
	case !has || h.options.Charset == "":
	case h.options.Charset == "off":
		t.name = plain
	default:
		t.name = plain + "; charset=" + h.options.Charset
	}
	return t
}

// findPage finds the page for a clean URL: about.html for about. Without one it
// returns err.
func (h *Handler) findPage(in *folder, name string, err error) (string, fs.FileInfo, error) {
	page := name + pageExtension
	if h.private.covers(page) {
		return name, nil, err
	}
	info, missing := in.stat(page)
	if missing != nil || !info.Mode().IsRegular() {
		return name, nil, err
	}
	return page, info, nil
}

// toClean redirects from a page's file to its clean URL. It reports false where the
// clean URL would lead to another file.
func (h *Handler) toClean(w http.ResponseWriter, r *http.Request, name string) bool {
	plain, ok := strings.CutSuffix(name, pageExtension)
	if !ok || !named(r, name) {
		return false
	}
	segment := ""
	if dir, base := path.Split(name); h.isIndex(base) {
		plain = dir
	} else {
		segment = directorySegment(plain)
	}
	if f, _, err := h.probe(plain); err != nil || f.file != name {
		return false
	}
	sendTo(w, r, "./"+segment)
	return true
}

// named reports whether the client itself asked for a file by its name. It has not
// where a rule led to the file, or the file is the page for an error.
func named(r *http.Request, name string) bool {
	u, err := url.ParseRequestURI(r.RequestURI)
	return err == nil && path.Base(u.Path) == path.Base(name)
}

// application answers with the page of a single-page application, if a browser
// goes to this address.
func (h *Handler) application(w http.ResponseWriter, r *http.Request, name string) bool {
	if h.options.SPA == "" || !navigates(r) {
		return false
	}
	if t := h.typeOf(name); t.name != unknownType.name && !t.page { // an image is one, also in a tab of its own
		return false
	}
	page := strings.TrimPrefix(h.options.SPA, "/")
	if h.private.covers(page) {
		return false
	}
	u, err := h.use(page, r.Header)
	if err != nil {
		return false
	}
	defer u.done()
	a := *u.answer
	a.Header = maps.Clone(a.Header)
	a.Header["Vary"] = append(slices.Clone(a.Header["Vary"]), "Accept", "Sec-Fetch-Mode")
	h.rules.load().applyHeaders(a.Header, pathOf(r), true)
	send.Serve(w, r, &a)
	return true
}

// navigates reports whether a browser goes to an address, rather than loading a
// part of a page (Fetch Metadata; older ones accept text/html by name).
func navigates(r *http.Request) bool {
	if mode := r.Header["Sec-Fetch-Mode"]; len(mode) > 0 {
		return mode[0] == "navigate"
	}
	return strings.Contains(strings.Join(r.Header["Accept"], ","), "text/html")
}
