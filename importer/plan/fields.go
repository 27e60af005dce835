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
	// TLS: the site is served over TLS and over plain HTTP, where browsers must not be told
	// to come over TLS (RFC 6797, 7.2).
	TLS bool

	lists []fieldList
}

// Answers says which answers a rule is for, all of it; without anything, every answer.
type Answers struct {
	Status, Type []string
	Protocol     string
}

// fieldList are the rules for some answers.
type fieldList struct {
	of                 Answers
	set, add, fallback *draft.Node
	remove             []string // names
}

// Fields are rules for the answers of the site.
func (t *Site) Fields() *Fields {
	return &Fields{TLS: slices.ContainsFunc(t.Servers, func(s *Server) bool { return !s.OnlyPlain() })}
}

// Put adds a rule: set, add, default or remove. Where the field is not the operator's, it
// says why, and adds none.
func (f *Fields) Put(of Answers, op headers.Op, name, value string) (why string) {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	if why = headers.MayAnswer(canonical, op); f.Requests {
		why = ofRequest(canonical)
	} else if why != "" && op == headers.Set && headers.MayAnswer(canonical, headers.Add) == "" {
		op, why = headers.Add, ""
	}
	if why != "" {
		return name + ": " + why
	}
	if canonical == "Strict-Transport-Security" && f.TLS && op != headers.Remove {
		of.Protocol = "https"
	}
	l := f.list(of)
	to := map[headers.Op]**draft.Node{headers.Set: &l.set, headers.Add: &l.add, headers.Default: &l.fallback}[op]
	if to == nil {
		l.remove = draft.AppendNew(l.remove, name)
		return ""
	}
	if *to == nil {
		*to = draft.Map().Flow()
	}
	(*to).Set(name, draft.Text(strings.TrimSpace(value))) // as it arrives
	return ""
}

// list are the rules for some answers, empty ones if there are none yet.
func (f *Fields) list(of Answers) *fieldList {
	same := func(l fieldList) bool {
		return slices.Equal(l.of.Status, of.Status) && slices.Equal(l.of.Type, of.Type) && l.of.Protocol == of.Protocol
	}
	i := slices.IndexFunc(f.lists, same)
	if i < 0 {
		i, f.lists = len(f.lists), append(f.lists, fieldList{of: of})
	}
	return &f.lists[i]
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
func (f *Fields) Has(name string) bool {
	return slices.ContainsFunc(f.lists, func(l fieldList) bool { return l.set.Get(name) != nil })
}

// Node are the rules, empty if there are none.
func (f *Fields) Node() *draft.Node {
	n, when := draft.Map(), draft.List().Flow()
	for _, l := range f.lists {
		rules := draft.Map().FillTexts("remove", l.remove).Fill("set", l.set).Fill("add", l.add).Fill("default", l.fallback)
		conditions := draft.Map().FillTexts("status", l.of.Status).FillTexts("type", l.of.Type)
		if l.of.Protocol != "" {
			conditions.Set("protocol", draft.Text(l.of.Protocol))
		}
		if conditions.Len() == 0 {
			rules.CopyTo(n)
			continue
		}
		when.Add(rules.On(conditions).Flow())
	}
	return n.Fill("when", when)
}
