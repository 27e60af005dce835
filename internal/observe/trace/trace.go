// Package trace follows one request through the server: who asked for it (the
// trace it is part of, and its id), and what it spent its time with.
//
// A [Request] is made by [Tracer.Begin] and ended by [Request.End]. Between them
// whoever does a part of the work finds it in the context ([From]) and notes a
// step ([Begin]). Where nothing follows requests there is none in the context,
// and both cost a look-up.
//
// The steps serve two readers: the spans of OpenTelemetry (package otlp), and the
// store of slow requests (package slow). The formats on the wire are those of
// W3C Trace Context, level 2.
package trace

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"millrace/internal/wire/field"
)

// Key finds the request that is served in a context. The server's contexts have
// it; [With] is for others.
type Key struct{}

// From is the request that is served under a context; nil: nobody follows it.
func From(ctx context.Context) *Request {
	r, _ := ctx.Value(Key{}).(*Request)
	return r
}

// With is for work that goes on under a context that is not the request's own.
func With(ctx context.Context, r *Request) context.Context {
	if r == nil {
		return ctx
	}
	return context.WithValue(ctx, Key{}, r)
}

// Kind says what a step was spent with.
type Kind uint8

// The kinds, in the order in which they mostly come.
const (
	Upload   Kind = iota + 1 // the request's body was taken in
	Lookup                   // a store was asked: memory, disk, Redis
	Fetch                    // the cache waited for the fetch of its key
	Upstream                 // everything that was done to get another server's answer
	Queue                    // a place at another server, or at php-fpm, was waited for
	Connect                  // a connection to it was made, TLS included
	Attempt                  // it was asked: from the first byte sent to the header of its answer
	Convert                  // an image's conversion was waited for
	Disk                     // a file was looked up and opened
	Write                    // the answer was sent: from its header to its last byte
)

var kinds = [...]string{"", "upload", "lookup", "fetch", "upstream", "queue", "connect", "attempt", "convert", "disk", "write"}

// String is the kind's name, as spans and `millrace slow` have it.
func (k Kind) String() string { return kinds[k] }

// MarshalText implements [encoding.TextMarshaler].
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. What is unknown is zero.
func (k *Kind) UnmarshalText(text []byte) error {
	*k = 0
	for i, name := range kinds {
		if name == string(text) {
			*k = Kind(i)
		}
	}
	return nil
}

// maxSteps bounds what is noted of one request: ten retries of a proxied one have
// forty. What comes after it is only counted.
const maxSteps = 64

// usualSteps is how many a proxied request has.
const usualSteps = 6

// A Step is a part of a request's time.
type Step struct {
	Kind   Kind          `json:"kind"`
	Note   string        `json:"note,omitempty"`  // what it was spent on: a server's address, a tier, how it ended
	Error  string        `json:"error,omitempty"` // why it failed
	Began  time.Duration `json:"began_ns"`        // after the request
	Took   time.Duration `json:"took_ns"`         // negative: it had not ended when the request did
	Parent int           `json:"parent"`          // the step that this one is a part of; -1: the request itself
	Span   SpanID        `json:"-"`
}

// ID is that of a trace (W3C Trace Context). Zero: none.
type ID [16]byte

// SpanID is that of a step in it. Zero: none.
type SpanID [8]byte

// String is the id in hexadecimal digits, as it is sent.
func (t ID) String() string { return hex.EncodeToString(t[:]) }

// String is the id in hexadecimal digits, as it is sent.
func (s SpanID) String() string { return hex.EncodeToString(s[:]) }

// Request is one request while it is served. Its methods are safe for concurrent
// use, and do nothing for a nil one.
type Request struct {
	tracer *Tracer // nil: nobody follows it
	began  time.Time

	mu      sync.Mutex
	context Context // of which it is part
	known   bool    // context has ids, and says whether it is sampled
	span    SpanID  // of the request itself
	id      string
	steps   []Step
	open    int // the step that is under way, and the next one's parent; -1: none
	lost    int // steps beyond maxSteps
	over    bool
}

// On reports whether anybody follows the request.
func (r *Request) On() bool { return r != nil && r.tracer != nil }

