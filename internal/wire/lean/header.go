package lean

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/wire/field"
)

// snapshot is what the header said when WriteHeader was called: later changes are not sent.
// Its lines are appended to the buffer at once. When the body begins or the handler ends,
// some of them are cut out, and others are appended.
type snapshot struct {
	connection, coding           string // the first value of each
	typed, encoded, dated, sized bool
	trailing                     bool // trailers are announced
	switches                     bool // the fields announce another protocol
	connections, codings         place
	lengths, types               place
}

// place says where the lines of a field are in Response.out.
type place struct{ from, to int }

// cut removes the lines. Cut the last place first: those behind it are wrong afterwards.
func (p place) cut(out []byte) []byte { return slices.Delete(out, p.from, p.to) }

// appendFields appends the lines of a header in net/http's order. server, if it is not
// empty, replaces the field Server.
func (s *snapshot) appendFields(out []byte, h http.Header, server string) []byte {
	var few [24]string
	names := few[:0]
	for name := range h {
		if name != "Server" || server == "" {
			names = append(names, name)
		}
	}
	if server != "" {
		names = append(names, "Server")
	}
	sort(names)
	for _, name := range names {
		if !field.Token(name) {
			if strings.HasPrefix(name, http.TrailerPrefix) {
				s.trailing = true
			}
			continue
		}
		if name == "Server" && server != "" {
			out = append(append(append(out, "Server: "...), server...), "\r\n"...)
			continue
		}
		from := len(out)
		values := h[name]
		for _, v := range values {
			out = append(append(append(append(out, name...), ": "...), clean(v)...), "\r\n"...)
		}
		s.record(name, values, place{from, len(out)})
	}
	s.switches = s.switches && field.Has(h["Connection"], "Upgrade")
	return out
}

// record keeps what finishHead depends on.
func (s *snapshot) record(name string, values []string, at place) {
	one := ""
	if len(values) > 0 {
		one = values[0]
	}
	switch name {
	case "Connection":
		s.connection, s.connections = one, at
	case "Transfer-Encoding":
		s.coding, s.codings = one, at
	case "Content-Length":
		s.sized, s.lengths = true, at
	case "Content-Type":
		s.typed, s.types = true, at
	case "Content-Encoding":
		s.encoded = one != ""
	case "Date":
		s.dated = true
	case "Upgrade":
		s.switches = one != ""
	case "Trailer":
		s.trailing = s.trailing || len(values) > 0
	}
}

// sort is faster than slices.Sort for a few names.
func sort(names []string) {
	if len(names) > 16 {
		slices.Sort(names)
		return
	}
	for i := 1; i < len(names); i++ {
		for j := i; j > 0 && names[j] < names[j-1]; j-- {
			names[j], names[j-1] = names[j-1], names[j]
		}
	}
}

// clean returns a value without line breaks and surrounding space.
func clean(v string) string {
	if strings.IndexByte(v, '\n') >= 0 || strings.IndexByte(v, '\r') >= 0 {
		v = strings.NewReplacer("\n", " ", "\r", " ").Replace(v)
	}
	return textproto.TrimString(v)
}

func first(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func appendStatus(out []byte, code int) []byte {
	out = strconv.AppendInt(append(out, "HTTP/1.1 "...), int64(code), 10)
	text := http.StatusText(code)
	if text == "" {
		return append(strconv.AppendInt(append(out, " status code "...), int64(code), 10), "\r\n"...)
	}
	return append(append(append(out, ' '), text...), "\r\n"...)
}

// hasBody reports whether answers with that status have one (RFC 9110, 6.4.1).
func hasBody(status int) bool {
	return status > 199 && status != http.StatusNoContent && status != http.StatusNotModified
}

// writeFields appends the handler's fields, and keeps which trailers they announce.
func (w *Response) writeFields() {
	w.out = w.snap.appendFields(w.out, w.header, w.server.Name)
	for _, v := range w.header["Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			if name = http.CanonicalHeaderKey(textproto.TrimString(name)); name != "" && mayTrail(name) {
				w.trailers = append(w.trailers, name)
			}
		}
	}
}

