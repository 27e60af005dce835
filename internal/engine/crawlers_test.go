package engine_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// browsers are what a browser, or who follows a page's links, sends besides.
var browsers = [][]string{
	{"Sec-Fetch-Site", "cross-site"},
	{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"},
	{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"},
	{"Sec-Purpose", "prefetch;prerender"},
	{"Referer", "http://elsewhere.example/"},
	{"Origin", "null"},
	{"Cookie", "a=b"},
	{"Accept-Language", "en-US,en;q=0.9", "Accept", "*/*"},
	{"Accept-Language", ""},
	{"Accept", "image/avif,image/webp,*/*;q=0.8"},
	{"Accept", "text/css,*/*;q=0.1"},
	{"From", "robot(at)search.example"},
}

// TestTraps: who asks for a trap gets no more answers, hot ones neither, over any
// protocol; what the site has itself is no trap.
func TestTraps(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "home", "wlwmanifest.xml": "mine"})
	n := 0
	everyWay(t, `limits: {trusted_proxies: [127.0.0.1]}
sites:
- traps: {paths: [/old/], except: [203.0.113.0/24]}
  errors: {404: /index.html}
  routes:
    /: {static: {root: '`+dir+`'}}
`, func(w *way) {
		n++
		check := func(path string, want int, from string) {
			w.Helper()
			for range 3 {
				if resp, body := w.ask("GET", path, "", "X-Forwarded-For", from); resp.StatusCode != want {
					w.Errorf("%s for %s: %d %q, want %d", path, from, resp.StatusCode, body, want)
				}
			}
		}
		one, two, three := fmt.Sprintf("198.51.100.%d", n), fmt.Sprintf("2001:db8:%d::1", n), fmt.Sprintf("203.0.113.%d", n)
		check("/", 200, one)
		check("/wlwmanifest.xml", 200, one)
		check("/", 200, one)
		for i, head := range browsers {
			reader := fmt.Sprintf("2001:db8:%x:%x::1", 0x1000+n, i)
			w.ask("GET", "/blog/wp-login.php", "", append([]string{"X-Forwarded-For", reader}, head...)...)
			w.ask("GET", "/old/x", "", append([]string{"X-Forwarded-For", reader}, head...)...)
			check("/", 200, reader)
		}
		if resp, body := w.ask("GET", "/blog/wp-login.php", "", "X-Forwarded-For", one, "Accept", "*/*", "User-Agent", "Mozilla/5.0"); resp.StatusCode != 404 || body != "home" {
			w.Errorf("the trap answers %d %q", resp.StatusCode, body)
		}
		check("/", 403, one)
		check("/", 200, two)
		w.ask("GET", "/old/x", "", "X-Forwarded-For", two)
		check("/", 403, strings.Replace(two, "::1", "::2", 1))
		check("/.env", 404, three)
		check("/", 200, three)
		check("/.git/config", 404, "127.0.0.1")
		check("/", 200, "127.0.0.1")
	})
}

var proofToken = regexp.MustCompile(`name="token" value="([^"]*)"`)

