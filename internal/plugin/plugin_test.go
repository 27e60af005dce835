//go:build !small

package plugin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	wasm "github.com/http-wasm/http-wasm-host-go/handler"
	oracle "github.com/http-wasm/http-wasm-host-go/handler/nethttp"
	"github.com/http-wasm/http-wasm-host-go/tck"

	"millrace/internal/bytesize"
)

// open makes a plugin for a test. logged is what it logs.
func open(t testing.TB, o Options, module []byte) (p *Plugin, logged *lines) {
	t.Helper()
	o.Module, logged = "dir/test.wasm", new(lines)
	p, err := New(o, module, Deps{Log: slog.New(slog.NewTextHandler(logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, logged
}

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what was written.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve asks a handler once.
func serve(h http.Handler, method, target, body string) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w.Result()
}

func text(t testing.TB, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// hello is a job.
func hello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Etag", `"1"`)
	b, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), b)
}

// TestConformance runs the suite that the makers of http-wasm have for hosts.
func TestConformance(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2 ", http2), func(t *testing.T) {
			p, logged := open(t, Options{}, tck.GuestWASM)
			t.Cleanup(func() {
				if said := logged.String(); said != "" {
					t.Error(said)
				}
			})
			s := httptest.NewUnstartedServer(Handler([]*Plugin{p}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.RequestURI = r.URL.RequestURI() // which the suite looks at; here it stays what the client has sent
				tck.BackendHandler().ServeHTTP(w, r)
			})))
			if s.EnableHTTP2 = http2; http2 {
				s.StartTLS()
			} else {
				s.Start()
			}
			t.Cleanup(s.Close)
			tck.Run(t, s.Client(), s.URL)
		})
	}
}

// TestLikeTheLibrary: the modules that http-wasm-host-go ships give the same answers by its
// own host and by this one.
func TestLikeTheLibrary(t *testing.T) {
	t.Parallel()
	type ask struct {
		method, target, body string
		head                 []string
	}
	plain := []ask{
		{method: "GET", target: "/"},
		{method: "HEAD", target: "/"},
		{method: "GET", target: "/host/a%20b?c=d"},
		{method: "GET", target: "/host"},
		{method: "POST", target: "/a/b", body: "open sesame, it says"},
		{method: "GET", target: "/", head: []string{"Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}},
		{method: "GET", target: "/", head: []string{"Authorization", "Basic x", "X-A", "1", "X-A", "2"}},
	}
	for _, c := range []struct{ module, config string }{
		{"examples/auth.wasm", ""},
		{"examples/config.wasm", "12345678"},
		{"examples/log.wasm", ""},
		{"examples/redact.wasm", "open sesame"},
		{"examples/router.wasm", ""},
		{"internal/test/testdata/e2e/handle_response.wasm", ""},
		{"internal/test/testdata/e2e/protocol_version.wasm", ""},
		{"internal/test/testdata/bench/add_header_value.wasm", ""},
		{"internal/test/testdata/bench/set_header_value.wasm", ""},
		{"internal/test/testdata/bench/remove_header.wasm", ""},
		{"internal/test/testdata/bench/set_status_code.wasm", ""},
		{"internal/test/testdata/bench/write_body.wasm", ""},
	} {
		module := shipped(t, c.module)
		job := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			for name, values := range r.Header {
				if name != "Accept-Encoding" { // which is not passed on where the answer is held
					w.Header()["Had-"+name] = values
				}
			}
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s open sesame", r.Method, r.URL.RequestURI(), b)
		})
		p, logged := open(t, Options{Config: c.config}, module)
		m, err := oracle.NewMiddleware(t.Context(), module, wasm.GuestConfig([]byte(c.config)))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close(context.WithoutCancel(t.Context()))
		for _, a := range plain {
			var seen [2]string
			for n, h := range []http.Handler{Handler([]*Plugin{p}, job), m.NewHandler(t.Context(), job)} {
				s := httptest.NewServer(h)
				r, err := http.NewRequestWithContext(t.Context(), a.method, s.URL+a.target, strings.NewReader(a.body))
				if err != nil {
					t.Fatal(err)
				}
				for i := 0; i < len(a.head); i += 2 {
					r.Header.Add(a.head[i], a.head[i+1])
				}
				res, err := s.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				res.Header.Del("Date")
				res.Header.Del("Content-Length") // or chunks
				seen[n] = fmt.Sprint(res.StatusCode, res.Header, text(t, res))
				s.Close()
			}
			if diff := cmp.Diff(seen[1], seen[0]); diff != "" {
				t.Errorf("%s: %v: the library's host says -, ours +:\n%s\n%s", c.module, a, diff, logged)
			}
		}
	}
}

