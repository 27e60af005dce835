package engine

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// shop is an application whose answers have what rules look at. It keeps what it
// was asked.
type shop struct {
	mu    sync.Mutex
	asked []string
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	if strings.HasSuffix(r.URL.Path, "/warm") {
		_, _ = io.WriteString(w, "warm")
		return
	}
	lines := []string{r.Method + " " + r.RequestURI, "Host: " + r.Host}
	for name, values := range r.Header {
		for _, v := range values {
			lines = append(lines, name+": "+v)
		}
	}
	slices.Sort(lines[1:])
	s.mu.Lock()
	s.asked = append(s.asked, strings.Join(append(lines, string(body)), "\n"))
	s.mu.Unlock()
	h.Set("X-Powered-By", "shop")
	h.Set("X-Own", "1")
	h["Vary"] = []string{"Accept", "Cookie"}
	h.Set("Access-Control-Allow-Origin", "https://not.example")
	h.Set("X-Request-Id", "the shop's")
	switch strings.TrimPrefix(r.URL.Path, "/app") {
	case "/moved":
		h.Set("Location", "http://"+r.Host+"/inner")
		w.WriteHeader(http.StatusFound)
	case "/in":
		h.Set("Location", "/x")
		h["Set-Cookie"] = []string{"a=b; Path=/", "c=d; Path=/x; HttpOnly"}
		h.Set("Content-Location", "/y")
		w.WriteHeader(http.StatusSeeOther)
	case "/created":
		h.Set("Content-Location", "/y")
		h.Set("Refresh", "1; url=/z")
	case "/gone":
		w.WriteHeader(http.StatusNotFound)
	case "/broken":
		h.Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusInternalServerError)
	case "/same":
		h.Set("Etag", `"t"`)
		w.WriteHeader(http.StatusNotModified)
		return
	case "/nothing":
		delete(h, "Content-Type")
		w.WriteHeader(http.StatusNoContent)
		return
	case "/slow": // a goroutine goes on
		time.Sleep(150 * time.Millisecond)
	case "/flush":
		w.(http.Flusher).Flush()
	case "/json":
		h.Set("Content-Type", "Application/JSON")
		h.Set("Content-Security-Policy", "default-src 'none'")
	}
	_, _ = io.WriteString(w, "page "+r.URL.Path)
}

// dressed is a server whose route is a proxy to a shop, with something around it.
type dressed struct {
	*shop
	srv  *Server
	addr string
	log  string
	up   string // the shop's address
}

// newDressed starts one. more has %s for the shop's address.
func newDressed(t *testing.T, off bool, more string) *dressed {
	t.Helper()
	s := new(shop)
	up := httptest.NewServer(s)
	t.Cleanup(up.Close)
	log := filepath.Join(t.TempDir(), "log")
	text := fmt.Sprintf("admin: {listen: off}\nlog: {format: json, file: %q}\nlisten: 127.0.0.1:0\nlane: {off: %v}\n", log, off) + strings.ReplaceAll(more, "SHOP", up.URL)
	srv := running(t, text)
	d := &dressed{s, srv, strings.TrimPrefix(srv.Addrs()[0], "http://"), log, strings.TrimPrefix(up.URL, "http://")}
	for range 4 * runtime.GOMAXPROCS(0) { // each loop gets a connection to the shop
		d.ask(t, get("/app/warm"), get("/app/warm"))
	}
	return d
}

// These differ between two answers to the same: dates, and ids.
var differing = regexp.MustCompile(`Date: [^\r]*\r\n|\b[0-9a-f]{32}\b|\b[0-9a-f]{16}\b|\b[A-Z2-7]{26}\b`)

// These are a client's.
const traceOf, spanOf = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

func (d *dressed) alike(s string) string {
	return differing.ReplaceAllStringFunc(strings.ReplaceAll(s, d.up, "shop"), func(found string) string {
		if found == traceOf || found == spanOf {
			return found
		}
		return ""
	})
}