// TestChallenge: what looks like a crawler gets no answer, no hot one either, until
// it has proved something; nobody else is asked.
func TestChallenge(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "home", "robots.txt": "robots", "open/index.html": "open"})
	everyWay(t, `sites:
- hosts: [strong.example]
  challenge: {agents: [EvilBot], work: 8}
  routes: {/: {respond: strong}}
- challenge: {agents: [EvilBot], except_agents: [GoodBot], work: 8}
  headers: {set: {Content-Security-Policy: "default-src 'self'"}}
  errors: {403: /open/}
  routes:
    /: {static: {root: '`+dir+`'}, try: ['{path}', '@app']}
    /open/: {static: {root: '`+dir+`/open'}, challenge: {off: true}}
    /strong/: {respond: strong, challenge: {agents: [EvilBot], work: 9}}
    /weak/: {respond: weak, challenge: {agents: [EvilBot], work: 8, wait: 2s}}
    '@app': {respond: app}
`, func(w *way) {
		get := func(path, agent string, want int, text string, head ...string) (*http.Response, string) {
			w.Helper()
			var resp *http.Response
			var body string
			for range 3 {
				if resp, body = w.ask("GET", path, "", append(head, "User-Agent", agent)...); resp.StatusCode != want || !strings.Contains(body, text) {
					w.Fatalf("%s for %s: %d %q, want %d and %q", path, agent, resp.StatusCode, body, want, text)
				}
			}
			return resp, body
		}
		get("/", "Firefox", 200, "home")
		resp, body := get("/", "some evilbot/2", 403, "One moment")
		if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "sha256-") || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", w.Name(), resp.Header)
		}
		get("/", "evilbot goodbot", 200, "home")
		get("/robots.txt", "EvilBot", 200, "robots")
		get("/open/", "EvilBot", 200, "open")
		get("/nothing", "EvilBot", 403, "One moment")
		get("/nothing", "Firefox", 200, "app")
		get("/", "EvilBot", 403, "automated", "Accept", "application/json")

		token := proofToken.FindStringSubmatch(body)[1]
		nonce := 0
		for sha256.Sum256([]byte(token + "." + strconv.Itoa(nonce)))[0] != 0 {
			nonce++
		}
		form := url.Values{"token": {token}, "nonce": {strconv.Itoa(nonce)}}.Encode()
		resp, _ = w.ask("POST", "/?a=b&millrace-proof", form, "User-Agent", "EvilBot", "Content-Type", "application/x-www-form-urlencoded")
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/?a=b" || len(resp.Cookies()) != 1 {
			t.Fatalf("%s: the proof is answered by %d %v", w.Name(), resp.StatusCode, resp.Header)
		}
		proof := resp.Cookies()[0]
		get("/", "EvilBot", 200, "home", "Cookie", proof.Name+"="+proof.Value)
		get("/weak/", "EvilBot", 200, "weak", "Cookie", proof.Name+"="+proof.Value)
		get("/strong/", "EvilBot", 403, "One moment", "Cookie", proof.Name+"="+proof.Value)
		get("/", "EvilBot", 403, "One moment", "Cookie", proof.Name+"="+proof.Value, "Host", "strong.example")
		get("/", "EvilBot", 403, "One moment", "Cookie", proof.Name+"="+proof.Value+"x")
		get("/", "EvilBot", 403, "One moment")
	})
}

