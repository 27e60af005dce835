package trace

import (
	"time"

	"millrace/internal/wire/field"
)

// Mark is what other servers are told of a request that nobody follows yet: its id
// and its place in a trace. The zero one is of no request.
type Mark struct {
	ID      string // "" where requests have none
	tracer  *Tracer
	context Context
	span    SpanID
}

// Mark is that of a request with these fields. proxy says that its client is a trusted
// one. t may be nil.
func (t *Tracer) Mark(fields *field.Lines, proxy bool) Mark {
	if !t.Marks() {
		return Mark{}
	}
	r := Request{tracer: t}
	if t.propagates && takes(t.from, proxy) {
		r.context, _ = parse(fields.Only(parentField), fields.Join(stateField))
	}
	if t.header != "" && takes(t.idFrom, proxy) {
		if id := fields.Only(t.header); UsableID(id) {
			r.id = id
		}
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

// Begin follows a request from now on. Where others have been told of it, it is the one
// with that mark.
func (t *Tracer) Begin(r *Request, began time.Time, m *Mark) {
	r.tracer, r.began, r.open = t, began, -1
	if m.tracer != nil {
		r.id, r.context, r.span, r.known = m.ID, m.context, m.span, true
	}
}
