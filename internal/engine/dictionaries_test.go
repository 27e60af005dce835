package engine_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// release is a script as a bundler writes it, of which each version differs a little.
func release(version int) string {
	var b strings.Builder
	for i := range 800 {
		fmt.Fprintf(&b, "function f%d(a,b){return a*%d+b-%d}\n", i, i*i%7919, i*31%1009)
	}
	return strings.Replace(b.String(), "function f400(", fmt.Sprintf("export const version=%d;function f400(", version), 1)
}

func hashOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return ":" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// A browser that has the version before gets what has changed, by every way the same
// bytes; nobody else does.
func TestDictionariesOfFiles(t *testing.T) {
	dir := folder(t, map[string]string{"assets/app-1.js": release(1), "assets/app-2.js": release(2), "assets/lib-1.js": release(3), "page.html": "page"})
	decoded := func(t *testing.T, body string) string {
		zstd, err := exec.LookPath("zstd")
		if err != nil {
			t.Log("zstd is not installed: what is sent is not decoded")
			return release(2)
		}
		cmd := exec.Command(zstd, "-D", filepath.Join(dir, "assets/app-1.js"), "-dc")
		cmd.Stdin, cmd.Stderr = strings.NewReader(body), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	first := map[string]string{} // by coding
	everyWay(t, fmt.Sprintf("sites:\n- routes:\n    /sub/: {static: {root: %q, dictionaries: ['/assets/app-*.js']}}\n", dir), func(w *way) {
		const both = "gzip, deflate, br, zstd, dcb, dcz"
		has := []string{"Available-Dictionary", hashOf(release(1)), "Sec-Fetch-Site", "same-origin"}
		for _, accept := range []string{"dcb", "dcz", both} {
			var res *http.Response
			var body string
			servertest.Eventually(w, accept+": it is compressed with the dictionary", func() bool {
				res, body = w.ask("GET", "/sub/assets/app-2.js", "", append(has, "Accept-Encoding", accept)...)
				return strings.HasPrefix(res.Header.Get("Content-Encoding"), "dc")
			})
			coding := res.Header.Get("Content-Encoding")
			if accept != both && coding != accept || len(body) > 400 {
				w.Errorf("%s: %d bytes of %s", accept, len(body), coding)
			}
			if coding == "dcz" && decoded(w.T, body) != release(2) {
				w.Error("what is sent is another file")
			}
			if got := res.Header; got.Get("Vary") != "Accept-Encoding, Available-Dictionary" || got.Get("Use-As-Dictionary") != `match="/sub/assets/app-*.js"` || got.Get("Etag") == "" {
				w.Errorf("%s: %v", accept, got)
			}
			for range 3 { // by now it is hot
				if _, again := w.ask("GET", "/sub/assets/app-2.js", "", append(has, "Accept-Encoding", accept)...); again != body {
					w.Errorf("%s: asked again, it is another", accept)
				}
			}
			if was, ok := first[coding]; ok && was != body {
				w.Errorf("%s: %d bytes elsewhere, %d here", accept, len(was), len(body))
			}
			first[coding] = body
			res, _ = w.ask("GET", "/sub/assets/app-2.js", "", append(has, "Accept-Encoding", accept, "If-None-Match", res.Header.Get("Etag"))...)
			if res.StatusCode != http.StatusNotModified {
				w.Errorf("%s: %s for who has it", accept, res.Status)
			}
		}
		for name, head := range map[string][]string{
			"another site":       {"Available-Dictionary", has[1], "Sec-Fetch-Site", "cross-site", "Accept-Encoding", both},
			"a sibling":          {"Available-Dictionary", has[1], "Sec-Fetch-Site", "same-site", "Accept-Encoding", both},
			"unknown":            {"Available-Dictionary", hashOf("x"), "Sec-Fetch-Site", "same-origin", "Accept-Encoding", both},
			"of another rule":    {"Available-Dictionary", hashOf(release(3)), "Accept-Encoding", both},
			"no dictionary":      {"Accept-Encoding", both},
			"no coding":          {"Available-Dictionary", has[1], "Accept-Encoding", "gzip, br"},
			"no word of codings": {"Available-Dictionary", has[1]},
			"nonsense":           {"Available-Dictionary", "::", "Accept-Encoding", both},
			"an id":              {"Available-Dictionary", "x", "Dictionary-Id", `"a"`, "Accept-Encoding", both},
		} {
			for range 3 {
				res, _ := w.ask("GET", "/sub/assets/app-2.js", "", head...)
				if coding := res.Header.Get("Content-Encoding"); res.StatusCode != 200 || strings.HasPrefix(coding, "dc") || res.Header.Get("Vary") != "Accept-Encoding, Available-Dictionary" {
					w.Errorf("%s: %s %q %q", name, res.Status, coding, res.Header.Get("Vary"))
				}
			}
		}
		for _, other := range []string{"/sub/assets/lib-1.js", "/sub/page.html"} {
			res, _ := w.ask("GET", other, "", append(has, "Accept-Encoding", both)...)
			if res.Header.Get("Use-As-Dictionary") != "" || strings.Contains(res.Header.Get("Vary"), "Dictionary") {
				w.Errorf("%s: %v", other, res.Header)
			}
		}
	})
}

// items is an API whose pages are much like each other; what is asked for with a key is
// somebody's.
func items(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "max-age=3600")
		h.Set("Etag", `"`+r.URL.RawQuery+`"`)
		if r.URL.Path == "/api/mine" {
			h.Set("Vary", "X-Api-Key")
		} else {
			h.Set("Vary", "Accept-Encoding")
		}
		_, _ = io.WriteString(w, page(r.URL.RawQuery))
	}))
	t.Cleanup(s.Close)
	return s
}

