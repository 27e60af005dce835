package lane

import (
	"net/http"
	"strconv"

	"millrace/internal/wire/condition"
	"millrace/internal/wire/send"
)

// choice is what is sent to a request.
type choice struct {
	of         *response // nil: the handler must decide
	status     int       // that of the response, 206 for a part of it, or 304 in its place
	base, size int64     // what is sent of the answer's body
}

func (r *response) whole() choice { return choice{r, r.status, 0, r.answer.Size} }

func (c *choice) notModified() bool { return c.status == http.StatusNotModified }

func (c *choice) isPart() bool { return c.status == http.StatusPartialContent }

// form returns which of the response's forms is sent.
func (c *choice) form() *ready {
	switch {
	case c.notModified():
		return &c.of.notModified
	case c.isPart():
		return &c.of.part
	}
	return &c.of.full
}

// file returns the file to send from; nil: there is none.
func (c *choice) file(q *request) *send.File {
	if c.notModified() || q.headOnly {
		return nil
	}
	return c.of.answer.File
}

// body returns what is sent of a body in memory.
func (c *choice) body() []byte {
	if c.of.answer.File != nil {
		return nil
	}
	return c.of.answer.Body[c.base : c.base+c.size]
}

// text returns the header as of a second, with the body behind it if that is small. That of a
// part is made in room, which must not be in use.
func (c *choice) text(second int64, room *stamped) *stamped {
	switch {
	case c.notModified():
		return c.of.stamp304(second)
	case !c.isPart():
		return c.of.stamp(second)
	}
	s := c.of.stampPart(second)
	b := append(room.bytes[:0], s.bytes[:s.lengthAt]...)
	b = strconv.AppendInt(b, c.size, 10)
	b = append(b, s.bytes[s.lengthAt:s.rangeAt]...)
	b = send.AppendContentRange(b, c.base, c.size, c.of.answer.Size)
	b = append(b, s.bytes[s.rangeAt:]...)
	room.head = len(b)
	if c.size <= copiedPart {
		b = append(b, c.body()...)
	}
	room.bytes = b
	return room
}

// copiedPart is the largest part that is copied behind its header: see contiguous.
const copiedPart = 4 << 10

// choose decides what is sent to a request. Conditions and ranges apply only to a 200 (RFC
// 9110, 13.2.1 and 14.2).
func (r *response) choose(b []byte, q *request) choice {
	if r.status != http.StatusOK {
		return r.whole()
	}
	tag, date, part := q.has(hdrIfNoneMatch), q.has(hdrIfModifiedSince), q.has(hdrRange)
	if part && (r.strict || len(r.answer.Header["Content-Encoding"]) > 0) { // a cache encodes nothing for such a request
		return choice{}
	}
	part = part && !q.headOnly // RFC 9110, 14.2
	switch {
	case !tag && !date && !part:
		return r.whole()
	case tag && r.etag != "" && string(q.value(b, hdrIfNoneMatch)) == r.etag, // what most clients send
		date && !tag && r.lastModified != "" && string(q.value(b, hdrIfModifiedSince)) == r.lastModified:
		return choice{of: r, status: http.StatusNotModified}
	case r.strict:
		return choice{}
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
		return choice{of: r, status: http.StatusNotModified}
	case part:
		status, base, size := send.PartOf(line(hdrRange, lines[3:]), &f, r.answer)
		if status == 0 {
			return choice{}
		}
		return choice{r, status, base, size}
	}
	return r.whole()
}

// fileSent notes that the file was sent, if all of it was.
func (c *choice) fileSent(second int64) {
	if !c.isPart() {
		c.of.answer.File.WasSent(second)
	}
}
