package server

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/lane"
	"millrace/internal/observe/meter"
	"millrace/internal/process/servertest"
	"millrace/internal/route/headers"
	"millrace/internal/route/site"
	"millrace/internal/upstream"
	"millrace/internal/upstream/faulty"
	"millrace/proxy"
)

// origin is an upstream that says what a test wants, byte for byte, and keeps
// what it was asked.
type origin struct {
	net.Listener
	mu     sync.Mutex
	say    []string // the pieces of the answer to what is not /ok
	closes bool     // and the connection ends behind it
	asked  []string
}

func newOrigin(tb testing.TB) *origin {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	o := &origin{Listener: l}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { o.serve(nc) }) // ends when the proxy closes its connection
		}
	})
	tb.Cleanup(func() { _ = l.Close(); all.Wait() })
	return o
}

func (o *origin) serve(nc net.Conn) {
	defer nc.Close()
	br := bufio.NewReader(nc)
	for {
		text, path := readRequest(br)
		if text == "" {
			return
		}
		if path == "/ok" {
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n")
			continue
		}
		o.mu.Lock()
		say, closes := o.say, o.closes
		o.asked = append(o.asked, text)
		o.mu.Unlock()
		for i, piece := range say {
			if i > 0 {
				time.Sleep(2 * time.Millisecond)
			}
			if _, err := io.WriteString(nc, piece); err != nil {
				return
			}
		}
		if closes {
			return
		}
	}
}

// readRequest reads a request; its header fields are sorted.
func readRequest(br *bufio.Reader) (text, path string) {
	var lines []string
	length := 0
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return "", ""
		}
		if line == "\r\n" {
			break
		}
		if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(v))
		}
		lines = append(lines, line)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(br, body); err != nil || len(lines) == 0 {
		return "", ""
	}
	slices.Sort(lines[1:])
	_, path, _ = strings.Cut(lines[0], " ")
	path, _, _ = strings.Cut(path, " ")
	return strings.Join(lines, "") + string(body), path
}

// set has the origin answer with these pieces from now on, and forgets what it was
// asked.
func (o *origin) set(closes bool, say ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.say, o.closes, o.asked = say, closes, nil
}

func (o *origin) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

// relay is a rig whose handler is a proxy to an address. around puts something around
// its route.
func relay(tb testing.TB, to string, o upstream.Options, off bool, around ...func(*site.Route)) *rig {
	tb.Helper()
	o.To, o.Host = []string{"http://" + to}, "client"
	return relayTo(tb, o, off, around...)
}

// relayTo is relay to any servers.
func relayTo(tb testing.TB, o upstream.Options, off bool, around ...func(*site.Route)) *rig {
	tb.Helper()
	log := &lockedBuffer{}
	errorLog := slog.New(slog.NewTextHandler(log, nil))
	pool, err := upstream.New(o, errorLog)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = pool.Close() })
	h, err := proxy.New(proxy.Options{Options: o}, pool, errorLog)
	if err != nil {
		tb.Fatal(err)
	}
	m := meter.New()
	tables := [2]*site.Table{site.NewTable(), site.NewTable()}
	for i, t := range tables {
		route := &site.Route{Pattern: "/", Handler: h, Job: m.Job("test"), RawPath: true, Passes: true}
		for _, put := range around {
			put(route)
		}
		t.Add(site.New(uint64(i+1), []*site.Route{route}), nil)
	}
	r := start(tb, plan{lane: lane.Options{Off: off}, plain: tables[0], secure: tables[1], meters: m})
	r.log, r.pool = log, pool
	return r
}

// relays are two of them before the same origin: the loops of the first pass
// requests on, the second one is net/http's.
type relays struct {
	*origin
	pair
}

func newRelays(tb testing.TB, around ...func(*site.Route)) relays {
	o := newOrigin(tb)
	opts := upstream.Options{HeaderTimeout: 2 * time.Second}
	return relays{o, pair{relay(tb, o.Addr().String(), opts, false, around...), relay(tb, o.Addr().String(), opts, true, around...)}}
}

