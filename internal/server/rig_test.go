package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/lane"
	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/meter"
	"millrace/internal/process/servertest"
	"millrace/internal/route/site"
	"millrace/internal/upstream"
	"millrace/internal/wire/send"
)

// patience is how long a test waits for what must happen. Only a failing test
// waits that long.
const patience = 20 * time.Second

// rig is a running server on all transports.
type rig struct {
	tb     testing.TB
	srv    *Server
	meters *meter.Meters
	job    *meter.Job
	setup  Setup
	log    *lockedBuffer  // the error log
	pool   *upstream.Pool // of a relay
	cancel context.CancelFunc
	ended  chan error

	tcp, secure, unix string
	clientTLS         *tls.Config
}

// lockedBuffer is an io.Writer to read while it is written to.
type lockedBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = append(b.b, p...)
	return len(p), nil
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.b)
}

// plan is what a test wants of its rig; the zero value will do.
type plan struct {
	limits  Options
	lane    lane.Options
	access  *accesslog.Log
	handler http.Handler // nil: newPages()
	plain   *site.Table  // nil: handler for every host, as site 1
	secure  *site.Table  // nil: the same as site 2
	meters  *meter.Meters
}

func everyHost(id uint64, h http.Handler, j *meter.Job) *site.Table {
	t := site.NewTable()
	t.Add(site.New(id, []*site.Route{{Pattern: "/", Handler: h, Job: j}}), nil)
	return t
}

func start(tb testing.TB, p plan) *rig {
	tb.Helper()
	r := &rig{tb: tb, meters: p.meters, log: &lockedBuffer{}, ended: make(chan error, 1)}
	if r.meters == nil {
		r.meters = meter.New()
	}
	r.job = r.meters.Job("test")
	if p.handler == nil {
		p.handler = newPages()
	}
	if p.plain == nil {
		p.plain = everyHost(1, p.handler, r.job)
	}
	if p.secure == nil {
		p.secure = everyHost(2, p.handler, r.job)
	}
	dir, err := os.MkdirTemp("", "millrace") // t.TempDir may be too long for a socket
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	r.unix = filepath.Join(dir, "s")
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	r.clientTLS = writeCert(tb, cert, key, "first")
	r.setup = Setup{
		Listen: []string{"127.0.0.1:0", "unix:" + r.unix},
		TLS:    TLSOptions{Listen: []string{"127.0.0.1:0"}, Cert: cert, Key: key},
		Limits: p.limits,
		Log:    p.access,
		Plain:  p.plain,
		Secure: p.secure,
	}
	r.srv, err = New(r.setup, p.lane, r.meters, slog.New(slog.NewTextHandler(r.log, nil)))
	if err != nil {
		tb.Fatal(err)
	}
	for _, u := range r.srv.Addrs() {
		if a, ok := strings.CutPrefix(u, "http://"); ok {
			r.tcp = a
		}
		if a, ok := strings.CutPrefix(u, "https://"); ok {
			r.secure = a
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- r.srv.Run(ctx) }() // the cleanup waits for it
	tb.Cleanup(func() {
		r.srv.Close()
		select {
		case <-r.ended:
		case <-time.After(patience):
			tb.Error("Run does not return after Close")
		}
		cancel()
	})
	return r
}

// wait waits for the end of Run.
func (r *rig) wait() error {
	r.tb.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
		return err
	case <-time.After(patience):
		r.tb.Fatal("Run does not return")
		return nil
	}
}

// transports are the ways to speak HTTP/1.1.
var transports = []string{"tcp", "unix", "tls"}

func overAll(t *testing.T, f func(t *testing.T, transport string)) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) { f(t, transport) })
	}
}

// client is one connection, seen by a client.
type client struct {
	net.Conn
	tb testing.TB
	br *bufio.Reader
}

func (r *rig) dial(tb testing.TB, transport string) *client {
	tb.Helper()
	nc, err := r.tryDial(transport)
	if err != nil {
		tb.Fatal(err)
	}
	c := &client{Conn: nc, tb: tb, br: bufio.NewReader(nc)}
	tb.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return c
}

func (r *rig) tryDial(transport string) (net.Conn, error) {
	switch transport {
	case "tcp":
		return net.Dial("tcp", r.tcp)
	case "unix":
		return net.Dial("unix", r.unix)
	}
	return tls.Dial("tcp", r.secure, r.clientTLS)
}

// write sends text as it is.
func (c *client) write(text string) {
	c.tb.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.tb.Fatalf("write: %v", err)
	}
}

// answer reads the answer to a request with that method.
func (c *client) answer(method string) (*http.Response, string) {
	c.tb.Helper()
	resp, body, err := c.tryAnswer(method)
	if err != nil {
		c.tb.Fatalf("read an answer: %v", err)
	}
	return resp, body
}

