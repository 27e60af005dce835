package match

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Template is a text with placeholders: {1} is the first capture, {name} one by
// its name, and {path}, {query}, {uri}, {host}, {scheme} and {address} are the
// request's.
type Template struct {
	parts []part
}

// part is text, or a placeholder.
type part struct {
	text    string
	group   int // -1: none
	request string
}

// variables are the placeholders for what a request says.
var variables = []string{"path", "query", "uri", "host", "scheme", "address"}

// NewTemplate compiles a text for captures of a path; nil: there are none.
func NewTemplate(text string, of *Path) (*Template, error) {
	t := &Template{}
	for rest := text; rest != ""; {
		i := strings.IndexByte(rest, '{')
		if i < 0 {
			t.parts = append(t.parts, part{text: rest, group: -1})
			break
		}
		if i > 0 {
			t.parts = append(t.parts, part{text: rest[:i], group: -1})
		}
		name, after, closed := strings.Cut(rest[i+1:], "}")
		if !closed {
			return nil, fmt.Errorf("%q: a \"{\" that is not closed", text)
		}
		rest = after
		if group := of.group(name); group >= 0 {
			t.parts = append(t.parts, part{group: group})
		} else if slices.Contains(variables, name) {
			t.parts = append(t.parts, part{group: -1, request: name})
		} else {
			return nil, fmt.Errorf("%q: there is no {%s}: %s; others are {%s}", text, name, of.groups(), strings.Join(variables, "}, {"))
		}
	}
	return t, nil
}

// Plain reports whether the template is only text.
func (t *Template) Plain() bool {
	return len(t.parts) == 0 || len(t.parts) == 1 && t.parts[0].text != ""
}

// Has reports whether a placeholder for something of the request is used.
func (t *Template) Has(variable string) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.request == variable })
}

// Says reports what of a request beside its path and listener has a say in the
// Path that the template makes: its host, or more than that.
func (t *Template) Says() (host, more bool) {
	inQuery := false
	for _, p := range t.parts {
		inQuery = inQuery || strings.Contains(p.text, "?")
		host = host || p.request == "host"
		more = more || p.request == "address" || p.request == "query" && !inQuery
	}
	return host, more
}

// value is what a placeholder stands for, decoded; {query} and {uri} as they came.
func (p part) value(r *http.Request, captures []string) string {
	if p.group >= 0 {
		if p.group < len(captures) {
			return captures[p.group]
		}
		return ""
	}
	switch p.request {
	case "path":
		return r.URL.Path
	case "query":
		return r.URL.RawQuery
	case "uri":
		return r.URL.RequestURI()
	case "host":
		return Host(r)
	case "scheme":
		if r.TLS != nil {
			return "https"
		}
		return "http"
	case "address":
		return Address(r)
	}
	return p.text
}

// Host is the name in a request's Host, without the port, in lower case.
func Host(r *http.Request) string {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// Address is the client's address as text.
func Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return host
}

// Path puts in what a request says, for a new path and query. A path that comes
// out without a slash in front gets one; more than one become one. The query is
// the template's own; without a "?" in it, the request's.
func (t *Template) Path(r *http.Request, captures []string) (path, query string) {
	var b, q strings.Builder
	inQuery := false
	for _, p := range t.parts {
		text := p.value(r, captures)
		literal := p.group < 0 && p.request == ""
		switch {
		case inQuery && (literal || p.request == "query"):
			q.WriteString(text)
		case inQuery:
			q.WriteString(url.QueryEscape(text))
		case literal:
			before, after, cut := strings.Cut(text, "?")
			b.WriteString(before)
			q.WriteString(after)
			inQuery = cut
		case p.request == "uri":
			b.WriteString(r.URL.Path)
		default:
			b.WriteString(text)
		}
	}
	path = "/" + strings.TrimLeft(b.String(), `/\`)
	if !inQuery {
		return path, r.URL.RawQuery
	}
	return path, q.String()
}

// Location puts in what a request says, escaped for an address. One that begins
// with a slash stays on its host.
func (t *Template) Location(r *http.Request, captures []string) string {
	var b strings.Builder
	for i, p := range t.parts {
		text := p.value(r, captures)
		switch {
		case p.group < 0 && p.request == "":
		case p.request == "query", p.request == "uri", p.request == "host", p.request == "scheme":
			text = strings.TrimLeft(text, "?")
		case strings.Contains(b.String(), "?"):
			text = url.QueryEscape(text)
		default:
			text = (&url.URL{Path: text}).EscapedPath()
			text = strings.TrimPrefix(text, "./") // added before a colon
		}
		if i > 0 && strings.HasSuffix(b.String(), "/") && p.text == "" {
			text = strings.TrimLeft(text, `/\`)
		}
		b.WriteString(text)
	}
	to := b.String()
	if t.local() {
		return "/" + strings.TrimLeft(to, `/\`)
	}
	return to
}

// local reports whether a Location stays on the request's host.
func (t *Template) local() bool {
	if len(t.parts) == 0 {
		return true
	}
	first := t.parts[0]
	return strings.HasPrefix(first.text, "/") || first.text == "" && first.request != "scheme"
}
