package h2

import (
	"encoding/binary"
	"errors"

	"golang.org/x/net/http2/hpack"
)

const (
	// maxBlock is the longest header block, in bytes as sent, and maxParts how
	// many CONTINUATION frames it may have (CVE-2024-27316 and its kind).
	maxBlock = 64 << 10
	maxParts = 8
	// maxBomb bounds HPACK bombs, blocks of references to large fields in the table. A
	// decoded block that is longer than Options.HeaderList is refused with 431, one that
	// is maxBomb times longer ends the connection.
	maxBomb = 4
)

// block is a header block that is not complete.
type block struct {
	open     bool
	id       uint32
	flags    byte
	priority []byte
	b        []byte
	parts    int
}

// headerList collects the fields of a block. The field that exceeds max is cut so that
// the list is one byte too long: net/http then refuses it. Further fields are decoded,
// since HPACK has a state, and dropped.
type headerList struct {
	fields []hpack.HeaderField
	size   int
	max    int
}

func (l *headerList) emit(f hpack.HeaderField) {
	before := l.size
	l.size += int(f.Size())
	switch over := l.size - l.max; {
	case before > l.max:
		return
	case over > 0:
		f.Value = f.Value[:len(f.Value)-min(len(f.Value), over-1)]
	}
	l.fields = append(l.fields, f)
}

// unpad splits the payload of a HEADERS frame.
func (h head) unpad(p []byte) (priority, block []byte, why code) {
	if h.has(flagPadded) {
		if len(p) == 0 || int(p[0]) > len(p)-1 {
			return nil, nil, codeProtocol
		}
		p = p[1 : len(p)-int(p[0])]
	}
	if h.has(flagPriority) {
		if len(p) < 5 {
			return nil, nil, codeFrameSize
		}
		priority, p = p[:5], p[5:]
	}
	return priority, p, codeNo
}

// headers handles a HEADERS frame.
func (c *Conn) headers(t *task, h head, p []byte) error {
	priority, p, why := h.unpad(p)
	if why != codeNo {
		return c.fail(t, why)
	}
	if h.has(flagEndHeaders) {
		return c.headerBlock(t, h.id, h.flags, priority, p)
	}
	c.run.block = block{
		open: true, id: h.id, flags: h.flags,
		priority: append([]byte(nil), priority...), b: append([]byte(nil), p...),
	}
	return nil
}

// continuation handles a CONTINUATION frame.
func (c *Conn) continuation(t *task, h head, p []byte) error {
	b := &c.run.block
	if !b.open {
		return c.fail(t, codeProtocol)
	}
	b.parts++
	if b.parts > maxParts || len(b.b)+len(p) > max(maxBlock, c.o.HeaderList) {
		return c.flooded(t, Headers)
	}
	b.b = append(b.b, p...)
	if !h.has(flagEndHeaders) {
		return nil
	}
	done := c.run.block
	c.run.block = block{}
	return c.headerBlock(t, done.id, done.flags|flagEndHeaders, done.priority, done.b)
}

// headerBlock handles a complete header block: a request or trailers.
func (c *Conn) headerBlock(t *task, id uint32, flags byte, priority, encoded []byte) error {
	c.run.list = headerList{fields: t.fields[:0], max: c.o.HeaderList}
	_, err := c.run.dec.Write(encoded)
	if err = errors.Join(err, c.run.dec.Close()); err != nil {
		return c.fail(t, codeCompression)
	}
	t.fields = c.run.list.fields
	if c.run.list.size > maxBomb*c.run.list.max {
		return c.flooded(t, Headers)
	}
	known, own, ends := c.lastOpened.Load(), hpack.HeaderField{}, flags&flagEndStream != 0
	switch {
	case id&1 == 0:
		return c.fail(t, codeProtocol)
	case c.openStream(id):
		return nil
	case id > known:
		if ends && c.answer(t, id, priority) {
			return nil
		}
		switch {
		case c.openStreams() >= c.mostStreams:
			c.run.declined.add(id)
			return c.reset(t, id, codeRefusedStream)
		case c.overBudget():
			return c.decline(t, id)
		}
		if ends && c.forward(t, id, priority) {
			return nil
		}
		if own = c.run.list.refuse(); own.Name != "" {
			t.fields = c.run.list.fields
			c.run.declined.add(id) // its body is discarded (RFC 9113, 8.1)
		}
		if err := c.beginInner(t, id, !ends); err != nil {
			return err
		}
	default: // trailers of a stream that net/http has
		if c.run.declined.has(id) {
			return nil
		}
		if c.flows.bodyReceived(id, ends) {
			break
		}
		if c.flows.wasCutOff(id) {
			return nil
		}
		if id <= c.run.lastPassed || c.run.answered.has(id) || c.forwardedAt(id) >= 0 || c.flows.find(id) != nil {
			return c.fail(t, codeStreamClosed)
		}
		return c.fail(t, codeProtocol)
	}
	t.toInner = appendBlock(t.toInner, id, flags, priority, t.fields, own)
	return nil
}

