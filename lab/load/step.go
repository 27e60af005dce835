package load

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"millrace/lab/load/client"
)

// A Step is one request of a [Config]. In its path, header, body, form and
// expectations {{name}} stands for a column of [Config.Data], for what an earlier
// step has taken from an answer, or, as {{number}}, for a number that no other
// request has.
type Step struct {
	Name   string            `yaml:"name"`   // in reports; empty: method and path
	Method string            `yaml:"method"` // empty: GET, or POST with a body
	Path   string            `yaml:"path"`   // "/a?b=c"
	Header map[string]string `yaml:"header"` // beside [Config.Header], whose fields of the same names it replaces
	Body   *string           `yaml:"body"`
	Form   []string          `yaml:"form"` // name=value, sent as application/x-www-form-urlencoded
	// Expect says what a right answer is: "status 200,304", "status 2xx",
	// "header Name", "header Name: value", "body contains text", "json a.b[0]" or
	// "json a.b[0] = value".
	Expect []string `yaml:"expect"`
	// Take gives names to what later steps need of the answer: "header Name",
	// "json a.b[0]", or "body (regular) expression", whose first group counts. An
	// answer that has it not is not right.
	Take map[string]string `yaml:"take"`
}

// Data are rows of values, by the names of their columns.
type Data struct {
	Columns []string
	Rows    [][]string
}

// number is the name of what no two requests share.
const number = "number"

// A step is a Step that was read.
type step struct {
	name     string
	method   string
	path     template
	header   []field // Host and those of Config among them
	body     template
	hasBody  bool
	head     template // method, path and header as HTTP/1.1 has them, without an empty line
	checks   []check
	takes    []take
	varies   bool // it has names in braces
	readHead bool // checks, takes or cookies need the header
	readBody bool
}

// A field is one line of a request's header.
type field struct {
	name  string
	value template
}

// A template is text with values in it.
type template []part

// A part is text, or the name of a value.
type part struct {
	text string
	as   writing
}

// writing is how a value is written where it stands.
type writing uint8

const (
	literal  writing = iota // no value: the text itself
	asIs                    // in a body
	inTarget                // what cannot stand in a URL is percent-encoded, and nothing else
	inField                 // without what would end the line
	inForm                  // percent-encoded as forms are
)

// parseTemplate reads text. What is in braces and is no name is text.
func parseTemplate(s string, as writing) (t template) {
	for {
		before, rest, ok := strings.Cut(s, "{{")
		if !ok {
			break
		}
		name, after, closed := strings.Cut(rest, "}}")
		if trimmed := strings.TrimSpace(name); closed && isName(trimmed) {
			t = append(t.literally(before), part{trimmed, as})
			s = after
			continue
		}
		t = t.literally(before + "{{")
		s = rest
	}
	return t.literally(s)
}

func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// literally adds text as it is.
func (t template) literally(s string) template {
	if n := len(t); n > 0 && t[n-1].as == literal {
		t[n-1].text += s
		return t
	}
	if s == "" {
		return t
	}
	return append(t, part{s, literal})
}

// names are the values that it needs.
func (t template) names() (names []string) {
	for _, p := range t {
		if p.as != literal {
			names = append(names, p.text)
		}
	}
	return names
}

// fill appends the text with a client's values.
func (t template) fill(dst []byte, v *visitor) []byte {
	for _, p := range t {
		value := p.text
		if p.as != literal {
			value = v.value(p.text)
		}
		switch p.as {
		case inForm:
			dst = append(dst, url.QueryEscape(value)...)
		case inTarget:
			for i := range len(value) {
				if c := value[i]; c <= ' ' || c >= 0x7f || c == '#' {
					dst = fmt.Appendf(dst, "%%%02X", c)
				} else {
					dst = append(dst, c)
				}
			}
		case inField:
			for i := range len(value) {
				if c := value[i]; c < ' ' || c == 0x7f {
					dst = append(dst, ' ')
				} else {
					dst = append(dst, c)
				}
			}
		default:
			dst = append(dst, value...)
		}
	}
	return dst
}

func (t template) string(v *visitor) string { return string(t.fill(nil, v)) }

// read makes a step of what was written. Config's header and expectations hold for
// each of them.
func (p *plan) read(s Step) (*step, error) {
	out := &step{name: s.Name, method: strings.ToUpper(s.Method), path: parseTemplate(s.Path, inTarget)}
	if err := checkPath(s.Path); err != nil {
		return nil, err
	}
	content := ""
	switch {
	case s.Body != nil && s.Form != nil:
		return nil, errors.New("it has a body and a form: leave one of them out")
	case s.Body != nil:
		out.hasBody, out.body = true, parseTemplate(*s.Body, asIs)
	case s.Form != nil:
		out.hasBody, content = true, "application/x-www-form-urlencoded"
		for i, pair := range s.Form {
			name, value, ok := strings.Cut(pair, "=")
			if !ok {
				return nil, fmt.Errorf("the form's %q is not name=value", pair)
			}
			if i > 0 {
				out.body = out.body.literally("&")
			}
			out.body = out.body.literally(url.QueryEscape(name) + "=")
			for _, part := range parseTemplate(value, inForm) {
				if part.as == literal {
					out.body = out.body.literally(url.QueryEscape(part.text))
				} else {
					out.body = append(out.body, part)
				}
			}
		}
	}
	switch {
	case out.method == "" && out.hasBody:
		out.method = http.MethodPost
	case out.method == "":
		out.method = http.MethodGet
	case strings.ContainsFunc(out.method, func(r rune) bool { return r > 0x7f || !token[r] }), out.method == http.MethodConnect:
		return nil, fmt.Errorf("the method %q cannot be sent", s.Method)
	}
	if out.name == "" {
		out.name = out.method + " " + s.Path
	}
	if err := p.fields(out, s, content); err != nil {
		return nil, err
	}
	return out, out.demands(slices.Concat(p.Expect, s.Expect), s.Take)
}

