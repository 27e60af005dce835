package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"millrace/internal/observe/meter"
	"millrace/internal/observe/trace"
	headers "millrace/internal/wire/field"
)

// backend is a collector, with the message types of OpenTelemetry's own.
type backend struct {
	*httptest.Server
	answer func(w http.ResponseWriter, n int) // of the nth request; nil: takes all

	mu    sync.Mutex
	asked int
	spans []*spans.Span
	got   []*collector.ExportTraceServiceRequest
}

func newBackend(t *testing.T, answer func(http.ResponseWriter, int)) *backend {
	t.Helper()
	b := &backend{answer: answer}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Errorf("the body is not gzip: %v", err)
			return
		}
		body, err := io.ReadAll(z)
		if err != nil {
			t.Error(err)
		}
		in := new(collector.ExportTraceServiceRequest)
		if err := proto.Unmarshal(body, in); err != nil || len(in.ProtoReflect().GetUnknown()) > 0 {
			t.Errorf("the collector does not understand it: %v", err)
		}
		if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("Authorization") != "Bearer x" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
		b.mu.Lock()
		b.asked++
		n := b.asked
		b.mu.Unlock()
		if b.answer != nil {
			b.answer(w, n)
			return
		}
		b.take(in)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) take(in *collector.ExportTraceServiceRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, in)
	for _, r := range in.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			b.spans = append(b.spans, s.GetSpans()...)
		}
	}
}

func open(t *testing.T, url string, queue int) (*Exporter, *meter.Tracing, *atomic.Int64) {
	t.Helper()
	m, reports := new(meter.Tracing), new(atomic.Int64)
	e, err := Open(trace.Options{OTLP: url, Queue: queue, Service: "shop", Headers: map[string]string{"Authorization": "Bearer x"}}, "1.2.3", m, func(error) { reports.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e, m, reports
}

// ended is a request with an upstream that was asked twice.
func ended(parent string, status int) *trace.Trace {
	one := 1.0
	tr := trace.New(&trace.Options{OTLP: "http://x", Sample: &one, From: "always"}, nil, false)
	r := new(trace.Request)
	m := tr.Mark(&headers.Lines{{Name: "Traceparent", Value: parent}, {Name: "Tracestate", Value: "vendor=1"}}, false)
	tr.Begin(r, time.Now().Add(-time.Second), &m)
	up := r.Begin(trace.Upstream)
	r.Begin(trace.Attempt).End("http://a:1", errors.New("down \xff"))
	r.Begin(trace.Attempt).End("http://b:1", nil)
	up.End("", nil)
	return r.End(trace.Summary{
		Method: "GET", Scheme: "https", Host: "shop.example", Target: "/p\xff?q=1", Proto: "HTTP/2.0", Client: "198.51.100.1",
		Route: "/", Job: "proxy", Lane: "slow", Status: status, Bytes: 5, Took: time.Second, Headed: time.Second / 2,
	})
}

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestCollector: what a collector decodes is the request and its steps.
func TestCollector(t *testing.T) {
	b := newBackend(t, nil)
	e, m, _ := open(t, b.URL, 0)
	e.Add(ended(parent, 502))
	e.Add(ended("", 200))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if m.Sent.Load() != 2 || m.Dropped.Load()+m.Failed.Load() != 0 || len(b.got) != 1 {
		t.Fatalf("%d sent in %d requests", m.Sent.Load(), len(b.got))
	}
	attributes := map[string]string{}
	for _, a := range b.got[0].GetResourceSpans()[0].GetResource().GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if attributes["service.name"] != "shop" || attributes["service.version"] != "1.2.3" {
		t.Errorf("resource %v", attributes)
	}
	if len(b.spans) != 10 {
		t.Fatalf("%d spans", len(b.spans))
	}
	root := b.spans[0]
	clear(attributes)
	for _, a := range root.GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().GetStringValue()
		if n := a.GetValue().GetIntValue(); n != 0 {
			attributes[a.GetKey()] = strconv.FormatInt(n, 10)
		}
	}
	for key, want := range map[string]string{
		"http.request.method": "GET", "url.scheme": "https", "url.path": "/p\ufffd", "url.query": "q=1", "http.route": "/",
		"http.response.status_code": "502", "network.protocol.version": "2", "client.address": "198.51.100.1", "error.type": "502",
	} {
		if attributes[key] != want {
			t.Errorf("%s is %q, want %q", key, attributes[key], want)
		}
	}
	if root.GetName() != "GET /" || root.GetKind() != spans.Span_SPAN_KIND_SERVER || root.GetTraceState() != "vendor=1" ||
		root.GetStatus().GetCode() != spans.Status_STATUS_CODE_ERROR || root.GetEndTimeUnixNano()-root.GetStartTimeUnixNano() != uint64(time.Second) {
		t.Errorf("%v", root)
	}
	if id := trace.SpanID(root.GetParentSpanId()); id.String() != "00f067aa0ba902b7" {
		t.Errorf("the parent is %s", id)
	}
	up, first, write := b.spans[1], b.spans[2], b.spans[4]
	if up.GetName() != "upstream" || !bytes.Equal(up.GetParentSpanId(), root.GetSpanId()) || !bytes.Equal(first.GetParentSpanId(), up.GetSpanId()) ||
		first.GetStatus().GetMessage() != "down \ufffd" || first.GetKind() != spans.Span_SPAN_KIND_CLIENT || write.GetName() != "write" {
		t.Errorf("%v\n%v\n%v", up, first, write)
	}
	for _, s := range b.spans {
		if len(s.GetTraceId()) != 16 || len(s.GetSpanId()) != 8 || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("%v", s)
		}
	}
	if len(b.spans[5].GetParentSpanId()) != 0 {
		t.Error("a trace that begins here has a parent")
	}
}

