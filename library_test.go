package millrace_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"millrace"
	"millrace/cache"
	"millrace/internal/process/servertest"
	"millrace/static"
)

// serve runs a handler by Serve until the test ends, and returns its URL.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	ln, err := millrace.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- millrace.Serve(ln, h) }()
	t.Cleanup(func() {
		_ = ln.Close()
		http.DefaultClient.CloseIdleConnections()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

// run runs a server until the test ends.
func run(t *testing.T, c millrace.Config) *millrace.Server {
	t.Helper()
	s, err := millrace.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func ask(t *testing.T, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func files(t *testing.T) *static.Handler {
	t.Helper()
	h, err := static.New(fstest.MapFS{"a.txt": {Data: []byte("a file")}, "b.txt": {Data: []byte("another")}}, static.Options{NoCompress: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// counted counts the requests that reach h.
func counted(h http.Handler, n *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h.ServeHTTP(w, r)
	})
}

// TestPublic: files inside a program's router are hot if the program says so,
// and never otherwise.
func TestPublic(t *testing.T) {
	around := map[string]struct {
		wrap func(http.Handler) http.Handler
		hot  bool
	}{
		"not declared":    {func(h http.Handler) http.Handler { return h }, false},
		"declared inside": {millrace.Public, true},
		"with a header": {func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Frame-Options", "DENY")
				millrace.Public(h).ServeHTTP(w, r)
			})
		}, false},
		"rewritten": {func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rec := httptest.NewRecorder()
				millrace.Public(h).ServeHTTP(rec, r)
				_, _ = io.WriteString(w, strings.ToUpper(rec.Body.String()))
			})
		}, false},
		"another header for the job": {func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r = r.Clone(r.Context())
				r.Header.Set("Accept-Encoding", "br")
				millrace.Public(h).ServeHTTP(w, r)
			})
		}, true}, // this file has no encodings: the header had no say
		"in time": {func(h http.Handler) http.Handler {
			return http.TimeoutHandler(millrace.Public(h), time.Minute, "late")
		}, true},
	}
	for name, c := range around {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			url := serve(t, counted(c.wrap(files(t)), &n))
			_, want := ask(t, url+"/a.txt")
			for range 4 {
				if _, got := ask(t, url+"/a.txt"); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			if hot := n.Load() < 5; hot != c.hot {
				t.Errorf("the program was asked %d times of 5, want hot = %v", n.Load(), c.hot)
			}
		})
	}
}

// TestPublicKeepsApart: what a router may look at tells hot answers apart.
func TestPublicKeepsApart(t *testing.T) {
	h := files(t)
	var n atomic.Int32
	url := serve(t, counted(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" || r.Header.Get("X-Tenant") != "" || r.URL.Query().Has("b") {
			r = r.Clone(r.Context())
			r.URL.Path = "/b.txt"
		}
		millrace.Public(h).ServeHTTP(w, r)
	}), &n))
	for range 3 {
		for _, c := range []struct{ path, field, value, want string }{
			{"/a.txt", "", "", "a file"}, {"/a.txt?b", "", "", "another"}, {"/a.txt", "Origin", "https://other.example", "another"}, {"/a.txt", "X-Tenant", "b", "another"},
		} {
			var header []string
			if c.field != "" {
				header = []string{c.field, c.value}
			}
			if _, got := ask(t, url+c.path, header...); got != c.want {
				t.Errorf("%s with %q: %q, want %q", c.path, header, got, c.want)
			}
		}
	}
	if n.Load() == 12 {
		t.Error("nothing was hot")
	}
}

// TestSameAsNetHTTP: the router under Serve sees and says what it does under
// net/http.
func TestSameAsNetHTTP(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	mux.HandleFunc("/see/", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.RequestURI+" "+r.URL.Path+" "+r.Proto+" "+r.Header.Get("X-A"))
	})
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("on purpose") })
	peer := httptest.NewServer(mux)
	defer peer.Close()
	url := serve(t, mux)
	for _, path := range []string{"/see/x", "/see/../see/y", "/see/a%2Fb?q=1", "/see//z", "/none", "/see"} {
		a, textA := ask(t, peer.URL+path, "X-A", "1")
		b, textB := ask(t, url+path, "X-A", "1")
		if a.StatusCode != b.StatusCode || textA != textB || a.Header.Get("Location") != b.Header.Get("Location") {
			t.Errorf("%s: %d %q under net/http, %d %q here", path, a.StatusCode, textA, b.StatusCode, textB)
		}
	}
	resp, err := http.Post(url+"/echo", "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != 1<<20 || err != nil {
		t.Errorf("%d bytes came back, %v", n, err)
	}
}