// ask sends requests on a new connection, one after the other, and returns all that
// comes back, byte for byte but for dates and ids.
func (d *dressed) ask(t *testing.T, requests ...string) string {
	t.Helper()
	nc, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	var all strings.Builder
	br := bufio.NewReader(io.TeeReader(nc, &all))
	for _, request := range requests {
		_, _ = io.WriteString(nc, request)
		method, _, _ := strings.Cut(request, " ")
		resp, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q: %v", request, err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if resp.Body.Close(); err != nil {
			t.Fatalf("%q: %v", request, err)
		}
	}
	return d.alike(all.String())
}

func (d *dressed) requests() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.alike(strings.Join(d.asked, "\n--\n"))
	d.asked = nil
	return all
}

// lines are those of the access log, without what differs between two runs.
func (d *dressed) lines(t *testing.T, n int) []string {
	t.Helper()
	varying := regexp.MustCompile(`"(time|duration|took|duration_us|duration_ms|lane)":("[^"]*"|[0-9.]+),?`)
	var all []string
	for wait := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(d.log)
		if err != nil {
			t.Fatal(err)
		}
		all = all[:0]
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "/warm") {
				all = append(all, d.alike(varying.ReplaceAllString(line, "")))
			}
		}
		if len(all) >= n || time.Now().After(wait) {
			slices.Sort(all) // a line is written behind its answer, perhaps after the next one's
			return all
		}
	}
}

