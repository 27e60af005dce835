package admit

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// attack has a browser ask TO for everything that a page can, in as bare a way as it
// can.
const attack = `<!doctype html><title>page</title><meta name=referrer content=no-referrer>
<link rel=stylesheet href="TO/stylesheet"><link rel=prefetch href="TO/prefetch"><link rel=icon href="TO/icon"><link rel=preload as=font crossorigin href="TO/font"><link rel=modulepreload href="TO/module">
<style>body { background: url("TO/background") }</style>
<img src="TO/img"><img src="/redirect"><script src="TO/script"></script><iframe src="TO/iframe"></iframe><video src="TO/video"></video><audio src="TO/audio"></audio><object data="TO/object"></object>
<iframe name=f></iframe><form id=f method=post target=f action="TO/form"></form><a id=a ping="TO/ping" href="#">x</a>
<script>
new Image().src = "TO/image"
document.getElementById("f").submit()
document.getElementById("a").click()
navigator.sendBeacon("TO/beacon", "x")
new EventSource("TO/events")
try { new WebSocket("TO/socket".replace("http:", "ws:")) } catch {}
const bare = {mode: "no-cors", credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store"}
fetch("TO/fetch", bare).catch(() => {})
fetch("TO/bare", {...bare, headers: {Accept: "*/*", "Accept-Language": ""}}).catch(() => {})
fetch("TO/star", {...bare, headers: {Accept: "*/*", "Accept-Language": "*"}, method: "POST", body: "x"}).catch(() => {})
fetch("TO/cors", {headers: {"X-Y": "z"}, method: "PUT"}).catch(() => {})
const x = new XMLHttpRequest(); x.open("GET", "TO/xhr"); x.send()
new Worker(URL.createObjectURL(new Blob(["importScripts('TO/import'); "])))
new Worker(URL.createObjectURL(new Blob(["fetch('TO/worker', " + JSON.stringify({...bare, headers: {Accept: "*/*", "Accept-Language": ""}}) + ")"])))
</script>`

// Whatever a page has a browser ask for, without TLS, can be seen to come from one.
func TestChromiumIsABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser is not short")
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is missing: install the package chromium")
	}
	var mu sync.Mutex
	came := map[string]http.Header{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := "http://site.example:" + r.Host[strings.LastIndexByte(r.Host, ':')+1:]
		switch {
		case r.Host != strings.TrimPrefix(site, "http://") && r.URL.Path == "/redirect":
			http.Redirect(w, r, site+"/redirected", http.StatusFound)
		case r.Host != strings.TrimPrefix(site, "http://"):
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, strings.ReplaceAll(attack, "TO", site))
		default:
			mu.Lock()
			came[r.Method+" "+r.URL.Path] = r.Header
			mu.Unlock()
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	home, err := os.MkdirTemp("", "millrace-chromium-") // some process of it may write to the last
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	page := "http://elsewhere.example:" + srv.URL[strings.LastIndexByte(srv.URL, ':')+1:] + "/"
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--user-data-dir="+home, "--host-resolver-rules=MAP *.example 127.0.0.1", "--virtual-time-budget=5000", "--dump-dom", page)
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("the browser does not run here: %v\n%s", err, out)
	}
	mu.Lock()
	defer mu.Unlock()
	for what, h := range came {
		if !maybeBrowser(h) {
			t.Errorf("%s is taken for a program: %v", what, h)
		}
	}
	for _, what := range []string{"GET /img", "GET /script", "GET /background", "GET /iframe", "GET /redirected", "GET /bare", "GET /fetch", "POST /form", "POST /beacon"} {
		if came[what] == nil {
			t.Errorf("the browser has not sent %s", what)
		}
	}
}