// ID is the request's id: the one that a trusted proxy has given it, or a new one,
// which is that of its trace. Empty where nobody asked for ids.
func (r *Request) ID() string {
	if !r.On() || r.tracer.header == "" {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id == "" {
		r.identify()
		r.id = r.context.Trace.String()
	}
	return r.id
}

// Header is the field of the request's id, in its canonical form; empty: it has none.
func (r *Request) Header() string {
	if !r.On() {
		return ""
	}
	return r.tracer.header
}

// identify gives the request a place in a trace, with mu held.
func (r *Request) identify() {
	if r.known {
		return
	}
	r.known = true
	if r.context.Trace == (ID{}) {
		random(r.context.Trace[:])
		r.context.Flags = randomFlag
		if r.tracer.samples(r.context.Trace) {
			r.context.Flags |= sampledFlag
		}
	}
	random(r.span[:])
}

// random fills an id. It need not be secret, only different from all others.
func random(id []byte) {
	for {
		zero := true
		for i := 0; i < len(id); i += 8 {
			n := rand.Uint64()
			zero = zero && n == 0
			for j := range 8 {
				id[i+j] = byte(n >> (8 * j))
			}
		}
		if !zero {
			return
		}
	}
}

// Span is a step that is under way. The zero one is of no request.
type Span struct {
	r  *Request
	at int
}

// Begin begins a step of the request that is served under a context. It is part of
// the step that is under way there, and must be ended before that one.
func Begin(ctx context.Context, k Kind) Span { return From(ctx).Begin(k) }

// Begin begins a step.
func (r *Request) Begin(k Kind) Span {
	if !r.On() {
		return Span{}
	}
	began := time.Since(r.began)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begin(Step{Kind: k, Began: began, Took: -1})
}

func (r *Request) begin(s Step) Span {
	switch {
	case r.over:
		return Span{}
	case len(r.steps) == maxSteps:
		r.lost++
		return Span{}
	}
	if s.Parent = r.open; r.steps == nil {
		r.steps = make([]Step, 0, usualSteps)
	}
	r.steps = append(r.steps, s)
	at := len(r.steps) - 1
	r.open = at
	return Span{r, at}
}

// Add adds a step that has ended.
func (r *Request) Add(s Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
}

// End ends the step. note says what it was spent on; err is why it failed, nil if
// it has not.
func (s Span) End(note string, err error) {
	if s.r == nil {
		return
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.over {
		return
	}
	step := &s.r.steps[s.at]
	step.Note, step.Took = note, time.Since(s.r.began)-step.Began
	if err != nil {
		step.Error = err.Error()
	}
	s.r.open = step.Parent
}

// Inject sets the fields that tell another server which request it works for:
// traceparent and tracestate where traces are continued, and the request's id
// where requests have one. The parent that it sees is the step under way. What a
// client has sent in these fields is replaced. header's names are canonical.
func (r *Request) Inject(header http.Header) {
	var room [3]field.Line
	for _, l := range r.Fields(room[:0]) {
		if delete(header, l.Name); l.Value != "" {
			header[l.Name] = []string{l.Value}
		}
	}
}

// Fields appends the fields that Inject sets. One without a value is not to be sent.
func (r *Request) Fields(lines []field.Line) []field.Line {
	if !r.On() {
		return lines
	}
	if id := r.ID(); id != "" {
		lines = append(lines, field.Line{Name: r.tracer.header, Value: id})
	}
	if !r.tracer.propagates {
		return lines
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(lines, field.Line{Name: parentField, Value: r.context.parentFor(r.parent())}, field.Line{Name: stateField, Value: r.context.State})
}

// parent is the span that another server's is below, with mu held.
func (r *Request) parent() SpanID {
	r.identify()
	switch {
	case !r.exported() && r.context.Span != (SpanID{}):
		return r.context.Span // nobody would find ours
	case r.open < 0:
		return r.span
	}
	step := &r.steps[r.open]
	if step.Span == (SpanID{}) {
		random(step.Span[:])
	}
	return step.Span
}

// exported reports whether the request's spans are sent to a collector.
func (r *Request) exported() bool { return r.tracer.exports && r.context.Sampled() }

// Sampled reports whether the request's spans are wanted by a collector.
func (r *Request) Sampled() bool {
	if !r.On() || !r.tracer.exports {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.identify()
	return r.exported()
}

// Summary is what the server knows of a request that has ended.
type Summary struct {
	Method string `json:"method"`
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	Target string `json:"target"` // without secrets
	Proto  string `json:"proto"`
	Client string `json:"client"`
	Agent  string `json:"user_agent,omitempty"`
	Site   string `json:"site"`
	Route  string `json:"route"`
	Job    string `json:"job"`
	Lane   string `json:"lane"` // through or slow
	Status int    `json:"status"`
	Bytes  int64  `json:"bytes"` // of the answer's body

	Took   time.Duration `json:"took_ns"`
	Headed time.Duration `json:"header_ns"` // after how long the answer's header was sent; zero: not by the job
}

// Trace is a request that has ended. It does not change any more.
type Trace struct {
	Summary
	ID    string    `json:"id"` // its id, or that of its trace
	Began time.Time `json:"began"`
	Steps []Step    `json:"steps"`
	Lost  int       `json:"steps_lost,omitempty"`

	Context Context `json:"-"`
	Span    SpanID  `json:"-"`
}

// End ends the request and returns what there is to say of it. Steps that end
// later are not noted.
func (r *Request) End(s Summary) *Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.identify()
	r.over = true
	if len(r.steps) == 0 && s.Headed > 0 && s.Job == "static" {
		r.steps = append(r.steps, Step{Kind: Disk, Took: s.Headed, Parent: -1})
	}
	if s.Headed > 0 && s.Headed < s.Took && len(r.steps) < maxSteps {
		r.steps = append(r.steps, Step{Kind: Write, Began: s.Headed, Took: s.Took - s.Headed, Parent: -1})
	}
	t := &Trace{Summary: s, ID: r.id, Began: r.began, Steps: r.steps, Lost: r.lost, Context: r.context, Span: r.span}
	if t.ID == "" {
		t.ID = r.context.Trace.String()
	}
	for i := range t.Steps {
		if t.Steps[i].Span == (SpanID{}) {
			random(t.Steps[i].Span[:])
		}
	}
	return t
}

// Forget ends a request of which nothing is to be said.
func (r *Request) Forget() {
	if r.On() {
		r.mu.Lock()
		r.over = true
		r.mu.Unlock()
	}
}