// TestChallengeByRate: who asks too often is asked for a proof, on the lane as well,
// and rate_limit holds for those who have one.
func TestChallengeByRate(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "home"})
	servertest.WithLaneAndWithout(t, func(t *testing.T, off bool) {
		srv := start(t, parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
lane: {off: %v}
sites:
- challenge: {over: 3/h, work: 8}
  rate_limit: 5/h
  routes:
    /: {static: {root: %q}}
`, off, dir)))
		url := srv.Addrs()[0]
		if got := fmt.Sprint(statuses(t, dialFrom(t, "127.0.0.1", url), 7, "/")); got != "[200 200 200 429 429 429 429]" {
			t.Error(got)
		}
		if got := fmt.Sprint(statuses(t, dialFrom(t, "127.0.0.2", url), 2, "/")); got != "[200 200]" {
			t.Errorf("another one gets %s", got)
		}
	})
}

func TestExplainGuard(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "home"})
	cfg := parse(t, `
listen: 127.0.0.1:0
sites:
- traps: {paths: [/old/]}
  challenge: {agents: [EvilBot]}
  routes: {/: {static: {root: `+dir+`}}}
`)
	for _, c := range []struct {
		path, agent, says string
		status            int
		hot               bool
	}{
		{"/", "Firefox", "is not one", 200, true},
		{"/", "evilbot/1", "a proof is needed", 200, true},
		{"/old/x", "", "is a trap", 404, false},
		{"/.env", "", "the presets have this path", 404, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+c.path, http.NoBody)
		r.Header.Set("User-Agent", c.agent)
		e, err := engine.Explain(cfg, r)
		if err != nil {
			t.Fatal(err)
		}
		if e.Status != c.status || e.Hot != c.hot || !strings.Contains(fmt.Sprint(e.Steps), c.says) {
			t.Errorf("%+v: %d %v %v", c, e.Status, e.Hot, e.Steps)
		}
	}
}

// TestExemptionsHaveOneReading: a path for which nobody is asked, or that is no trap, is
// one however the upstream reads it.
func TestExemptionsHaveOneReading(t *testing.T) {
	up := application(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "page ", r.RequestURI) })
	n := 0
	everyWay(t, `limits: {trusted_proxies: [127.0.0.1]}
sites:
- hosts: [localhost]
  challenge: {agents: [EvilBot], work: 8}
  routes: {/: {proxy: `+up+`}, /c/: {cache: `+up+`}, /.well-known/: {proxy: `+up+`}}
- hosts: [one.test]
  challenge: {agents: [EvilBot], work: 8}
  routes: {/: {proxy: `+up+`}}
- hosts: [trap.test]
  traps: {presets: [secrets], paths: [/old/, /gone]}
  routes: {/: {proxy: `+up+`}}
- hosts: [rule.test]
  rules: [{except: [/open/, '~^/free'], deny: {}}]
  routes: {/: {proxy: `+up+`}}
- hosts: [route.test]
  routes: {/: {deny: {}}, /open/: {proxy: `+up+`}}
`, func(w *way) {
		n++
		for _, target := range []string{
			"/.well-known/../page.html", "/.well-known/%2e%2e/page.html", "/.well-known/..%2fpage.html", "/.well-known%2f../page.html", "/.well-known/.%2e/page.html", "/.well-known/..;/page.html",
			"/.well-known/..%5cpage.html", "/.well-known//../page.html", "/.well-known/./page.html", "/.well-known//x", "/.well-known%2fx", "/%2ewell-known/x", "/.well-known/%2e%2e%2fx", "/.well-known/%252e%252e/x",
			"/robots.txt/../page.html", "//robots.txt", "/x/../robots.txt", "/robots.txt;x", "/robots%2etxt", "/robots.txt%00", "/%72obots.txt", "/c/../.well-known/../page",
		} {
			for _, host := range []string{"localhost", "one.test"} {
				for range 2 {
					if res, body := w.ask("GET", target, "", "User-Agent", "EvilBot", "Host", host); res.StatusCode == 200 || strings.HasPrefix(body, "page") {
						w.Errorf("%s: %s is answered by %d %q without a proof", host, target, res.StatusCode, body)
					}
				}
			}
		}
		for _, target := range []string{"/robots.txt", "/.well-known/security.txt", "/.well-known/acme-challenge/a_b-C"} {
			if res, body := w.ask("GET", target, "", "User-Agent", "EvilBot", "Host", "one.test"); res.StatusCode != 200 {
				w.Errorf("%s is answered by %d %q", target, res.StatusCode, body)
			}
		}
		for i, target := range []string{"//old/x", "/x/../old/x", "/old%2fx", "/%2e/old/x", "/x%2f..%2fold/x", "/old/../x", "/gone/..;/gone", "/x/..;/old/x", "/.//gone"} {
			from := fmt.Sprintf("198.51.%d.%d", n, i+1)
			if _, body := w.ask("GET", target, "", "Host", "trap.test", "X-Forwarded-For", from); strings.HasPrefix(body, "page") {
				w.Errorf("%s gets round a trap: %q", target, body)
			}
			if res, _ := w.ask("GET", "/", "", "Host", "trap.test", "X-Forwarded-For", from); res.StatusCode != 403 {
				w.Errorf("%s caught nobody: %d", target, res.StatusCode)
			}
		}
		for _, host := range []string{"rule.test", "route.test"} {
			for _, target := range []string{
				"/open/../page", "/open/%2e%2e/page", "/open/..%2fpage", "/open%2f../page", "/open%2fx", "/open%2F..%2Fopen/x", "/open/..;/page", "/open/..;x=1/page", "/open/..%5cpage", "/open%5c..%5cpage",
				"/page/../open/x", "//open/x", "/open//../../page", "/open/.%2e/page", "/open/x/..%2f..%2fpage", "/page/..%2fopen/x", "/page/..;/open/x", "/./open/x",
			} {
				if res, body := w.ask("GET", target, "", "Host", host); res.StatusCode == 200 || strings.HasPrefix(body, "page") {
					w.Errorf("%s: %s is answered by %d %q", host, target, res.StatusCode, body)
				}
			}
			for _, target := range []string{"/open/x", "/open/a//b", "/open/a%2fb", "/open/a;b=1", "/open/a%5cb", "/open/a..b"} {
				if res, body := w.ask("GET", target, "", "Host", host); res.StatusCode != 200 || body != "page "+target {
					w.Errorf("%s: %s is answered by %d %q", host, target, res.StatusCode, body)
				}
			}
		}
	})
}
