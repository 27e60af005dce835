package engine

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"millrace/internal/process/servertest"
)

// whole counts the requests that loops have answered from the first byte to the last.
func (d *dressed) whole(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(d.log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), `"lane":"through"`)
}

// TestCarriedCopies: a mirror gets one copy of each request that a loop passes on, whoever
// takes the answer.
func TestCarriedCopies(t *testing.T) {
	var mu sync.Mutex
	var got []string
	mirror := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path != "/app/warm" {
			got = append(got, fmt.Sprintf("%s %s %q %s %s", r.Method, r.URL, b, r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Asked")))
		}
	}))
	t.Cleanup(mirror.Close)
	d := newDressed(t, false, "sites:\n- routes:\n    /: {proxy: {to: SHOP, mirror: '"+mirror.URL+"', request_headers: {set: {X-Asked: '{path}'}}}}\n")
	before, forwarded := d.whole(t), d.srv.server.Forwarded()
	var want []string
	for i := range 5 {
		path := fmt.Sprintf("/app/%d", i)
		want = append(want, fmt.Sprintf("GET %s \"\" 127.0.0.1 %[1]s", path), fmt.Sprintf("POST %s \"body\" 127.0.0.1 %[1]s", path), fmt.Sprintf("GET /app/slow?%d \"\" 127.0.0.1 /app/slow", i))
		d.ask(t, get(path), send("POST", path, "body"), get(fmt.Sprintf("/app/slow?%d", i)))
	}
	servertest.Eventually(t, "the mirror has all copies", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= len(want)
	})
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the mirror got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if d.srv.server.Forwarded() == forwarded {
		t.Error("no loop passed anything on")
	}
	servertest.Eventually(t, "loops have taken answers", func() bool { return d.whole(t) > before })
}

// TestCarriedVisitors: a loop draws a version for a new visitor, who gets one cookie for it,
// also where a goroutine takes the answer; and the version stays.
func TestCarriedVisitors(t *testing.T) {
	t.Parallel()
	canary := httptest.NewServer(new(shop))
	t.Cleanup(canary.Close)
	for _, path := range []string{"/app/a", "/app/slow"} {
		t.Run(path, func(t *testing.T) {
			d := newDressed(t, false, "sites:\n- routes:\n    /: {proxy: {to: SHOP, canary: {to: '"+canary.URL+"', share: 50, cookie: version}}}\n")
			usual := map[bool]int{}
			forwarded, before := d.srv.server.Forwarded(), d.whole(t)
			for range 16 {
				d.requests()
				cookie := d.visit(t, path, "")
				asked := d.requests() != ""
				var bucket int
				if _, err := fmt.Sscanf(cookie, "version=%d; Path=/; HttpOnly; SameSite=Lax", &bucket); err != nil || asked != (bucket >= 5000) {
					t.Fatalf("a visitor of the usual version (%t) has the cookie %q: %v", asked, cookie, err)
				}
				usual[asked]++
				name, _, _ := strings.Cut(cookie, ";")
				if again := d.visit(t, path, name); again != "" || (d.requests() != "") != asked {
					t.Fatalf("a visitor of the usual version (%t) comes to the other, with %q", asked, again)
				}
			}
			if usual[true] == 0 || usual[false] == 0 {
				t.Errorf("visitors of the usual version, and of the other: %v", usual)
			}
			if n := d.srv.server.Forwarded() - forwarded; n < 16 {
				t.Errorf("loops have passed on %d of 32", n)
			}
			if path == "/app/a" {
				servertest.Eventually(t, "loops have taken answers", func() bool { return d.whole(t) > before })
			}
		})
	}
}

// visit asks with a cookie, and returns the one that is given.
func (d *dressed) visit(t *testing.T, path, cookie string) string {
	t.Helper()
	nc, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	request := get(path)
	if cookie != "" {
		request = get(path, "Cookie: "+cookie)
	}
	_, _ = io.WriteString(nc, request)
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK || len(resp.Header["Set-Cookie"]) > 1 {
		t.Fatalf("%s: %s %v: %v", path, resp.Status, resp.Header, err)
	}
	return resp.Header.Get("Set-Cookie")
}
