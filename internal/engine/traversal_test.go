package engine_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// outside are rules whose target is one folder, each with the spellings of a request
// that would have it serve what is beside that.
var outside = []struct {
	name, rules, try string
	targets          []string
}{
	{
		"except", `{except: [/public/], rewrite: '/public{path}'}`, "",
		[]string{"/../private/s.txt", "/%2e%2e/private/s.txt", "/x/../../private/s.txt", "/.%2e/private/s.txt", "/..%2fprivate/s.txt", "//../private/s.txt", "/..%5cprivate/s.txt", "/%252e%252e/private/s.txt", "/..;/private/s.txt"},
	},
	{
		"rest", `{except: [/public/], rewrite: '/public/{rest}'}`, "",
		[]string{"/../private/s.txt", "/%2e%2e/private/s.txt", "/./../private/s.txt", "/%2E%2E%2Fprivate/s.txt"},
	},
	{
		"uri", `{except: [/public/], rewrite: '/public{uri}'}`, "",
		[]string{"/../private/s.txt", "/%2e%2e/private/s.txt?x"},
	},
	{
		"capture", `{path: /a/*/**, rewrite: '/public/{1}/{2}'}`, "",
		[]string{"/a/.../private/s.txt", "/a/../../private/s.txt", "/a/%2e%2e/private/s.txt", "/a/x/%2e%2e/%2e%2e/private/s.txt"},
	},
	{
		"piece", `{regex: '^/a\.(.*)/(.*)$', rewrite: '/public/{1}/{2}'}`, "",
		[]string{"/a.../private/s.txt", "/a./..%2f../private/s.txt", "/a.../../private/s.txt"},
	},
	{
		"query", `{path: /a, rewrite: '/public/{query.p}/s.txt'}`, "",
		[]string{"/a?p=../private", "/a?p=%2e%2e%2fprivate", "/a?p=x/../../private", "/a?p=..%5cprivate", "/a?p=%2e%2e/private%00"},
	},
	{
		"header", `{path: /a, rewrite: '/public/{header.X-P}'}`, "",
		[]string{"/a"},
	},
	{
		"try", "", `['/public{path}', '/public/{rest}.txt', '=404']`,
		[]string{"/../private/s.txt", "/%2e%2e/private/s.txt", "/%2e%2e/private/s", "/..%2fprivate/s"},
	},
	{
		"try query", "", `['/public/{query.p}', '/public/{query.p}.txt']`,
		[]string{"/x?p=../private/s.txt", "/x?p=../private/s", "/x?p=..%2fprivate%2fs"},
	},
}

