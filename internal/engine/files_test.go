package engine_test

import (
	"net/http"
	"testing"
)

// The keys of static for pages give the same bytes with the fast lane and without.
func TestPagesWithoutLane(t *testing.T) {
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	dir := folder(t, map[string]string{"index.html": "home", "about.html": "about", "d/x.txt": "x", "a.md": "text"}) // so short that nothing is compressed meanwhile
	yaml := `
listen: 127.0.0.1:0
sites:
  - routes:
      /: {static: {root: ` + dir + `, clean_urls: true, html_redirect: true, spa: index.html, listing: true, types: {.md: text/plain}}}
`
	with := start(t, parse(t, yaml)).Addrs()[0]
	without := start(t, parse(t, "lane: {off: true}\n"+yaml)).Addrs()[0]
	for range 3 {
		for _, path := range []string{"/", "/about", "/about.html", "/none", "/none.js", "/d/", "/d/?format=json", "/d", "/a.md", "/index.html"} {
			for _, accept := range []string{"text/html", "*/*"} {
				a, abody := ask(t, http.MethodGet, with+path, "Accept", accept)
				b, bbody := ask(t, http.MethodGet, without+path, "Accept", accept)
				a.Header.Del("Date")
				b.Header.Del("Date")
				if a.StatusCode != b.StatusCode || abody != bbody || len(a.Header) != len(b.Header) || a.Header.Get("Vary") != b.Header.Get("Vary") {
					t.Errorf("%s for %s: %d %q %v, without the lane %d %q %v", path, accept, a.StatusCode, abody, a.Header, b.StatusCode, bbody, b.Header)
				}
			}
		}
	}
	says(t, with+"/some/where", 200, "home", "Accept", "text/html")
	says(t, with+"/some/where", 404, "", "Accept", "*/*")
}
