package otlp

import (
	"os"
	"strconv"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	resources "go.opentelemetry.io/proto/otlp/resource/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"

	"millrace/internal/trace"
)

// resource says which server the spans are of.
type resource struct {
	of    *resources.Resource
	scope *common.InstrumentationScope
}

func newResource(service, version string) resource {
	if service == "" {
		service = "millrace"
	}
	attributes := []*common.KeyValue{
		text("service.name", service), text("service.version", version),
		number("process.pid", int64(os.Getpid())),
	}
	if host, err := os.Hostname(); err == nil {
		attributes = append(attributes, text("host.name", host))
	}
	return resource{&resources.Resource{Attributes: attributes}, &common.InstrumentationScope{Name: "millrace", Version: version}}
}

// data is a batch as OTLP has it. Attributes have the names of OpenTelemetry's
// semantic conventions for HTTP where there are some.
func (r *resource) data(batch []*trace.Trace) *spans.TracesData {
	all := make([]*spans.Span, 0, 4*len(batch))
	for _, t := range batch {
		all = append(all, request(t))
		for i := range t.Steps {
			all = append(all, step(t, &t.Steps[i]))
		}
	}
	return &spans.TracesData{ResourceSpans: []*spans.ResourceSpans{{
		Resource:   r.of,
		ScopeSpans: []*spans.ScopeSpans{{Scope: r.scope, Spans: all}},
	}}}
}

// request is the span of a whole request.
func request(t *trace.Trace) *spans.Span {
	path, query, hasQuery := strings.Cut(t.Target, "?")
	s := &spans.Span{
		TraceId: t.Context.Trace[:], SpanId: t.Span[:], TraceState: t.Context.State,
		Flags: uint32(t.Context.Flags), Name: valid(t.Method), Kind: spans.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: nanos(t.Began), EndTimeUnixNano: nanos(t.Began.Add(t.Took)),
		Attributes: []*common.KeyValue{
			text("http.request.method", t.Method), text("url.scheme", t.Scheme), text("url.path", path),
			text("server.address", t.Host), text("client.address", t.Client),
			text("network.protocol.version", strings.TrimPrefix(strings.TrimSuffix(t.Proto, ".0"), "HTTP/")),
			number("http.response.status_code", int64(t.Status)), number("http.response.body.size", t.Bytes),
			text("millrace.job", t.Job), text("millrace.lane", t.Lane), text("millrace.request_id", t.ID),
		},
	}
	if t.Context.Span != (trace.SpanID{}) {
		s.ParentSpanId = t.Context.Span[:]
	}
	if t.Route != "" {
		s.Name += " " + valid(t.Route)
		s.Attributes = append(s.Attributes, text("http.route", t.Route))
	}
	if hasQuery {
		s.Attributes = append(s.Attributes, text("url.query", query))
	}
	if t.Agent != "" {
		s.Attributes = append(s.Attributes, text("user_agent.original", t.Agent))
	}
	if t.Lost > 0 {
		s.Attributes = append(s.Attributes, number("millrace.steps_lost", int64(t.Lost)))
	}
	if t.Status >= 500 { // a client's mistake is no error of the server's span
		s.Status = &spans.Status{Code: spans.Status_STATUS_CODE_ERROR}
		s.Attributes = append(s.Attributes, text("error.type", strconv.Itoa(t.Status)))
	}
	return s
}

// step is the span of one step.
func step(t *trace.Trace, p *trace.Step) *spans.Span {
	took := p.Took
	if took < 0 {
		took = max(0, t.Took-p.Began)
	}
	began := t.Began.Add(p.Began)
	s := &spans.Span{
		TraceId: t.Context.Trace[:], SpanId: p.Span[:], ParentSpanId: t.Span[:], TraceState: t.Context.State,
		Flags: uint32(t.Context.Flags), Name: p.Kind.String(), Kind: spans.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: nanos(began), EndTimeUnixNano: nanos(began.Add(took)),
	}
	if p.Parent >= 0 {
		s.ParentSpanId = t.Steps[p.Parent].Span[:]
	}
	switch p.Kind {
	case trace.Upstream, trace.Attempt, trace.Connect:
		s.Kind = spans.Span_SPAN_KIND_CLIENT
	}
	if p.Note != "" {
		name := "millrace.note"
		if s.Kind == spans.Span_SPAN_KIND_CLIENT {
			name = "server.address"
		}
		s.Attributes = append(s.Attributes, text(name, p.Note))
	}
	if p.Error != "" {
		s.Status = &spans.Status{Code: spans.Status_STATUS_CODE_ERROR, Message: valid(p.Error)}
	}
	return s
}

// nanos is a time as OTLP has it.
func nanos(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

// valid is a text that protobuf takes.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: valid(value)}}}
}

func number(key string, value int64) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: value}}}
}