func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "{{") || strings.ContainsFunc(bareOf(path), func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return errors.New("this is no path: begin it with / and write spaces as %20")
	}
	return nil
}

// bareOf is text without the names in it.
func bareOf(s string) string {
	bare := ""
	for _, p := range parseTemplate(s, asIs) {
		if p.as == literal {
			bare += p.text
		}
	}
	return bare
}

// fields puts a step's header together. content is the type of its body, where
// nobody names another.
func (p *plan) fields(out *step, s Step, content string) error {
	header := p.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	for name, value := range s.Header {
		for old := range header {
			if strings.EqualFold(old, name) {
				delete(header, old)
			}
		}
		header[name] = []string{value}
	}
	if content != "" && header.Get("Content-Type") == "" {
		header.Set("Content-Type", content)
	}
	if p.OneShot && p.Protocol == HTTP1 && header.Get("Connection") == "" {
		header.Set("Connection", "close")
	}
	host := p.host
	var fields []field
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if err := checkHeader(name, header[name]); err != nil {
			return err
		}
		switch canonical := http.CanonicalHeaderKey(name); {
		case canonical == "Host" && len(header[name]) > 0:
			host = header[name][0]
			continue
		case canonical == "Cookie" && p.Cookies:
			return fmt.Errorf("cookies are kept and the header Cookie is given: leave one of them out")
		}
		for _, value := range header[name] {
			fields = append(fields, field{name, parseTemplate(value, inField)})
		}
	}
	out.header = append([]field{{"Host", parseTemplate(host, inField)}}, fields...)
	out.head = append(out.head.literally(out.method+" "), out.path...)
	out.head = out.head.literally(" HTTP/1.1\r\n")
	for _, f := range out.header {
		out.head = out.head.literally(f.name + ": ")
		for _, part := range f.value {
			if part.as == literal {
				out.head = out.head.literally(part.text)
			} else {
				out.head = append(out.head, part)
			}
		}
		out.head = out.head.literally("\r\n")
	}
	out.varies = len(out.names()) > 0
	out.readHead = p.Cookies
	return nil
}

func checkHeader(name string, values []string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f || !token[r] }) {
		return fmt.Errorf("the header's name %q cannot be sent: it may hold letters, digits and -", name)
	}
	switch name = http.CanonicalHeaderKey(name); name {
	case "Content-Length", "Transfer-Encoding", "Expect", "Upgrade":
		return fmt.Errorf("the header %s cannot be sent: it is the load's to say whether requests have a body; leave it out", name)
	}
	for _, v := range values {
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return fmt.Errorf("the value %q of the header %s holds a control character: leave it out", v, name)
		}
	}
	return nil
}

// text is the request as HTTP/1.1 has it.
func (s *step) text(dst []byte, v *visitor) []byte {
	dst = s.head.fill(dst, v)
	if cookies := v.cookie(s.path); cookies != "" {
		dst = append(append(append(dst, "Cookie: "...), cookies...), "\r\n"...)
	}
	if !s.hasBody {
		return append(dst, "\r\n"...)
	}
	body := s.body.fill(nil, v)
	dst = append(strconv.AppendInt(append(dst, "Content-Length: "...), int64(len(body)), 10), "\r\n\r\n"...)
	return append(dst, body...)
}

// request is the request as [client.Asker] takes it.
func (s *step) request(v *visitor) client.Request {
	r := client.Request{Method: s.method, Path: s.path.string(v), Header: make(http.Header, len(s.header)+1)}
	for _, f := range s.header {
		r.Header[f.name] = append(r.Header[f.name], f.value.string(v))
	}
	if cookies := v.cookie(s.path); cookies != "" {
		r.Header.Set("Cookie", cookies)
	}
	if s.hasBody {
		r.Body = s.body.fill([]byte{}, v)
	}
	return r
}

// withNumber is a path with a parameter that no other request has.
func withNumber(path string) string {
	if strings.Contains(path, "?") {
		return path + "&n={{number}}"
	}
	return path + "?n={{number}}"
}

// names are the values that it needs.
func (s *step) names() []string {
	names := append(s.head.names(), s.body.names()...)
	for _, c := range s.checks {
		names = append(names, c.want.names()...)
	}
	return names
}

// missing is a value that the step needs and that nothing gives; empty: there is none.
func (s *step) missing(known []string) string {
	for _, name := range s.names() {
		if !slices.Contains(known, name) {
			return name
		}
	}
	return ""
}
