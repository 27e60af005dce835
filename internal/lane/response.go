package lane

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
// a send.Answer. All but the date, or what stands in its place, never changes.
type response struct {
	// What every hit touches comes first: two cache lines, each of which is one
	// from far away when there are many answers.
	offered
	job               *meter.Job
	noLog             bool  // not in the access log
	gate              *gate // nil: it is for everybody
	full, notModified atomic.Pointer[stamped]
	// The same as header blocks of HTTP/2, without the body.
	blockFull, blockNotModified atomic.Pointer[stamped]
	// The same as a handler sets them, for HTTP/3.
	fieldsFull, fieldsNotModified atomic.Pointer[fields]
	status                        int
	etag                          string // "" if there is none that the lane may compare
	lastModified                  string // the same

	lines    func(b []byte, now int64) []byte
	headFull []byte // the header of the answer itself, but for its last lines
	head304  []byte // nil for another status than 200, which has no conditions
	cost     int64  // bytes against the table's budget
}

// offered is what an answer was offered as.
type offered struct {
	answer        *send.Answer
	version, also Version
	expires       int64 // Unix seconds; 0 is never
	hasLines      bool  // Rule.Lines is there
}

func offeredAs(a *send.Answer, rule *Rule) offered {
	return offered{a, rule.Version, rule.Also, rule.expires(), rule.Lines != nil}
}

// same reports whether two responses are the same bytes for the same clients and
// for as long.
func (r *response) same(as *response) bool {
	if (r.gate == nil) != (as.gate == nil) || r.gate != nil && r.gate.Gate != as.gate.Gate {
		return false
	}
	return r.offered == as.offered && r.noLog == as.noLog && bytes.Equal(r.headFull, as.headFull) && bytes.Equal(r.head304, as.head304)
}

// stamped is a response as of one second.
type stamped struct {
	second int64
	head   int    // length of the header within bytes
	bytes  []byte // the header, followed by the body if that is small
}

const (
	// responseOverhead stands for the structs of an entry, its response and its
	// answer, and for the allocator's rounding; fieldOverhead for one header
	// field in the answer's map beside its text. TestTableMemory holds them
	// against the heap.
	responseOverhead = 1024
	fieldOverhead    = 80
)

func newResponse(a *send.Answer, rule Rule, job *meter.Job) *response {
	r := &response{
		offered: offeredAs(a, &rule),
		job:     job,
		lines:   rule.Lines,
		status:  a.Code(),
	}
	var buf [1 << 10]byte // so that what is kept has no spare room
	r.headFull = bytes.Clone(appendHead(buf[:0], r.status, headerFor(a.Header, r.status, rule.applyHeaders), rule.always))
	if r.status == http.StatusOK {
		r.head304 = bytes.Clone(appendHead(buf[:0], http.StatusNotModified, headerFor(a.Header, http.StatusNotModified, rule.applyHeaders), rule.always))
		if wellFormedTag(a.ETag) {
			r.etag = a.ETag
		}
		if !a.LastModified.IsZero() {
			r.lastModified = a.LastModified.UTC().Format(http.TimeFormat)
		}
	}
	r.cost = responseOverhead + int64(len(a.Header))*fieldOverhead + int64(len(a.Body)) +
		int64(3*len(r.headFull)+2*len(r.head304)) // in a.Header, as lines, and stamped
	if len(a.Body) <= contiguous {
		r.cost += int64(len(a.Body))
	}
	return r
}

// headerFor is the header of an answer with a status, as the server changes it.
func headerFor(h http.Header, status int, dress func(http.Header, int, []string)) http.Header {
	if dress == nil {
		return h
	}
	own := make(http.Header, len(h)+4)
	for name, values := range h {
		if status != http.StatusNotModified || send.KeptIn304(name) {
			own[name] = values
		}
	}
	dress(own, status, h["Content-Type"])
	return own
}

// wellFormedTag reports whether package condition would understand an entity tag
// (RFC 9110, 8.8.3). Upstreams send others, too.
func wellFormedTag(etag string) bool {
	tag, _ := strings.CutPrefix(etag, "W/")
	if len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"' {
		return false
	}
	for i := 1; i < len(tag)-1; i++ {
		if c := tag[i]; c == '"' || c < 0x21 || c == 0x7f {
			return false
		}
	}
	return true
}

