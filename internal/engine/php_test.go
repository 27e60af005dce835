package engine_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// scriptsAt plays php-fpm at a socket, whose path it returns: it says what it was told.
func scriptsAt(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fpm") // a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() { // ends with the listener
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go tellParams(nc)
		}
	}()
	return ln.Addr().String()
}

// tellParams answers one request of FastCGI with some of its parameters.
func tellParams(nc net.Conn) {
	defer nc.Close()
	told := map[string]string{}
	for in := bufio.NewReader(nc); ; {
		var head [8]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		content := make([]byte, binary.BigEndian.Uint16(head[4:]))
		if _, err := io.ReadFull(in, content); err != nil {
			return
		}
		_, _ = in.Discard(int(head[6]))
		if head[1] == 5 && len(content) == 0 {
			break
		}
		for p := content; head[1] == 4 && len(p) > 0; {
			var size [2]int
			for i := range size {
				if size[i] = int(p[0]); p[0] < 128 {
					p = p[1:]
				} else {
					size[i], p = int(binary.BigEndian.Uint32(p)&^(1<<31)), p[4:]
				}
			}
			told[string(p[:size[0]])] = string(p[size[0] : size[0]+size[1]])
			p = p[size[0]+size[1]:]
		}
	}
	text := fmt.Sprintf("Content-Type: text/plain\r\n\r\n%s?%s of %s as %s%s", told["SCRIPT_NAME"], told["QUERY_STRING"], told["REQUEST_URI"], told["DOCUMENT_URI"], told["PATH_INFO"])
	for _, name := range slices.Sorted(maps.Keys(told)) {
		if strings.HasPrefix(name, "HTTP_") || name == "HTTPS" {
			text += "\n" + name + ": " + told[name]
		}
	}
	answer := append([]byte{1, 6, 0, 1, byte(len(text) >> 8), byte(len(text)), 0, 0}, text...)
	_, _ = nc.Write(append(answer, 1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
}

// TestQueryOfARule: what answers for a path that a rule or try has made gets the query
// that this has, and no other; a cache keeps one answer for what the upstream is asked.
func TestQueryOfARule(t *testing.T) {
	fpm, dir := scriptsAt(t), folder(t, map[string]string{"index.php": "<?php", "a/b.php": "<?php", "app/index.php": "<?php"})
	up := application(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, "upstream ", r.RequestURI)
	})
	everyWay(t, fmt.Sprintf(`
sites:
- rules:
  - {regex: '^/page/(\w+)$', rewrite: '/index.php?page={1}'}
  - {regex: '^/more/(\w+)$', rewrite: '/index.php?page={1}&{query}'}
  - {regex: '^/same/(\w+)$', rewrite: '/{1}/b.php'}
  - {regex: '^/([pc])/page/(\w+)$', rewrite: '/{1}/index?page={2}'}
  - {regex: '^/([pc])/more/(\w+)$', rewrite: '/{1}/index?page={2}&{query}'}
  - {path: /c/, cookie: {beta: 'on'}, rewrite: '/c/beta{path}'}
  - {path: /c/, header: {X-Kind: '*'}, rewrite: '/c/{header.X-Kind}?kind={header.X-Kind}'}
  routes:
    /: {static: {root: %[1]q}, php: {to: %[2]q}}
    /tried/: {static: {root: %[1]q}, php: {to: %[2]q}, try: ['{path}', '/index.php?tried={path}&{query}']}
    /named/: {static: {root: %[1]q}, try: ['{path}', '@app']}
    '@app': {static: {root: %[1]q}, php: {to: %[2]q}}
    /p/: {proxy: %[3]s}
    /c/: {cache: %[3]s}
`, dir, fpm, up), func(w *way) {
		for _, c := range [][2]string{
			{"/page/7", "/index.php?page=7 of /page/7 as /index.php"},
			{"/page/7?x=1", "/index.php?page=7 of /page/7?x=1 as /index.php"},
			{"/more/7?x=1", "/index.php?page=7&x=1 of /more/7?x=1 as /index.php"},
			{"/same/a?x=1", "/a/b.php?x=1 of /same/a?x=1 as /a/b.php"},
			{"/a/b.php?x=1", "/a/b.php?x=1 of /a/b.php?x=1 as /a/b.php"},
			{"/a/b.php", "/a/b.php? of /a/b.php as /a/b.php"},
			{"/a/b.php/info?x=%20", "/a/b.php?x=%20 of /a/b.php/info?x=%20 as /a/b.php/info/info"},
			{"/nothing?x=1", "/index.php?x=1 of /nothing?x=1 as /nothing"},
			{"/tried/x?y=1", "/index.php?tried=%2Ftried%2Fx&y=1 of /tried/x?y=1 as /index.php"},
			{"/named/x?y=1", "/index.php?y=1 of /named/x?y=1 as /named/x"},
			{"/p/page/7?x=1", "upstream /p/index?page=7"},
			{"/p/more/7?x=1", "upstream /p/index?page=7&x=1"},
			{"/c/page/7?x=1", "upstream /c/index?page=7"},
			{"/c/page/7", "upstream /c/index?page=7"},
			{"/c/page/8", "upstream /c/index?page=8"},
			{"/c/more/7?x=1", "upstream /c/index?page=7&x=1"},
			{"/c/index?page=9", "upstream /c/index?page=9"},
		} {
			for range 3 {
				_, body := w.ask("GET", c[0], "")
				if got, _, _ := strings.Cut(body, "\n"); got != c[1] {
					w.Errorf("%s: %q, want %q", c[0], got, c[1])
				}
			}
		}
		for range 3 { // by turns: nobody gets what was stored for another
			for _, c := range [][3]string{
				{"", "", "upstream /c/x"}, {"Cookie", "beta=on", "upstream /c/beta/c/x"}, {"X-Kind", "one", "upstream /c/one?kind=one"}, {"X-Kind", "two", "upstream /c/two?kind=two"},
			} {
				var head []string
				if c[0] != "" {
					head = c[:2]
				}
				if _, body := w.ask("GET", "/c/x", "", head...); body != c[2] {
					w.Errorf("/c/x with %s %s: %q, want %q", c[0], c[1], body, c[2])
				}
			}
		}
	})
}