// page is an answer of this API.
func page(query string) string { return release(1) + "// " + query + "\n" }

// What a cache has is a dictionary for what it has as well, and nothing that is
// somebody's.
func TestDictionariesOfAnswers(t *testing.T) {
	up := items(t)
	had := filepath.Join(folder(t, map[string]string{"had": page("page=1")}), "had")
	first := map[string]string{}
	everyWay(t, fmt.Sprintf("sites:\n- routes:\n    /api/: {cache: {to: %q, dictionaries: ['/api/items*', /api/mine]}}\n", up.URL), func(w *way) {
		has := []string{"Available-Dictionary", hashOf(page("page=1")), "Sec-Fetch-Site", "same-origin"}
		for _, accept := range []string{"dcb", "dcz"} {
			var res *http.Response
			var body string
			servertest.Eventually(w, accept+": it is compressed with the dictionary", func() bool {
				w.ask("GET", "/api/items?page=1", "")
				res, body = w.ask("GET", "/api/items?page=2", "", append(has, "Accept-Encoding", accept)...)
				return res.Header.Get("Content-Encoding") == accept
			})
			if got := res.Header; len(body) > 200 || !strings.Contains(strings.Join(got["Vary"], ", "), "Accept-Encoding, Available-Dictionary") ||
				got.Get("Use-As-Dictionary") != `match="/api/items*"` || got.Get("Etag") != `W/"page=2"` {
				w.Errorf("%s: %d bytes, %v", accept, len(body), got)
			}
			for range 3 {
				if _, again := w.ask("GET", "/api/items?page=2", "", append(has, "Accept-Encoding", accept)...); again != body {
					w.Errorf("%s: asked again, it is another", accept)
				}
			}
			if was, ok := first[accept]; ok && was != body {
				w.Errorf("%s: other bytes elsewhere", accept)
			}
			first[accept] = body
			if zstd, err := exec.LookPath("zstd"); err == nil && accept == "dcz" {
				cmd := exec.Command(zstd, "-D", had, "-dc")
				cmd.Stdin = strings.NewReader(body)
				if out, err := cmd.Output(); err != nil || string(out) != page("page=2") {
					w.Errorf("decoded: %d bytes, %v", len(out), err)
				}
			}
			res, _ = w.ask("GET", "/api/items?page=2", "", append(has, "Accept-Encoding", accept, "If-None-Match", res.Header.Get("Etag"))...)
			if res.StatusCode != http.StatusNotModified {
				w.Errorf("%s: %s for who has it", accept, res.Status)
			}
		}
		for name, head := range map[string][]string{
			"another site": {"Available-Dictionary", has[1], "Sec-Fetch-Site", "cross-site", "Accept-Encoding", "dcb, dcz"},
			"unknown":      {"Available-Dictionary", hashOf("x"), "Accept-Encoding", "dcb, dcz"},
			"no coding":    {"Available-Dictionary", has[1], "Accept-Encoding", "gzip, br"},
		} {
			for range 3 {
				if res, _ := w.ask("GET", "/api/items?page=2", "", head...); res.StatusCode != 200 || strings.HasPrefix(res.Header.Get("Content-Encoding"), "dc") {
					w.Errorf("%s: %s %v", name, res.Status, res.Header)
				}
			}
		}
		for range 3 {
			res, _ := w.ask("GET", "/api/mine?page=1", "", "X-Api-Key", "secret")
			if res.StatusCode != 200 || res.Header.Get("Use-As-Dictionary") != "" {
				w.Errorf("what varies by a key: %v", res.Header)
			}
		}
	})
}

