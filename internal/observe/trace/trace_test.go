package trace

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/wire/field"
)

const example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParse(t *testing.T) {
	for _, test := range []struct {
		value string
		ok    bool
	}{
		{example, true},
		{" " + example + "\t", true},
		{strings.Replace(example, "00-", "cc-", 1), true},
		{strings.Replace(example, "00-", "cc-", 1) + "-what-the-future-will-be-like", true},
		{strings.Replace(example, "00-", "cc-", 1) + ".what", false},
		{example + "-more", false},
		{strings.Replace(example, "00-", "ff-", 1), false},
		{strings.ToUpper(example), false},
		{"00-00000000000000000000000000000000-00f067aa0ba902b7-01", false},
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false},
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g", false},
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", false},
		{"", false},
	} {
		c, ok := Parse(http.Header{"Traceparent": {test.value}})
		if ok != test.ok {
			t.Errorf("%q: %v, want %v", test.value, ok, test.ok)
		}
		if ok && (c.Trace.String() != "4bf92f3577b34da6a3ce929d0e0e4736" || c.Span.String() != "00f067aa0ba902b7" || !c.Sampled()) {
			t.Errorf("%q: %+v", test.value, c)
		}
	}
	if _, ok := Parse(http.Header{"Traceparent": {example, example}}); ok {
		t.Error("two fields are taken for one")
	}
}

func TestState(t *testing.T) {
	for _, test := range []struct{ lines, want string }{
		{"a=1", "a=1"},
		{"a=1|b=2, ,c@d=3", "a=1,b=2, ,c@d=3"},
		{"a", ""},
		{"a=1=2", ""},
		{"a=\x01", ""},
		{"a=" + strings.Repeat("x", 600), ""},
		{strings.Repeat("a=1,", 33) + "a=1", ""},
	} {
		if got := state(strings.ReplaceAll(test.lines, "|", ",")); got != test.want {
			t.Errorf("%.40q: %q, want %q", test.lines, got, test.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example, "a=1,b=2")
	f.Add("00-", ",=")
	f.Fuzz(func(t *testing.T, parent, state string) {
		c, ok := Parse(http.Header{"Traceparent": {parent}, "Tracestate": {state}})
		if !ok {
			return
		}
		again, ok := Parse(http.Header{"Traceparent": {c.parentFor(c.Span)}, "Tracestate": {c.State}})
		if !ok || again != c {
			t.Errorf("%q became %+v, then %+v", parent, c, again)
		}
	})
}

func sample(share float64) *Options { return &Options{OTLP: "http://127.0.0.1:4318", Sample: &share} }

func begun(t *Tracer, h http.Header, proxy bool) *Request {
	r := new(Request)
	fields := field.Of(h)
	m := t.Mark(&fields, proxy)
	t.Begin(r, time.Now(), &m)
	return r
}

// TestTrust: only those whose word is to be taken continue a trace or name an id.
func TestTrust(t *testing.T) {
	h := http.Header{"Traceparent": {example}, "Tracestate": {"a=1"}, "X-Request-Id": {"mine"}}
	for from, believed := range map[string][2]bool{"": {false, true}, "proxies": {false, true}, "always": {true, true}, "never": {false, false}} {
		for i, want := range believed {
			o := sample(0)
			o.From = from
			tr := New(o, &IDOptions{From: from}, false)
			out := http.Header{"Traceparent": {"forged"}, "Tracestate": {"forged=1"}, "X-Request-Id": {"forged"}}
			r := begun(tr, h, i == 1)
			r.Inject(out)
			c, ok := Parse(out)
			if !ok || (c.Trace.String() == "4bf92f3577b34da6a3ce929d0e0e4736") != want || (c.State == "a=1") != want || c.Sampled() != want {
				t.Errorf("%s, proxy %v: %+v", from, i == 1, c)
			}
			if id := out.Get("X-Request-Id"); (id == "mine") != want || id == "forged" || id != r.ID() {
				t.Errorf("%s, proxy %v: id %q, %q", from, i == 1, id, r.ID())
			}
			if r.Sampled() != want {
				t.Errorf("%s, proxy %v: sampled %v", from, i == 1, r.Sampled())
			}
		}
	}
}

func TestUnusableIDs(t *testing.T) {
	tr := New(nil, &IDOptions{From: "always"}, false)
	for _, id := range []string{"", "a b", "a\"b", "a\nb", "é", strings.Repeat("x", 129)} {
		if r := begun(tr, http.Header{"X-Request-Id": {id}}, true); r.ID() == id || len(r.ID()) != 32 {
			t.Errorf("%q became %q", id, r.ID())
		}
	}
	if r := begun(tr, http.Header{"X-Request-Id": {"a", "b"}}, true); len(r.ID()) != 32 {
		t.Errorf("two ids became %q", r.ID())
	}
}

func TestSample(t *testing.T) {
	for _, share := range []float64{0, 0.1, 1} {
		tr, n := New(sample(share), nil, false), 0
		for range 10_000 {
			if begun(tr, nil, false).Sampled() {
				n++
			}
		}
		if want := int(10_000 * share); n < want-200 || n > want+200 {
			t.Errorf("%d of 10000 are sampled, want about %d", n, want)
		}
	}
}

func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begun(New(sample(1), nil, false), nil, false)
		ctx := With(context.Background(), r)
		up := Begin(ctx, Upstream)
		out := http.Header{}
		r.Inject(out)
		time.Sleep(time.Second)
		queue := Begin(ctx, Queue)
		time.Sleep(time.Second)
		queue.End("", nil)
		Begin(ctx, Attempt).End("http://a", errors.New("down"))
		up.End("", nil)
		open := Begin(ctx, Convert)
		time.Sleep(time.Second)
		done := r.End(Summary{Took: 4 * time.Second, Headed: 3 * time.Second})
		open.End("late", nil)
		Begin(ctx, Lookup).End("late", nil)
		if len(done.Steps) != 5 {
			t.Fatalf("%+v", done.Steps)
		}
		for i, want := range []Step{
			{Upstream, "", "", 0, 2 * time.Second, -1, SpanID{}},
			{Queue, "", "", time.Second, time.Second, 0, SpanID{}},
			{Attempt, "http://a", "down", 2 * time.Second, 0, 0, SpanID{}},
			{Convert, "", "", 2 * time.Second, -1, -1, SpanID{}},
			{Write, "", "", 3 * time.Second, time.Second, -1, SpanID{}},
		} {
			got := done.Steps[i]
			if got.Span == (SpanID{}) {
				t.Errorf("step %d has no span", i)
			}
			if got.Span = (SpanID{}); got != want {
				t.Errorf("step %d: %+v, want %+v", i, got, want)
			}
		}
		if c, ok := Parse(out); !ok || c.Span != done.Steps[0].Span || c.Trace != done.Context.Trace {
			t.Errorf("the upstream was told %v", out)
		}
	})
}