// around are what a config may have around a proxy.
var around = map[string]string{
	"security":  "sites:\n- headers: {security: on}\n  routes:\n    /: {proxy: SHOP}\n",
	"rules":     "sites:\n- headers: {set: {X-Set: 'a {method} {host} {path} {query} {uri} {scheme} {client_ip}', Content-Language: en}, add: {Vary: X-Wish, X-Own: '2'}, default: {X-Own: '3', X-New: '4'}, remove: [X-Powered-By, Etag], when: [{status: [4xx], set: {X-Bad: 'yes'}}, {type: [application/json], remove: [Content-Type]}, {type: [text/html], set: {Content-Type: text/x-html}}, {status: ['200'], type: ['text/*'], set: {Cache-Control: no-store}}]}\n  routes:\n    /: {proxy: {to: SHOP, host: client}, headers: {security: {csp: \"default-src 'self'\", frames: none}, set: {X-Route: here}}}\n",
	"said":      "sites:\n- headers: {set: {X-Said: '<{request_id}>'}}\n  routes:\n    /: {proxy: {to: SHOP, request_headers: {set: {X-Id: '{request_id}'}}}}\n",
	"cors":      "sites:\n- cors: {origins: ['https://a.example', 'https://*.b.example'], credentials: true, expose: [X-Own]}\n  routes:\n    /: {proxy: SHOP}\n",
	"cors all":  "sites:\n- cors: {origins: ['*']}\n  routes:\n    /: {proxy: SHOP}\n",
	"id":        "request_id: on\nsites:\n- headers: {set: {X-Said: '{request_id}'}}\n  routes:\n    /: {proxy: {to: SHOP, request_headers: {set: {X-Id: 'id {request_id}'}}}}\n",
	"all ids":   "request_id: {header: X-Trace-Id, from: always}\nsites:\n- routes:\n    /: {proxy: SHOP}\n",
	"traced":    "tracing: {from: always}\nsites:\n- routes:\n    /: {proxy: SHOP}\n",
	"exported":  "tracing: {from: always, otlp: 'http://127.0.0.1:9', sample: 0}\nrequest_id: on\nsites:\n- routes:\n    /: {proxy: SHOP}\n",
	"trusted":   "request_id: on\nlimits: {trusted_proxies: [127.0.0.0/8]}\nsites:\n- headers: {set: {X-You: '{client_ip}'}}\n  routes:\n    /: {proxy: {to: SHOP, host: client, trust_forwarded: [127.0.0.1], request_headers: {set: {X-Real-IP: '{client_ip}', X-Asked: '{scheme}://{host}{path}?{query}'}}}}\n",
	"half":      "limits: {trusted_proxies: [127.0.0.1], client_header: X-Real-Ip}\nsites:\n- routes:\n    /: {proxy: SHOP, access: {deny: [198.51.100.7]}}\n",
	"requests":  "sites:\n- routes:\n    /: {proxy: {to: SHOP, request_headers: {set: {X-Real-IP: '{client_ip}', X-Empty: '', X-Asked: '{method} {scheme} {host} {path} {query}'}, add: {Cookie: 'more=1', User-Agent: more}, default: {User-Agent: nobody, X-New: '1'}, remove: [Authorization]}}}\n",
	"stripped":  "sites:\n- routes:\n    /: {proxy: {to: SHOP/inner, strip_prefix: /app}}\n",
	"kept":      "sites:\n- routes:\n    /: {proxy: {to: SHOP, strip_prefix: /app, redirects: keep}}\n",
	"rewritten": "sites:\n- routes:\n    /: {proxy: {to: SHOP/inner, strip_prefix: /front, rewrite: [{path: '/app/(a|moved|in)', to: '/{1}?first={1}'}, {path: '/app/(created|g.*e)', to: '/app/{1}?'}, {path: '(/.*)/flush', to: '/{1}'}]}}\n",
	"streamed":  "sites:\n- routes:\n    /: {proxy: {to: SHOP, stream: true}}\n",
	"copied":    "sites:\n- routes:\n    /: {proxy: {to: SHOP, mirror: 'http://127.0.0.1:9'}}\n",
	"canary":    "sites:\n- routes:\n    /: {proxy: {to: SHOP, canary: {to: SHOP/other, share: 50, header: X-Canary}}}\n",
	"access":    "sites:\n- access: {allow: [127.0.0.0/8]}\n  rate_limit: {rate: 10000/s, header: X-Api-Key}\n  routes:\n    /: {proxy: SHOP}\n",
	"denied":    "sites:\n- access: {deny: [127.0.0.1]}\n  headers: {set: {X-Set: '1'}}\n  routes:\n    /: {proxy: SHOP}\n    /app/: {proxy: SHOP, access: {off: true}}\n",
	"pages":     "sites:\n- errors: {404: '@gone'}\n  intercept_errors: true\n  headers: {set: {X-Set: '1'}}\n  routes:\n    /: {proxy: SHOP}\n    '@gone': {respond: {status: 404, text: not here}}\n",
	"siterules": "sites:\n- rules: [{path: /old/*, redirect: {to: /new/}}, {path: /never/*, rewrite: /app/moved}]\n  routes:\n    /: {proxy: SHOP}\n",
	"back":      "sites:\n- rules: [{path: /app/*, rewrite: '/x/{1}'}, {path: /x/*, rewrite: '/app/{1}'}]\n  routes:\n    /: {proxy: SHOP}\n",
	"conditions": "tables: {kinds: {key: '{query.b}', values: {c: '/app/created'}}}\nsites:\n- headers: {set: {X-Set: '{path} {query} {uri}'}}\n  rules: [{path: /app/a, method: [POST], rewrite: /app/in}, {path: /app/a, cookie: {a: b}, rewrite: '{table.kinds}?{query}&user={header.User-Agent}&mine={cookie.a}&at={host}{uri}'}, {path: /app/json, address: [127.0.0.0/8], protocol: http, rewrite: '/app/a b/é?{address}'}, {path: /app/gone, header: {X-No: '!*'}, host: [a], route: '@other'}]\n" +
		"  routes:\n    /: {proxy: SHOP}\n    '@other': {proxy: {to: SHOP/other, request_headers: {set: {X-Asked: '{path} {query}'}}}}\n",
	"all": "request_id: on\nsites:\n- access: {deny: [192.0.2.1]}\n  rate_limit: 10000/s\n  traps: on\n  errors: {5xx: '@broken'}\n  intercept_errors: true\n  cors: {origins: ['https://a.example', 'https://b.example']}\n  headers: {security: on, set: {X-Set: '{request_id} {uri}'}}\n" +
		"  routes:\n    /: {proxy: {to: SHOP, host: client, strip_prefix: /app, request_headers: {set: {X-Real-IP: '{client_ip}'}}}}\n    '@broken': {respond: {status: 500, text: broken here}}\n",
}

