package engine_test

import (
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

// TestInterceptErrors: what an application answers is passed on as it is, by every road,
// also when it comes from the cache; pages are for what the server says itself, and for
// an application's answers where a config wants that.
func TestInterceptErrors(t *testing.T) {
	t.Parallel() // it mostly waits
	application := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Cache-Control", "max-age=60")
		switch filepath.Base(r.URL.Path) {
		case "private":
			w.Header().Set("Cache-Control", "private")
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, "its own")
		case "gone", "gone.php":
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, "its own")
		case "broken", "broken.php":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "its own")
		default:
			_, _ = io.WriteString(w, "fine")
		}
	})
	up := httptest.NewServer(application)
	t.Cleanup(up.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { _ = fcgi.Serve(l, application) }() // ends with its listener
	dir := folder(t, map[string]string{"index.html": "home", "page.html": "a page", "php/gone.php": "", "php/broken.php": "", "all/php/gone.php": ""})
	everyWay(t, `
sites:
- errors: {404: /page.html, 410: /page.html, 5xx: /page.html}
  routes:
    /: {static: {root: `+dir+`}}
    /up/: {proxy: '`+up.URL+`'}
    /streamed/: {proxy: {to: '`+up.URL+`', stream: true}}
    /cached/: {cache: '`+up.URL+`'}
    /tried/: {static: {root: `+dir+`}, try: ['{path}', '@up']}
    /dead/: {proxy: 'http://127.0.0.1:1'}
    /php/: {static: {root: `+dir+`/php}, php: {to: '`+l.Addr().String()+`', front: 'off'}}
    '@up': {proxy: '`+up.URL+`'}
    /all/up/: {proxy: '`+up.URL+`', intercept_errors: true}
    /all/cached/: {cache: '`+up.URL+`', intercept_errors: true}
    /all/php/: {static: {root: `+dir+`/all/php}, php: {to: '`+l.Addr().String()+`', front: 'off'}, intercept_errors: true}
`, func(w *way) {
		for range 3 {
			for target, want := range map[string]string{
				"/up/gone": "its own", "/up/broken": "its own", "/streamed/gone": "its own", "/cached/gone": "its own", "/cached/broken": "its own", "/cached/private": "its own", "/tried/gone": "its own", "/php/gone.php": "its own", "/php/broken.php": "its own",
				"/nothing": "a page", "/dead/x": "a page",
				"/all/up/gone": "a page", "/all/cached/gone": "a page", "/all/cached/private": "a page", "/all/php/gone.php": "a page",
				"/up/x": "fine", "/cached/x": "fine",
			} {
				if res, body := w.ask(http.MethodGet, target, ""); body != want {
					w.Errorf("%s: %d %q, want %q", target, res.StatusCode, body, want)
				}
				kind := "text/plain"
				if want == "a page" {
					kind = "text/html; charset=utf-8"
				}
				if res, _ := w.ask(http.MethodHead, target, ""); res.Header.Get("Content-Type") != kind {
					w.Errorf("HEAD %s: %d of type %q, want %q", target, res.StatusCode, res.Header["Content-Type"], kind)
				}
			}
		}
	})
}