func TestStepsAreBounded(t *testing.T) {
	r := begun(New(sample(1), nil, false), nil, false)
	for range 3 * maxSteps {
		r.Begin(Queue).End("", nil)
	}
	if done := r.End(Summary{Took: 2, Headed: 1}); len(done.Steps) != maxSteps || done.Lost != 2*maxSteps {
		t.Errorf("%d steps, %d lost", len(done.Steps), done.Lost)
	}
}

// TestNobodyFollows: what has no trace costs nothing and does not fail.
func TestNobodyFollows(t *testing.T) {
	ctx, header := context.Background(), http.Header{"Traceparent": {"theirs"}}
	if n := testing.AllocsPerRun(100, func() {
		Begin(ctx, Queue).End("", nil)
		From(ctx).Inject(header)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if header.Get("Traceparent") != "theirs" || From(ctx).ID() != "" || New(nil, nil, false) != nil || New(nil, &IDOptions{Off: true}, false) != nil {
		t.Error("something follows a request that nobody wants to follow")
	}
}

// TestPassThrough: without a collector nobody would find our span: the parent is
// whoever has asked.
func TestPassThrough(t *testing.T) {
	r := begun(New(&Options{}, nil, false), http.Header{"Traceparent": {example}}, true)
	up := r.Begin(Upstream)
	out := http.Header{}
	r.Inject(out)
	up.End("", nil)
	if got := out.Get("Traceparent"); got != example {
		t.Errorf("%s became %s", example, got)
	}
}

func TestCheck(t *testing.T) {
	for _, o := range []Options{
		{OTLP: "127.0.0.1:4318"},
		{OTLP: "ftp://x"},
		{OTLP: "http://"},
		{OTLP: "http://a:b@x"},
		{OTLP: "http://x:4317"},
		{Sample: new(float64(-0.1))},
		{Sample: new(float64(1.1))},
		{From: "all"},
		{Queue: -1},
		{Queue: 1 << 20},
		{Timeout: -1},
		{Headers: map[string]string{"a b": "c"}},
		{Headers: map[string]string{"a": "c\r\nd: e"}},
	} {
		if len(o.Check()) != 1 {
			t.Errorf("%+v: %v", o, o.Check())
		}
	}
	for _, o := range []IDOptions{{Header: "a b"}, {Header: "Content-Length"}, {Header: "X-Forwarded-For"}, {From: "them"}} {
		if len(o.Check()) != 1 {
			t.Errorf("%+v: %v", o, o.Check())
		}
	}
	if o := (Options{OTLP: "https://collector.example/"}); len(o.Check()) != 0 {
		t.Error(o.Check())
	} else if u, _ := o.Endpoint(); u != "https://collector.example/v1/traces" {
		t.Error(u)
	}
	for _, name := range []string{"X-Correlation-ID", "Request-ID", "X-Amzn-Trace-Id"} {
		if o := (IDOptions{Header: name}); len(o.Check()) != 0 {
			t.Error(o.Check())
		}
	}
}
