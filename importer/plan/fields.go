package plan

import (
	"net/textproto"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/internal/route/headers"
)

// Fields are rules for the header fields of answers, or of requests for an upstream.
type Fields struct {
	Requests bool

	set, add, fallback *draft.Node
	remove             []string // names
}

// Put adds a rule: set, add, default or remove. Where the field is not the operator's, it
// says why, and adds none.
func (f *Fields) Put(op headers.Op, name, value string) (why string) {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	if why = headers.MayAnswer(canonical, op); f.Requests {
		why = ofRequest(canonical)
	} else if why != "" && op == headers.Set && headers.MayAnswer(canonical, headers.Add) == "" {
		op, why = headers.Add, ""
	}
	if why != "" {
		return name + ": " + why
	}
	to := map[headers.Op]**draft.Node{headers.Set: &f.set, headers.Add: &f.add, headers.Default: &f.fallback}[op]
	if to == nil {
		f.remove = draft.AppendNew(f.remove, name)
		return ""
	}
	if *to == nil {
		*to = draft.Map().Flow()
	}
	(*to).Set(name, draft.Text(value))
	return ""
}

// ofRequest says why a field of requests is not the operator's, "" if it is.
func ofRequest(name string) string {
	switch {
	case slices.Contains(strings.Fields("Connection Content-Length Expect Http2-Settings Keep-Alive Proxy Proxy-Authenticate Proxy-Authentication-Info Proxy-Authorization Proxy-Connection Te Trailer Transfer-Encoding Upgrade"), name):
		return "it belongs to the connection, and what comes of it reaches no upstream"
	case name == "Forwarded", name == "X-Forwarded-For", name == "Via":
		return "upstreams are told who the client is unasked"
	}
	return ""
}

// Has reports whether a rule sets a field.
func (f *Fields) Has(name string) bool { return f.set.Get(name) != nil }

// Node are the rules, empty if there are none.
func (f *Fields) Node() *draft.Node {
	return draft.Map().FillTexts("remove", f.remove).Fill("set", f.set).Fill("add", f.add).Fill("default", f.fallback)
}

// When are the rules with others that hold for answers with some statuses alone.
func (f *Fields) When(others *Fields, statuses ...string) *draft.Node {
	n := f.Node()
	if more := others.Node(); more.Len() > 0 {
		list := draft.List().Flow()
		list.Add(more.On(draft.Map().Set("status", draft.Texts(statuses...))).Flow())
		n.Set("when", list)
	}
	return n
}