// TestFailures: a request whose guest fails is answered with 500, and the next one as if
// nothing had been.
func TestFailures(t *testing.T) {
	t.Parallel()
	forever := []byte{loop, noResult, branch, 0, end}
	for name, c := range map[string]struct {
		guest guest
		logs  string
	}{
		"trap":                 {guest{request: []byte{unreachable}}, "unreachable"},
		"time":                 {guest{request: seq(forever, next())}, "computed for longer than 50ms"},
		"time in the answer":   {guest{request: seq(call(fnEnableFeatures, 2), []byte{drop}, next()), response: forever}, "computed for longer than 50ms"},
		"trap in the answer":   {guest{request: seq(call(fnEnableFeatures, 2), []byte{drop}, next()), response: []byte{unreachable}}, "unreachable"},
		"memory":               {guest{request: seq(call(fnSetURI, 1, 63), next()), data: "no"}, "is not a path"},
		"outside memory":       {guest{request: seq([]byte{0x41, 0x7f, 0x41, 4, 0x10, fnSetURI}, next())}, "not in its memory"},
		"late":                 {guest{request: seq(call(fnEnableFeatures, 2), []byte{drop}, next()), response: call(fnSetURI, 0, 1), data: "/"}, "set_uri after"},
		"a header's end":       {guest{request: seq(call(fnSetHeader, 1, 0, 1, 1, 3), next()), data: "aa\r\nb"}, "characters"},
		"dots":                 {guest{request: seq(call(fnSetURI, 0, 5), next()), data: "/a/.."}, "more than one way"},
		"no status":            {guest{request: seq(call(fnSetStatus, 42), next())}, "42 is not the status"},
		"a long body":          {guest{request: seq(forever[:2], call(fnWriteBody, 1, 0, 60), []byte{branch, 0, end}, next())}, "body of more than 1KiB"},
		"a fifth kind":         {guest{request: seq(call(fnWriteBody, 5, 0, 1), next())}, "no kind 5"},
		"answer not held":      {guest{request: next(), response: call(fnSetStatus, 42)}, "enable the feature"},
		"fields without bound": {guest{request: seq(forever[:2], call(fnSetHeader, 1, 0, 1, 1, 60), []byte{branch, 0, end}, next()), data: strings.Repeat("a", 64)}, "bytes of fields"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, logged := open(t, Options{Timeout: 50 * time.Millisecond, BodyBytes: bytesize.Size(1024), Instances: 1}, c.guest.module())
			h := Handler([]*Plugin{p}, http.HandlerFunc(hello))
			for range 3 { // with one instance: each of them is new
				res := serve(h, "GET", "/", "")
				if body := text(t, res); name != "answer not held" && (res.StatusCode != 500 || body != "Something went wrong on the server. Try again in a moment.\n") {
					t.Errorf("%d %q", res.StatusCode, body)
				}
			}
			if said := logged.String(); strings.Count(said, c.logs) != 3 || !strings.Contains(said, "module=test.wasm") {
				t.Errorf("the log says:\n%s", said)
			}
		})
	}
}

