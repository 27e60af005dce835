package admin

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"millrace/internal/observe/meter"
)

// A client reaches the server at every address that a listener may say it has.
func TestClient(t *testing.T) {
	for name, o := range map[string]Options{
		"socket":    {Listen: "unix:" + shortDir(t) + "/a.sock"},
		"loopback":  {Listen: "127.0.0.1:0"},
		"localhost": {Listen: "localhost:0"},
		"all":       {Listen: ":0"},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, _ := start(t, o, Deps{Addrs: func() []string { return []string{"http://127.0.0.1:8080", "https://a.example"} }})
			c, base, err := Client(a.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseIdleConnections()
			status, body := ask(t, c, request(t, "GET", base+"/addrs"))
			var urls []string
			if err := json.Unmarshal([]byte(body), &urls); err != nil || status != 200 {
				t.Fatalf("status %d, %q: %v", status, body, err)
			}
			if want := []string{"http://127.0.0.1:8080", "https://a.example"}; !slices.Equal(urls, want) {
				t.Errorf("addresses %v, want %v", urls, want)
			}
		})
	}
}

func TestClientBadAddress(t *testing.T) {
	for addr, want := range map[string]string{
		"":                "write host:port or unix:/path",
		"unix:":           "write unix:/path",
		"/run/a.sock":     "write unix:/run/a.sock",
		"localhost":       "write host:port or unix:/path",
		"http://a.test/x": "write host:port or unix:/path",
	} {
		if _, _, err := Client(addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", addr, err, want)
		}
	}
}

func TestClientNobodyThere(t *testing.T) {
	c, base, err := Client("unix:" + shortDir(t) + "/none.sock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(request(t, "GET", base+"/addrs")); err == nil || !strings.Contains(err.Error(), "--admin") {
		t.Errorf("error %v, want one that says what to do", err)
	}
}

func TestAddrsNone(t *testing.T) {
	_, c, url := start(t, Options{Listen: "127.0.0.1:0"}, Deps{})
	if status, body := ask(t, c, request(t, "GET", url+"/addrs")); status != 200 || strings.TrimSpace(body) != "[]" {
		t.Errorf("status %d: %q, want an empty array", status, body)
	}
}

// echo answers with what it got.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		http.Error(w, "too long", http.StatusRequestEntityTooLarge)
		return
	}
	w.Write([]byte(r.Method + " " + r.URL.Path + " "))
	w.Write(body)
}

func TestMountedRoutes(t *testing.T) {
	_, c, url := start(t, Options{Listen: "127.0.0.1:0"}, Deps{Routes: map[string]http.Handler{"/cache/": http.HandlerFunc(echo)}})
	post := func(body string, head ...string) (int, string) {
		r := request(t, "POST", url+"/cache/purge")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		for i := 0; i < len(head); i += 2 {
			r.Header.Set(head[i], head[i+1])
		}
		return ask(t, c, r)
	}
	if status, body := post("hello"); status != 200 || body != "POST /cache/purge hello" {
		t.Errorf("status %d: %q", status, body)
	}
	if status, _ := post(strings.Repeat("x", maxBodyBytes+1)); status != 200 {
		t.Errorf("a body longer than our own routes take: status %d", status)
	}
	if status, _ := post(strings.Repeat("x", maxRouteBytes+1)); status != 413 {
		t.Errorf("a body beyond the limit: status %d, want 413", status)
	}
	if status, _ := post("hello", "Origin", "https://evil.test", "Sec-Fetch-Site", "cross-site"); status != 403 {
		t.Errorf("from a page of another origin: status %d, want 403", status)
	}
	r := request(t, "GET", url+"/cache/")
	r.Host = "evil.test"
	if status, _ := ask(t, c, r); status != 421 {
		t.Errorf("under a stranger's name: status %d, want 421", status)
	}
	if _, body := ask(t, c, request(t, "GET", url+"/")); !strings.Contains(body, "/cache/\n") {
		t.Errorf("the index does not list the route: %s", body)
	}
}

func TestMountRefuses(t *testing.T) {
	for _, prefix := range []string{"", "/", "/cache", "cache/", "/{x}/", "GET /cache/", "/a/../b/", "/debug/pprof/", "//"} {
		a, err := New(Options{Listen: "127.0.0.1:0"}, Deps{Meters: meter.New(), Routes: map[string]http.Handler{prefix: http.HandlerFunc(echo)}})
		if err == nil {
			a.Close()
			t.Errorf("%q was mounted", prefix)
		}
	}
}