// asks are requests to all of them, and whether a loop passes them on.
func asks() []step {
	head := func(s string) string { return strings.Replace(s, "GET", "HEAD", 1) }
	return []step{
		{get("/app/"), true},
		{head(get("/app/", "User-Agent: x")), true},
		{get("/app/a?b=c&d", "User-Agent: x", "Cookie: a=b", "Authorization: Basic eDp5"), true},
		{get("/app/a?", "Origin: https://a.example"), true},
		{get("/app/a", "Origin: https://x.b.example"), true},
		{get("/app/a", "Origin: https://evil.example", "X-Real-IP: 203.0.113.1"), true},
		{get("/app/a", "Origin: null"), true},
		{get("/app/a", "X-Forwarded-For: 203.0.113.5, 198.51.100.9", "X-Forwarded-Proto: https", "X-Forwarded-Host: Shop.example:443", "X-Request-ID: mine", "X-Trace-Id: mine-too"), true},
		{get("/app/a", `Forwarded: for="[2001:db8::1]:5";proto=https;host=shop.example`, "X-Forwarded-Prefix: /front", "Via: 1.1 front"), true},
		{get("/app/a", "X-Forwarded-For: what, \"", "Forwarded: for=\"", "X-Forwarded-Host: a b", "X-Request-ID: a\"b"), true},
		{get("/app/a", "X_Real_IP: 1.2.3.4", "X_Request_ID: 1", "X-Client-IP: 1.2.3.4"), true},
		{get("/app/a", "Via: "+strings.Repeat("1.1 millrace, ", 20)+"1.1 x"), false},
		{send("POST", "/app/a", "the body", "Content-Type: text/plain", "Origin: https://a.example"), true},
		{get("/app/moved"), true},
		{get("/app/in"), true},
		{get("/app/created"), true},
		{get("/app/gone"), true},
		{get("/app/broken"), true},
		{get("/app/same"), true},
		{get("/app/nothing"), true},
		{get("/app/json"), true},
		{get("/app/slow", "Origin: https://a.example", "X-Request-ID: mine"), true},
		{get("/app/flush"), true},
		{get("/app/a", "Traceparent: 00-"+traceOf+"-"+spanOf+"-00", "Tracestate: a=b"), true},
		{get("/app/a", "Traceparent: 00-"+traceOf+"-"+spanOf+"-01", "Tracestate: a"), true},
		{get("/app/a%2fb"), true},
		{get("/app/a%20b%C3%A9?c=%20d"), true},
		{get("/app/%61"), true},
		{get("/app/a/../b"), true}, // but where a route changes paths
	}
}

var lengthLine = regexp.MustCompile("Content-Length: [0-9]+\r\n")

// unframed is an answer but for how its body is framed.
func unframed(answer string) string {
	head, body, chunked := strings.Cut(answer, "Transfer-Encoding: chunked\r\n\r\n")
	if !chunked {
		return lengthLine.ReplaceAllString(answer, "")
	}
	content, _ := io.ReadAll(httputil.NewChunkedReader(strings.NewReader(body)))
	return head + "\r\n" + string(content)
}

