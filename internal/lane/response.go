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
	job    *meter.Job
	noLog  bool  // not in the access log
	strict bool  // see demands: conditions must name its validators as they are
	gate   *gate // nil: everybody may have the answer
	status int
	// What is sent in this second: the whole answer, a part of it (206), and 304 in its place.
	full, part, notModified ready
	etag                    string // "": the lane has none to compare
	lastModified            string // "": the lane has none to compare

	rules    answerRules
	lines    func(b []byte, now int64) []byte // Rule.Lines
	used     *atomic.Bool                     // Rule.Used
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

// ready is one form of an answer with the date of a second. Each field is made when it is first
// needed in that second, and shared.
type ready struct {
	text   atomic.Pointer[stamped] // for HTTP/1.1
	block  atomic.Pointer[stamped] // the header as a header block, for HTTP/2
	fields atomic.Pointer[fields]  // the header as fields that a handler sets, for HTTP/3
}

// stamped is a response with the date of one second.
type stamped struct {
	second int64
	head   int    // length of the header within bytes
	bytes  []byte // the header, followed by the body if that is small

	// Of a part the values of Content-Length and Content-Range are missing. They belong here.
	lengthAt, rangeAt int
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
		used:    rule.Used,
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
	if s := r.full.text.Load(); s != nil && s.second == second {
		return s
	}
	var body []byte
	if len(r.answer.Body) <= contiguous {
		body = r.answer.Body
	}
	s := r.stampOn(r.headFull, body, second)
	r.full.text.Store(s)
	return s
}

// stamp304 returns the answer 304 as of a second.
func (r *response) stamp304(second int64) *stamped {
	if s := r.notModified.text.Load(); s != nil && s.second == second {
		return s
	}
	s := r.stampOn(r.head304, nil, second)
	r.notModified.text.Store(s)
	return s
}

// forgetStamps drops what was made for a second that has passed: with a small body it is as
// large as the answer.
func (r *response) forgetStamps(second int64) {
	for _, form := range []*ready{&r.full, &r.part, &r.notModified} {
		for _, of := range []*atomic.Pointer[stamped]{&form.text, &form.block} {
			if s := of.Load(); s != nil && s.second < second-1 {
				of.CompareAndSwap(s, nil)
			}
		}
		if f := form.fields.Load(); f != nil && f.second < second-1 {
			form.fields.CompareAndSwap(f, nil)
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

// stampPart returns the header of a part as of a second, without what differs from part to
// part.
func (r *response) stampPart(second int64) *stamped {
	if s := r.part.text.Load(); s != nil && s.second == second {
		return s
	}
	h := maps.Clone(r.answer.Header)
	h["Content-Length"], h["Content-Range"] = []string{""}, []string{""}
	const status = http.StatusPartialContent
	s := r.stampOn(appendHead(nil, status, headerFor(h, status, r.rules.apply), r.rules.always), nil, second)
	at := func(line string) int { return bytes.Index(s.bytes, []byte("\r\n"+line+"\r\n")) + len("\r\n"+line) }
	s.lengthAt, s.rangeAt = at(lengthLine), at(rangeLine) // in this order, as fields are sorted
	r.part.text.Store(s)
	return s
}

// The fields in which parts differ, up to their values. No rule changes them.
const lengthLine, rangeLine = "Content-Length: ", "Content-Range: "

// common returns a part's header without the two fields.
func (s *stamped) common() []byte {
	return slices.Concat(s.bytes[:s.lengthAt-len(lengthLine)], s.bytes[s.lengthAt+len("\r\n"):s.rangeAt-len(rangeLine)], s.bytes[s.rangeAt+len("\r\n"):])
}

// withClose returns the bytes with "Connection: close", where net/http puts it, for the
// last answer on a connection.
func (s *stamped) withClose() []byte {
	head := s.bytes[:s.head-2]
	b := make([]byte, 0, len(s.bytes)+32)
	b = append(append(b, head...), "Connection: close\r\n\r\n"...)
	return append(b, s.bytes[s.head:]...)
}
