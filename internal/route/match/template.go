package match

import (
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"millrace/internal/wire/urlpath"
)

// Template is a text with placeholders: {1} is the first capture, {name} one by
// its name, and {path}, {rest}, {query}, {uri}, {host}, {scheme} and {address} are
// the request's, {rest} its path without the slash in front, as are {query.NAME}, {header.NAME} and {cookie.NAME}; {table.NAME}
// is what a table has for it.
type Template struct {
	parts []part

	headers []string // see Says
	more    bool
}

// part is text, or a placeholder.
type part struct {
	text    string
	group   int // -1: none
	request string
	name    string // of a parameter, a header or a cookie
	table   *Table
	client  addressBy
}

// literal reports whether the operator has written it: it is not escaped.
func (p part) literal() bool { return p.group < 0 && p.request == "" }

// variables are the placeholders for what a request says.
var variables = []string{"path", "rest", "query", "uri", "host", "scheme", "address"}

// NewTemplate compiles a text for captures of a path; nil: there are none.
func NewTemplate(text string, of *Path, in *Scope) (*Template, error) {
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
		} else if p, ok, err := variable(name, in); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		} else if ok {
			t.parts = append(t.parts, p)
		} else {
			return nil, fmt.Errorf("%q: there is no {%s}: %s; others are {%s}", text, name, of.groups(), strings.Join(variables, "}, {"))
		}
	}
	t.headers, t.more = t.says()
	return t, nil
}

// variable is a placeholder for what a request says, or for what a table has.
func variable(name string, in *Scope) (p part, ok bool, err error) {
	p = part{group: -1, request: name}
	if in != nil {
		p.client = in.Client
	}
	if slices.Contains(variables, name) {
		return p, true, nil
	}
	p.request, p.name, ok = strings.Cut(name, ".")
	switch p.request {
	case "table":
		p.request = ""
		p.table, err = in.table(p.name)
	case "header":
		p.name = textproto.CanonicalMIMEHeaderKey(p.name)
	case "query", "cookie":
		p.request += "." // one of its parts
	default:
		ok = false
	}
	return p, ok && p.name != "", err
}

// Plain reports whether the template is only text.
func (t *Template) Plain() bool {
	return len(t.parts) == 0 || len(t.parts) == 1 && t.parts[0].text != ""
}

// Has reports whether a placeholder for something of the request is used.
func (t *Template) Has(variable string) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.request == variable })
}

// Says reports what of a request beside its path and listener has a say in what
// the template makes of it: header fields, or more than that.
func (t *Template) Says() (headers []string, more bool) { return t.headers, t.more }

func (t *Template) says() (headers []string, more bool) {
	inQuery := false
	for _, p := range t.parts {
		inQuery = inQuery || strings.Contains(p.text, "?")
		switch p.request {
		case "host":
			headers = append(headers, "Host")
		case "header":
			headers = append(headers, p.name)
		case "cookie.":
			headers = append(headers, "Cookie")
		case "address", "query.":
			more = true
		case "query":
			more = more || !inQuery
		}
		if p.table != nil && p.table.key != nil {
			h, m := p.table.key.Says()
			headers, more = append(headers, h...), more || m
		}
	}
	return headers, more
}

// Captures reports whether captures of a path are used.
func (t *Template) Captures() bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.group >= 0 })
}

// Tables are those without a default: what is made of a request means nothing
// where they have no entry for it.
func (t *Template) Tables() (list []*Table) {
	for _, p := range t.parts {
		if p.table != nil && !p.table.has {
			list = append(list, p.table)
		}
	}
	return list
}

// Text puts in what a request says, as it is.
func (t *Template) Text(r *Asked, captures []string) string {
	if len(t.parts) == 1 {
		return t.parts[0].value(r, captures)
	}
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.value(r, captures))
	}
	return b.String()
}

// value is what a placeholder stands for, decoded; {query} and {uri} as they came.
func (p part) value(r *Asked, captures []string) string {
	if p.group >= 0 {
		if p.group < len(captures) {
			return captures[p.group]
		}
		return ""
	}
	switch p.request {
	case "path":
		return r.Path
	case "rest":
		return strings.TrimPrefix(r.Path, "/")
	case "query":
		return r.Query
	case "uri":
		return r.URI()
	case "host":
		return Host(r.Head.Host)
	case "scheme":
		return r.Head.Scheme()
	case "address":
		return p.address(r)
	case "header":
		return r.Head.Fields.First(p.name)
	case "query.":
		values, _ := url.ParseQuery(r.Query) // what can be read of it
		return values.Get(p.name)
	case "cookie.":
		return r.Head.Fields.Cookie(p.name)
	}
	if p.table != nil {
		text, _ := p.table.Value(r)
		return text
	}
	return p.text
}

