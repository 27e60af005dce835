package lane

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"millrace/internal/observe/meter"
	"millrace/internal/wire/condition"
	"millrace/internal/wire/send"
)

// contiguous is the largest body that stands in one buffer with its header, into which it
// is copied once a second. BenchmarkWriteSizes: as a second buffer of the system call a
// body of 1 or 4 KiB costs about half a microsecond more; at 16 KiB the difference does
// not show.
const contiguous = 16 << 10

// response is a finished answer as the bytes that are sent, shared by all connections.
// Nothing in it changes but the date, or the lines in its place.
type response struct {
	// What every hit reads comes first: two cache lines. With many answers none of
	// them is in the processor's cache.
	offered
	job               *meter.Job
	noLog             bool  // not in the access log
	strict            bool  // see demands: conditions must name its validators as they are
	gate              *gate // nil: everybody may have the answer
	full, notModified atomic.Pointer[stamped]
	// The headers of these as header blocks of HTTP/2.
	blockFull, blockNotModified atomic.Pointer[stamped]
	// The headers of these as fields that a handler sets, for HTTP/3.
	fieldsFull, fieldsNotModified atomic.Pointer[fields]
	status                        int
	etag                          string // "": the lane has none to compare
	lastModified                  string // "": the lane has none to compare

	rules    answerRules
	lines    func(b []byte, now int64) []byte // Rule.Lines
	headFull []byte                           // the header of the whole answer, without the lines that change
	head304  []byte                           // the header of 304; nil for another status than 200, which has no conditions
	cost     int64                            // bytes against the table's budget
}

// offered identifies an offer: an equal one need not be stored again.
type offered struct {
	answer        *send.Answer
	version, also Version
	expires       int64 // Unix seconds; 0: never
	hasLines      bool  // the rule has Lines
}

func offeredAs(a *send.Answer, rule *Rule) offered {
	return offered{a, rule.Version, rule.Also, rule.expires(), rule.Lines != nil}
}

// same reports whether two responses have the same bytes, clients and lifetime.
func (r *response) same(as *response) bool {
	if (r.gate == nil) != (as.gate == nil) || r.gate != nil && r.gate.Gate != as.gate.Gate {
		return false
	}
	return r.offered == as.offered && r.noLog == as.noLog && bytes.Equal(r.headFull, as.headFull) && bytes.Equal(r.head304, as.head304)
}

// stamped is a response with the date of one second.
type stamped struct {
	second int64
	head   int    // length of the header within bytes
	bytes  []byte // the header, followed by the body if that is small
}

const (
	// responseOverhead is the memory of the structs of an entry, its response and its
	// answer, with the allocator's rounding. fieldOverhead is that of a header field
	// in the answer's map besides its text. TestTableMemory compares both with the heap.
	responseOverhead = 1024
	fieldOverhead    = 80
)

func newResponse(a *send.Answer, rule Rule, job *meter.Job) *response {
	r := &response{
		offered: offeredAs(a, &rule),
		job:     job,
		rules:   rule.answerRules,
		lines:   rule.Lines,
		strict:  rule.strict,
		status:  a.Code(),
	}
	var buf [1 << 10]byte // appended to and then cloned, so that no spare capacity is kept
	r.headFull = bytes.Clone(appendHead(buf[:0], r.status, headerFor(a.Header, r.status, rule.apply), rule.always))
	if r.status == http.StatusOK {
		r.head304 = bytes.Clone(appendHead(buf[:0], http.StatusNotModified, headerFor(a.Header, http.StatusNotModified, rule.apply), rule.always))
		if wellFormedTag(a.ETag) {
			r.etag = a.ETag
		}
		if !a.LastModified.IsZero() {
			r.lastModified = a.LastModified.UTC().Format(http.TimeFormat)
		}
	}
	r.cost = responseOverhead + int64(len(a.Header))*fieldOverhead + int64(len(a.Body)) +
		int64(3*len(r.headFull)+2*len(r.head304)) // in a.Header, here, and stamped
	if len(a.Body) <= contiguous {
		r.cost += int64(len(a.Body))
	}
	return r
}