// TestClaimsNeverReachPHP: what a client claims to be, in any spelling that a script
// takes for it, is not told, but what a proxy says that is trusted.
func TestClaimsNeverReachPHP(t *testing.T) {
	t.Parallel()
	fpm, dir := scriptsAt(t), folder(t, map[string]string{"index.php": "<?php", "users": "u:$2a$04$TyKIpoPjzXvYz0WbTqVPzOZ1tQv1bFvXbq2v0n3hEoLhQ0o9f9zXW"})
	sites := fmt.Sprintf(`
sites:
- routes:
    /: {static: {root: %[1]q}, php: {to: %[2]q}}
    /trusts/: {static: {root: %[1]q}, php: {to: %[2]q, trust_forwarded: [127.0.0.0/8]}}
    /other/: {static: {root: %[1]q}, php: {to: %[2]q, trust_forwarded: [10.0.0.0/8]}}
`, dir, fpm)
	const forged = "203.0.113.66"
	everyWay(t, sites, func(w *way) {
		began := time.Now()
		for _, name := range append(slices.Clone(claims), "HTTPS", "Proxy", "X-Http-Proxy") {
			for _, spelled := range spellings(name) {
				for _, route := range []string{"/index.php", "/", "/other/index.php"} {
					if name == "X-Http-Proxy" && spelled == name || spelled == strings.ToLower("X-Http-Proxy") {
						continue // which is none
					}
					res, body := w.ask("GET", route, "", spelled, forged)
					if res.StatusCode != 200 || strings.Contains(body, forged) {
						w.Errorf("%s reaches %s: %d\n%s", spelled, route, res.StatusCode, body)
					}
				}
			}
		}
		w.Logf("in %v", time.Since(began))
		for range 2 {
			_, body := w.ask("GET", "/trusts/index.php", "", "X-Forwarded-For", forged, "X-Forwarded-Proto", "https", "Proxy", "evil", "X_Forwarded_Host", "evil", "Accept", "a/b")
			if !strings.Contains(body, "HTTP_X_FORWARDED_FOR: "+forged) || !strings.Contains(body, "HTTP_X_FORWARDED_PROTO: https") || strings.Contains(body, "evil") {
				w.Errorf("a trusted proxy's word: %s", body)
			}
			if _, body = w.ask("GET", "/index.php", "", "Accept", "a/b", "X-Own", "own", "Cookie", "a=b"); !strings.Contains(body, "HTTP_ACCEPT: a/b") || !strings.Contains(body, "HTTP_X_OWN: own") || !strings.Contains(body, "HTTP_COOKIE: a=b") {
				w.Errorf("what is the client's own: %s", body)
			}
		}
	})
	sites = strings.Replace(sites, "\nsites:", "\nlimits: {trusted_proxies: [127.0.0.1]}\nsites:", 1)
	everyWay(t, sites, func(w *way) {
		if _, body := w.ask("GET", "/index.php", "", "X-Forwarded-Proto", "https"); !strings.Contains(body, "HTTP_X_FORWARDED_PROTO: https") {
			w.Errorf("the word of one of limits.trusted_proxies: %s", body)
		}
	})
}