// TestModulesThatDoNotSuit: what is no guest is refused before it serves.
func TestModulesThatDoNotSuit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		module []byte
		says   string
	}{
		"text":      {[]byte("hello"), "dir/test.wasm: this is no WebAssembly module"},
		"empty":     {[]byte("\x00asm\x01\x00\x00\x00"), "exports no function handle_request"},
		"traps":     {guest{request: next(), start: []byte{unreachable}}.module(), "does not start"},
		"large":     {guest{request: next(), pages: 300}.module(), "over limit of 256 pages"},
		"misses":    {shipped(t, "internal/test/testdata/error/panic_on_start.wasm"), "does not start"},
		"no config": {shipped(t, "examples/config.wasm"), "does not start"},
	} {
		_, err := New(Options{Module: "dir/test.wasm"}, c.module, Deps{Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestMemoryIsBounded: memory.grow gives no more than the options say, which is no failure.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	// set_status_code(memory.grow(20) < 0 ? 206 : 200)
	code := seq(i32s(20), []byte{growMemory, 0}, []byte{0x41, 0, 0x48, 0x04, noResult}, []byte{0x41, 0xce, 1, 0x10, fnSetStatus}, []byte{end}, done())
	for size, want := range map[bytesize.Size]int{1 << 20: 206, 2 << 20: 200} {
		p, _ := open(t, Options{Memory: size}, guest{request: code}.module())
		if res := serve(Handler([]*Plugin{p}, http.NotFoundHandler()), "GET", "/", ""); res.StatusCode != want {
			t.Errorf("with %s: %d, want %d", size, res.StatusCode, want)
		}
	}
}

// TestInstancesAreBounded: with all instances busy a request waits, and then gets 503.
func TestInstancesAreBounded(t *testing.T) {
	t.Parallel()
	p, logged := open(t, Options{Instances: 1, Timeout: 100 * time.Millisecond}, guest{request: next()}.module())
	came, goOn := make(chan struct{}), make(chan struct{})
	h := Handler([]*Plugin{p}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			came <- struct{}{}
			<-goOn
		}
	}))
	var all sync.WaitGroup
	all.Go(func() { serve(h, "GET", "/slow", "") })
	<-came
	if res := serve(h, "GET", "/", ""); res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || !strings.Contains(logged.String(), "a plugin is busy") {
		t.Errorf("%d %v\n%s", res.StatusCode, res.Header, logged)
	}
	all.Go(func() {
		if res := serve(h, "GET", "/", ""); res.StatusCode != 200 {
			t.Errorf("who has waited gets %d", res.StatusCode)
		}
	})
	close(goOn)
	all.Wait()
	if res := serve(h, "GET", "/", ""); res.StatusCode != 200 {
		t.Errorf("then %d", res.StatusCode)
	}
}

// TestBodies: what a guest has read of a body is there for the job, and what it has written
// takes its place.
func TestBodies(t *testing.T) {
	t.Parallel()
	read := seq(call(fnReadBody, 0, 32, 5), []byte{drop})
	for name, c := range map[string]struct {
		guest      guest
		body, want string
	}{
		"read":          {guest{request: seq(call(fnEnableFeatures, 1), []byte{drop}, read, next())}, "a longer body", "POST / a longer body"},
		"read to start": {guest{start: seq(call(fnEnableFeatures, 1), []byte{drop}), request: seq(read, next())}, "a longer body", "POST / a longer body"},
		"consumed":      {guest{request: seq(read, next())}, "a longer body", "POST / ger body"},
		"written":       {guest{request: seq(call(fnWriteBody, 0, 0, 3), call(fnWriteBody, 0, 0, 3), next()), data: "new"}, "a longer body", "POST / newnew"},
		"read, written": {guest{request: seq(call(fnEnableFeatures, 1), []byte{drop}, read, call(fnWriteBody, 0, 32, 5), next())}, "a longer body", "POST / a lon"},
		"answer":        {guest{request: seq(call(fnEnableFeatures, 2), []byte{drop}, next()), response: call(fnWriteBody, 1, 0, 3), data: "new"}, "", "new"},
		"own answer":    {guest{request: seq(call(fnWriteBody, 1, 0, 3), done()), data: "new"}, "", "new"},
		"both":          {guest{request: seq(call(fnEnableFeatures, 2), []byte{drop}, call(fnWriteBody, 1, 0, 3), next()), data: "new"}, "x", "newPOST / x"},
	} {
		p, logged := open(t, Options{}, c.guest.module())
		res := serve(Handler([]*Plugin{p}, http.HandlerFunc(hello)), "POST", "/", c.body)
		if got := text(t, res); got != c.want || res.StatusCode != 200 {
			t.Errorf("%s: %d %q, want %q\n%s", name, res.StatusCode, got, c.want, logged)
		}
		if tagged := res.Header["Etag"] != nil; tagged == (name == "answer" || name == "own answer") {
			t.Errorf("%s: a body of the guest's has no validator of the job's: %v", name, res.Header)
		}
	}
}