func (c *client) tryAnswer(method string) (*http.Response, string, error) {
	resp, err := http.ReadResponse(c.br, &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return resp, string(body), err
}

// get asks for a path and wants status 200; it returns the body.
func (c *client) get(path string) string {
	c.tb.Helper()
	c.write(request("GET", path))
	resp, body := c.answer("GET")
	if resp.StatusCode != http.StatusOK {
		c.tb.Fatalf("GET %s: %s", path, resp.Status)
	}
	return body
}

// leave closes the connection so that the server is told of it at once: with a
// reset, or as the only user of a UNIX socket.
func (c *client) leave() {
	below := c.Conn
	if tc, ok := below.(*tls.Conn); ok {
		below = tc.NetConn()
	}
	if tcp, ok := below.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = below.Close()
}

// ends reports whether the server closes the connection, in time.
func (c *client) ends() bool {
	_, err := c.br.ReadByte()
	var timeout net.Error
	return err != nil && (!errors.As(err, &timeout) || !timeout.Timeout())
}

func request(method, path string, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: a.example\r\n", method, path)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	return b.String() + "\r\n"
}

// fast and slow are the answers given by the fast lane and by jobs so far.
func (r *rig) fast() int { return int(r.job.Fast.Requests()) }
func (r *rig) slow() int { return int(r.job.Slow.Requests() + r.job.Through.Requests()) }

// writeCert makes a certificate for 127.0.0.1 and returns what a client needs.
func writeCert(tb testing.TB, cert, key, name string) *tls.Config {
	tb.Helper()
	c := servertest.Make(tb, name)
	servertest.Write(tb, c, cert, key)
	return &tls.Config{RootCAs: servertest.Pool(c), MinVersion: tls.VersionTLS12}
}

var lastChange = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

// page is a finished answer.
func page(body string) *send.Answer {
	tag := `"` + strconv.Itoa(len(body)) + `"`
	return &send.Answer{
		Header: http.Header{
			"Content-Type":   {"text/plain; charset=utf-8"},
			"Content-Length": {strconv.Itoa(len(body))},
			"Accept-Ranges":  {"bytes"},
			"Etag":           {tag},
			"Last-Modified":  {lastChange.Format(http.TimeFormat)},
			"Cache-Control":  {"no-cache"},
		},
		Body: []byte(body), Size: int64(len(body)), ETag: tag, LastModified: lastChange,
	}
}

// filePage is an answer from a file.
func filePage(tb testing.TB, body string) *send.Answer {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "file")
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		tb.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	a := page(body)
	a.Body, a.File = nil, send.NewFile(f)
	tb.Cleanup(a.File.Release)
	return a
}

// offering serves an answer and offers it to the lane.
func offering(a *send.Answer, rule lane.Rule) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		lane.Offer(r, a, rule)
		send.Serve(w, r, a)
	}
}

const (
	smallBody = "a small page\n"
	pathBig   = "/big"
	pathHuge  = "/huge"
)

var (
	bigBody  = strings.Repeat("0123456789abcdef", 3<<10) // 48 KiB: written with writev
	hugeBody = strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB: more than a UNIX socket's buffer
)

// newPages is a site with something of everything. What is under /hot, /big,
// /huge, /lang, /coding and /query is offered to the lane, the rest is not.
func newPages() http.Handler {
	coded := map[string]*send.Answer{"": page("plain\n"), "br": page("brotli...\n"), "gzip": page("gzip..\n")}
	mux := http.NewServeMux()
	mux.Handle("/hot", offering(page(smallBody), lane.Rule{}))
	mux.Handle(pathBig, offering(page(bigBody), lane.Rule{}))
	mux.Handle(pathHuge, offering(page(hugeBody), lane.Rule{}))
	mux.HandleFunc("/coding", func(w http.ResponseWriter, r *http.Request) {
		accepted := r.Header.Get("Accept-Encoding")
		best := ""
		for _, c := range []string{"gzip", "br"} {
			if strings.Contains(accepted, c) && !strings.Contains(accepted, ";") {
				best = c
			}
		}
		offering(coded[best], lane.Rule{VaryOn: []string{"Accept-Encoding"}})(w, r)
	})
	langs := map[string]*send.Answer{}
	for _, l := range []string{"", "de", "fr"} {
		langs[l] = page("language " + l + "\n")
	}
	mux.HandleFunc("/lang", func(w http.ResponseWriter, r *http.Request) {
		a := langs[r.Header.Get("Accept-Language")]
		if a == nil {
			a = langs[""]
		}
		offering(a, lane.Rule{VaryOn: []string{"Accept-Language"}})(w, r)
	})
	mux.HandleFunc("/query", func(w http.ResponseWriter, r *http.Request) {
		offering(page("query "+r.URL.RawQuery+"\n"), lane.Rule{WithQuery: true})(w, r)
	})
	mux.Handle("/api/", newAPI())
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s\n", r.Method, r.RequestURI, r.Host, r.Header.Get("Cookie"))
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %d %q %t\n", r.Method, len(body), body, err == nil)
	})
	mux.HandleFunc("/unread", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "unread\n") })
	mux.HandleFunc("/silent", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("a secret") })
	mux.HandleFunc("/latepanic", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, bigBody)
		panic("the late cause")
	})
	return mux
}

// teach makes the hot pages hot on a transport's scope.
func (r *rig) teach(tb testing.TB, transport string, paths ...string) {
	tb.Helper()
	c := r.dial(tb, transport)
	for _, p := range paths {
		c.get(p)
	}
	_ = c.Close()
}
