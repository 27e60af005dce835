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

	list []field
}

// Answers says which answers a rule is for, all of it; without anything, every answer.
type Answers struct {
	Status, Type []string
	Protocol     string
}

func (a Answers) equal(o Answers) bool {
	return slices.Equal(a.Status, o.Status) && slices.Equal(a.Type, o.Type) && a.Protocol == o.Protocol
}

// field is one rule.
type field struct {
	of          Answers
	op          headers.Op
	name, value string
}

func (f field) equal(o field) bool { return f.same(o) && f.value == o.value }

// same reports whether the rules differ in their values at most.
func (f field) same(o field) bool { return f.op == o.op && f.name == o.name && f.of.equal(o.of) }

// Fields are rules for the answers of the site.
func (t *Site) Fields() Fields {
	return Fields{TLS: slices.ContainsFunc(t.Servers, func(s *Server) bool { return !s.OnlyPlain() })}
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
	f.add(field{of, op, name, strings.TrimSpace(value)}) // as it arrives
	return ""
}

// add adds a rule, or takes its value over into one that is there.
func (f *Fields) add(rule field) {
	if i := slices.IndexFunc(f.list, rule.same); i >= 0 {
		f.list[i].value = rule.value
		return
	}
	f.list = append(f.list, rule)
}

// Join adds all rules of others.
func (f *Fields) Join(o Fields) {
	f.list = slices.Clone(f.list)
	for _, rule := range o.list {
		f.add(rule)
	}
}

// without are the rules that others do not have.
func (f Fields) without(o Fields) Fields {
	f.list = slices.DeleteFunc(slices.Clone(f.list), func(rule field) bool { return slices.ContainsFunc(o.list, rule.equal) })
	if f.Empty() {
		return Fields{}
	}
	return f
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
func (f Fields) Has(name string) bool {
	return slices.ContainsFunc(f.list, func(r field) bool { return r.op == headers.Set && r.name == name })
}

// Empty reports whether there are no rules.
func (f Fields) Empty() bool { return len(f.list) == 0 }

// Node are the rules, nil if there are none: those for all answers, and "when" with those for
// some.
func (f Fields) Node() *draft.Node {
	if f.Empty() {
		return nil
	}
	n, when := draft.Map(), draft.List().Flow()
	var done []Answers
	for _, first := range f.list {
		if slices.ContainsFunc(done, first.of.equal) {
			continue
		}
		done = append(done, first.of)
		conditions := draft.Map().FillTexts("status", first.of.Status).FillTexts("type", first.of.Type)
		if first.of.Protocol != "" {
			conditions.Set("protocol", draft.Text(first.of.Protocol))
		}
		if conditions.Len() == 0 {
			f.rules(first.of).CopyTo(n)
		} else {
			when.Add(f.rules(first.of).On(conditions).Flow())
		}
	}
	return n.Fill("when", when)
}

// rules are those for some answers.
func (f Fields) rules(of Answers) *draft.Node {
	var removed []string
	maps := map[headers.Op]*draft.Node{headers.Set: draft.Map().Flow(), headers.Add: draft.Map().Flow(), headers.Default: draft.Map().Flow()}
	for _, r := range f.list {
		switch {
		case !r.of.equal(of):
		case maps[r.op] == nil:
			removed = append(removed, r.name)
		default:
			maps[r.op].Set(r.name, draft.Text(r.value))
		}
	}
	return draft.Map().FillTexts("remove", removed).Fill("set", maps[headers.Set]).Fill("add", maps[headers.Add]).Fill("default", maps[headers.Default])
}
