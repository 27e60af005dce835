package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// startCache is `cache NAME ARG...`: start, with the verb cache.
func startCache(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: cache NAME [ARG...]")
	}
	startVerb(ts, "cache", args[0], args[1:])
}

type upstreamsKey struct{}

// fakeAPI is an HTTP API that a script has started: it answers with the method,
// the target, the body and how often it was asked for that target, and with the
// status and the header fields that it was told.
type fakeAPI struct {
	server *httptest.Server

	mu     sync.Mutex
	asked  map[string]int // requests by target
	total  int
	status int
	header http.Header
	files  map[string]string // bodies of some paths
}

// ServeHTTP implements [http.Handler].
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a client that breaks off gets no answer anyway
	f.mu.Lock()
	target := r.URL.RequestURI()
	f.asked[target]++
	f.total++
	n, status := f.asked[target], f.status
	maps.Copy(w.Header(), f.header)
	file, isFile := f.files[r.URL.Path]
	f.mu.Unlock()
	if isFile {
		_, _ = io.WriteString(w, file) // as below
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "{\"method\": %q, \"target\": %q, \"host\": %q, \"for\": %q, \"body\": %q, \"n\": %d}\n",
		r.Method, target, r.Host, r.Header.Get("X-Forwarded-For"), body, n) // what a client does not read is its own loss
}

// startUpstream is `upstream NAME [PATH FILE]...`: an API on a free port until
// the script ends; $NAME is its URL, $NAMEADDR its host and port. What stands in
// a FILE is the body of PATH, with $NAME as it is in the script.
func startUpstream(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args)%2 != 1 {
		ts.Fatalf("usage: upstream NAME [PATH FILE]...")
	}
	f := &fakeAPI{asked: map[string]int{}, status: http.StatusOK, files: map[string]string{}}
	for i := 1; i < len(args); i += 2 {
		f.files[args[i]] = ts.ReadFile(args[i+1])
	}
	f.server = httptest.NewServer(f)
	ts.Defer(f.server.Close)
	ts.Value(upstreamsKey{}).(map[string]*fakeAPI)[args[0]] = f
	ts.Setenv(args[0], f.server.URL)
	ts.Setenv(args[0]+"ADDR", strings.TrimPrefix(f.server.URL, "http://"))
	_, port, err := net.SplitHostPort(strings.TrimPrefix(f.server.URL, "http://"))
	ts.Check(err)
	ts.Setenv(args[0]+"PORT", port)
}

func upstreamNamed(ts *testscript.TestScript, name string) *fakeAPI {
	f := ts.Value(upstreamsKey{}).(map[string]*fakeAPI)[name]
	if f == nil {
		ts.Fatalf("no upstream %s was started", name)
	}
	return f
}

// tell NAME status N, tell NAME NAME: VALUE, or tell NAME down: how an upstream
// answers from now on. A header without a value is no longer sent.
func tell(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: tell NAME status N | down | 'FIELD: VALUE'")
	}
	f := upstreamNamed(ts, args[0])
	if args[1] == "down" {
		f.server.Close()
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if args[1] == "status" {
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		f.status = n
		return
	}
	name, value, ok := strings.Cut(strings.Join(args[1:], " "), ":")
	if !ok {
		ts.Fatalf("%q is not a header", args[1])
	}
	if f.header == nil {
		f.header = http.Header{}
	}
	f.header.Del(name)
	if value = strings.TrimSpace(value); value != "" {
		f.header.Set(name, value)
	}
}

// asked NAME N [TARGET] holds how many requests the upstream got, in all or for
// a target.
func asked(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: asked NAME N [TARGET]")
	}
	f := upstreamNamed(ts, args[0])
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.total
	if len(args) == 3 {
		got = f.asked[args[2]]
	}
	if want, err := strconv.Atoi(args[1]); err != nil || got != want {
		ts.Fatalf("%s was asked %d times, want %s; by target: %v", args[0], got, args[1], f.asked)
	}
}