// TestAnswersAreHeldUpToABound: an answer that is too large to be seen is none at all.
func TestAnswersAreHeldUpToABound(t *testing.T) {
	t.Parallel()
	p, logged := open(t, Options{BodyBytes: 10}, guest{request: seq(call(fnEnableFeatures, 3), []byte{drop}, call(fnReadBody, 0, 0, 60), []byte{drop}, next())}.module())
	h := Handler([]*Plugin{p}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "0123456789")
		_, _ = io.WriteString(w, "x")
	}))
	if res := serve(h, "GET", "/", ""); res.StatusCode != 500 || strings.Contains(text(t, res), "1") || !strings.Contains(logged.String(), "larger than 10 (body_bytes)") {
		t.Errorf("%d\n%s", res.StatusCode, logged)
	}
	if res := serve(h, "POST", "/", "0123456789x"); res.StatusCode != 413 {
		t.Errorf("a large body: %d", res.StatusCode)
	}
}

// slow is a client that takes no byte of a body before it may.
type slow struct {
	*httptest.ResponseRecorder
	came, goOn chan struct{}
}

// Write implements [http.ResponseWriter].
func (w slow) Write(p []byte) (int, error) {
	w.came <- struct{}{}
	<-w.goOn
	return w.ResponseRecorder.Write(p) //nolint:wrapcheck // a test's
}

// TestSlowClientsHoldNoInstance: a guest is free once it has seen the answer, and clients
// that take nothing of theirs do not keep others from it.
func TestSlowClientsHoldNoInstance(t *testing.T) {
	t.Parallel()
	hold := seq(call(fnEnableFeatures, 2), []byte{drop})
	for name, c := range map[string]struct {
		guest guest
		want  string
	}{
		"passes":  {guest{request: next()}, "GET / "},
		"held":    {guest{request: seq(hold, next())}, "GET / "},
		"written": {guest{request: seq(hold, next()), response: call(fnWriteBody, 1, 0, 3), data: "new"}, "new"},
		"own":     {guest{request: seq(call(fnWriteBody, 1, 0, 3), done()), data: "new"}, "new"},
	} {
		p, _ := open(t, Options{Instances: 1, Timeout: 50 * time.Millisecond}, c.guest.module())
		h := Handler([]*Plugin{p}, http.HandlerFunc(hello))
		var all sync.WaitGroup
		var clients []slow
		for range 3 {
			w := slow{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
			all.Go(func() { h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody)) })
			select {
			case <-w.came:
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: no answer", name)
			}
			clients = append(clients, w)
		}
		for _, w := range clients {
			close(w.goOn)
		}
		all.Wait()
		for _, w := range clients {
			if res := w.Result(); res.StatusCode != 200 || text(t, res) != c.want {
				t.Errorf("%s: %d %q", name, res.StatusCode, w.Body)
			}
		}
	}
}

