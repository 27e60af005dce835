package engine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/config"
)

// book is an application that numbers its answers, and keeps what it was asked.
type book struct {
	mu    sync.Mutex
	n     int
	asked []string
}

func (b *book) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h := w.Header()
	h.Set("Content-Type", "text/plain")
	if r.URL.Path == "/warm" {
		_, _ = io.WriteString(w, "warm")
		return
	}
	b.mu.Lock()
	b.n++
	n := b.n
	var lines []string
	for name, values := range r.Header {
		lines = append(lines, fmt.Sprint(name, values))
	}
	slices.Sort(lines)
	b.asked = append(b.asked, fmt.Sprint(r.Method, " ", r.RequestURI, lines, string(body)))
	b.mu.Unlock()
	h.Set("Cache-Control", "max-age=3600")
	h.Set("Surrogate-Key", "hidden")
	h["Cache-Status"] = []string{"inner; hit", "middle; fwd=miss"}
	switch r.URL.Path {
	case "/moved":
		h.Set("Location", "/a")
	case "/elsewhere":
		h.Set("Location", "http://elsewhere.example/a")
		h.Set("Content-Location", "/b")
	case "/gone":
		w.WriteHeader(http.StatusNotFound)
	case "/broken":
		w.WriteHeader(http.StatusInternalServerError)
	case "/none":
		w.WriteHeader(http.StatusNoContent)
		return
	case "/lasting":
		h.Del("Cache-Control")
	case "/private":
		h.Set("Cache-Control", "private")
	case "/signs-in":
		h.Set("Set-Cookie", "sid=new")
	case "/partly":
		h.Set("Cache-Control", `max-age=60, no-cache="X-Mine"`)
		h.Set("X-Mine", "of the first")
		h.Set("Accept-Ranges", "none")
	case "/varies":
		h.Set("Vary", "X-Wish, Accept-Encoding")
	case "/aged":
		h.Set("Age", "5")
	case "/untyped":
		h["Content-Type"] = nil
	case "/allows":
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", "X-Mine")
	case "/tagged":
		h.Set("Etag", `"t"`)
		h.Set("Last-Modified", "Mon, 23 Nov 2026 00:00:00 GMT")
		if r.Header.Get("If-None-Match") == `"t"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	case "/slow", "/slow?2":
		time.Sleep(250 * time.Millisecond)
	case "/stream":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		time.Sleep(50 * time.Millisecond) // or it might be whole when somebody looks
	case "/large":
		_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
	}
	_, _ = fmt.Fprintf(w, "%d of %s, for %s%s", n, r.URL.Path, r.Header.Get("Cookie"), r.Header.Get("Authorization"))
}

// cached is a server whose route is a cache before a book.
type cached struct {
	*book
	srv  *Server
	addr string
}

// running runs a server by its config until the test ends.
func running(t *testing.T, text string) *Server {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	srv, err := New(cfg, Options{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }() // the cleanup waits for it
	t.Cleanup(func() { stop(); _ = srv.Close(); <-ended })
	return srv
}

func newCached(t *testing.T, off bool, more string) *cached {
	t.Helper()
	b := new(book)
	up := httptest.NewServer(b)
	t.Cleanup(up.Close)
	srv := running(t, fmt.Sprintf("admin: {listen: off}\nlog: {format: off}\nlisten: 127.0.0.1:0\nlane: {off: %v}\nsites:\n- routes:\n    /: {cache: {to: %q, %s}}\n", off, up.URL, more))
	c := &cached{b, srv, strings.TrimPrefix(srv.Addrs()[0], "http://")}
	for range 4 * runtime.GOMAXPROCS(0) { // each loop gets a connection to the book
		c.ask(t, "GET /warm HTTP/1.1\r\nHost: a\r\nCookie: a=b\r\n\r\n", 2)
	}
	return c
}

// changing is what differs between two answers of the same.
var changing = regexp.MustCompile(`ttl=\d+`)

// ask sends a request so many times on a new connection, and returns the last
// answer: its status, its fields in order, and its body.
func (c *cached) ask(t *testing.T, request string, times int) string {
	t.Helper()
	nc, err := net.Dial("tcp", c.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	br := bufio.NewReader(nc)
	method, _, _ := strings.Cut(request, " ")
	var got string
	for range times {
		_, _ = io.WriteString(nc, request)
		resp, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q: %v", request, err)
		}
		body, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil {
			t.Fatalf("%q: %v", request, err)
		}
		resp.Header.Del("Date")
		resp.Header.Del("Age")
		got = fmt.Sprintf("%s %d %v %v %s", resp.Status, resp.ContentLength, resp.TransferEncoding, resp.Header, body)
	}
	return changing.ReplaceAllString(got, "")
}

func (c *cached) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

// A request, and whether a loop may pass it on: those that bypass the cache, and
// those for what is not stored in it.
type step struct {
	request string
	carried bool
}

func get(path string, fields ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

func send(method, path, body string, fields ...string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n%s", method, path, len(body), strings.Join(append(fields, ""), "\r\n"), body)
}

// steps are asked one after the other: what an answer leads to is in later ones.
func steps(tells bool) []step {
	alice, bob := "Cookie: sid=alice", "Cookie: sid=bob"
	miss := !tells // with a disk, a goroutine looks there first
	return []step{
		{get("/a"), miss},
		{get("/a"), false}, // the cache's
		{get("/a", alice), true},
		{get("/a", bob), true},
		{get("/a", "Authorization: Bearer alice"), true},
		{get("/a"), false}, // still
		{get("/new", alice), true},
		{get("/new"), miss}, // nothing of alice's
		{get("/new", bob), true},
		{strings.Replace(get("/a", alice), "GET", "HEAD", 1), true},
		{get("/a", `If-Match: "x"`), true},
		{get("/a", "If-None-Match: \"x\"", alice), true},
		{get("/gone", alice), true},
		{get("/none", alice), true},
		{get("/slow", alice), true}, // the loop begins with it, and a goroutine ends it
		{get("/stream", alice), true},
		{get("/large", alice), true},
		{send("POST", "/a", "a change"), !tells},
		{get("/a"), miss}, // made anew
		{get("/a"), false},
		{get("/b"), miss},
		{send("POST", "/moved", "a change"), !tells},
		{get("/a"), miss}, // made anew
		{send("POST", "/elsewhere", "a change", alice), !tells},
		{get("/b"), miss},  // made anew
		{get("/a"), false}, // as it was
		{send("PUT", "/broken", "no change"), !tells},
		{send("DELETE", "/a?", ""), !tells},
		{send("DELETE", "/a", ""), !tells},
		{get("/a"), miss}, // made anew
		{get("/b"), false},
		{get("/never/x"), true}, // by a rule
		{get("/never/x"), true},
		{get("/never/../a"), true}, // past the cache
		{get("/a", "X-Forwarded-Host: evil", "X-Forwarded-For: 1.2.3.4", alice), true},
		{get("/a?x=1&y", alice), true},
		{get("/a?x=1&y"), miss},
		{get("/a?x=1&y"), false},
		{get("/lasting"), miss},
		{get("/lasting"), miss}, // nothing says how long it may be kept
		{get("/private"), miss}, // the loop sends it to this client alone
		{get("/private"), true}, // and asks for the next one alone
		{get("/private?none"), miss},
		{get("/signs-in"), miss},
		{get("/partly"), miss},
		{get("/partly"), false},
		{get("/varies", "X-Wish: 1", "Accept-Encoding: br"), miss},
		{get("/varies", "X-Wish: 2"), miss},
		{get("/varies", "X-Wish: 1", "Accept-Encoding: br"), false},
		{get("/aged"), miss},
		{get("/untyped"), miss},
		{get("/tagged"), miss},
		{get("/tagged", `If-None-Match: "t"`), false},
		{get("/tagged?2", `If-None-Match: "t"`), false},
		{get("/tagged?3", "Range: bytes=0-3"), false},
		{strings.Replace(get("/tagged?4"), "GET", "HEAD", 1), true},
		{strings.Replace(get("/tagged"), "GET", "HEAD", 1), false},
		{get("/gone?2"), miss},
		{get("/none?2"), miss},
		{get("/broken?2"), miss},
		{get("/slow?2"), miss},
		{get("/stream?2"), miss},
		{get("/large?2"), miss},
		{get("/only", "Cache-Control: only-if-cached"), false},
		{get("/keep-not", "Cache-Control: no-store"), true},
		{get("/none?3", "Cache-Control: no-store"), true},
		{get("/again", "Cache-Control: no-cache"), miss},
		{get("/via", "Via: 1.1 somebody"), miss},
		{get("/x%2fy"), miss},
		{get("/x%20y"), miss},
		{get("/x%20y"), false},
		{get("/%78%20y"), miss},
	}
}

// TestCarriedPastTheCache: what bypasses the cache the loops pass on, and what is
// not stored they fetch. Clients and
// the application see the same as without them, answer for answer; and so does
// the operator.
func TestCarriedPastTheCache(t *testing.T) {
	for name, more := range map[string]string{
		"memory": "rules: [{path: /never/*, bypass: true}]",
		"disk":   fmt.Sprintf("rules: [{path: /never/*, bypass: true}], disk: %q", t.TempDir()),
	} {
		t.Run(name, func(t *testing.T) {
			other := strings.Replace(more, "disk: \"", "disk: \""+t.TempDir(), 1)
			compareRoads(t, newCached(t, false, more), newCached(t, true, other), steps(name == "disk"))
		})
	}
}

// TestCarriedWithOptions: the same for options by which a request's fields are part of the
// key, or are believed, or decide about the fields of an answer.
func TestCarriedWithOptions(t *testing.T) {
	alice, bob := "Cookie: sid=alice", "Cookie: theme=dark; sid=bob"
	for name, c := range map[string]struct {
		more  string
		steps []step
	}{
		"cors": {`cors: {origins: ["https://o.example", "https://p.example"], credentials: true}`, []step{
			{get("/a", "Origin: https://o.example"), true},
			{get("/a", "Origin: https://p.example"), false}, // the cache's
			{get("/b", "Origin: https://evil.example"), true},
			{get("/c", "Origin: https://p.example", alice), true},
			{get("/d"), true},
			{get("/allows", "Origin: https://o.example", alice), true},
			{get("/private", "Origin: https://o.example"), true},
			{get("/gone", "Origin: https://o.example"), true},
			{send("POST", "/a", "a change", "Origin: https://o.example"), true},
			{get("/a", "Origin: https://o.example"), true}, // made anew
			{"OPTIONS /a HTTP/1.1\r\nHost: a\r\nOrigin: https://o.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n", false},
		}},
		"trusted proxies": {`trust_forwarded: [127.0.0.0/8], host: client`, []step{
			{get("/a", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop.example"), true},
			{get("/a", "X-Forwarded-For: 192.0.2.2", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop.example"), false},
			{get("/a", "X-Forwarded-For: 192.0.2.2", "X-Forwarded-Proto: http", "X-Forwarded-Host: shop.example"), true},
			{get("/a", "Forwarded: for=192.0.2.2;host=other.example;proto=https"), true},
			{get("/a"), true},
			{get("/a"), false},
			{get("/b", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Host: shop.example", alice), true},
			{send("POST", "/a", "a change", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop.example"), true},
			{get("/a", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop.example"), true}, // made anew
			{get("/a"), false}, // another host's
		}},
		"servers by fields": {`balance: hash, hash_by: "header:X-Tenant"`, []step{
			{get("/a", "X-Tenant: one"), true},
			{get("/a", "X-Tenant: two"), false},
			{get("/b", "X-Tenant: two", alice), true},
		}},
		"keys": {`languages: [de, en], key: {cookies: [theme], headers: [X-Tenant, X-Forwarded-Proto], without_query: [utm_source]}`, []step{
			{get("/a", "Cookie: theme=dark", "X-Tenant: one"), true},
			{get("/a", bob, "X-Tenant: one"), false}, // sid is not in the key, and does not reach the application
			{get("/a", "Cookie: theme=light", "X-Tenant: one"), true},
			{get("/a", "Cookie: theme=dark", "X-Tenant: two"), true},
			{get("/a", alice), true},
			{get("/a"), false},
			{get("/a?utm_source=x&b"), true},
			{get("/a?b&utm_source=y"), false},
			{get("/b", "Accept-Language: de-AT, fr"), true},
			{get("/varies", "X-Wish: 1", "Accept-Encoding: br"), true},
			{get("/varies", "X-Wish: 2", "Accept-Encoding: br"), true},
			{get("/a", "Authorization: Bearer alice"), true},
			{get("/c", "Connection: keep-alive", "X-Forwarded-Proto: https"), true},
		}},
	} {
		t.Run(name, func(t *testing.T) { compareRoads(t, newCached(t, false, c.more), newCached(t, true, c.more), c.steps) })
	}
}

// compareRoads asks two servers, of which only the first has loops.
func compareRoads(t *testing.T, with, without *cached, steps []step) {
	t.Helper()
	for i, s := range steps {
		before := with.srv.server.Forwarded()
		got, want := with.ask(t, s.request, 1), without.ask(t, s.request, 1)
		if got != want {
			t.Errorf("%d. %q:\n   on the loops %.2000q\nby net/http %.2000q", i, s.request, got, want)
		}
		if carried := with.srv.server.Forwarded() > before; carried != s.carried {
			t.Errorf("%d. %q: a loop passed it on: %v", i, s.request, carried)
		}
	}
	if a, b := with.requests(), without.requests(); !slices.Equal(a, b) {
		t.Errorf("the application got\n%q\nand by net/http\n%q", a, b)
	}
	// A decision is noted when the answer has gone out, maybe after the next
	// request has come.
	settled := func() (a, b []string) {
		a, b = decisions(with.srv), decisions(without.srv)
		slices.Sort(a)
		slices.Sort(b)
		return a, b
	}
	a, b := settled()
	for wait := time.Now().Add(5 * time.Second); !slices.Equal(a, b) && time.Now().Before(wait); a, b = settled() {
		time.Sleep(10 * time.Millisecond)
	}
	if len(a) < min(len(steps)/3, 20) || !slices.Equal(a, b) {
		t.Errorf("the log of decisions has\n%q\nand by net/http\n%q", a, b)
	}
}

// decisions are what the cache of a server has decided, in words, but for hits: of
// the lane's it does not hear. They are sorted: each is noted behind its answer.
func decisions(s *Server) (all []string) {
	for _, h := range s.graph.caches {
		for _, d := range h.Recent("", 1024) {
			if path := strings.TrimPrefix(d.URL, "http://a"); path != "/warm" && d.Outcome != "hit" {
				all = append(all, fmt.Sprint(d.Method, " ", path, " ", d.Status, " ", d.Outcome, " ", d.Reason))
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestCarriedAlone: a hundred users at once get their own answers, and nobody
// another one's.
func TestCarriedAlone(t *testing.T) {
	c := newCached(t, false, "memory: 8MiB")
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			for range 10 {
				user := fmt.Sprintf("sid=%03d", i)
				if got := c.ask(t, get("/page", "Cookie: "+user), 3); !strings.HasSuffix(got, "for "+user) {
					t.Errorf("%s got %q", user, got)
				}
				if got := c.ask(t, get("/page"), 1); !strings.HasSuffix(got, "for ") {
					t.Errorf("somebody without a name got %q", got)
				}
			}
		})
	}
	all.Wait()
	if n := c.srv.server.Forwarded(); n < 500 {
		t.Errorf("loops passed on %d requests", n)
	}
}

// TestMissedTogether: of clients that ask for the same at once, loops and goroutines
// alike, the application hears once.
func TestMissedTogether(t *testing.T) {
	t.Parallel() // it mostly waits
	c := newCached(t, false, "memory: 8MiB")
	for _, path := range []string{"/page", "/slow", "/large"} {
		for i := range 20 {
			var all sync.WaitGroup
			answers := make([]string, 10)
			target := fmt.Sprintf("%s?%d", path, i)
			for client := range answers {
				all.Go(func() {
					answer := c.ask(t, get(target), 1)
					_, answers[client], _ = strings.Cut(answer, "] ")
				})
			}
			all.Wait()
			asked := 0
			for _, r := range c.requests() {
				if strings.HasPrefix(r, "GET "+target+"[") {
					asked++
				}
			}
			if asked != 1 {
				t.Errorf("%s: asked %d times", target, asked)
			}
			if path == "/slow" && i == 1 {
				break // it takes its time
			}
		}
	}
}

// TestMissedAndGone: a client that leaves while a loop fetches for it does not take
// the answer away from those who wait, nor from the cache.
func TestMissedAndGone(t *testing.T) {
	c := newCached(t, false, "memory: 8MiB")
	nc, err := net.Dial("tcp", c.addr)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(nc, get("/slow"))
	for deadline := time.Now().Add(10 * time.Second); len(c.requests()) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	_ = nc.Close()
	if got := c.ask(t, get("/slow"), 1); !strings.HasSuffix(got, " of /slow, for ") {
		t.Errorf("the next one got %q", got)
	}
	if n := len(c.requests()); n != 1 {
		t.Errorf("the application was asked %d times", n)
	}
}
