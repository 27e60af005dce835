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

// A page for errors is sent as it is, whatever its own address would be; so is the file
// that a rule names.
func TestPagesBehindCleanURLs(t *testing.T) {
	dir := folder(t, map[string]string{"404.html": "nothing here", "new.html": "new page"})
	url := startSite(t, `
rules:
  - {path: /old, rewrite: /new.html}
errors: {404: /404.html}
routes:
  /: {static: {root: `+dir+`, clean_urls: true, html_redirect: true}}
`)
	says(t, url+"/none", 404, "nothing here")
	says(t, url+"/old", 200, "new page")
	if res, _ := ask(t, "GET", url+"/new.html"); res.StatusCode != http.StatusMovedPermanently {
		t.Errorf("the page's own file: %s", res.Status)
	}
}