// TestPHPIsToldWhoItIs: the name that a gate has found reaches scripts, also in a field
// that clients may not send.
func TestPHPIsToldWhoItIs(t *testing.T) {
	fpm, dir := scriptsAt(t), folder(t, map[string]string{"index.php": "<?php"})
	asked := application(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Remote-User", "alice") })
	everyWay(t, fmt.Sprintf(`
sites:
- routes:
    /: {static: {root: %[1]q}, php: {to: %[2]q}, auth: {url: %[3]s, copy: [Remote-User]}}
    /open/: {static: {root: %[1]q}, php: {to: %[2]q}}
`, dir, fpm, asked), func(w *way) {
		for range 3 {
			if _, body := w.ask("GET", "/index.php", "", "Remote-User", "mallory"); !strings.Contains(body, "HTTP_REMOTE_USER: alice") || strings.Contains(body, "mallory") {
				w.Errorf("behind auth: %s", body)
			}
			if _, body := w.ask("GET", "/open/index.php", "", "Remote-User", "mallory"); strings.Contains(body, "REMOTE_USER") {
				w.Errorf("without auth: %s", body)
			}
		}
	})
}

// TestNoSourceOfPHP: nothing that looks like the source of a script under another name
// is sent from a route with PHP; what merely has php in its name is.
func TestNoSourceOfPHP(t *testing.T) {
	fpm := scriptsAt(t)
	sources := []string{
		"app.php.txt", "app.php_bak", "app.php-old", "app.php~", "app.phps", "app.inc", "app.inc.txt", "app.php.bak", "app.php.swp", "app.php.orig", "app.php.save", "app.php.1", "app.php.2026-11-27", "app.phar", "app.phtml", "app.phtml.txt",
		"app.php5.old", "app.php5", "app.PHP.TXT", "app.phpold", "app.php_", "app.php (copy)", "app.php copy", "app.php.gz", "app.php.txt.gz", "#app.php#", "app.php#", "app.php.", "app.php,v", "app.php;1", "app.php@", "app.php%00.txt", "app.php.dist", "app.php.sample", "app.php.md", "app.pht", "app.inc_old", "sub/app.php.txt",
	}
	files := map[string]string{}
	for _, name := range sources {
		files["root/"+name] = "SECRET"
	}
	shown := []string{"php.txt", "prism-php.js", "mode.php.js", "page.php.html", "logo.php.png", "include.txt", "incoming.txt", "a.increment.txt", "phpinfo.css", "www.php.net/a.txt"}
	for _, name := range shown {
		files["root/"+name] = "shown"
	}
	dir := folder(t, files)
	everyWay(t, fmt.Sprintf(`
sites:
- routes:
    /: {static: {root: %[1]s/root}, php: {to: %[2]q}}
    /off/: {static: {root: %[1]s/root, private: [off]}, php: {to: %[2]q, front: off}}
    /tried/: {static: {root: %[1]s/root}, php: {to: %[2]q}, try: ['{path}', '{path}.txt', '=404']}
`, dir, fpm), func(w *way) {
		for _, route := range []string{"/", "/off/", "/tried/"} {
			for _, name := range append(slices.Clone(sources), "app.php") {
				name = strings.NewReplacer(" ", "%20", "#", "%23", "%00", "%2500").Replace(name)
				for range 2 {
					res, body := w.ask("GET", route+name, "")
					if strings.Contains(body, "SECRET") || res.StatusCode == 200 {
						w.Errorf("%s%s: %d %q", route, name, res.StatusCode, body)
					}
				}
			}
			for _, name := range shown {
				for range 2 {
					if res, body := w.ask("GET", strings.TrimSuffix(strings.Replace(route, "/tried/", "/", 1), "/")+"/"+name, ""); res.StatusCode != 200 || body != "shown" {
						w.Errorf("%s%s: %d %q", route, name, res.StatusCode, body)
					}
				}
			}
		}
	})
}

// TestFramesOfPHP: an answer says how long it is where that is known, and one without a
// body has none; connections to php-fpm are used again where that is asked for.
func TestFramesOfPHP(t *testing.T) {
	var connections atomic.Int64
	dir, socket := overFastCGI(t, func(ln net.Listener) {
		_ = fcgi.Serve(counted{ln, &connections}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch r.URL.RawQuery {
			case "none":
				w.WriteHeader(http.StatusNoContent)
			case "same":
				w.Header().Set("Etag", `"1"`)
				w.WriteHeader(http.StatusNotModified)
			case "said":
				w.Header().Set("Content-Length", "5")
				fallthrough
			default:
				fmt.Fprint(w, "hello", string(body))
			}
		}))
	}, "a.php")
	everyWay(t, fmt.Sprintf(`
sites:
- routes:
    /new/: {static: {root: %[1]q}, php: {to: [%[2]q, %[2]q]}}
    /kept/: {static: {root: %[1]q}, php: {to: %[2]q, idle: 2}}
`, dir, socket), func(w *way) {
		for _, route := range []string{"/new/", "/kept/"} {
			began := connections.Load()
			for _, c := range []struct {
				method, query, sent string
				status              int
				length, body        string
			}{
				{"GET", "", "", 200, "5", "hello"},
				{"POST", "", ", you", 200, "10", "hello, you"},
				{"GET", "said", "", 200, "5", "hello"},
				{"HEAD", "", "", 200, "", ""},
				{"HEAD", "said", "", 200, "5", ""},
				{"GET", "none", "", 204, "", ""},
				{"DELETE", "none", "", 204, "", ""},
				{"GET", "same", "", 304, "", ""},
				{"HEAD", "same", "", 304, "", ""},
			} {
				for range 3 { // the first by a handler, perhaps
					res, body := w.ask(c.method, route+"a.php?"+c.query, c.sent)
					if length := res.Header.Get("Content-Length"); res.StatusCode != c.status || length != c.length && (length != "" || body == "") || body != c.body {
						w.Errorf("%s %s?%s: %d, length %q, %q; want %+v", c.method, route, c.query, res.StatusCode, length, body, c)
					}
					if len(res.Header["Date"]) != 1 {
						w.Errorf("%s %s?%s: dated %q", c.method, route, c.query, res.Header["Date"])
					}
				}
			}
			if n := connections.Load() - began; route == "/kept/" && n > 13 { // of 27 requests
				w.Errorf("%d connections, of which two could be kept", n)
			}
		}
	})
}

// counted counts what is accepted.
type counted struct {
	net.Listener
	n *atomic.Int64
}

func (c counted) Accept() (net.Conn, error) {
	nc, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return nc, err
}