// The version that a deployment takes away is still what visitors have.
func TestDictionaryOfFileThatIsGone(t *testing.T) {
	dir := folder(t, map[string]string{"app-1.js": release(1)})
	url := startSite(t, `
routes:
  /: {static: {root: `+dir+`, dictionaries: [/app-*.js]}}
`)
	says(t, url+"/app-1.js", 200, "version=1;")
	// It is kept when it is compressed, which is done when nothing else wants the processor.
	servertest.Eventually(t, "the first version is compressed", func() bool {
		res, _ := ask(t, "GET", url+"/app-1.js", "Accept-Encoding", "gzip")
		return res.Header.Get("Content-Encoding") == "gzip"
	})
	if err := os.Remove(filepath.Join(dir, "app-1.js")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "app-2.js"), release(2))
	servertest.Eventually(t, "the second is compressed with the file that is gone", func() bool {
		res, _ := ask(t, "GET", url+"/app-2.js", "Accept-Encoding", "dcb", "Available-Dictionary", hashOf(release(1)))
		return res.Header.Get("Content-Encoding") == "dcb"
	})
}

func TestExplainDictionaries(t *testing.T) {
	dir := folder(t, map[string]string{"app-1.js": release(1), "lib.js": release(2)})
	cfg := parse(t, fmt.Sprintf("sites:\n- routes:\n    /sub/: {static: {root: %q, dictionaries: [/app-*.js]}}\n", dir))
	for path, want := range map[string]bool{"/sub/app-1.js": true, "/sub/lib.js": false} {
		e, err := engine.Explain(cfg, httptest.NewRequest("GET", "http://localhost"+path, http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(e.Steps); strings.Contains(text, "static.dictionaries") != want {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// A browser, which decodes for itself, gets the next version from the one it has.
func TestDictionariesInChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser is not short")
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed (apt: chromium)")
	}
	dir := folder(t, map[string]string{"assets/app-1.js": release(1), "assets/app-2.js": release(2), "index.html": `<!DOCTYPE html><title>begun</title><pre id=out>nothing yet</pre><script type="module">
const out = document.getElementById("out"), pause = ms => new Promise(done => setTimeout(done, ms));
const sizes = async name => {
	const text = await (await fetch(name, {cache: "reload"})).text();
	const all = performance.getEntriesByName(new URL(name, location).href);
	return [text.match(/version=(\d+)/)[1], all[all.length-1].encodedBodySize, text.length];
};
let first = await sizes("assets/app-1.js"), last;
for (let i = 0; i < 60; i++) { // the server compresses it meanwhile
	last = await sizes("assets/app-2.js?" + i);
	if (last[1] < 400) break;
	await pause(200);
}
await sizes("api/items?page=1");
let cached;
for (let i = 0; i < 60; i++) { // the browser takes its time as well
	cached = await sizes("api/items?page=2");
	if (cached[1] < 200) break;
	await pause(200);
}
out.textContent = "done " + JSON.stringify({first, last, cached});
</script>`})
	url := startSite(t, `
routes:
  /: {static: {root: `+dir+`, dictionaries: ['/assets/app-*.js'], cache_control: [{match: /assets/, value: max-age=3600}]}}
  /api/: {cache: {to: "`+items(t).URL+`", dictionaries: ['/api/items*']}}
`)
	// The browser's time is a virtual one, which does not wait for the server.
	compressed := func() bool {
		get := func(name, dictionary string) string {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url+name, http.NoBody)
			r.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd, dcb, dcz")
			if dictionary != "" {
				r.Header.Set("Available-Dictionary", dictionary)
			}
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.Header.Get("Content-Encoding")
		}
		get("/assets/app-1.js", "")
		get("/api/items?page=1", "")
		files := get("/assets/app-2.js", hashOf(release(1)))
		answers := get("/api/items?page=2", hashOf(page("page=1")))
		return strings.HasPrefix(files, "dc") && strings.HasPrefix(answers, "dc")
	}
	for end := time.Now().Add(20 * time.Second); !compressed() && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--user-data-dir="+home, "--virtual-time-budget=60000", "--timeout=60000", "--dump-dom", url+"/")
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("the browser does not run here: %v", err)
	}
	text := string(out)
	_, result, ok := strings.Cut(text, "done ")
	result, _, _ = strings.Cut(result, "</pre>")
	if !ok {
		t.Fatalf("the page has not come to its end: %s", text)
	}
	var version, encoded, length, first, cached, whole int
	if _, err := fmt.Sscanf(result, `{"first":["1",%d,%d],"last":["%d",%d,%d],"cached":["1",%d,%d]}`, &first, &length, &version, &encoded, &length, &cached, &whole); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	if cached >= 200 || whole != len(page("page=2")) {
		t.Errorf("the cached answer came as %d bytes and is %d long", cached, whole)
	}
	if version != 2 || encoded >= 400 || length != len(release(2)) {
		t.Errorf("version %d came as %d bytes and is %d long; the first took %d", version, encoded, length, first)
	}
	t.Logf("%d bytes of text: %d for the first version, %d for the second, %d for a cached answer", length, first, encoded, cached)
}
