package lane

import (
	"bytes"
	"strconv"

	"millrace/internal/wire/h2"
	"millrace/internal/wire/send"
)

// block returns the header as an HTTP/2 header block, with the date of a second. That of a part
// is made in room, from what parts have in common.
func (c *choice) block(second int64, room *stamped) []byte {
	of := &c.form().block
	s := of.Load()
	if s == nil || s.second != second {
		s = &stamped{second: second, bytes: appendBlock(nil, c.commonText(second))}
		of.Store(s)
	}
	if !c.isPart() {
		return s.bytes
	}
	var value [3*20 + len("bytes -/")]byte
	b := append(room.bytes[:0], s.bytes...)
	b = h2.AppendField(b, staticName("content-length"), "content-length", view(strconv.AppendInt(value[:0], c.size, 10)))
	b = h2.AppendField(b, staticName("content-range"), "content-range", view(send.AppendContentRange(value[:0], c.base, c.size, c.of.answer.Size)))
	room.bytes = b
	return b
}

// commonText returns the header's text; of a part without what differs from part to part.
func (c *choice) commonText(second int64) []byte {
	if c.isPart() {
		return c.of.stampPart(second).common()
	}
	s := c.text(second, nil)
	return s.bytes[:s.head]
}

// appendBlock appends the fields of a header in HTTP/1.1's form as a header block. They are
// literals without indexing: only net/http's encoder may change the dynamic table.
func appendBlock(b, text []byte) []byte {
	line, rest, _ := bytes.Cut(text, []byte("\r\n"))
	const proto = "HTTP/1.1 "
	return appendFields(appendStatus(b, view(line[len(proto):len(proto)+3])), rest)
}

// appendFields is appendBlock for lines of fields, up to the empty one if there is one.
func appendFields(b, rest []byte) []byte {
	var line []byte
	var room [64]byte // more than most names have
	for {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, ok := bytes.Cut(line, []byte(": "))
		if !ok {
			return b // the empty line
		}
		lower := appendLower(room[:0], view(name))
		b = h2.AppendField(b, staticName(view(lower)), view(lower), view(value))
	}
}

// appendStatus appends :status, of which the static table has some values.
func appendStatus(b []byte, status string) []byte {
	const first = 8 // of them
	for i, s := range [...]string{"200", "204", "206", "304", "400", "404", "500"} {
		if s == status {
			return append(b, 0x80|byte(first+i))
		}
	}
	return h2.AppendField(b, first, ":status", status)
}

// staticName returns the index of a field's name in HPACK's static table (RFC 7541, A), 0
// if it is not there.
func staticName(name string) int {
	switch name {
	case "accept-ranges":
		return 18
	case "access-control-allow-origin":
		return 20
	case "age":
		return 21
	case "allow":
		return 22
	case "cache-control":
		return 24
	case "content-disposition":
		return 25
	case "content-encoding":
		return 26
	case "content-language":
		return 27
	case "content-length":
		return 28
	case "content-location":
		return 29
	case "content-range":
		return 30
	case "content-type":
		return 31
	case "date":
		return 33
	case "etag":
		return 34
	case "expires":
		return 36
	case "last-modified":
		return 44
	case "link":
		return 45
	case "location":
		return 46
	case "refresh":
		return 52
	case "retry-after":
		return 53
	case "server":
		return 54
	case "strict-transport-security":
		return 56
	case "vary":
		return 59
	case "via":
		return 60
	}
	return 0
}
