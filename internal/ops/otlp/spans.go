package otlp

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"millrace/internal/observe/trace"
)

// Messages are written field by field. The generated types of OTLP bring 1.2 MB
// of protobuf's reflection, and the tests read what is written with them. The
// numbers of fields are those of opentelemetry-proto 1.x: trace.proto,
// common.proto, resource.proto.

// The values of Span.kind and of Status.code that are used.
const (
	kindInternal = 1
	kindServer   = 2
	kindClient   = 3
	codeError    = 2
)

// message is a message of protobuf that is being written. As in proto3, fields
// that are zero are left out.
type message []byte

func (m *message) bytes(number protowire.Number, b []byte) {
	if len(b) > 0 {
		m.part(number, b)
	}
}

// text is a string, which has to be UTF-8.
func (m *message) text(number protowire.Number, s string) {
	m.bytes(number, []byte(strings.ToValidUTF8(s, "\ufffd")))
}

// part is a message, which may be empty.
func (m *message) part(number protowire.Number, part message) {
	*m = protowire.AppendTag(*m, number, protowire.BytesType)
	*m = protowire.AppendBytes(*m, part)
}

func (m *message) varint(number protowire.Number, v uint64) {
	if v != 0 {
		*m = protowire.AppendTag(*m, number, protowire.VarintType)
		*m = protowire.AppendVarint(*m, v)
	}
}

func (m *message) fixed32(number protowire.Number, v uint32) {
	if v != 0 {
		*m = protowire.AppendTag(*m, number, protowire.Fixed32Type)
		*m = protowire.AppendFixed32(*m, v)
	}
}

// time is in nanoseconds since 1970.
func (m *message) time(number protowire.Number, t time.Time) {
	if nanos := t.UnixNano(); nanos > 0 {
		*m = protowire.AppendTag(*m, number, protowire.Fixed64Type)
		*m = protowire.AppendFixed64(*m, uint64(nanos))
	}
}

// attribute is a KeyValue with an AnyValue, whose one field is there even if it
// is zero: it says which type the value has.
func (m *message) attribute(number protowire.Number, key string, value message) {
	var pair message
	pair.text(1, key)
	pair.part(2, value)
	m.part(number, pair)
}

func text(s string) (value message) {
	value.part(1, []byte(strings.ToValidUTF8(s, "\ufffd")))
	return value
}

func number(n int64) message {
	return protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), uint64(n))
}

// resource says which server the spans are of.
type resource struct {
	of    message // Resource
	scope message // InstrumentationScope
}

func newResource(service, version string) (r resource) {
	const attributes = 1
	r.of.attribute(attributes, "service.name", text(cmp.Or(service, "millrace")))
	r.of.attribute(attributes, "service.version", text(version))
	r.of.attribute(attributes, "process.pid", number(int64(os.Getpid())))
	if host, err := os.Hostname(); err == nil {
		r.of.attribute(attributes, "host.name", text(host))
	}
	r.scope.text(1, "millrace")
	r.scope.text(2, version)
	return r
}

// data is a batch as ExportTraceServiceRequest: ResourceSpans, in it ScopeSpans,
// in it the spans. Attributes have the names of OpenTelemetry's semantic
// conventions for HTTP where there are some.
func (r *resource) data(batch []*trace.Trace) []byte {
	var scoped, resourced, all message
	scoped.part(1, r.scope)
	for _, t := range batch {
		scoped.part(2, request(t))
		for i := range t.Steps {
			scoped.part(2, step(t, &t.Steps[i]))
		}
	}
	resourced.part(1, r.of)
	resourced.part(2, scoped)
	all.part(1, resourced)
	return all
}

// span is what all spans of a trace begin with. parent may have no bytes.
func span(t *trace.Trace, id, parent []byte, name string, kind uint64) (s message) {
	s.bytes(1, t.Context.Trace[:])
	s.bytes(2, id)
	s.text(3, t.Context.State)
	s.bytes(4, parent)
	s.text(5, name)
	s.varint(6, kind)
	s.fixed32(16, uint32(t.Context.Flags))
	return s
}

// Fields of Span after those.
const (
	spanStart, spanEnd = 7, 8
	spanAttributes     = 9
	spanStatus         = 15
)

// request is the span of a whole request.
func request(t *trace.Trace) message {
	path, query, hasQuery := strings.Cut(t.Target, "?")
	name := t.Method
	if t.Route != "" {
		name += " " + t.Route
	}
	var parent []byte
	if t.Context.Span != (trace.SpanID{}) {
		parent = t.Context.Span[:]
	}
	s := span(t, t.Span[:], parent, name, kindServer)
	s.time(spanStart, t.Began)
	s.time(spanEnd, t.Began.Add(t.Took))
	for _, a := range []struct {
		key   string
		value string
		is    bool
	}{
		{"http.request.method", t.Method, true},
		{"url.scheme", t.Scheme, true},
		{"url.path", path, true},
		{"server.address", t.Host, true},
		{"client.address", t.Client, true},
		{"network.protocol.version", strings.TrimPrefix(strings.TrimSuffix(t.Proto, ".0"), "HTTP/"), true},
		{"millrace.job", t.Job, true},
		{"millrace.lane", t.Lane, true},
		{"millrace.request_id", t.ID, true},
		{"http.route", t.Route, t.Route != ""},
		{"url.query", query, hasQuery},
		{"user_agent.original", t.Agent, t.Agent != ""},
		{"error.type", strconv.Itoa(t.Status), t.Status >= 500},
	} {
		if a.is {
			s.attribute(spanAttributes, a.key, text(a.value))
		}
	}
	s.attribute(spanAttributes, "http.response.status_code", number(int64(t.Status)))
	s.attribute(spanAttributes, "http.response.body.size", number(t.Bytes))
	if t.Lost > 0 {
		s.attribute(spanAttributes, "millrace.steps_lost", number(int64(t.Lost)))
	}
	if t.Status >= 500 { // a client's mistake is no error of the server's span
		s.part(spanStatus, failed(""))
	}
	return s
}

// failed is a Status.
func failed(why string) (status message) {
	status.text(2, why)
	status.varint(3, codeError)
	return status
}

// step is the span of one step.
func step(t *trace.Trace, p *trace.Step) message {
	took := p.Took
	if took < 0 {
		took = max(0, t.Took-p.Began)
	}
	parent := t.Span[:]
	if p.Parent >= 0 {
		parent = t.Steps[p.Parent].Span[:]
	}
	kind, note := uint64(kindInternal), "millrace.note"
	switch p.Kind {
	case trace.Upstream, trace.Attempt, trace.Connect:
		kind, note = kindClient, "server.address"
	}
	s := span(t, p.Span[:], parent, p.Kind.String(), kind)
	began := t.Began.Add(p.Began)
	s.time(spanStart, began)
	s.time(spanEnd, began.Add(took))
	if p.Note != "" {
		s.attribute(spanAttributes, note, text(p.Note))
	}
	if p.Error != "" {
		s.part(spanStatus, failed(p.Error))
	}
	return s
}