// TestCarriedRules: with rules, limits and the like around a proxy the loops pass
// requests on, and the client, the application and the log have the same as without
// the loops, byte for byte.
func TestCarriedRules(t *testing.T) {
	for name, more := range around {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with, without := newDressed(t, false, more), newDressed(t, true, more)
			for i, s := range asks() {
				before := with.srv.server.Forwarded()
				got, want := with.ask(t, s.request), without.ask(t, s.request)
				if strings.Contains(s.request, "flush") { // its end comes by itself, and may come late
					got, want = unframed(got), unframed(want)
				}
				if got != want {
					t.Errorf("%d. %q:\n   on the loops %.2000q\nby net/http %.2000q", i, s.request, got, want)
				}
				if got, want := with.requests(), without.requests(); got != want {
					t.Errorf("%d. %q: the application got\n%s\nand by net/http\n%s", i, s.request, got, want)
				}
				dots := strings.Contains(s.request, "/../") && (name == "back" || name == "canary" || strings.Contains(more, "strip_prefix")) || name == "back" && strings.Contains(s.request, "%2f")
				sampled := name == "exported" && strings.Contains(s.request, "-01\r\n")
				if carried := with.srv.server.Forwarded() > before; carried != (s.carried && !dots && !sampled) {
					t.Errorf("%d. %q: a loop passed it on: %v", i, s.request, carried)
				}
			}
			if got, want := with.lines(t, len(asks())), without.lines(t, len(asks())); !slices.Equal(got, want) {
				t.Errorf("the log has\n%s\nand by net/http\n%s", strings.Join(got, ""), strings.Join(want, ""))
			}
			for _, path := range []string{"/old/x", "/never/x", "/wp-login.php", "/x"} {
				if got, want := with.ask(t, get(path)), without.ask(t, get(path)); got != want {
					t.Errorf("%s:\n   on the loops %.2000q\nby net/http %.2000q", path, got, want)
				}
			}
		})
	}
}

// TestCarriedSignedIn: who has shown a password a moment ago, or shows a token of a known
// key, is let in by the loops, and nobody else is; the application gets the same as without
// them.
func TestCarriedSignedIn(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "bob"}).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	ann, bob := "Authorization: Basic YW5uOnB3", "Authorization: Bearer "+token
	for name, c := range map[string]struct {
		auth  string
		steps []step
	}{
		"password": {"{passwords: {ann: '{SHA}GpHWL3ymc5liWkNopqtdSjuqYHM='}, user_header: X-User}", []step{
			{get("/app/a"), false},
			{get("/app/a", ann), false}, // its hash is made
			{get("/app/a?b", ann, "X-User: root", "x_user: root"), true},
			{get("/app/a", "Authorization: Basic YW5uOnB4"), false},
			{get("/app/a", "Authorization: Basic"), false},
			{get("/app/a", bob), false},
			{get("/never/x", ann), true},
			{send("POST", "/app/a", "the body", ann), true},
			{get("/app/slow", ann), true},
			{get("/app/a", "X-User: ann"), false},
		}},
		"token": {"{jwt: {secret: " + secret + "}, user_header: X-User}", []step{
			{get("/app/a"), false},
			{get("/app/a", bob, "X-User: root", "Cookie: a=b"), true},
			{get("/app/a", bob+"x"), false},
			{get("/app/a?access_token=x", bob), false},
			{get("/never/x", bob), true},
			{get("/asks/x", bob), false},
			{get("/app/a", ann), false},
		}},
		"cookie": {"{jwt: {secret: " + secret + ", cookie: session}, user_header: X-User}", []step{
			{get("/app/a", bob), true},
			{get("/app/a", "Cookie: session="+token), false},
			{get("/app/a", bob, "Cookie: session=x"), false},
		}},
		"except": {"{passwords: {ann: '{SHA}GpHWL3ymc5liWkNopqtdSjuqYHM='}, user_header: X-User, except: [127.0.0.1]}", []step{
			{get("/app/a", "X-User: root", "x.user: root"), true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			more := "sites:\n- rules: [{path: /never/*, rewrite: /app/moved}, {path: /asks/*, rewrite: '/app/a?access_token=x'}]\n" +
				"  routes:\n    /: {proxy: SHOP, auth: " + c.auth + "}\n    /app/warm: {proxy: SHOP}\n"
			with, without := newDressed(t, false, more), newDressed(t, true, more)
			for i, s := range c.steps {
				before := with.srv.server.Forwarded()
				if got, want := with.ask(t, s.request), without.ask(t, s.request); got != want {
					t.Errorf("%d. %q:\n   on the loops %.2000q\nby net/http %.2000q", i, s.request, got, want)
				}
				if got, want := with.requests(), without.requests(); got != want {
					t.Errorf("%d. %q: the application got\n%s\nand by net/http\n%s", i, s.request, got, want)
				}
				if carried := with.srv.server.Forwarded() > before; carried != s.carried {
					t.Errorf("%d. %q: a loop passed it on: %v", i, s.request, carried)
				}
			}
		})
	}
}

