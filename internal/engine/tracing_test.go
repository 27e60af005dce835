package engine_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/trace"
	"millrace/internal/process/servertest"
)

// spanStore is a collector.
type spanStore struct {
	*httptest.Server
	mu  sync.Mutex
	all []*spans.Span
}

func newSpanStore(t *testing.T) *spanStore {
	t.Helper()
	s := &spanStore{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(z)
		in := new(collector.ExportTraceServiceRequest)
		if err != nil || proto.Unmarshal(body, in) != nil {
			t.Error("no spans")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, rs := range in.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				s.all = append(s.all, ss.GetSpans()...)
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// trace waits until n spans of a trace have come.
func (s *spanStore) trace(t *testing.T, id string, n int) map[string]*spans.Span {
	t.Helper()
	var found map[string]*spans.Span
	servertest.Eventually(t, fmt.Sprintf("%d spans of trace %s", n, id), func() bool {
		found = map[string]*spans.Span{}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, sp := range s.all {
			if trace.ID(sp.GetTraceId()).String() == id {
				found[sp.GetName()] = sp
			}
		}
		return len(found) >= n
	})
	return found
}

const theirs = "4bf92f3577b34da6a3ce929d0e0e4736"

// TestTracing: over every protocol, a trusted proxy's trace and id go on to the
// upstream, and into answer, log and spans; nobody else's do.
func TestTracing(t *testing.T) {
	t.Parallel() // it mostly waits
	store := newSpanStore(t)
	var mu sync.Mutex
	var got http.Header
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got = r.Header.Clone()
		mu.Unlock()
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("X-Request-ID", r.Header.Get("X-Request-ID")) // as many frameworks do
		fmt.Fprint(w, "hello")
	}))
	defer upstream.Close()
	log := filepath.Join(t.TempDir(), "access.log")
	cert, key, pool := certificate(t)
	var own []trace.Context
	for _, trusted := range []bool{true, false} {
		from := "127.0.0.1"
		if !trusted {
			from = "192.0.2.1"
		}
		cfg := parse(t, fmt.Sprintf("listen: 127.0.0.1:0\ntls: {listen: %q, cert: %q, key: %q, http3: true}\nlimits: {trusted_proxies: [%s]}\ntracing: {otlp: %q, sample: 1}\nrequest_id: on\n"+
			"sites:\n- routes:\n    /: {proxy: %q}\n    /cached/: {cache: %q}\n", net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t))), cert, key, from, store.URL, upstream.URL, upstream.URL))
		cfg.Log = accesslog.Options{File: log, Format: "json"}
		srv := start(t, cfg)
		for _, name := range protocols {
			w := wayTo(t, name, srv, &tls.Config{RootCAs: pool, ServerName: "localhost"})
			for _, path := range []string{"/", "/cached/" + name + fmt.Sprint(trusted)} {
				h := http.Header{"Traceparent": {"00-" + theirs + "-00f067aa0ba902b7-01"}, "Tracestate": {"v=1"}, "X-Request-Id": {"from-" + name}}
				resp, _, err := w.try(http.MethodGet, path, "", h)
				if err != nil {
					t.Fatal(name, err)
				}
				mu.Lock()
				parent, ok := trace.Parse(got)
				id := got.Get("X-Request-ID")
				mu.Unlock()
				if !ok || (parent.Trace.String() == theirs) != trusted || (parent.State == "v=1") != trusted || parent.Span.String() == "00f067aa0ba902b7" {
					t.Errorf("%s %s, trusted %v: the upstream got %v", name, path, trusted, got)
				}
				if (id == "from-"+name) != trusted || resp.Header.Get("X-Request-ID") != id || len(resp.Header["X-Request-Id"]) != 1 {
					t.Errorf("%s %s, trusted %v: the upstream got the id %q, the client %v", name, path, trusted, id, resp.Header)
				}
				hasID(t, log, id)
				if !trusted { // each request has a trace of its own
					own = append(own, parent)
				}
			}
		}
	}
	checkSpans(t, store, own)
}

// checkSpans compares the spans of requests with what their upstream was told. All
// have those of the request, of what was asked of the upstream, and of the try.
func checkSpans(t *testing.T, store *spanStore, told []trace.Context) {
	t.Helper()
	for _, parent := range told {
		steps := store.trace(t, parent.Trace.String(), 3)
		up, try := steps["upstream"], steps["attempt"]
		if trace.SpanID(up.GetSpanId()) != parent.Span || !bytes.Equal(try.GetParentSpanId(), up.GetSpanId()) {
			t.Errorf("the upstream was told %+v: %v", parent, steps)
		}
	}
}

// hasID waits for a line with an id.
func hasID(t *testing.T, path, id string) {
	t.Helper()
	servertest.Eventually(t, "a line with the id "+id, func() bool {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var l struct {
				ID string `json:"request_id"`
			}
			if json.Unmarshal([]byte(line), &l) == nil && l.ID == id {
				return true
			}
		}
		return false
	})
}

// TestRequestIDOnHotAnswers: finished answers are the same for all, so they have no
// id, and never that of the request that they were made for.
func TestRequestIDOnHotAnswers(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "index.html"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := parse(t, fmt.Sprintf("listen: 127.0.0.1:0\nlimits: {trusted_proxies: [127.0.0.1]}\nrequest_id: on\nsites:\n- routes:\n    /: {static: {root: %s}}\n", dir))
	log := filepath.Join(dir, "access.log")
	cfg.Log = accesslog.Options{File: log, Format: "json"}
	srv := start(t, cfg)
	nc, err := net.Dial("tcp", strings.TrimPrefix(srv.Addrs()[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	answers := bufio.NewReader(nc)
	for n := range 3 {
		fmt.Fprintf(nc, "GET / HTTP/1.1\r\nHost: x\r\nX-Request-ID: id-%d\r\n\r\n", n)
		a, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, a.Body)
		if id := a.Header.Get("X-Request-ID"); n == 0 && id != "id-0" || n > 0 && id != "" && id != fmt.Sprintf("id-%d", n) {
			t.Errorf("answer %d has the id %q", n, id)
		}
	}
	for n := range 3 { // also of the hot ones
		hasID(t, log, fmt.Sprintf("id-%d", n))
	}
}
