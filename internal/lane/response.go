package lane

import (
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"millrace/internal/meter"
	"millrace/internal/send"
)

// contiguous is the largest body that is kept in one piece with its header,
// copied once a second. BenchmarkWriteSizes: a body as a second part of the
// call costs about half a microsecond more at 1 and 4 KiB; at 16 KiB the
// difference is lost in the rest.
const contiguous = 16 << 10

// response is one finished answer, shared by all connections: the wire form of
// a send.Answer. All but the date never changes.
type response struct {
	answer       *send.Answer
	job          *meter.Job
	mark         Mark
	expires      int64 // Unix seconds; 0 is never
	head200      []byte
	head304      []byte
	lastModified string
	cost         int64 // bytes against the table's budget

	full, notModified atomic.Pointer[stamped]
}

// stamped is a response as of one second.
type stamped struct {
	second int64
	head   int    // length of the header within bytes
	bytes  []byte // the header, followed by the body if that is small
}

// responseOverhead stands for the structs and headers around an answer.
const responseOverhead = 1024

func newResponse(a *send.Answer, rule Rule, job *meter.Job) *response {
	r := &response{
		answer:       a,
		job:          job,
		mark:         rule.Mark,
		head200:      appendHead(nil, http.StatusOK, a.Header),
		head304:      appendHead(nil, http.StatusNotModified, a.Header),
		lastModified: a.Header.Get("Last-Modified"),
	}
	r.expires = rule.expires()
	r.cost = int64(2*len(r.head200)+2*len(r.head304)+len(a.Body)) + responseOverhead
	if len(a.Body) <= contiguous {
		r.cost += int64(len(a.Body))
	}
	return r
}

// expires is Expires in Unix seconds, 0 for never.
func (r Rule) expires() int64 {
	if r.Expires.IsZero() {
		return 0
	}
	return r.Expires.Unix()
}

// valid reports whether the response may still be used at a time.
func (r *response) valid(second int64) bool {
	return r.mark.Valid() && (r.expires == 0 || second < r.expires)
}

// appendHead writes the status line and the header fields in the order in
// which net/http writes them, so that both lanes answer byte for byte alike.
// The Date and the empty line that ends the header are added by stamp.
func appendHead(b []byte, status int, h http.Header) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(append(append(b, ' '), http.StatusText(status)...), "\r\n"...)
	names := make([]string, 0, len(h)+1)
	for name := range h {
		if status == http.StatusNotModified && !send.KeptIn304(name) {
			continue
		}
		names = append(names, name)
	}
	names = append(names, "Server")
	slices.Sort(names)
	for _, name := range names {
		values := h[name]
		if name == "Server" {
			values = []string{ServerName}
		}
		for _, v := range values {
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	return b
}

// ServerName is what the Server header says in both lanes.
const ServerName = "millrace"

// stamp returns the 200 answer as of now. It is rebuilt at most once a second
// and shared; the bytes that an earlier second's writers still send stay as
// they are.
func (r *response) stamp(second int64) *stamped {
	if s := r.full.Load(); s != nil && s.second == second {
		return s
	}
	var body []byte
	if len(r.answer.Body) <= contiguous {
		body = r.answer.Body
	}
	s := newStamped(r.head200, body, second)
	r.full.Store(s)
	return s
}

// stamp304 returns the 304 answer as of now.
func (r *response) stamp304(second int64) *stamped {
	if s := r.notModified.Load(); s != nil && s.second == second {
		return s
	}
	s := newStamped(r.head304, nil, second)
	r.notModified.Store(s)
	return s
}

func newStamped(head, body []byte, second int64) *stamped {
	const dateLine = len("Date: \r\n\r\n") + len(http.TimeFormat)
	b := make([]byte, 0, len(head)+dateLine+len(body))
	b = append(append(b, head...), "Date: "...)
	b = time.Unix(second, 0).UTC().AppendFormat(b, http.TimeFormat)
	b = append(b, "\r\n\r\n"...)
	return &stamped{second: second, head: len(b), bytes: append(b, body...)}
}

// closing returns the header with "Connection: close", for the last answer on
// a connection, where net/http puts it.
func (s *stamped) closing() []byte {
	head := s.bytes[:s.head-2]
	b := make([]byte, 0, len(s.bytes)+32)
	b = append(append(b, head...), "Connection: close\r\n\r\n"...)
	return append(b, s.bytes[s.head:]...)
}

// choose decides between the whole answer and 304 for a matched request. ok is
// false when the request's condition is not one that the lane can decide: only
// a single, exactly equal validator is (RFC 9110, 13.1.2 and 13.1.3).
func (r *response) choose(b []byte, q *request) (notModified, ok bool) {
	if q.has(hdrIfNoneMatch) {
		equal := r.answer.ETag != "" && string(q.value(b, hdrIfNoneMatch)) == r.answer.ETag
		return equal, equal
	}
	if q.has(hdrIfModifiedSince) {
		equal := r.lastModified != "" && string(q.value(b, hdrIfModifiedSince)) == r.lastModified
		return equal, equal
	}
	return false, true
}