// TestCarriedIDs: the client, the application and the log are told the same id, also
// where a goroutine goes on with what a loop has begun.
func TestCarriedIDs(t *testing.T) {
	ids := regexp.MustCompile(`[0-9a-f]{32}|[A-Z2-7]{26}`)
	const cached = "request_id: on\nsites:\n- routes:\n    /app/warm: {proxy: SHOP}\n    /: {cache: SHOP}\n"
	for name, times := range map[string]int{"id": 4, "said": 2, cached: 2} {
		d := newDressed(t, false, cmp.Or(around[name], name))
		for _, path := range []string{"/app/a", "/app/slow", "/app/flush"} {
			before := d.srv.server.Forwarded()
			nc, err := net.Dial("tcp", d.addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(nc, get(path))
			resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_, _ = resp.Body.Close(), nc.Close()
			d.mu.Lock()
			told := fmt.Sprint(resp.Header, d.asked)
			d.asked = nil
			d.mu.Unlock()
			all := ids.FindAllString(told, -1)
			if len(all) != times || len(slices.Compact(slices.Sorted(slices.Values(all)))) != 1 {
				t.Errorf("%s, %s: the ids %q are told", name, path, all)
			}
			if d.srv.server.Forwarded() == before {
				t.Errorf("%s, %s: no loop passed it on", name, path)
			}
		}
	}
}

// TestCarriedLimits: each request counts once, whoever passes it on, and what is
// refused does not reach the application.
func TestCarriedLimits(t *testing.T) {
	for name, limit := range map[string]string{"address": "{rate: 6/h}", "header": "{rate: 6/h, header: X-Api-Key}"} {
		d := newDressed(t, false, "limits: {trusted_proxies: [127.0.0.1]}\nsites:\n- routes:\n    /app/warm: {proxy: SHOP}\n    /: {proxy: SHOP, rate_limit: "+limit+", access: {deny: [203.0.113.66]}}\n")
		for _, client := range []string{"203.0.113.1", "203.0.113.2"} {
			from := []string{"X-Forwarded-For: " + client, "X-Api-Key: of " + client}
			before := d.srv.server.Forwarded()
			// One is handed over while it is under way.
			got := d.ask(t, get("/a", from...), get("/slow", from...), get("/a%2fb", from...), get("/a", from...), get("/flush", from...), get("/a", from...), get("/a", from...), get("/slow", from...))
			if passed, refused := strings.Count(got, "HTTP/1.1 200"), strings.Count(got, "HTTP/1.1 429"); passed != 6 || refused != 2 {
				t.Errorf("%s: %d passed, %d were refused: %q", name, passed, refused, got)
			}
			if n := d.srv.server.Forwarded() - before; n != 6 {
				t.Errorf("%s: loops passed on %d", name, n)
			}
			d.mu.Lock()
			if n := len(d.asked); n != 6 {
				t.Errorf("%s: the application was asked %d times", name, n)
			}
			d.asked = nil
			d.mu.Unlock()
		}
		// On one connection of the proxy in front: who is denied gets nothing of the others' leave.
		got := d.ask(t, get("/a", "X-Forwarded-For: 203.0.113.9"), get("/a", "X-Forwarded-For: 203.0.113.66"), get("/a", "X-Forwarded-For: 203.0.113.9"))
		if strings.Count(got, "HTTP/1.1 200") != 2 || strings.Count(got, "HTTP/1.1 403") != 1 {
			t.Errorf("%s: %q", name, got)
		}
	}
}
