// Package pages makes the answers that the server gives in its own name when a request
// fails: what happened and what to do about it, in one or two sentences. It has the style
// of all pages that are built in, so that they look alike.
//
// A browser gets HTML, a program that asks for JSON gets problem details (RFC 9457), and
// everybody else, such as curl, gets a line of text. None of them says anything about what
// stands behind the server: no addresses, no names of files.
package pages

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/internal/wire/field"
	"millrace/internal/wire/send"
)

// Form is how an answer is written.
type Form uint8

// The forms.
const (
	Text Form = iota
	HTML
	JSON
	Forms = iota // how many there are
)

// maxAccept is how many members of Accept are looked at.
const maxAccept = 16

// FormOf returns the form that a client with these lines of Accept likes best: HTML or JSON
// where it names them, or else text. Of equals the first one counts. Wildcards are not
// looked at: browsers send them for pictures, curl for everything.
func FormOf(accept []string) Form {
	switch {
	case len(accept) == 0 || len(accept) == 1 && accept[0] == "*/*":
		return Text
	case strings.HasPrefix(accept[0], "text/html,"): // a browser: no other weight is higher
		return HTML
	}
	best, form, members := 0, Text, 0
	for member := range field.QuotedMembers(accept) {
		if members++; members > maxAccept {
			break
		}
		if of, q, ok := formOf(member); ok && q > best {
			best, form = q, of
		}
	}
	return form
}

// formOf reads a member of Accept such as `text/html;q=0.5`. The weight is in thousandths.
func formOf(member string) (form Form, q int, ok bool) {
	name, params, more := strings.Cut(member, ";")
	q = 1000
	for more {
		var p string
		p, params, more = field.Cut(params, ';')
		if key, value, _ := strings.Cut(strings.TrimSpace(p), "="); strings.EqualFold(key, "q") {
			q, _ = field.Weight(value) // an invalid one is zero
		}
	}
	switch name = field.Lower(strings.TrimSpace(name)); {
	case name == "text/html", name == "application/xhtml+xml":
		return HTML, q, true
	case name == "application/json", strings.HasPrefix(name, "application/") && strings.HasSuffix(name, "+json"):
		return JSON, q, true
	}
	return Text, q, strings.HasPrefix(name, "text/")
}

// Error answers a request with an error, in the form that the client likes best. text says
// what happened; if it is empty, there is one for the status. When to try again is added,
// from the header's Retry-After, and the request's id where it has one.
//
// Fields of the header are kept, but for those that describe the body.
func Error(w http.ResponseWriter, r *http.Request, status int, text string) {
	ErrorOf(w, r, status, text, idOf(w))
}

