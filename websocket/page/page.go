// Package page holds the two small pages with which a browser can try out what
// a route of the job does: an echo with its round-trip times, and channels with
// what is published there. They are of one file each for the page, its script
// and its style, load nothing from elsewhere, and store nothing.
package page

import (
	_ "embed"
	"net/http"
	"strconv"

	"millrace/internal/wire/pages"
)

// Kind says which page is meant.
type Kind uint8

// The pages.
const (
	Echo Kind = iota
	// Channels expects the module of websocket/client beside it, as client.js.
	Channels
)

var (
	//go:embed echo.html
	echoPage string
	//go:embed echo.js
	echoScript string
	//go:embed channels.html
	channelsPage string
	//go:embed channels.js
	channelsScript string
	//go:embed page.css
	style string
)

// policy lets the page have nothing but what is served beside it (Content
// Security Policy Level 3: 'self' covers ws: and wss: of the same host).
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is one of a page's.
type file struct{ contentType, content string }

// The queries that the page asks for its own parts with.
const (
	scriptQuery = "page.js"
	styleQuery  = "page.css"
)

// Handler answers GET and HEAD with the page, under whatever path it is asked:
// the page's script and style are the same path with the queries ?page.js and
// ?page.css, so that no path below it is taken from what it is a page for. It
// does not look at the path, and other methods get 405.
func Handler(k Kind) http.Handler {
	html, script := echoPage, echoScript
	if k == Channels {
		html, script = channelsPage, channelsScript
	}
	parts := map[string]file{
		scriptQuery: {"text/javascript; charset=utf-8", script},
		styleQuery:  {"text/css; charset=utf-8", style},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := parts[r.URL.RawQuery]
		if !ok {
			f = file{"text/html; charset=utf-8", html}
		}
		h := w.Header()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			pages.Error(w, r, http.StatusMethodNotAllowed, "This is a page for trying out WebSockets: ask with GET.")
			return
		}
		h.Set("Content-Type", f.contentType)
		h.Set("Content-Length", strconv.Itoa(len(f.content)))
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // another version of the program has another page
		h.Add("Vary", "Upgrade")           // the same path answers a WebSocket's handshake
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(f.content)) // what a client does not read is its own loss
		}
	})
}
