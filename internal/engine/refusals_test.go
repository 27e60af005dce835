package engine_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// A request that is refused gets the same answer over every protocol and from every
// job: its text, and what it is.
func TestRefusalsAreAlike(t *testing.T) {
	t.Parallel()                            // it mostly waits
	t.Cleanup(func() { _ = goleak.Find() }) // net/http lingers for half a second where it has refused a body
	up := application(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // else net/http waits for half a second before it closes
		}
		fmt.Fprint(w, "taken")
	})
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "index.html"), []byte("page"), 0o600); err != nil {
		t.Fatal(err)
	}
	const tooLarge = "The request's body is larger than this server accepts. Send less at once.\n"
	everyWay(t, fmt.Sprintf(`
limits: {body_bytes: 1KiB}
sites:
- routes:
    /: {static: {root: %[1]q}}
    /p/: {proxy: {to: %[2]s}}
    /direct/: {proxy: {to: %[2]s, stream: true}}
    /c/: {cache: {to: %[2]s}}
`, files, up), func(w *way) {
		for _, path := range []string{"/", "/p/", "/direct/", "/c/"} {
			w.ask("GET", path, "") // some are hot then
			res, body := w.ask("GET", path, "", "Expect", "foo")
			if res.StatusCode != http.StatusExpectationFailed || body != "" {
				w.Errorf("GET %s with Expect: %s %q", path, res.Status, body)
			}
			for _, length := range []int64{2000, -1} {
				if path == "/" && length < 0 {
					continue // who does not read the body does not know
				}
				r, err := http.NewRequestWithContext(w.Context(), "POST", w.base+path, struct{ io.Reader }{strings.NewReader(strings.Repeat("a", 2000))})
				if err != nil {
					w.Fatal(err)
				}
				r.ContentLength = length
				res, err := w.client.Do(r)
				if err != nil {
					w.Errorf("POST %s, length %d: %v", path, length, err)
					continue
				}
				body, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusRequestEntityTooLarge || string(body) != tooLarge || kind != "text/plain; charset=utf-8" {
					w.Errorf("POST %s, length %d: %s %q %s", path, length, res.Status, body, kind)
				}
			}
			for _, method := range []string{"POST", "PUT"} {
				res, body := w.ask(method, path, "small", "Expect", "100-continue")
				if path != "/" && (res.StatusCode != http.StatusOK || body != "taken") {
					w.Errorf("%s %s: %s %q", method, path, res.Status, body)
				}
			}
		}
	})
}

// What is refused before a site is known has one text, too.
func TestRefusalsBeforeSitesAreAlike(t *testing.T) {
	t.Parallel()                            // it mostly waits
	t.Cleanup(func() { _ = goleak.Find() }) // net/http lingers for half a second where it has refused something
	up := application(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answered") })
	everyWay(t, fmt.Sprintf(`
sites:
- hosts: [localhost, 127.0.0.1]
  routes:
    /: {proxy: {to: %s}}
`, up), func(w *way) {
		const own = "text/plain; charset=utf-8 nosniff "
		const bad = "400 " + own + "The server does not understand this request. Check the address for mistakes.\n"
		const long = "431 text/html; charset=utf-8 nosniff "
		for name, c := range map[string]struct {
			target string
			head   []string
			want   string
		}{
			"a bare percent sign": {"/a%", nil, bad},
			"half of an escape":   {"/a%2?b", nil, bad},
			"no escape":           {"/%zz/x", nil, bad},
			"a long header":       {"/", []string{"X-Long", strings.Repeat("x", 100<<10)}, long},
			"a large header":      {"/", []string{"X-Long", strings.Repeat("x", 200<<10)}, long},
			"a long path":         {"/" + strings.Repeat("x", 100<<10), nil, long},
			"another host":        {"/", []string{"Host", "elsewhere.example"}, "404 " + own + "No site is served under this host name. Check the address; if it is right, the owner of the site has to add the name to this server.\n"},
		} {
			for _, method := range []string{"GET", "DELETE"} {
				if strings.HasPrefix(c.want, "431") && strings.HasSuffix(w.Name(), "/h2") {
					continue // this client sends none that long: see internal/server
				}
				r, err := http.NewRequestWithContext(w.Context(), method, w.base, nil)
				if err != nil {
					w.Fatal(err)
				}
				r.URL.Opaque = c.target
				for i := 0; i < len(c.head); i += 2 {
					r.Header.Set(c.head[i], c.head[i+1])
					if c.head[i] == "Host" {
						r.Host = c.head[i+1]
					}
				}
				res, err := w.client.Do(r)
				if err != nil {
					w.Errorf("%s, %s: %v", method, name, err)
					continue
				}
				body, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				got := []string{fmt.Sprint(res.StatusCode), res.Header.Get("Content-Type")}
				if sniff := res.Header.Get("X-Content-Type-Options"); sniff != "" {
					got = append(got, sniff)
				}
				switch page := string(body); {
				case c.want == long && strings.Contains(page, "<h1>Header too large</h1>"):
					body = nil
				case c.want == bad && w.http1() && strings.Contains(page, "<p>"+strings.TrimPrefix(strings.TrimSpace(bad), "400 "+own)+"</p>"):
					continue // net/http has not read what the client accepts
				}
				if got := strings.Join(append(got, string(body)), " "); got != c.want {
					w.Errorf("%s, %s: %q, want %q", method, name, got, c.want)
				}
			}
		}
	})
}