// TestConfigs: what is wrong is said, all at once, in the program's terms.
func TestConfigs(t *testing.T) {
	nothing := http.NotFoundHandler()
	route := func(r millrace.Route) millrace.Config {
		return millrace.Config{Sites: []millrace.Site{{Routes: map[string]millrace.Route{"/": r}}}}
	}
	for _, c := range []struct {
		config millrace.Config
		want   string
	}{
		{millrace.Config{}, "no sites"},
		{route(millrace.Route{}), "no job"},
		{route(millrace.Route{Handler: nothing, Redirect: "/x"}), "2 jobs"},
		{route(millrace.Route{Handler: nothing, Files: fstest.MapFS{}}), "2 jobs"},
		{route(millrace.Route{Static: &static.Options{Root: "/no/such"}}), "there is no folder"},
		{route(millrace.Route{Proxy: []string{"ftp://x"}}), "ftp"},
		{millrace.Config{YAML: "lisen: x"}, "Config.YAML:1:1"},
		{millrace.Config{YAML: ":", Sites: route(millrace.Route{Handler: nothing}).Sites}, "Config.YAML:1"},
		{millrace.Config{Sites: []millrace.Site{{Routes: map[string]millrace.Route{"x": {Handler: nothing}}}}}, "begins with"},
		{millrace.Config{TLS: millrace.TLS{Listen: []string{"127.0.0.1:0"}}, Sites: route(millrace.Route{Handler: nothing}).Sites}, "without a certificate"},
	} {
		s, err := millrace.New(c.config)
		if err == nil {
			_ = s.Close()
			t.Errorf("taken, want %q", c.want)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %q", err, c.want)
		}
	}
}

// TestReload: a handler is replaced, its hot answers with it, and no connection
// is dropped.
func TestReload(t *testing.T) {
	ln, err := millrace.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := func(h http.Handler) millrace.Config {
		return millrace.Config{
			Listeners: []net.Listener{ln},
			Sites:     []millrace.Site{{Hosts: []string{"127.0.0.1"}, Routes: map[string]millrace.Route{"/": {Handler: h}}}},
			YAML:      "sites: [{hosts: [127.0.0.1], routes: {/static: {respond: from yaml}}}]",
		}
	}
	a, b := fstest.MapFS{"x.txt": {Data: []byte("a")}}, fstest.MapFS{"x.txt": {Data: []byte("b")}}
	open := func(fsys fstest.MapFS) http.Handler {
		h, err := static.New(fsys, static.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		return millrace.Public(h)
	}
	s := run(t, config(open(a)))
	url := "http://" + ln.Addr().String()
	for range 3 {
		if _, got := ask(t, url+"/x.txt"); got != "a" {
			t.Fatal(got)
		}
	}
	if _, got := ask(t, url+"/static"); got != "from yaml" {
		t.Error(got)
	}
	if err := s.Reload(config(open(b))); err != nil {
		t.Fatal(err)
	}
	if _, got := ask(t, url+"/x.txt"); got != "b" {
		t.Errorf("after the reload: %q", got)
	}
	if err := s.Reload(millrace.Config{}); err == nil {
		t.Error("a config without sites was taken")
	}
	if _, got := ask(t, url+"/x.txt"); got != "b" {
		t.Errorf("after a reload that failed: %q", got)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("it ran twice")
	}
}

// TestClose: a server that never ran lets everything go.
func TestClose(t *testing.T) {
	s, err := millrace.New(millrace.Config{
		Listen: []string{"127.0.0.1:0"},
		Sites:  []millrace.Site{{Routes: map[string]millrace.Route{"/": {Files: fstest.MapFS{"index.html": {Data: []byte("x")}}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimPrefix(s.Addrs()[0], "http://")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal("the address is still taken:", err)
	}
	_ = ln.Close()
}

// TestTLSListener: a listener that speaks TLS is no plain one.
func TestTLSListener(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cert := servertest.Make(t, "127.0.0.1", "127.0.0.1")
	run(t, millrace.Config{
		Listeners: []net.Listener{tls.NewListener(plain, &tls.Config{Certificates: []tls.Certificate{cert}})},
		Sites:     []millrace.Site{{Routes: map[string]millrace.Route{"/": {Handler: http.NotFoundHandler()}}}},
		ErrorLog:  slog.New(slog.NewTextHandler(locked{&mu, &log}, nil)),
	})
	if resp, err := http.Get("https://" + plain.Addr().String()); err == nil {
		resp.Body.Close()
		t.Error("it was answered")
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), "speaks TLS itself") {
		t.Errorf("the log says %q", log.String())
	}
}

type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// TestJobs: cache and images need nothing but their options.
func TestJobs(t *testing.T) {
	var n atomic.Int32
	api := httptest.NewServer(counted(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.WriteString(w, "slow")
	}), &n))
	defer api.Close()
	o := cache.To(api.URL)
	s := run(t, millrace.Config{
		Listen: []string{"127.0.0.1:0"},
		Sites: []millrace.Site{{Routes: map[string]millrace.Route{
			"/":      {Cache: &o},
			"/raw/":  {Proxy: []string{api.URL}},
			"/file/": {Static: &static.Options{Root: "examples/site"}},
		}}},
	})
	url := s.Addrs()[0]
	for range 3 {
		if _, got := ask(t, url+"/x"); got != "slow" {
			t.Error(got)
		}
	}
	if n.Load() != 1 {
		t.Errorf("the API was asked %d times", n.Load())
	}
	if _, got := ask(t, url+"/raw/x"); got != "slow" {
		t.Error(got)
	}
	if resp, _ := ask(t, url+"/file/"); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

// A program that contains this module may serve the default mux to the public:
// nothing here registers a route with it, as net/http/pprof would by being imported.
func TestDefaultServeMuxStaysEmpty(t *testing.T) {
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/vars", "/"} {
		if _, pattern := http.DefaultServeMux.Handler(httptest.NewRequest("GET", path, nil)); pattern != "" {
			t.Errorf("%s is %q of the default mux", path, pattern)
		}
	}
}