// finishHead decides how the answer ends, and appends the fields that say so. p has the first
// bytes of the body. The order of the decisions is net/http's.
func (w *Response) finishHead(p []byte) {
	w.headed = true
	s := &w.snap
	head := w.x.method == http.MethodHead
	var sized, typed, coded, ends bool // fields to add
	if w.done && (!s.trailing || w.frames != nil) && s.coding == "" && hasBody(w.status) && !s.sized && (!head || len(p) > 0) {
		w.length, sized = int64(len(p)), true
	}
	if s.connection == "close" {
		w.closing = true
	}
	var drop [4]bool // in the order in which fields stand: Connection, Content-Length, Content-Type, Transfer-Encoding
	if w.x.length > 0 && !w.closing && !w.duplex {
		switch w.x.body.discardUnread() {
		case unreadTooMuch:
			w.closing, w.linger, ends, drop[0] = true, true, true, true
			s.connection = ""
		case unreadCut:
			w.closing = true
		}
	}
	if hasBody(w.status) {
		typed = !s.encoded && !s.typed && s.coding == "" && len(p) > 0
	} else if w.frames == nil { // over HTTP/2 net/http leaves them in
		drop[1], drop[3] = true, true
		drop[2] = w.status == http.StatusNotModified
	}
	measured := w.length != -1
	if measured && s.coding != "" && s.coding != "identity" {
		w.server.Log("http: WriteHeader called with both Transfer-Encoding of %q and a Content-Length of %d", s.coding, w.length)
		drop[1], measured = true, false
	}
	switch {
	case head || !hasBody(w.status), measured:
		drop[3] = true
	case w.frames != nil:
		drop[1], drop[3] = true, true
	case s.coding == "identity":
		w.closing, drop[3] = true, true
	default:
		w.chunked, coded = true, true
		drop[3] = drop[3] || s.coding == "chunked"
		drop[1] = true
	}
	if w.frames != nil {
		drop[0], w.closing = true, false
	}
	if w.closing && !field.Has([]string{s.connection}, "close") && (w.status != http.StatusSwitchingProtocols || !s.switches) {
		drop[0], ends = true, true
	}
	for i, p := range [...]place{s.codings, s.types, s.lengths, s.connections} { // the last one first: see cut
		if drop[len(drop)-1-i] {
			w.out = p.cut(w.out)
		}
	}
	w.extra(p, sized, typed, coded, ends)
}

// extra appends fields that the handler has not set, and the empty line.
func (w *Response) extra(p []byte, sized, typed, coded, ends bool) {
	if !w.snap.dated {
		w.out = append(append(append(w.out, "Date: "...), w.server.now()...), "\r\n"...)
	}
	if sized {
		w.out = append(strconv.AppendInt(append(w.out, "Content-Length: "...), w.length, 10), "\r\n"...)
	}
	if typed {
		w.out = append(append(append(w.out, "Content-Type: "...), http.DetectContentType(p)...), "\r\n"...)
	}
	if ends {
		w.out = append(w.out, "Connection: close\r\n"...)
	}
	if coded {
		w.out = append(w.out, "Transfer-Encoding: chunked\r\n"...)
	}
	w.out = append(w.out, "\r\n"...)
	w.headDone(false)
}

// mayTrail reports whether a field is allowed as a trailer (RFC 9110, 6.5.1).
func mayTrail(name string) bool {
	if strings.HasPrefix(name, "If-") {
		return false
	}
	switch name {
	case "Authorization", "Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Range",
		"Content-Type", "Expect", "Host", "Keep-Alive", "Max-Forwards", "Pragma", "Proxy-Authenticate",
		"Proxy-Authorization", "Proxy-Connection", "Range", "Realm", "Te", "Trailer", "Transfer-Encoding", "Www-Authenticate":
		return false
	}
	return true
}

// appendTrailers appends the fields that follow a chunked body.
func (w *Response) appendTrailers(out []byte) []byte {
	var t http.Header
	for name, values := range w.header {
		if name, found := strings.CutPrefix(name, http.TrailerPrefix); found {
			if t == nil {
				t = http.Header{}
			}
			t[name] = values
		}
	}
	for _, name := range w.trailers {
		if t == nil {
			t = http.Header{}
		}
		for _, v := range w.header[name] {
			t.Add(name, v)
		}
	}
	if t == nil {
		return out
	}
	var s snapshot
	return s.appendFields(out, t, "")
}