// TestRulesStayInTheirTarget: no byte of a file beside a rule's target is served,
// however the request is spelled.
func TestRulesStayInTheirTarget(t *testing.T) {
	dir := folder(t, map[string]string{"public/s.txt": "public", "public/index.html": "home", "private/s.txt": "SECRET", "s.txt": "SECRET", "t/a.test/s.txt": "of a", "t/b.test/s.txt": "SECRET"})
	var sites strings.Builder
	sites.WriteString("sites:\n")
	for i, o := range outside {
		fmt.Fprintf(&sites, "- hosts: [r%d.test]\n", i)
		if o.rules != "" {
			fmt.Fprintf(&sites, "  rules: [%s]\n  routes: {/: {static: {root: %q}}}\n", o.rules, dir)
		} else {
			fmt.Fprintf(&sites, "  routes: {/: {static: {root: %q}, try: %s}}\n", dir, o.try)
		}
	}
	fmt.Fprintf(&sites, "- rules: [{rewrite: '/t/{host}{path}'}]\n  routes: {/: {static: {root: %q}}}\n", dir)
	everyWay(t, sites.String(), func(w *way) {
		for i, o := range outside {
			for _, target := range o.targets {
				for range 2 {
					res, body := w.ask("GET", target, "", "Host", fmt.Sprintf("r%d.test", i), "X-P", "../private/s.txt")
					if strings.Contains(body, "SECRET") {
						w.Errorf("%s: %s is answered by %d %q", o.name, target, res.StatusCode, body)
					}
				}
			}
		}
		for _, target := range []string{"/../b.test/s.txt", "/%2e%2e/b.test/s.txt", "/..%2fb.test/s.txt"} {
			if _, body := w.ask("GET", target, "", "Host", "a.test"); strings.Contains(body, "SECRET") {
				w.Errorf("a tenant reads another's file by %s", target)
			}
		}
		if _, body := w.ask("GET", "/s.txt", "", "Host", "a.test"); body != "of a" {
			w.Errorf("a tenant reads %q instead of its own", body)
		}
		if _, body := w.ask("GET", "/s.txt", "", "Host", "r0.test"); body != "public" {
			w.Errorf("the target is answered by %q", body)
		}
		if strings.HasPrefix(w.base, "http://") { // other clients do not send such a Host
			for _, head := range []string{
				"GET /b.test/s.txt HTTP/1.0\r\n", "GET /b.test/s.txt HTTP/1.1\r\nHost:\r\n", "GET /s.txt HTTP/1.1\r\nHost: x/../b.test\r\n", "GET /s.txt HTTP/1.1\r\nHost: x%2f..%2fb.test\r\n",
				"GET /b.test/s.txt HTTP/1.1\r\nHost: .\r\n", "GET /private/s.txt HTTP/1.1\r\nHost: ..\r\n", "GET /b.test/s.txt HTTP/1.1\r\nHost: ./\r\n", "GET /../b.test/s.txt HTTP/1.1\r\nHost: a.test\r\n",
				"GET http://a.test/../b.test/s.txt HTTP/1.1\r\nHost: a.test\r\n", "GET http://../private/s.txt HTTP/1.1\r\nHost: a.test\r\n", "GET http:///b.test/s.txt HTTP/1.1\r\nHost: a.test\r\n",
			} {
				if said := plainly(w.T, w.base, head); strings.Contains(said, "SECRET") {
					w.Errorf("%q is answered by %q", head, said)
				}
			}
		}
	})
}

// plainly sends the head of a request as it is, and returns the answer.
func plainly(t *testing.T, base, head string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, head+"Connection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(bufio.NewReader(c)) // cut where the server refuses
	return string(said)
}

// TestRandomRulesStayInTheirTarget is the same with rules and requests put together by
// chance.
func TestRandomRulesStayInTheirTarget(t *testing.T) {
	const seed = 31
	rnd := rand.New(rand.NewPCG(seed, seed))
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	dir := folder(t, map[string]string{"public/s.txt": "public", "public/x/s.txt": "public", "private/s.txt": "SECRET", "s.txt": "SECRET", "x/s.txt": "SECRET"})
	var sites strings.Builder
	sites.WriteString("sites:\n")
	const rules, requests = 40, 60
	for i := range rules {
		when := pick("except: [/public/]", `regex: '^(?P<a>/[^/]*)(?P<b>.*)$'`, `regex: '^/(?P<a>.?.?)(?P<b>.*)$'`, `regex: '(?P<a>[^/]*)/?(?P<b>[^/]*)$'`, `regex: '^/(?P<a>[^x]*)x?(?P<b>.*)$'`)
		to := "/public" + pick("", "/", "/x/", "//")
		for range 1 + rnd.IntN(3) {
			value := pick("{path}", "{rest}", "{uri}", "{host}", "{query.p}", "{header.X-P}", "{cookie.p}")
			if strings.HasPrefix(when, "regex") {
				value = pick("{a}", "{b}", "{0}", value)
			}
			to += value + pick("", "/", ".", "x")
		}
		if strings.HasPrefix(to, "/public{") { // the value's own slash ends the folder's name
			to = "/public/" + strings.TrimPrefix(to, "/public")
		}
		fmt.Fprintf(&sites, "- hosts: [r%d.test]\n  rules: [{%s, rewrite: %q}]\n  routes: {/: {static: {root: %q}}}\n", i, when, to, dir)
	}
	sites.WriteString("- routes: {/: {respond: here}}\n")
	piece := func() string {
		return pick("/", "//", "/./", "/../", "..", ".", "...", "%2e%2e", "%2E.", ".%2e", "%2f", "%5c", "%252f", "%252e%252e", "private", "s.txt", "public", "x", "a", ";", "..;")
	}
	everyWay(t, sites.String(), func(w *way) {
		for i := range rules {
			for range requests {
				target := "/" + pick("", "", "../", "%2e%2e/", "x/")
				for range rnd.IntN(6) {
					target += piece()
				}
				target += pick("", "/s.txt", "private/s.txt", "/private/s.txt")
				hidden := pick("..", "../", "/..", "..\\") + pick("", "private", "private/s.txt", "/private/s.txt")
				if _, err := url.ParseRequestURI(target); err != nil {
					continue
				}
				res, body := w.ask("GET", target+"?p="+url.QueryEscape(hidden), "", "Host", fmt.Sprintf("r%d.test", i), "X-P", hidden, "Cookie", "p="+hidden)
				if strings.Contains(body, "SECRET") {
					w.Fatalf("rule %d: %s with %s is answered by %d\n%s", i, target, hidden, res.StatusCode, sites.String())
				}
			}
		}
	})
}