// expires is Expires in Unix seconds, 0 for never.
func (r *Rule) expires() int64 {
	if r.Expires.IsZero() {
		return 0
	}
	return r.Expires.Unix()
}

// current reports whether both versions are still valid.
func (r *offered) current() bool { return r.version.Valid() && r.also.Valid() }

// valid reports whether the response may still be used at a time.
func (r *offered) valid(second int64) bool {
	return r.current() && (r.expires == 0 || second < r.expires)
}

// appendHead writes the status line and the header fields in the order in
// which net/http writes them, so that both lanes answer byte for byte alike.
// The Date, or the lines in its place, and the empty line that ends the header
// are added by stamp.
func appendHead(b []byte, status int, h, always http.Header) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	text := http.StatusText(status)
	if text == "" {
		text = "status code " + strconv.Itoa(status) // as net/http has it
	}
	b = append(append(append(b, ' '), text...), "\r\n"...)
	names := make([]string, 0, len(h)+len(always)+1)
	for name := range h {
		if name == "Server" || always[name] != nil || status == http.StatusNotModified && !send.KeptIn304(name) {
			continue
		}
		names = append(names, name)
	}
	names = append(names, "Server")
	for name := range always {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := h[name]
		switch {
		case name == "Server":
			values = []string{ServerName}
		case always[name] != nil:
			values = always[name]
		}
		for _, v := range values {
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	return b
}

// ServerName is what the Server header says in both lanes.
const ServerName = "millrace"

// stamp returns the whole answer as of now. It is rebuilt at most once a second
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
	s := r.stampOn(r.headFull, body, second)
	r.full.Store(s)
	return s
}

// stamp304 returns the 304 answer as of now.
func (r *response) stamp304(second int64) *stamped {
	if s := r.notModified.Load(); s != nil && s.second == second {
		return s
	}
	s := r.stampOn(r.head304, nil, second)
	r.notModified.Store(s)
	return s
}

// forgetStamps lets go of what was made for a second that has passed: with a
// small body it is as large as the answer, and is made anew for the next request.
func (r *response) forgetStamps(second int64) {
	for _, of := range []*atomic.Pointer[stamped]{&r.full, &r.notModified, &r.blockFull, &r.blockNotModified} {
		if s := of.Load(); s != nil && s.second < second-1 {
			of.CompareAndSwap(s, nil)
		}
	}
	for _, of := range []*atomic.Pointer[fields]{&r.fieldsFull, &r.fieldsNotModified} {
		if f := of.Load(); f != nil && f.second < second-1 {
			of.CompareAndSwap(f, nil)
		}
	}
}

// changingLines is room for the lines that change: a Date, or Age and a short
// Cache-Status, and the empty line.
const changingLines = 128

func (r *response) stampOn(head, body []byte, second int64) *stamped {
	b := make([]byte, 0, len(head)+changingLines+len(body))
	b = append(b, head...)
	if r.lines != nil {
		b = r.lines(b, second)
	} else {
		b = append(b, "Date: "...)
		b = time.Unix(second, 0).UTC().AppendFormat(b, http.TimeFormat)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	return &stamped{second: second, head: len(b), bytes: append(b, body...)}
}

// withClose returns the header with "Connection: close", for the last answer on
// a connection, where net/http puts it.
func (s *stamped) withClose() []byte {
	head := s.bytes[:s.head-2]
	b := make([]byte, 0, len(s.bytes)+32)
	b = append(append(b, head...), "Connection: close\r\n\r\n"...)
	return append(b, s.bytes[s.head:]...)
}

// choose decides between the whole answer and 304 for a matched request. ok is
// false when the request's condition is not one that the lane can decide: only
// a single, exactly equal validator is (RFC 9110, 13.1.2 and 13.1.3). Other
// statuses than 200 have none (13.2.1).
func (r *response) choose(b []byte, q *request) (notModified, ok bool) {
	if r.status != http.StatusOK {
		return false, true
	}
	if q.has(hdrIfNoneMatch) {
		equal := r.etag != "" && string(q.value(b, hdrIfNoneMatch)) == r.etag
		return equal, equal
	}
	if q.has(hdrIfModifiedSince) {
		equal := r.lastModified != "" && string(q.value(b, hdrIfModifiedSince)) == r.lastModified
		return equal, equal
	}
	return false, true
}