// mayAnswer reports whether the host may answer a new stream. One that depends on itself is
// an error, which net/http reports.
func (c *Conn) mayAnswer(id uint32, priority []byte) bool {
	return c.run.list.size <= c.run.list.max && c.table.Load() <= c.run.settings.table &&
		(priority == nil || binary.BigEndian.Uint32(priority)&idMask != id)
}

// answer lets the host answer a new stream at once, if it can.
func (c *Conn) answer(t *task, id uint32, priority []byte) bool {
	if !c.mayAnswer(id, priority) {
		return false
	}
	room := Room{Window: int(min(c.window.left(), int64(c.run.settings.window))), Frame: int(min(c.run.settings.frame, maxRead))}
	out, sent, ok := c.host.Answer(t.out, id, t.fields, room)
	if !ok || !c.window.take(int64(sent)) {
		return false
	}
	t.answers = append(t.answers, pendingAnswer{id, c.urgency(id, t.fields), len(t.out), len(out)})
	t.out = out
	c.flood.countUseful(sent)
	c.run.answered.add(id)
	c.lastAnswered.Store(max(id, c.lastAnswered.Load()))
	return true
}

// appendBlock appends a HEADERS frame, and CONTINUATION frames where one is not enough,
// with the fields as literals without indexing (RFC 7541, 6.2.2). Faulty fields stay as
// they are: net/http reports them. A client's [Refused] is left out; own is the server's, or
// has no name.
func appendBlock(b []byte, id uint32, flags byte, priority []byte, fields []hpack.HeaderField, own hpack.HeaderField) []byte {
	const flagsKept = flagEndStream
	h := head{kind: frameHeaders, flags: flags & flagsKept, id: id}
	if priority != nil {
		h.flags |= flagPriority
	}
	at := len(b)
	b = append(appendHead(b, h), priority...)
	begin := len(b)
	for i := range fields {
		if fields[i].Name != refused {
			b = appendLiteral(b, &fields[i])
		}
	}
	if own.Name != "" {
		b = appendLiteral(b, &own)
	}
	if n := len(b) - at - frameHead; n <= maxRead {
		setLength(b[at:], n)
		b[at+4] |= flagEndHeaders
		return b
	}
	whole := append([]byte(nil), b[begin:]...)
	b = b[:begin]
	for {
		n := min(len(whole), maxRead-(len(b)-at-frameHead))
		b, whole = append(b, whole[:n]...), whole[n:]
		setLength(b[at:], len(b)-at-frameHead)
		if len(whole) == 0 {
			b[at+4] |= flagEndHeaders
			return b
		}
		at = len(b)
		b = appendHead(b, head{kind: frameContinuation, id: id})
	}
}

func setLength(frame []byte, n int) { frame[0], frame[1], frame[2] = byte(n>>16), byte(n>>8), byte(n) }

func appendLiteral(b []byte, f *hpack.HeaderField) []byte {
	if f.Sensitive {
		b = append(b, 0x10) // never indexed
	} else {
		b = append(b, 0)
	}
	return appendString(appendString(b, f.Name), f.Value)
}

// tableSize returns the last of the sizes of the table with which a block begins
// (RFC 7541, 6.3).
func tableSize(b []byte) (size uint32, ok bool) {
	const bits, most = 0x20, 0x1f
	for len(b) > 0 && b[0]&0xe0 == bits {
		n := uint64(b[0] & most)
		b, ok = b[1:], true
		for shift, more := 0, n == most; more && len(b) > 0 && shift < 35; shift += 7 {
			n += uint64(b[0]&0x7f) << shift
			b, more = b[1:], b[0]&0x80 != 0
		}
		size = uint32(min(n, firstTable))
	}
	return size, ok
}

// appendString appends a string literal that is not Huffman-coded (RFC 7541, 5.2).
func appendString(b []byte, s string) []byte {
	return append(appendInt(b, 0, 7, uint64(len(s))), s...)
}

// AppendField appends a field as a literal without indexing (RFC 7541, 6.2.2). static is
// the number of its name in the static table; 0: it has none. name must be in lower case.
func AppendField(b []byte, static int, name, value string) []byte {
	b = appendInt(b, 0, 4, uint64(static))
	if static == 0 {
		b = appendShort(b, name)
	}
	return appendShort(b, value)
}

// appendShort appends a string literal in the shorter of its two forms.
func appendShort(b []byte, s string) []byte {
	if n := hpack.HuffmanEncodeLength(s); n < uint64(len(s)) {
		return hpack.AppendHuffmanString(appendInt(b, 0x80, 7, n), s)
	}
	return appendString(b, s)
}

// appendInt appends an integer with a prefix of so many bits (RFC 7541, 5.1).
func appendInt(b []byte, first byte, bits int, n uint64) []byte {
	most := uint64(1)<<bits - 1
	if n < most {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(most))
	for n -= most; n >= 128; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}