// dress puts rules for all that answers may have around a route.
func dress(tb testing.TB) func(*site.Route) {
	rules, faults := headers.CompileAnswers(headers.Lists(&headers.AnswerOptions{
		Options: headers.Options{
			Set: map[string]string{"X-Set": "{method} {uri} {host}"}, Add: map[string]string{"Vary": "X-Wish", "X-B": "3"},
			Default: map[string]string{"X-A": "1", "Content-Type": "text/x-default"}, Remove: []string{"X"},
		},
		Security: &headers.Security{},
		When: []headers.When{
			{Status: []string{"2xx"}, Options: headers.Options{Set: map[string]string{"X-Good": "yes"}}},
			{Type: []string{"text/html"}, Options: headers.Options{Remove: []string{"Content-Type", "Set-Cookie"}}},
		},
	}, nil, false))
	if len(faults) > 0 {
		tb.Fatal(faults)
	}
	policy, err := headers.NewCORS(headers.CORSOptions{Origins: []string{"https://a.example", "https://b.example"}, Credentials: true})
	if err != nil {
		tb.Fatal(err)
	}
	return func(r *site.Route) { r.Headers, r.CORS = rules, policy }
}

// warm has both keep connections to the origin, each loop one.
func (p pair) warm(tb testing.TB) {
	tb.Helper()
	for _, r := range []*rig{p.with, p.without} {
		for range 2 * runtime.GOMAXPROCS(0) { // they are dealt out in turn
			c := r.dial(tb, "tcp")
			for range 2 {
				c.get("/ok")
			}
			_ = c.Close()
		}
	}
}

// ask sends a request on a new connection and a second one behind the answer. It
// returns both answers as they came, without dates, and whether a loop passed the
// first one on.
func (r *rig) ask(tb testing.TB, transport, method, req string) (got string, carried bool) {
	tb.Helper()
	c := r.dial(tb, transport)
	defer c.Close()
	var all strings.Builder
	c.br = bufio.NewReader(io.TeeReader(c.Conn, &all))
	before := r.srv.lane.Forwarded()
	_, _ = io.WriteString(c.Conn, req)
	res, _, err := c.tryAnswer(method)
	for err == nil && (res.StatusCode == http.StatusContinue || res.StatusCode == http.StatusEarlyHints) {
		res, _, err = c.tryAnswer(method)
	}
	carried = r.srv.lane.Forwarded() > before
	if err == nil {
		_, _ = io.WriteString(c.Conn, request("GET", "/ok"))
		_, _, _ = c.tryAnswer("GET")
	}
	return changing.ReplaceAllString(all.String(), ""), carried
}

// both asks both, and reports whether a loop passed the first request on.
func (p relays) both(tb testing.TB, transport, method, req string) (carried bool) {
	tb.Helper()
	p.warm(tb)
	var got [2]string
	var asked [2][]string
	for i, r := range []*rig{p.with, p.without} {
		p.mu.Lock()
		p.asked = nil
		p.mu.Unlock()
		var loop bool
		got[i], loop = r.ask(tb, transport, method, req)
		carried = carried || loop
		asked[i] = p.requests()
		if method != "POST" && p.closes { // it is asked again for each kept connection that has ended
			asked[i] = slices.Compact(asked[i])
		}
	}
	if got[0] != got[1] && unframed(got[0]) != unframed(got[1]) {
		tb.Errorf("%s %.2000q:\n   on the loops %.3000q\nby net/http %.3000q", transport, req, got[0], got[1])
	}
	if !slices.Equal(asked[0], asked[1]) {
		tb.Errorf("%s %.2000q: the origin got\n   %.3000q\nand by net/http\n%.3000q", transport, req, asked[0], asked[1])
	}
	return carried
}

const okHead = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"