// TestMessagesAreBounded: one request of a guest that never stops talking fills no disk.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	const length = 1024
	// A loop of log(2, 0, length), until the time is over.
	talk := seq([]byte{loop, noResult}, i32s(2, 0), []byte{0x41, 0x80, 0x08, 0x10, fnLog}, []byte{branch, 0, end})
	p, logged := open(t, Options{Timeout: 500 * time.Millisecond}, guest{request: seq(talk, done()), data: strings.Repeat("a", length)}.module())
	for n := 1; n < 3; n++ {
		serve(Handler([]*Plugin{p}, http.HandlerFunc(hello)), "GET", "/", "")
		said := logged.String()
		if got := strings.Count(said, "a plugin logs too much"); got != n {
			t.Errorf("told about it %d times after %d requests", got, n)
		}
		if got := strings.Count(said, strings.Repeat("a", length)); got != n*(maxLogged/length) {
			t.Errorf("%d messages after %d requests", got, n)
		}
	}
}

// TestLengthsOfAnswers: a length is that of the body, whatever the job has said about its
// own.
func TestLengthsOfAnswers(t *testing.T) {
	t.Parallel()
	hold := seq(call(fnEnableFeatures, 2), []byte{drop})
	job := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "4")
		if w.WriteHeader(http.StatusOK); r.Method != http.MethodHead {
			_, _ = io.WriteString(w, "body")
		}
	})
	for name, c := range map[string]struct {
		guest        guest
		method, want string
	}{
		"before the job's": {guest{request: seq(hold, call(fnWriteBody, 1, 0, 3), next()), data: "new"}, "GET", "7 newbody"},
		"GET made HEAD":    {guest{request: seq(hold, call(fnSetMethod, 0, 4), next()), data: "HEAD"}, "GET", "0 "},
		"HEAD":             {guest{request: seq(hold, next())}, "HEAD", "4 "},
	} {
		p, logged := open(t, Options{}, c.guest.module())
		res := serve(Handler([]*Plugin{p}, job), c.method, "/", "")
		if got := res.Header.Get("Content-Length") + " " + text(t, res); got != c.want {
			t.Errorf("%s: %q, want %q\n%s", name, got, c.want, logged)
		}
	}
}

// TestSpacesInTargets: a space that a guest writes would end the target on the way to an
// upstream.
func TestSpacesInTargets(t *testing.T) {
	t.Parallel()
	p, logged := open(t, Options{}, guest{request: seq(call(fnSetURI, 0, 9), next()), data: "/a b?c d "}.module())
	res := serve(Handler([]*Plugin{p}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL.Path, r.URL.RawPath, "?", r.URL.RawQuery)
	})), "GET", "/", "")
	if got := text(t, res); got != "/a b?c%20d%20" {
		t.Errorf("%q\n%s", got, logged)
	}
}

// TestJobsThatPanic: the guest is told, and may serve again.
func TestJobsThatPanic(t *testing.T) {
	t.Parallel()
	p, _ := open(t, Options{Instances: 1}, guest{request: seq(call(fnEnableFeatures, 2), []byte{drop}, next())}.module())
	h := Handler([]*Plugin{p}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for range 2 {
		func() {
			defer func() {
				if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // a sentinel that is never wrapped
					t.Errorf("panicked with %v", cause)
				}
			}()
			serve(h, "GET", "/", "")
		}()
	}
}

// TestEachOnce: a plugin sees a request once, also where a route hands it to another one
// that has the plugin as well.
func TestEachOnce(t *testing.T) {
	t.Parallel()
	p, _ := open(t, Options{Instances: 1, Timeout: 100 * time.Millisecond}, guest{request: next()}.module())
	inner := Handler([]*Plugin{p}, http.HandlerFunc(hello))
	if res := serve(Handler([]*Plugin{p}, inner), "GET", "/", ""); res.StatusCode != 200 { // with one instance, a second turn would wait for ever
		t.Errorf("%d", res.StatusCode)
	}
}