// TestRedirectsStayOnTheirHost: what a request says cannot make a redirect one to a host
// that the operator has not written.
func TestRedirectsStayOnTheirHost(t *testing.T) {
	everyWay(t, `
sites:
- hosts: [a.test]
  rules:
  - {path: /p/, redirect: {to: '{rest}'}}
  - {path: /q/, redirect: {to: '/{query.to}'}}
  - {path: /h/**, redirect: {to: 'https://{1}.example.org/'}}
  - {path: /e/**, redirect: {to: 'https://example.org{1}'}}
  - {path: /old/, redirect: {to: '/new/{1}'}}
  routes: {/x/: {redirect: {to: '{path}'}}, /y/: {redirect: {to: /}}, /: {respond: here}}
- rules: [{redirect: {to: 'https://{host}{path}'}}]
  routes: {/: {respond: here}}
`, func(w *way) {
		for _, target := range []string{
			"/p//evil.test", "/p/%2fevil.test", "/p/%5cevil.test", "/p/..//evil.test", "/p/%2e%2e//evil.test", "/q/?to=/evil.test", "/q/?to=%5Cevil.test", "/q/?to=%09/evil.test", "/q/?to=/%5Cevil.test",
			"/h/evil.test/", "/h/evil.test%2f", "/h/evil.test%23", "/h/evil.test%5c", "/h/a@evil.test/", "/h/evil.test%00", "/h/evil.test:1/", "/e/.evil.test", "/e/@evil.test", "/e/:x@evil.test", "/e/evil",
			"/x//evil.test", "/x/..//evil.test", "/x/..%2f%2fevil.test", "/x%2f%2fevil.test", "/y//evil.test", "/y/%2fevil.test", "/y/%5cevil.test", "//evil.test", "/%5cevil.test", "/%2fevil.test",
		} {
			res, _ := w.ask("GET", target, "", "Host", "a.test")
			u, err := url.Parse(strings.ReplaceAll(res.Header.Get("Location"), `\`, "/"))
			if err != nil || u.Host != "" && u.Host != "example.org" && !strings.HasSuffix(u.Host, ".example.org") || u.User != nil && u.Host == "" {
				w.Errorf("%s: %d leads to %q", target, res.StatusCode, res.Header.Get("Location"))
			}
		}
		for target, want := range map[string]string{"/old": "/new/", "/old/": "/new/", "/old/a/b": "/new/a/b", "/old?x=1": "/new/?x=1", "/old//a": "/new/a", "/older": ""} {
			res, _ := w.ask("GET", target, "", "Host", "a.test")
			if got := res.Header.Get("Location"); got != want {
				w.Errorf("%s leads to %q, want %q", target, got, want)
			}
		}
		if res, _ := w.ask("GET", "/a%20b", "", "Host", "b.test"); res.Header.Get("Location") != "https://b.test/a%20b" {
			w.Errorf("a redirect to {host} leads to %q", res.Header.Get("Location"))
		}
		if strings.HasPrefix(w.base, "http://") {
			for _, host := range []string{"b.test@evil.test", "evil.test/", "b.test\\evil.test", ""} {
				said := plainly(w.T, w.base, "GET / HTTP/1.1\r\nHost: "+host+"\r\n")
				if res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(said)), nil); err == nil && res.Header.Get("Location") != "" {
					w.Errorf("Host %q leads to %q", host, res.Header.Get("Location"))
				}
			}
		}
	})
}

// TestUpstreamRewritesStay: what proxy.rewrite and a line of _redirects make of a path
// stays below what they name.
func TestUpstreamRewritesStay(t *testing.T) {
	up := application(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	dir := folder(t, map[string]string{
		"_redirects": "/x* /y/:splat 301\n/store id=:id /blog/:id 301\n/file id=:id /public/:id 200\n", "public/a": "public", "private/a": "SECRET", "a": "SECRET",
	})
	everyWay(t, fmt.Sprintf(`
sites:
- routes:
    /v1/: {proxy: {to: %[1]s, rewrite: [{path: "/v1/(..)(.*)", to: "/api/{1}/x{2}"}]}}
    /c1/: {cache: {to: %[1]s, rewrite: [{path: "/c1/(..)(.*)", to: "/api/{1}/x{2}"}]}}
    /: {static: {root: %[2]q, rule_files: true}}
`, up, dir), func(w *way) {
		for _, route := range []string{"/v1/", "/c1/"} {
			for rest, want := range map[string]string{"...": "", "..a": "", "%2e%2e%2e": "", "ab/c": "/api/ab/x/c", "..%2fx": "", ".%00": ""} {
				for range 2 {
					res, body := w.ask("GET", route+rest, "")
					if res.StatusCode == 200 && body != want || want != "" && body != want {
						w.Errorf("%s%s: %d %q, want %q", route, rest, res.StatusCode, body, want)
					}
				}
			}
		}
		for target, want := range map[string]string{"/xa": "/y/a", "/x..%2fa": "/a", "/x../a": "", "/store?id=7": "/blog/7?id=7", "/store?id=..%2f..%2fa": "", "/store?id=%252e%252e%2fa": "/blog/%252e%252e/a?id=%252e%252e%2fa"} {
			res, _ := w.ask("GET", target, "")
			if got := res.Header.Get("Location"); got != want && want != "/a" || strings.Contains(got, "..") {
				w.Errorf("%s: %d leads to %q, want %q", target, res.StatusCode, got, want)
			}
		}
		for _, target := range []string{"/file?id=../private/a", "/file?id=..%2fa", "/file?id=..%5ca", "/file?id=%2e%2e/a"} {
			if _, body := w.ask("GET", target, ""); strings.Contains(body, "SECRET") {
				w.Errorf("%s is answered by %q", target, body)
			}
		}
		if _, body := w.ask("GET", "/file?id=a", ""); body != "public" {
			w.Errorf("/file is answered by %q", body)
		}
	})
}

// TestUpstreamsAreAskedForNothingElse: what an upstream is asked for lies below the path
// that a rule, a rewrite or the upstream's address names, and not where another route
// is, in whatever way that upstream reads it.
func TestUpstreamsAreAskedForNothingElse(t *testing.T) {
	up := literal(t)
	dir := folder(t, map[string]string{"a.txt": "a"})
	sites := fmt.Sprintf(`
sites:
- hosts: [rule.test]
  rules: [{path: /q, rewrite: '/public/{query.x}'}, {except: [/public/], rewrite: '/public{path}'}]
  routes: {/: {proxy: 'http://%[1]s'}}
- hosts: [closed.test]
  rules: [{path: /old/, rewrite: '/{1}'}, {path: /app/denied/, deny: {}}]
  routes: {/: {static: {root: %[2]q}, try: ['{path}', '/app{path}']}, /app/: {proxy: 'http://%[1]s'}, /app/private/: {deny: {}}, /f/: {static: {root: %[2]q}, try: ['{path}', '@app']}, /f/private/: {deny: {}}, '@app': {proxy: 'http://%[1]s'}}
- hosts: [below.test, localhost]
  routes:
    /: {proxy: 'http://%[1]s/public'}
    /c/: {cache: 'http://%[1]s/public'}
    /ws/: {websocket: {proxy: 'ws://%[1]s/public'}}
    /canary/: {proxy: {to: 'http://%[1]s', canary: {to: 'http://%[1]s/public', share: 100}}}
    /s/: {proxy: {to: 'http://%[1]s/public', strip_prefix: /s/}}
    /r/: {proxy: {to: 'http://%[1]s', rewrite: [{path: '/r/(.*)', to: '/public/{1}'}]}}
- hosts: [others.test]
  routes:
    /s/: {proxy: {to: 'http://%[1]s', strip_prefix: /s/}}
    /s/private/: {deny: {}}
    /ws/: {websocket: {proxy: 'ws://%[1]s'}}
    /ws/private/: {deny: {}}
    /asked/: {proxy: 'http://%[1]s', auth: {url: 'http://%[1]s/auth'}}
    /asked/private/: {deny: {}}
`, up, dir)
	everyWay(t, sites, func(w *way) {
		asked := func(host, target string) string {
			w.Helper()
			for range 2 { // the second time by the lane
				res, said := w.ask("GET", target, "", "Host", host)
				if res.StatusCode == http.StatusOK && strings.HasPrefix(said, "GET ") {
					return strings.Fields(said)[1]
				}
			}
			return ""
		}
		for host, targets := range map[string][]string{
			"rule.test":   {"/..;/private", "/.;/private", "/x/..;a=b/..;/private", "/%2e%2e;/private", "/..%3b/private", "/q?x=..%3b/private", "/q?x=..%3ba%5cprivate", "/q?x=..", "/..%5cprivate", "/x%00/private"},
			"closed.test": {"/old/app/private%5Cx", "/old/app/..;/app/private/", "/private%5cx", "/private%00", "/x/..;/private/", "/old/app/denied%5cx", "/f/private%5cx", "/f/private%00"},
			"others.test": {"/s/private%5cx", "/s/x/..;/private/", "/s/private%00", "/ws/private%5cx", "/ws/x/..;/private/", "/ws/private%00", "/asked/private%5cx", "/asked/x/..;/private/", "/asked/private%00", "/asked/..;/y"},
		} {
			for _, target := range targets {
				if to := asked(host, target); to != "" {
					w.Errorf("%s%s asks the upstream for %s", host, target, to)
				}
			}
		}
		for _, route := range []string{"/", "/c/", "/ws/", "/canary/", "/s/", "/r/"} {
			for _, rest := range []string{"../../private", "..%2f..%2fprivate", "%2e%2e/%2e%2e/private", "..;/..;/private", "..%5c..%5cprivate", "x/../../../private", "..%00", "x/..%3b/..%3ba/../private"} {
				if to := asked("below.test", route+rest); !strings.HasPrefix(to, "/public/") && to != "" || strings.Contains(to, "..") {
					w.Errorf("%s%s asks the upstream for %s", route, rest, to)
				}
			}
			if to := asked("below.test", route+"a%2Fb//c%5cd?x=../y"); route != "/ws/" && route != "/s/" && route != "/r/" && to != "/public"+route+"a%2Fb//c%5cd?x=../y" {
				w.Errorf("%s asks the upstream for %s", route, to)
			}
		}
		for target, want := range map[string]string{"/x.y;z/..a": "/public/x.y;z/..a", "/q?x=a/b": "/public/a/b?x=a/b"} {
			if to := asked("rule.test", target); to != want {
				w.Errorf("%s asks the upstream for %s, want %s", target, to, want)
			}
		}
		if to := asked("closed.test", "/f/x%5cy"); to != "/f/x%5cy" {
			w.Errorf("what can be read in one way leads to %q", to)
		}
	})
}
