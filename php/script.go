package php

import (
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// target says who answers a request.
type target struct {
	script   string // below the root, without a slash in front; "" for a file
	pathInfo string
	redirect bool // to the same path with a slash behind it
	hidden   bool // the source of a program, which is neither run nor shown
}

// isScript reports whether a file is run, by its name.
func isScript(name string) bool { return strings.HasSuffix(name, ".php") && name != ".php" }

// looksRun reports whether a name could be a program's source, which must not be
// shown: also with an extension that is not run here, and for copies such as
// app.php.txt, app.php_old and app.php5~.
func looksRun(name string) bool {
	name = strings.ToLower(strings.TrimRight(name, ". "))
	for rest := name; ; {
		_, after, found := strings.Cut(rest, ".")
		if !found {
			return false
		}
		rest = after
		end := strings.IndexFunc(rest, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
		ext, last := rest, end < 0
		if !last {
			ext = rest[:end]
		}
		if strings.HasPrefix(ext, "php") || slices.Contains([]string{"phtml", "pht", "phar", "inc"}, ext) {
			return last || !slices.Contains(rendered, path.Ext(name))
		}
	}
}

// rendered are the extensions of files that are no program's source whatever comes
// before: of a page saved as index.php.html, for example.
var rendered = []string{
	".html", ".htm", ".js", ".mjs", ".css", ".map", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".svg", ".ico", ".pdf", ".woff", ".woff2", ".mp3", ".mp4", ".webm",
}

// find decides by what is in the folder. name is the path below the route.
func (h *Handler) find(name string) target {
	segments := strings.Split(strings.TrimPrefix(name, "/"), "/")
	if slices.ContainsFunc(segments, func(s string) bool { return strings.ContainsAny(s, "\\\x00") }) {
		return h.fronted(name)
	}
	for i, segment := range segments {
		file := strings.Join(segments[:i+1], "/")
		if isScript(segment) && h.runs(file, name) {
			info := strings.Join(segments[i+1:], "/")
			if len(segments) > i+1 {
				info = "/" + info
			}
			return target{script: file, pathInfo: info}
		}
		if looksRun(segment) && h.isFile(file) {
			t := h.fronted(name)
			t.hidden = t.script == "" // whatever static.private says
			return t
		}
	}
	clean := strings.Trim(name, "/")
	if clean != "" && h.static.Hides(clean) {
		return h.fronted(name)
	}
	switch info, err := h.root.Stat(dot(clean)); {
	case err != nil:
		return h.fronted(name)
	case !info.IsDir():
		if strings.HasSuffix(name, "/") {
			return h.fronted(name)
		}
		return target{}
	}
	return h.folder(clean, name)
}

// folder returns who answers for a folder: its script, or else its page.
func (h *Handler) folder(clean, name string) target {
	script := path.Join(clean, h.options.Index)
	runs := h.runs(script, "/"+script)
	page := slices.ContainsFunc(h.static.Index, func(index string) bool { return h.isFile(path.Join(clean, index)) })
	switch {
	case !runs && !page:
		return h.fronted(name)
	case !strings.HasSuffix(name, "/"):
		return target{redirect: true}
	case runs:
		return target{script: script}
	}
	return target{}
}

// fronted returns who answers for a path that does not exist: the front controller, or
// else static with a 404.
func (h *Handler) fronted(name string) target {
	if h.front == "" || !h.runs(h.front, "/"+h.front) {
		return target{}
	}
	t := target{script: h.front}
	if h.toPath && strings.Trim(name, "/") != "" {
		t.pathInfo = h.prefix + "/" + strings.TrimPrefix(name, "/")
	}
	return t
}

// runs reports whether a script exists and may be run for a path below the route.
func (h *Handler) runs(file, name string) bool {
	if h.only != nil && !h.only.MatchString(h.prefix+"/"+strings.TrimPrefix(name, "/")) {
		return false
	}
	if slices.ContainsFunc(h.options.Except, func(folder string) bool { return strings.HasPrefix("/"+file, folder) }) {
		return false
	}
	for segment := range strings.SplitSeq(file, "/") {
		if strings.HasPrefix(segment, ".") {
			return false
		}
	}
	return h.isFile(file)
}

func (h *Handler) isFile(file string) bool {
	info, err := h.root.Stat(dot(strings.TrimPrefix(file, "/")))
	return err == nil && info.Mode()&fs.ModeType == 0
}

// dot is a name as [os.Root] wants it: "." for the root itself.
func dot(name string) string {
	if name == "" {
		return "."
	}
	return name
}

// toFolder sends the client to the same path with a slash behind it, relative,
// so that it is right behind another proxy's prefix, too.
func toFolder(w http.ResponseWriter, r *http.Request) {
	to := url.URL{Path: "./" + path.Base(r.URL.Path) + "/", RawQuery: r.URL.RawQuery}
	w.Header().Set("Location", to.String())
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusMovedPermanently)
}