// originAnswers are what an upstream may say, with whether the loop sends it.
var originAnswers = []struct {
	name   string
	closes bool
	pieces []string
}{
	{"plain", false, []string{okHead + "Content-Length: 5\r\n\r\nhello"}},
	{"in pieces", false, []string{"HTTP/1.1 2", "00 OK\r\nContent-Type: te", "xt/plain\r\nContent-Length: 5\r\n\r", "\nhe", "llo"}},
	{"many fields", false, []string{"HTTP/1.1 200 Fine\r\nServer: x\r\nX-B: 2\r\nx-a: 1\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nVary: Accept\r\nDate: Tue, 24 Nov 2026 00:00:00 GMT\r\nContent-type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive\r\nProxy-Authenticate: x\r\ncontent-length: 5\r\n\r\nhello"}},
	{"via", false, []string{okHead + "Via: 1.0 fred\r\nContent-Length: 5\r\n\r\nhello"}},
	{"two vias", false, []string{okHead + "Via: 1.0 fred\r\nVia: 1.1 x\r\nContent-Length: 5\r\n\r\nhello"}},
	{"empty", false, []string{okHead + "Content-Length: 0\r\n\r\n"}},
	{"no type", false, []string{"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"}},
	{"no type, encoded", false, []string{"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\nabcdef"}},
	{"no length", true, []string{okHead + "\r\nhello"}},
	{"chunks", false, []string{okHead + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"}},
	{"chunks and trailer", false, []string{okHead + "Trailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n"}},
	{"1.0", true, []string{"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"}},
	{"goes away", true, []string{okHead + "Connection: close\r\nContent-Length: 5\r\n\r\nhello"}},
	{"204", false, []string{"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n"}},
	{"204 with a length", false, []string{"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"}},
	{"304", false, []string{"HTTP/1.1 304 Not Modified\r\nEtag: \"a\"\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n"}},
	{"404", false, []string{"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno"}},
	{"599", false, []string{"HTTP/1.1 599 What\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno"}},
	{"600", false, []string{"HTTP/1.1 600 What\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno"}},
	{"99", true, []string{"HTTP/1.1 099 What\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno"}},
	{"no reason", false, []string{"HTTP/1.1 200\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"}},
	{"redirect", false, []string{"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"}},
	{"refresh", false, []string{okHead + "Refresh: 5; url=/x\r\nContent-Length: 5\r\n\r\nhello"}},
	{"100 first", false, []string{"HTTP/1.1 100 Continue\r\n\r\n" + okHead + "Content-Length: 5\r\n\r\nhello"}},
	{"103 first", false, []string{"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n", okHead + "Content-Length: 5\r\n\r\nhello"}},
	{"events", true, []string{"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n"}},
	{"events with a length", false, []string{"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; x\r\nContent-Length: 9\r\n\r\ndata: x\n\n"}},
	{"two lengths", false, []string{okHead + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"}},
	{"two different lengths", false, []string{okHead + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"}},
	{"length and chunks", false, []string{okHead + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"}},
	{"+5", false, []string{okHead + "Content-Length: +5\r\n\r\nhello"}},
	{"05", false, []string{okHead + "Content-Length: 05\r\n\r\nhello"}},
	{"folded", false, []string{okHead + "X: a\r\n b\r\nContent-Length: 5\r\n\r\nhello"}},
	{"bare LF", false, []string{"HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: 5\n\nhello"}},
	{"space before the colon", false, []string{okHead + "X : a\r\nContent-Length: 5\r\n\r\nhello"}},
	{"space before the length's colon", false, []string{okHead + "Content-Length : 5\r\n\r\nhello"}},
	{"empty value", false, []string{okHead + "X:\r\nContent-Length: 5\r\n\r\nhello"}},
	{"spaces around", false, []string{okHead + "X: \t a b \t \r\nY:c\r\nContent-Length: 5\r\n\r\nhello"}},
	{"control byte", false, []string{okHead + "X: a\x01b\r\nContent-Length: 5\r\n\r\nhello"}},
	{"CR in a value", false, []string{okHead + "X: a\rb\r\nContent-Length: 5\r\n\r\nhello"}},
	{"other letters", false, []string{okHead + "X: ä\xff\r\nContent-Length: 5\r\n\r\nhello"}},
	{"no name", false, []string{okHead + ": a\r\nContent-Length: 5\r\n\r\nhello"}},
	{"no colon", false, []string{okHead + "X\r\nContent-Length: 5\r\n\r\nhello"}},
	{"pragma", false, []string{okHead + "Pragma: no-cache\r\nContent-Length: 5\r\n\r\nhello"}},
	{"connection names a field", false, []string{okHead + "Connection: X\r\nX: a\r\nContent-Length: 5\r\n\r\nhello"}},
	{"64 KiB", false, []string{okHead + "Content-Length: 65000\r\n\r\n" + strings.Repeat("x", 65000)}},
	{"more than that", false, []string{okHead + "Content-Length: 70000\r\n\r\n" + strings.Repeat("x", 40000), strings.Repeat("y", 30000)}},
	{"2 MB", false, []string{okHead + "Content-Length: 2000000\r\n\r\n" + strings.Repeat("x", 2000000)}},
	{"cut off", true, []string{okHead + "Content-Length: 50\r\n\r\nhello"}},
	{"cut off in the head", true, []string{okHead + "Content-Len"}},
	{"nothing", true, nil},
	{"not HTTP", true, []string{"hello\r\n\r\n"}},
	{"a long head", false, []string{okHead + "X: " + strings.Repeat("a", 20000) + "\r\nContent-Length: 5\r\n\r\nhello"}},
	{"more after it", false, []string{okHead + "Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret"}},
	{"101 unasked", false, []string{"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"}},
}

// TestCarriedAnswers: a client gets the same of each answer, whoever takes it.
func TestCarriedAnswers(t *testing.T) {
	for _, a := range originAnswers {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{"GET", "HEAD", "POST"} {
				p := newRelays(t) // who is distrusted gets no line for a while
				if method == "POST" {
					p = newRelays(t, dress(t))
				}
				if method == "HEAD" && (len(a.pieces) == 0 || strings.HasPrefix(a.name, "more")) {
					continue
				}
				req := request(method, "/a?b=c", "User-Agent: x")
				if method == "HEAD" {
					head, _, _ := strings.Cut(strings.Join(a.pieces, ""), "\r\n\r\n")
					p.set(a.closes, head+"\r\n\r\n")
				} else {
					p.set(a.closes, a.pieces...)
				}
				if method == "POST" {
					req = post("/a?b=c", "the body", "Content-Type: text/plain")
				}
				carried := false
				for try := 0; try < 5 && !carried; try++ { // on a slow machine a worker may have the connection
					carried = p.both(t, "tcp", method, req)
				}
				if !carried {
					t.Errorf("%s: no loop passed it on", method)
				}
				if method != "HEAD" {
					p.both(t, "tls", method, req)
				}
			}
		})
	}
}

// TestCarriedRequests: the origin gets the same of each request.
func TestCarriedRequests(t *testing.T) {
	p := newRelays(t)
	p.set(false, okHead+"Content-Length: 5\r\n\r\nhello")
	for _, req := range []struct {
		text    string
		carried bool
	}{
		{request("GET", "/a"), true},
		{request("GET", "/a?", "User-Agent: x", "Accept: */*"), true},
		{request("GET", "/a?x=%zz&y=|\"", "Cookie: a=b; c=d", "Authorization: Basic eDp5"), true},
		{request("GET", "/a", "X-Forwarded-For: 1.2.3.4", "x_forwarded_for: 1.2.3.4", "X-Real-IP: 1.2.3.4", "Forwarded: for=1.2.3.4", "X-Forwarded-Host: evil", "X-Forwarded-Proto: https", "Proxy: x"), true},
		{request("GET", "/a", "Keep-Alive: 5", "Connection: keep-alive", "Content_Length: 5", "Content-Length: 0"), true},
		{request("GET", "/a", "Max-Forwards: 0", "X-Original-URL: /admin", "X-Http-Method-Override: DELETE", "X-Ssl-Client-Subject: CN=x"), true},
		{request("GET", "/a", "Via: 1.1 x"), true},
		{request("GET", "/a", "Via: "+strings.Repeat("1.1 millrace, ", 9)+"1.1 x"), false},
		{request("GET", "/a", "TE: trailers"), false},
		{request("GET", "/a", "Connection: close"), false},
		{request("GET", "/a/../b"), true},
		{request("GET", "/a//b"), true},
		{request("GET", "/a%2fb"), true},
		{post("/a", "body"), true},
		{post("/a", ""), true},
		{post("/a", strings.Repeat("b", 3000)), true},
		{post("/a", strings.Repeat("b", 100_000)), false},
		{post("/a", "body", "Expect: 100-continue"), false},
		{"PUT /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\r\nx", true},
		{"PATCH /a HTTP/1.1\r\nHost: a.example\r\n\r\n", true},
		{"DELETE /a HTTP/1.1\r\nHost: a.example:80\r\n\r\n", true},
		{"GET /a HTTP/1.1\r\nHost: a.example:8080\r\n\r\n", true},
		{"GET /a HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", true},
	} {
		method, _, _ := strings.Cut(req.text, " ")
		for _, transport := range transports {
			carried := p.both(t, transport, method, req.text)
			for try := 0; try < 5 && !carried && req.carried; try++ { // as above
				carried = p.both(t, transport, method, req.text)
			}
			if carried != req.carried {
				t.Errorf("%.200q: passed on by a loop: %v", req.text, carried)
			}
		}
	}
}

// TestCarriedPipeline: what comes behind a request waits for its answer.
func TestCarriedPipeline(t *testing.T) {
	p := newRelays(t)
	p.set(false, okHead+"Content-Length: 5\r\n\r\nhel", "lo")
	p.warm(t)
	for i, n := range []int{2, 5, 20} {
		stream := strings.Repeat(request("GET", "/a")+post("/b", "body")+request("GET", "/ok"), n)
		var got [2]string
		for j, r := range []*rig{p.with, p.without} {
			c := r.dial(t, "tcp")
			var all strings.Builder
			c.br = bufio.NewReader(io.TeeReader(c.Conn, &all))
			if i == 1 { // in two halves
				c.write(stream[:len(stream)/3])
				time.Sleep(time.Millisecond)
				c.write(stream[len(stream)/3:])
			} else {
				c.write(stream)
			}
			for range 3 * n {
				c.answer("GET")
			}
			got[j] = changing.ReplaceAllString(all.String(), "")
		}
		if got[0] != got[1] {
			t.Errorf("%d requests:\n%q\n%q", 3*n, got[0], got[1])
		}
	}
	if p.with.srv.lane.Forwarded() < 20 {
		t.Errorf("loops passed on %d requests", p.with.srv.lane.Forwarded())
	}
}

// TestCarriedFaults: each way in which an upstream may go wrong ends as it does
// without the loops, and the next request is unharmed.
func TestCarriedFaults(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, s := range faulty.Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			// Whether a connection is known to be closed when a request is sent, or costs
			// one of its attempts, hangs on how long things take.
			var got [2]string
			for range 3 {
				if got = [2]string{outcome(t, s, false), outcome(t, s, true)}; got[0] == got[1] {
					return
				}
			}
			t.Errorf("on the loops: %s, by net/http: %s", got[0], got[1])
		})
	}
}

// outcome is what a client gets of an upstream that goes wrong behind warm connections.
func outcome(t *testing.T, s faulty.Scenario, off bool) string {
	t.Helper()
	method := cmp.Or(s.Method, "GET")
	warmed := faulty.Script{faulty.Request(), faulty.OK("ok"), faulty.Request(), faulty.OK("ok"), faulty.Request(), faulty.OK("ok")}
	up, err := faulty.Start(append(slices.Clone(warmed), s.Script...), s.Script, s.Script, s.Script, faulty.Good("good"))
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	r := relay(t, up.Addr, upstream.Options{HeaderTimeout: time.Second, BodyTimeout: time.Second, HeaderBytes: 64 << 10}, off)
	c := r.dial(t, "tcp")
	for range 3 {
		c.get("/ok")
	}
	_, _ = io.WriteString(c, request(method, "/a"))
	got := "no answer" // which error it is hangs on how long things take
	if resp, body, err := c.tryAnswer(method); err == nil && resp.StatusCode < 500 {
		got = fmt.Sprint(resp.Status, body)
	}
	if before := r.srv.lane.Forwarded(); !off && before < 2 {
		t.Errorf("loops passed on %d requests", before)
	}
	for range 2 {
		c := r.dial(t, "tcp")
		_, _ = io.WriteString(c, request("GET", "/next"))
		if _, body, err := c.tryAnswer("GET"); err == nil && strings.Contains(body, faulty.Secret) {
			t.Errorf("the next client got %q", body)
		}
	}
	return got
}

// TestCarriedAgain: a connection that a goroutine has had comes back to the loop.
func TestCarriedAgain(t *testing.T) {
	p := newRelays(t)
	p.warm(t)
	c := p.with.dial(t, "tcp")
	for i := range 60 {
		p.set(false, okHead+"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
		c.get("/chunked")
		before := p.with.srv.lane.Forwarded()
		c.get("/ok")
		if i > 5 && p.with.srv.lane.Forwarded() == before {
			t.Fatalf("not after %d answers in chunks", i+1)
		}
	}
	if n := p.with.job.Through.Requests(); n < 120 {
		t.Errorf("%d requests were counted", n)
	}
}

// TestCarriedClientGoes: a client that goes away ends its request, and frees its
// place.
func TestCarriedClientGoes(t *testing.T) {
	p := newRelays(t)
	p.warm(t)
	p.set(false) // it says nothing
	for range 20 {
		c := p.with.dial(t, "tcp")
		c.write(request("GET", "/silent"))
		time.Sleep(time.Millisecond)
		c.leave()
	}
	servertest.Eventually(t, "all connections are gone", func() bool { return p.with.srv.lane.Open() == 0 })
	p.set(false, okHead+"Content-Length: 5\r\n\r\nhello")
	if got := p.with.dial(t, "tcp").get("/a"); got != "hello" {
		t.Error(got)
	}
}

// TestCarriedDrain: a request under way when the server drains is answered, and
// its connection closed.
func TestCarriedDrain(t *testing.T) {
	t.Parallel() // it mostly waits
	p := newRelays(t)
	p.warm(t)
	p.set(false, append([]string{okHead + "Content-Length: 25\r\n\r\n"}, strings.Split(strings.Repeat("x", 25), "")...)...)
	c := p.with.dial(t, "tcp")
	c.write(request("GET", "/a"))
	servertest.Eventually(t, "the origin is asked", func() bool { return len(p.requests()) > 0 })
	p.with.cancel()
	resp, body := c.answer("GET")
	if len(body) != 25 {
		t.Errorf("%v, %q", resp.Header, body)
	}
	if _, err := c.br.ReadByte(); err != io.EOF { // its header may have gone out before
		t.Errorf("the connection stays open: %v", err)
	}
	if err := p.with.wait(); err != nil {
		t.Error(err)
	}
}

// Random answers of an upstream lead to the same, whoever takes them.
func FuzzCarried(f *testing.F) {
	for _, a := range originAnswers {
		f.Add([]byte(strings.Join(a.pieces, "")[:min(len(strings.Join(a.pieces, "")), 4000)]), uint8(0))
	}
	p := newRelays(f, dress(f))
	f.Fuzz(func(t *testing.T, answer []byte, cut uint8) {
		at := min(int(cut), max(0, strings.Index(string(answer), "\r\n\r\n"))) // how much comes of half a body hangs on the pieces
		p.set(true, string(answer[:at]), string(answer[at:]))
		p.both(t, "tcp", "GET", request("GET", "/a", "Origin: https://b.example"))
	})
}