// TestCollectorDown: nobody waits, what has no room is counted, and one report is
// enough.
func TestCollectorDown(t *testing.T) {
	e, m, reports := open(t, "http://127.0.0.1:1", 8)
	one := ended("", 200)
	began := time.Now()
	for range 10_000 {
		e.Add(one)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("10,000 requests have waited for %v", took)
	}
	e.Close()
	sum := m.Dropped.Load() + m.Failed.Load()
	if m.Sent.Load() != 0 || sum != 10_000 || m.Failed.Load() < 8 || reports.Load() != 1 {
		t.Errorf("%d sent, %d dropped, %d failed, %d reports", m.Sent.Load(), m.Dropped.Load(), m.Failed.Load(), reports.Load())
	}
}

// TestCollectorSlow: one that never answers holds up neither requests nor the end.
func TestCollectorSlow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := newBackend(t, func(http.ResponseWriter, int) { <-ctx.Done() })
	defer cancel()
	e, m, _ := open(t, b.URL, 4)
	for range 1000 {
		e.Add(ended("", 200))
	}
	e.Close()
	if m.Sent.Load() != 0 || m.Dropped.Load()+m.Failed.Load() != 1000 || m.Dropped.Load() == 0 {
		t.Errorf("%d sent, %d dropped, %d failed", m.Sent.Load(), m.Dropped.Load(), m.Failed.Load())
	}
}

// TestAgain: a collector that is busy is asked again, one that refuses is not.
func TestAgain(t *testing.T) {
	busy := newBackend(t, nil)
	busy.answer = func(w http.ResponseWriter, n int) {
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	e, m, _ := open(t, busy.URL, 0)
	for range batchMost { // a full batch does not wait for more
		e.Add(ended("", 200))
	}
	for began := time.Now(); m.Sent.Load() == 0 && time.Since(began) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
	}
	e.Close()
	if m.Sent.Load() != batchMost || busy.asked != 2 {
		t.Errorf("busy: %d sent, asked %d times", m.Sent.Load(), busy.asked)
	}

	refuses := newBackend(t, func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusUnauthorized) })
	e, m, reports := open(t, refuses.URL, 0)
	e.Add(ended("", 200))
	e.Close()
	if m.Failed.Load() != 1 || refuses.asked != 1 || reports.Load() != 1 {
		t.Errorf("refuses: %d failed, asked %d times", m.Failed.Load(), refuses.asked)
	}
}

// TestRejected: spans that the collector takes and throws away are counted.
func TestRejected(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, _ int) {
		out, err := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 3, ErrorMessage: "too old"}})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(out)
	})
	e, m, _ := open(t, b.URL, 0)
	e.Add(ended("", 200))
	e.Close()
	if m.Rejected.Load() != 3 || m.Sent.Load() != 1 {
		t.Errorf("%d rejected", m.Rejected.Load())
	}
}

func FuzzRejectedSpans(f *testing.F) {
	f.Add([]byte{0x0a, 0x02, 0x08, 0x03})
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if rejectedSpans(b) < 0 {
			t.Error("less than none")
		}
	})
}

func TestBadAddress(t *testing.T) {
	if _, err := Open(trace.Options{OTLP: "collector:4317"}, "", new(meter.Tracing), nil); err == nil || !strings.Contains(err.Error(), "4318") {
		t.Error(err)
	}
}