func (p part) address(r *Asked) string {
	if a := p.client.of(r); a.IsValid() {
		return a.String()
	}
	return ""
}

// Path puts in what a request says, for a new path and query. The path is clean (see
// [urlpath.Made]); one that comes out without a slash in front gets one. The query is
// the template's own; without a "?" in it, the request's. ok is false where what the
// request says would lead elsewhere than the text does: by dot segments, or by a host
// that is none, which would leave another's name in its place.
func (t *Template) Path(r *Asked, captures []string) (path, query string, ok bool) {
	var b, q strings.Builder
	inQuery := false
	for _, p := range t.parts {
		text := p.value(r, captures)
		literal := p.literal()
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
			b.WriteString(r.Path)
		case p.request == "host" && text == "":
			return "", "", false
		default:
			b.WriteString(text)
		}
	}
	path, ok = urlpath.Made("/" + strings.TrimLeft(b.String(), `/\`))
	if !inQuery {
		return path, r.Query, ok
	}
	return path, q.String(), ok
}

// Location puts in what a request says, escaped for an address. One that begins
// with a slash stays on its host. ok is false where what the request says would make
// it an address of another host than the text does, or lead out of its folder.
func (t *Template) Location(r *Asked, captures []string) (to string, ok bool) {
	var b strings.Builder
	for i, p := range t.parts {
		text := p.value(r, captures)
		place := placeIn(b.String())
		switch {
		case p.literal():
		case place == inHost && !t.fitsHost(i, text, b.String()):
			return "", false
		case place == inHost && text != "" && text[0] != '/':
		case p.request == "query", p.request == "uri", p.request == "scheme":
			text = strings.TrimLeft(text, "?")
		case p.request == "host" && text == "":
			return "", false
		case p.request == "host":
		case place == inQuery:
			text = url.QueryEscape(text)
		default:
			text = (&url.URL{Path: text}).EscapedPath()
			text = strings.TrimPrefix(text, "./") // added before a colon
		}
		if i > 0 && strings.HasSuffix(b.String(), "/") && p.text == "" && (p.table == nil || i == 1) {
			text = strings.TrimLeft(text, `/\`)
		}
		b.WriteString(text)
	}
	to = b.String()
	if len(t.parts) > 0 && t.parts[0].table != nil && strings.Contains(to, "://") {
		return to, true // the operator has written it, with its host
	}
	if t.local() {
		to = "/" + strings.TrimLeft(to, `/\`)
	}
	return to, t.Plain() || !urlpath.LeadsOut(to)
}

// The places in an address where a value may stand.
const (
	inPath = iota
	inHost // the scheme stands before it, and no slash of the path yet
	inQuery
)

func placeIn(address string) int {
	if strings.Contains(address, "?") {
		return inQuery
	}
	if _, rest, has := strings.Cut(address, "://"); has && !strings.Contains(rest, "/") {
		return inHost
	}
	return inPath
}

// fitsHost reports whether the value of a part may stand behind what is there of an
// address's host: as a part of that, or as a path that ends it. It must not make the
// name go on that the operator has written to its end.
func (t *Template) fitsHost(i int, value, before string) bool {
	switch {
	case value == "" || value[0] == '/':
		return !strings.HasSuffix(before, "://")
	case !isHost(value):
		return false
	}
	goesOn := i+1 < len(t.parts) && t.parts[i+1].literal() && t.parts[i+1].table == nil && strings.IndexByte("/?#:", t.parts[i+1].text[0]) < 0
	return goesOn || strings.IndexByte("/.-", before[len(before)-1]) >= 0
}

// local reports whether a Location stays on the request's host.
func (t *Template) local() bool {
	if len(t.parts) == 0 {
		return true
	}
	first := t.parts[0]
	return strings.HasPrefix(first.text, "/") || first.text == "" && first.request != "scheme"
}
