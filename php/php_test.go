package php

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/fcgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/upstream/spool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder makes one with these files.
func folder(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("<?php the source of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// socket is a short path for one.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "php")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve starts the job over HTTP. app plays php-fpm, through the standard
// library's server of FastCGI; nil for nobody.
func serve(t *testing.T, dir string, o Options, app http.HandlerFunc) *httptest.Server {
	t.Helper()
	return serveIn(t, nil, dir, o, app)
}

// serveIn is serve with a room for bodies.
func serveIn(t *testing.T, room *spool.Room, dir string, o Options, app http.HandlerFunc) *httptest.Server {
	t.Helper()
	path := socket(t)
	if app != nil {
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		go func() { _ = fcgi.Serve(ln, app) }() // ends with the listener
	}
	if len(o.To) == 0 {
		o.To = []string{path}
	}
	return front(t, room, dir, o)
}

func front(t *testing.T, room *spool.Room, dir string, o Options) *httptest.Server {
	t.Helper()
	files := http.FileServer(http.Dir(dir))
	h, err := Open(o, Deps{
		Files:    http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Who", "files"); files.ServeHTTP(w, r) }),
		Static:   Static{Root: dir, Hides: func(name string) bool { return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") }},
		ErrorLog: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Room:     room,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// get is an answer: its status, who gave it, and its body.
func get(t *testing.T, url string, change ...func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(r)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s: %v", url, err)
	}
	return resp, string(body)
}

// Which file answers, for every kind of path; and no source is ever shown.
func TestWhoAnswers(t *testing.T) {
	dir := folder(t, "index.php", "a.php", "a.txt", "page/index.html", "app/index.php", "app/index.html", "UPPER.PHP", "x.phtml", ".hidden.php", "b.php~", "up/evil.php", "up/i.png")
	srv := serve(t, dir, Options{Except: []string{"/up/"}}, func(w http.ResponseWriter, r *http.Request) {
		env := fcgi.ProcessEnv(r)
		fmt.Fprintf(w, "%s|%s", strings.TrimPrefix(env["SCRIPT_FILENAME"], dir), strings.TrimPrefix(env["PATH_TRANSLATED"], dir))
	})
	const frontPage = "/index.php|"
	for path, want := range map[string]string{
		"/":                     frontPage,
		"/a.php":                "/a.php|",
		"/a.php/":               "/a.php|",
		"/a.php/b/c.php":        "/a.php|/b/c.php",
		"/a.txt":                "FILE",
		"/a.txt/x.php":          frontPage,
		"/up/i.png/x.php":       frontPage, // a picture is no program
		"/up/i.png":             "FILE",
		"/up/evil.php":          frontPage,
		"/page/":                "FILE",
		"/page":                 "301 ./page/",
		"/app":                  "301 ./app/",
		"/app/":                 "/app/index.php|",
		"/missing":              frontPage,
		"/missing.php":          frontPage,
		"/UPPER.PHP":            frontPage,
		"/x.phtml":              frontPage,
		"/.hidden.php":          frontPage,
		"/b.php~":               frontPage,
		"/a.php%00.txt":         frontPage,
		"/..%2fa.php":           frontPage,
		"/a.txt%5cx.php":        frontPage,
		"/up":                   frontPage,
		"/a.txt?x=/y.php":       "FILE",
		"/index.php/wp-json/v2": "/index.php|/wp-json/v2",
	} {
		resp, body := get(t, srv.URL+path)
		switch {
		case resp.StatusCode == http.StatusMovedPermanently:
			body = "301 " + resp.Header.Get("Location")
		case resp.Header.Get("Who") == "files" && resp.StatusCode == 200:
			body = "FILE"
		}
		if body != want || strings.Contains(body, "source of") {
			t.Errorf("%s: %d %q, want %q", path, resp.StatusCode, body, want)
		}
	}
}

// TestOnly: what an expression does not name is no program, whichever way a request
// takes to it, and its source is not shown.
func TestOnly(t *testing.T) {
	dir := folder(t, "index.php", "a.php", "app/index.php", "up/evil.php", "x.txt")
	for only, want := range map[string]map[string]string{
		`\.php$`: {
			"/": "/index.php|", "/a.php": "/a.php|", "/a.php/x": "/index.php|/a.php/x", "/up/evil.php/x": "/index.php|/up/evil.php/x",
			"/up/evil.php/": "/index.php|/up/evil.php/", "/app/": "/app/index.php|", "/a/b": "/index.php|/a/b",
		},
		`^/index\.php(/|$)`: {
			"/": "/index.php|", "/index.php/a": "/index.php|/a", "/a.php": "/index.php|/a.php", "/up/evil.php": "/index.php|/up/evil.php",
			"/app/": "/index.php|/app/", "/app/index.php": "/index.php|/app/index.php", "/index.php": "/index.php|", "/x.txt": "FILE",
		},
		`^/app/`: {"/a.php": "404", "/index.php": "404", "/": "FILE", "/app/": "/app/index.php|", "/missing": "FILE"}, // without a front controller
	} {
		srv := serve(t, dir, Options{Only: only, Front: "index.php{path}"}, func(w http.ResponseWriter, r *http.Request) {
			env := fcgi.ProcessEnv(r)
			fmt.Fprintf(w, "%s|%s", strings.TrimPrefix(env["SCRIPT_FILENAME"], dir), strings.TrimPrefix(env["PATH_TRANSLATED"], dir))
		})
		for path, want := range want {
			resp, body := get(t, srv.URL+path)
			switch {
			case resp.Header.Get("Who") == "files":
				body = "FILE"
			case resp.StatusCode != http.StatusOK:
				body = strconv.Itoa(resp.StatusCode)
			}
			if strings.TrimSuffix(body, "/") != strings.TrimSuffix(want, "/") {
				t.Errorf("%s, %s: %q, want %q", only, path, body, want)
			}
		}
	}
	for _, o := range []Options{{Only: "("}, {Only: strings.Repeat("a", 2000)}, {Front: "a.txt{path}"}} {
		if len(o.Check()) != 2 { // and no address
			t.Errorf("%+v: %v", o, o.Check())
		}
	}
}

// Without a front controller, a program that is not run is not shown either,
// whatever the files' own handler would do.
func TestNoSource(t *testing.T) {
	dir := folder(t, "UPPER.PHP", "x.phtml", "lib.inc", "up/evil.php", "a.txt")
	srv := serve(t, dir, Options{Front: off, Except: []string{"/up/"}}, func(http.ResponseWriter, *http.Request) { t.Error("it was run") })
	for _, path := range []string{"/UPPER.PHP", "/x.phtml", "/x.phtml/", "/x.phtml/a.css", "/lib.inc", "/up/evil.php", "/up/evil.php/x.png"} {
		if resp, body := get(t, srv.URL+path); resp.StatusCode != http.StatusNotFound || strings.Contains(body, "source") {
			t.Errorf("%s: %d %q", path, resp.StatusCode, body)
		}
	}
	if resp, _ := get(t, srv.URL+"/a.txt"); resp.Header.Get("Who") != "files" {
		t.Error("a text is not shown")
	}
}

// A request arrives as CGI has it, and what could be taken for something else
// does not.
func TestParams(t *testing.T) {
	dir := folder(t, "index.php")
	srv := serve(t, dir, Options{Params: map[string]string{"APP_ENV": "prod"}}, func(w http.ResponseWriter, r *http.Request) {
		env := fcgi.ProcessEnv(r) // without what the standard library reads itself
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s %q %q %q %q %q", r.Method, env["DOCUMENT_ROOT"], r.URL.RawQuery, env["APP_ENV"],
			r.Header.Get("Cookie"), r.Header.Get("Proxy"), r.Header.Get("X-Real"), r.Header.Get("X-Two"), body)
	})
	_, got := get(t, srv.URL+"/some%20thing?a=b%20c&d", func(r *http.Request) {
		r.Method = http.MethodPost
		r.Body = io.NopCloser(strings.NewReader("hello")) // without a length
		r.Header = http.Header{"Cookie": {"a=1; b=2"}, "Proxy": {"http://evil"}, "X_Real": {"evil"}, "X-Two": {"1", "2"}}
	})
	want := fmt.Sprintf("POST %s a=b%%20c&d prod %q %q %q %q %q", dir, "a=1; b=2", "", "", "1, 2", "hello")
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// app plays a php-fpm that says the same text to everybody.
func says(t *testing.T, head string, ends bool) string {
	t.Helper()
	path := socket(t)
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = ln.Close(); <-done })
	go func() { // ends with the listener
		defer close(done)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			b := []byte{1, 6, 0, 1, byte(len(head) >> 8), byte(len(head)), 0, 0}
			b = append(b, head...)
			if ends {
				b = append(b, 1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
			}
			_, _ = nc.Write(b)
			_ = nc.(*net.UnixConn).CloseWrite()
			_, _ = io.Copy(io.Discard, nc)
			_ = nc.Close()
		}
	}()
	return path
}

// What a script may say, and what it must not.
func TestAnswers(t *testing.T) {
	dir := folder(t, "index.php")
	const broken = "BROKEN"
	for name, c := range map[string]struct {
		said string
		ends bool
		want string
	}{
		"plain":           {"Content-Type: text/plain\r\n\r\nhello", true, "200 hello"},
		"bare newlines":   {"Content-Type: text/plain\n\nhello", true, "200 hello"},
		"status":          {"Status: 404 Not Found\r\n\r\nnone", true, "404 none"},
		"status alone":    {"Status: 500\r\n\r\n", true, "500 "},
		"location":        {"Location: /x\r\n\r\n", true, "302 "},
		"length":          {"Content-Length: 5\r\n\r\nhello", true, "200 hello"},
		"more than said":  {"Content-Length: 4\r\n\r\nhello", true, "200 hell"},
		"less than said":  {"Content-Length: 6\r\n\r\nhello", true, broken},
		"no end":          {"Content-Type: text/plain\r\n\r\nhello", false, broken},
		"nothing":         {"", false, "502"},
		"half a head":     {"Content-Type: te", false, "502"},
		"no head":         {"hello, world", true, "502"},
		"a bad status":    {"Status: 99 Little\r\n\r\n", true, "502"},
		"a word":          {"Status: fine\r\n\r\n", true, "502"},
		"two lengths":     {"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", true, "502"},
		"a bad length":    {"Content-Length: -1\r\n\r\nab", true, "502"},
		"an endless head": {"X: " + strings.Repeat("x", 60000) + "\r\nY: " + strings.Repeat("y", 5000) + "\r\n\r\n", true, "502"},
	} {
		srv := front(t, nil, dir, Options{To: []string{says(t, c.said, c.ends)}, Timeout: 10 * time.Second})
		resp, err := http.DefaultTransport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/", nil))
		got := broken
		if err == nil {
			body, bad := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if bad == nil {
				got = fmt.Sprintf("%d %s", resp.StatusCode, body)
			}
		}
		if c.want == "502" {
			got = strings.TrimSpace(got)[:3]
		}
		if got != c.want {
			t.Errorf("%s: %q (%v), want %q", name, got, err, c.want)
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}
}

// php-fpm that is down is a 502, one that is silent a 504, and one that is busy a
// 503; the files are served meanwhile.
func TestFaults(t *testing.T) {
	dir := folder(t, "index.php", "a.txt")
	down := serve(t, dir, Options{}, nil)
	if resp, _ := get(t, down.URL+"/"); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("down: %d", resp.StatusCode)
	}
	if resp, _ := get(t, down.URL+"/a.txt"); resp.StatusCode != http.StatusOK {
		t.Errorf("a file: %d", resp.StatusCode)
	}
	release := make(chan struct{})
	defer close(release)
	silent := serve(t, dir, Options{Timeout: 300 * time.Millisecond, Connections: 1, Wait: 10 * time.Millisecond}, func(http.ResponseWriter, *http.Request) { <-release })
	first := make(chan int, 1)
	go func() {
		resp, _ := get(t, silent.URL+"/")
		first <- resp.StatusCode
	}()
	for busy := false; !busy; { // until the first has the place
		resp, _ := get(t, silent.URL+"/")
		busy = resp.StatusCode == http.StatusServiceUnavailable
		if busy && resp.Header.Get("Retry-After") == "" {
			t.Error("busy without Retry-After")
		}
		select {
		case status := <-first:
			if status != http.StatusGatewayTimeout && status != http.StatusServiceUnavailable {
				t.Errorf("silent: %d", status)
			}
			return
		default:
		}
	}
	if status := <-first; status != http.StatusGatewayTimeout {
		t.Errorf("silent: %d", status)
	}
}

// A client that uploads or downloads slowly has no place of php-fpm's.
func TestSlowClientsHoldNoPlace(t *testing.T) {
	dir := folder(t, "index.php")
	var running atomic.Int64
	srv := serve(t, dir, Options{Connections: 1, Wait: 20 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		if r.URL.Path == "/large" {
			for range 200 {
				_, _ = w.Write(make([]byte, 100_000))
			}
			return
		}
		_, _ = io.WriteString(w, "hello")
	})
	addr := strings.TrimPrefix(srv.URL, "http://")
	dial := func(text string) net.Conn {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		if _, err := io.WriteString(nc, text); err != nil {
			t.Fatal(err)
		}
		return nc
	}
	dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhalf")
	reader := dial("GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := bufio.NewReader(reader).Peek(1); err != nil {
		t.Fatal(err)
	}
	if resp, body := get(t, srv.URL+"/"); resp.StatusCode != 200 || body != "hello" {
		t.Errorf("a good client: %d %q", resp.StatusCode, body)
	}
	if n := running.Load(); n != 0 {
		t.Errorf("%d scripts still run", n)
	}
}

// unread is a ResponseWriter whose client takes nothing, as over HTTP/2 without a window.
type unread struct {
	*httptest.ResponseRecorder
	writes  chan<- struct{}
	release <-chan struct{}
}

func (u *unread) Write(p []byte) (int, error) {
	select {
	case u.writes <- struct{}{}:
	default:
	}
	<-u.release
	return len(p), nil
}

// Nor has one that takes nothing at all, whether it comes in one go or not.
func TestClientsThatTakeNothingHoldNoPlace(t *testing.T) {
	dir := folder(t, "index.php")
	srv := serve(t, dir, Options{Connections: 1, Wait: 20 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(make([]byte, 1_000_000))
			return
		}
		_, _ = io.WriteString(w, "hello")
		if r.URL.Path == "/pieces" {
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond)
			_, _ = io.WriteString(w, "hello")
		}
	})
	for _, path := range []string{"/large", "/pieces", "/"} {
		writes, release := make(chan struct{}, 1), make(chan struct{})
		var slow sync.WaitGroup
		slow.Go(func() {
			srv.Config.Handler.ServeHTTP(&unread{httptest.NewRecorder(), writes, release}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		})
		<-writes
		got := make(chan string, 1)
		slow.Go(func() {
			_, body := get(t, srv.URL+"/")
			got <- body
		})
		select {
		case body := <-got:
			if body != "hello" {
				t.Errorf("%s: a good client: %q", path, body)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: a good client waits for one that takes nothing", path)
		}
		close(release)
		slow.Wait()
	}
}

// A large answer is whole, through memory and the file behind it.
func TestLargeAnswer(t *testing.T) {
	dir := folder(t, "index.php")
	srv := serve(t, dir, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 20_000 {
			fmt.Fprintf(w, "%099d\n", i)
		}
	})
	_, body := get(t, srv.URL+"/")
	lines := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	if len(lines) != 20_000 || lines[19_999] != fmt.Sprintf("%099d", 19_999) || lines[7_777] != fmt.Sprintf("%099d", 7_777) {
		t.Errorf("%d lines of %d bytes", len(lines), len(body))
	}
}

// TestRoom: all bodies share a room. Where it is full, an upload is refused, and a
// large answer comes as its client reads; nothing is left behind.
func TestRoom(t *testing.T) {
	const large = 1 << 20
	dir := folder(t, "index.php")
	room := spool.NewRoom(spool.Options{Memory: 1, Disk: 1, Folder: t.TempDir()}, slog.New(slog.DiscardHandler))
	srv := serveIn(t, room, dir, Options{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, large))
	})
	if resp, body := get(t, srv.URL+"/"); resp.StatusCode != 200 || len(body) != large {
		t.Errorf("the answer: %d, %d bytes", resp.StatusCode, len(body))
	}
	resp, _ := get(t, srv.URL+"/", func(r *http.Request) {
		r.Method, r.Body = http.MethodPost, io.NopCloser(strings.NewReader("hello"))
	})
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the upload: %d", resp.StatusCode)
	}
	srv.Close()
	if memory, disk := room.Used(); memory != 0 || disk != 0 {
		t.Errorf("%d bytes of memory and %d of disk are still taken", memory, disk)
	}
}
