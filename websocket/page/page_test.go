package page

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, k Kind, method, target string) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(k).ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHandler(t *testing.T) {
	for _, k := range []Kind{Echo, Channels} {
		for target, contentType := range map[string]string{
			"/": "text/html; charset=utf-8", "/echo": "text/html; charset=utf-8", "/a/b/?x=1": "text/html; charset=utf-8",
			"/?page.js": "text/javascript; charset=utf-8", "/echo?page.css": "text/css; charset=utf-8",
		} {
			r := get(t, k, http.MethodGet, target)
			if got := r.Header.Get("Content-Type"); got != contentType || r.StatusCode != http.StatusOK {
				t.Errorf("%s is %d, %s, want %s", target, r.StatusCode, got, contentType)
			}
			if r.Header.Get("Content-Security-Policy") != policy {
				t.Errorf("%s has no policy", target)
			}
		}
		if r := get(t, k, http.MethodPost, "/"); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") == "" {
			t.Errorf("POST: %d", r.StatusCode)
		}
	}
}

// TestWhatThePagesNeed: the policy lets each page have all that it asks for,
// and every element that a script looks for is there.
func TestWhatThePagesNeed(t *testing.T) {
	for k, name := range map[Kind]string{Echo: "echo", Channels: "channels"} {
		html, script := body(t, get(t, k, http.MethodGet, "/")), body(t, get(t, k, http.MethodGet, "/?page.js"))
		for _, part := range []string{`href="?page.css"`, `src="?page.js"`} {
			if !strings.Contains(html, part) {
				t.Errorf("%s: the page does not ask for %s", name, part)
			}
		}
		for _, no := range []string{"style=", "onclick=", "http://", "https://", "<style", "javascript:"} {
			if strings.Contains(html, no) {
				t.Errorf("%s: the page has %q, which its policy forbids or which is elsewhere", name, no)
			}
		}
		for _, m := range regexp.MustCompile(`\$\("([\w-]+)"\)`).FindAllStringSubmatch(script, -1) {
			if !strings.Contains(html, `id="`+m[1]+`"`) {
				t.Errorf("%s: the script wants #%s, which the page does not have", name, m[1])
			}
		}
		if n := strings.Count(script, `$("`); n < 8 {
			t.Errorf("%s: the script looks for %d elements: is this test right?", name, n)
		}
		if strings.Contains(script, "innerHTML") {
			t.Errorf("%s: what others send must never become markup", name)
		}
	}
}
