package trace

import "millrace/internal/wire/field"

// Mark is what other servers are told of a request that nobody follows yet: its id
// and its place in a trace. The zero one is of no request.
type Mark struct {
	ID      string // "" where requests have none
	tracer  *Tracer
	context Context
	span    SpanID
}

// Mark is that of a request with these fields, of which value says the only line, ""
// for none. proxy says that its client is a trusted one. t may be nil.
func (t *Tracer) Mark(value func(name string) string, proxy bool) Mark {
	if !t.Marks() {
		return Mark{}
	}
	r := Request{tracer: t}
	if t.propagates && takes(t.from, proxy) {
		r.context, _ = parseLines([]string{value(parentField)}, []string{value(stateField)})
	}
	if t.header != "" {
		r.brought(value(t.header), proxy)
	}
	r.identify()
	return Mark{ID: r.ID(), tracer: t, context: r.context, span: r.span}
}

// Exported reports whether a collector wants the spans of the request.
func (m *Mark) Exported() bool {
	return m.tracer != nil && m.tracer.exports && m.context.Sampled()
}

// Fields appends what [Request.Inject] sets. A field without a value is to be removed.
func (m *Mark) Fields(lines []field.Line) []field.Line {
	t := m.tracer
	if t == nil {
		return lines
	}
	if m.ID != "" {
		lines = append(lines, field.Line{Name: t.header, Value: m.ID})
	}
	if !t.propagates {
		return lines
	}
	parent := m.span
	if !m.Exported() && m.context.Span != (SpanID{}) {
		parent = m.context.Span // nobody would find ours
	}
	return append(lines, field.Line{Name: parentField, Value: m.context.parentFor(parent)}, field.Line{Name: stateField, Value: m.context.State})
}

// Continue follows the request as the one with a mark, if that is one.
func (r *Request) Continue(m *Mark) {
	if m.tracer != nil && r.tracer != nil {
		r.id, r.context, r.span, r.known = m.ID, m.context, m.span, true
	}
}