// ErrorOf is Error for a failure whose id is in the log.
func ErrorOf(w http.ResponseWriter, r *http.Request, status int, text, id string) {
	h := w.Header()
	p := problem{form: FormOf(r.Header["Accept"]), status: status, text: text, id: id}
	if retry := h["Retry-After"]; len(retry) == 1 {
		p.wait, _ = strconv.Atoi(retry[0])
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	body := p.append((*buf)[:0])
	*buf = body
	p.setHeader(h, len(body))
	if id != "" {
		h["Cache-Control"] = noStore
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

// Prepare returns what Error answers in a form, for those who send it often. wait is
// Retry-After in seconds, 0 for none.
func Prepare(form Form, status int, text string, wait int) *send.Answer {
	p := problem{form: form, status: status, text: text, wait: wait}
	a := &send.Answer{Status: status, Body: p.append(nil), Header: http.Header{}}
	a.Size = int64(len(a.Body))
	p.setHeader(a.Header, len(a.Body))
	if wait > 0 {
		a.Header["Retry-After"] = []string{strconv.Itoa(wait)}
	}
	return a
}

// Unread returns a whole answer of HTTP/1.1 for a request that could not be read, as HTML. The
// connection ends behind it, as nobody knows where a next request would begin.
func Unread(status int, text string) []byte {
	a := Prepare(HTML, status, text, 0)
	b := append(strconv.AppendInt([]byte("HTTP/1.1 "), int64(status), 10), ' ')
	b = append(b, http.StatusText(status)...)
	delete(a.Header, "Vary") // everybody gets it
	a.Header["Connection"] = []string{"close"}
	a.Header["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		b = append(append(append(append(b, "\r\n"...), name...), ": "...), a.Header[name][0]...)
	}
	return append(append(b, "\r\n\r\n"...), a.Body...)
}

// idOf returns the id of the request that w answers, "" where it has none.
func idOf(w http.ResponseWriter) string {
	for {
		switch x := w.(type) {
		case interface{ RequestID() string }:
			return x.RequestID()
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return ""
		}
	}
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Shared by all answers, and never changed.
var (
	types   = [...][]string{Text: {"text/plain; charset=utf-8"}, HTML: {"text/html; charset=utf-8"}, JSON: {"application/problem+json"}}
	nosniff = []string{"nosniff"}
	noStore = []string{"no-store"}
	vary    = []string{"Accept"}
	policy  = []string{ownPolicy}
)

// problem is what an answer says.
type problem struct {
	form   Form
	status int
	text   string // "": that of the status
	id     string // of the request; "" for none
	wait   int    // seconds until the client may try again; 0: it is not known
}

func (p *problem) setHeader(h http.Header, length int) {
	h["Content-Type"] = types[p.form]
	h["Content-Length"] = []string{strconv.Itoa(length)}
	h["X-Content-Type-Options"] = nosniff
	switch old := h["Vary"]; {
	case len(old) == 0:
		h["Vary"] = vary
	case !field.Has(old, "accept") && !field.Has(old, "*"):
		h["Vary"] = append(slices.Clip(old), "Accept")
	}
	if p.form == HTML {
		h["Content-Security-Policy"] = policy
	} else {
		delete(h, "Content-Security-Policy")
	}
}

func (p *problem) append(b []byte) []byte {
	says := messages[p.status]
	if says.title == "" {
		says.title = http.StatusText(p.status)
	}
	if p.text != "" {
		says.text = strings.TrimSuffix(p.text, "\n")
	}
	switch p.form {
	case HTML:
		return p.appendHTML(b, says)
	case JSON:
		return p.appendJSON(b, says.text)
	}
	if says.text == "" {
		says.text = strconv.Itoa(p.status) + " " + says.title
	}
	b = p.appendAdvice(append(b, says.text...), says.text)
	if p.id != "" {
		b = append(append(b, "\nRequest id: "...), p.id...)
	}
	return append(b, '\n')
}

// appendAdvice appends when to try again, behind a text.
func (p *problem) appendAdvice(b []byte, text string) []byte {
	if p.wait <= 0 && (p.status < http.StatusInternalServerError || p.status > http.StatusGatewayTimeout || p.status == http.StatusNotImplemented) {
		return b
	}
	if text != "" {
		b = append(b, ' ')
	}
	if p.wait <= 0 {
		return append(b, "Try again in a moment."...)
	}
	return append(appendWait(append(b, "Try again in "...), p.wait), '.')
}

// appendWait appends seconds as people say them, and never less.
func appendWait(b []byte, seconds int) []byte {
	const minute, hour, many = 60, 3600, 90
	n, unit := seconds, " second"
	switch {
	case seconds > many*minute:
		n, unit = (seconds+hour-1)/hour, " hour"
	case seconds > many:
		n, unit = (seconds+minute-1)/minute, " minute"
	}
	b = append(strconv.AppendInt(b, int64(n), 10), unit...)
	if n != 1 {
		b = append(b, 's')
	}
	return b
}

func (p *problem) appendHTML(b []byte, says words) []byte {
	title := html.EscapeString(says.title)
	b = append(append(append(b, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>`...), title...), "</title>\n<style>"+Style+"</style>\n</head>\n<body>\n<main>\n<p class=\"soft\">Error "...)
	b = append(append(append(strconv.AppendInt(b, int64(p.status), 10), "</p>\n<h1>"...), title...), "</h1>\n<p>"...)
	text := html.EscapeString(says.text)
	b = append(p.appendAdvice(append(b, text...), text), "</p>\n"...)
	if p.id != "" {
		b = append(append(append(b, "<p class=\"soft\">Request id: <code>"...), html.EscapeString(p.id)...), "</code></p>\n"...)
	}
	return append(b, "</main>\n</body>\n</html>\n"...)
}

func (p *problem) appendJSON(b []byte, text string) []byte {
	b = appendString(append(b, `{"title":`...), http.StatusText(p.status))
	b = strconv.AppendInt(append(b, `,"status":`...), int64(p.status), 10)
	if detail := string(p.appendAdvice([]byte(text), text)); detail != "" {
		b = appendString(append(b, `,"detail":`...), detail)
	}
	if p.wait > 0 {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), int64(p.wait), 10)
	}
	if p.id != "" {
		b = appendString(append(b, `,"id":`...), p.id)
	}
	return append(b, "}\n"...)
}

// appendString appends a string as JSON has it.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(s) // a string always encodes
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// Policy returns the Content-Security-Policy of a page with one style and nothing else.
func Policy(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}