// headerFor returns the header of an answer with a status, changed by the server's policy.
func headerFor(h http.Header, status int, apply func(http.Header, int, []string)) http.Header {
	if apply == nil {
		return h
	}
	own := make(http.Header, len(h)+4)
	for name, values := range h {
		if status != http.StatusNotModified || send.KeptIn304(name) {
			own[name] = values
		}
	}
	apply(own, status, h["Content-Type"])
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

// expires returns Expires in Unix seconds, 0 for never.
func (r *Rule) expires() int64 {
	if r.Expires.IsZero() {
		return 0
	}
	return r.Expires.Unix()
}

// current reports whether both versions are still valid.
func (r *offered) current() bool { return r.version.Valid() && r.also.Valid() }

// valid reports whether the answer may be sent at a time, in Unix seconds.
func (r *offered) valid(second int64) bool {
	return r.current() && (r.expires == 0 || second < r.expires)
}

// appendHead appends the status line and the header fields in net/http's order, so that
// the lane and net/http send the same bytes. The lines that change and the empty line are
// appended by stampOn.
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
	names = slices.AppendSeq(append(names, "Server"), maps.Keys(always))
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

// ServerName is the value of the Server header.
const ServerName = "millrace"

// stamp returns the whole answer as of a second. It is made at most once a second and
// shared. Bytes of an earlier second, which may still be being sent, do not change.
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

// stamp304 returns the answer 304 as of a second.
func (r *response) stamp304(second int64) *stamped {
	if s := r.notModified.Load(); s != nil && s.second == second {
		return s
	}
	s := r.stampOn(r.head304, nil, second)
	r.notModified.Store(s)
	return s
}

// forgetStamps drops what was made for a second that has passed: with a small body it is as
// large as the answer.
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

// changingLines is the room for the lines that change: a Date, or Age and a short
// Cache-Status, and for the empty line.
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

// withClose returns the bytes with "Connection: close", where net/http puts it, for the
// last answer on a connection.
func (s *stamped) withClose() []byte {
	head := s.bytes[:s.head-2]
	b := make([]byte, 0, len(s.bytes)+32)
	b = append(append(b, head...), "Connection: close\r\n\r\n"...)
	return append(b, s.bytes[s.head:]...)
}

// choose decides what is sent to a request: r, 304 in its place, or a part of it. It returns
// nil where the handler must decide. Conditions and ranges apply only to a 200 (RFC 9110,
// 13.2.1 and 14.2).
func (r *response) choose(b []byte, q *request) (as *response, notModified bool) {
	if r.status != http.StatusOK {
		return r, false
	}
	tag, date, part := q.has(hdrIfNoneMatch), q.has(hdrIfModifiedSince), q.has(hdrRange)
	if part && (r.strict || len(r.answer.Header["Content-Encoding"]) > 0) { // a cache encodes nothing for such a request
		return nil, false
	}
	part = part && !q.headOnly // RFC 9110, 14.2
	switch {
	case !tag && !date && !part:
		return r, false
	case tag && r.etag != "" && string(q.value(b, hdrIfNoneMatch)) == r.etag, // what most clients send
		date && !tag && r.lastModified != "" && string(q.value(b, hdrIfModifiedSince)) == r.lastModified:
		return r, true
	case r.strict:
		return nil, false
	}
	var lines [4]string
	line := func(id headerID, to []string) []string {
		if !q.has(id) {
			return nil
		}
		to[0] = view(q.value(b, id))
		return to
	}
	f := condition.Fields{
		IfNoneMatch: line(hdrIfNoneMatch, lines[:1]), IfModifiedSince: line(hdrIfModifiedSince, lines[1:2]), IfRange: line(hdrIfRange, lines[2:3]),
	}
	switch {
	case f.Check(http.MethodGet, r.answer.ETag, r.answer.LastModified) == condition.NotModified:
		return r, true
	case part:
		return r.part(send.PartOf(line(hdrRange, lines[3:]), &f, r.answer)), false
	}
	return r, false
}

// part returns the response for a, which is a part of the answer, all of it, or nil. Nobody
// else gets the response.
func (r *response) part(a *send.Answer) *response {
	switch a {
	case r.answer:
		return r
	case nil:
		return nil
	}
	p := &response{offered: r.offered, job: r.job, noLog: r.noLog, gate: r.gate, rules: r.rules, lines: r.lines, status: a.Status}
	p.answer = a
	p.headFull = appendHead(nil, p.status, headerFor(a.Header, p.status, r.rules.apply), r.rules.always)
	return p
}

// fileSent notes that the file was sent, if all of it was.
func (r *response) fileSent(second int64) {
	if r.status != http.StatusPartialContent {
		r.answer.File.WasSent(second)
	}
}
