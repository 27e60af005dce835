package h3

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"

	"millrace/internal/wire/field"
	"millrace/internal/wire/h2"
	"millrace/internal/wire/pages"
)

// Frames of HTTP/3 (RFC 9114, 7.2).
const (
	frameData    = 0
	frameHeaders = 1
)

const (
	// maxPeek is the longest header block that is checked here: QUIC's window lets a
	// client send half as much again before quic-go must read.
	maxPeek = 256 << 10
	// mostGrowth is how many times longer than its encoded block a header list can be.
	// A block that is shorter than limit/mostGrowth needs no counting.
	mostGrowth = 64
)

// blocks are buffers for header blocks of the usual size.
var blocks = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// refusalOf checks a request's header before quic-go reads it: quic-go would reset the
// stream of a request that it refuses, without an answer. The block can be decoded twice,
// as our settings allow no dynamic table (RFC 9204, 3.2.3). form is that of the answer.
func refusalOf(str *quic.Stream, limit int) (no h2.Refusal, form pages.Form) {
	pooled := blocks.Get().(*[4 << 10]byte)
	defer blocks.Put(pooled)
	b := pooled[:]
	const head = 2 // bytes at least
	if _, err := str.Peek(b[:head]); err != nil || b[0] != frameHeaders {
		return no, form // quic-go gets the same error
	}
	at := 1 + 1<<(b[1]>>6) // RFC 9000, 16
	if _, err := str.Peek(b[:at]); err != nil {
		return no, form
	}
	length, _, err := quicvarint.Parse(b[1:at])
	switch {
	case err != nil:
		return no, form
	case length > uint64(limit):
		return h2.TooLong(), pages.HTML
	case length > maxPeek:
		return no, form
	}
	if need := at + int(length); need > len(b) {
		b = make([]byte, need)
	}
	b = b[:at+int(length)]
	if _, err := str.Peek(b); err != nil {
		return no, form
	}
	return refusalOfBlock(b[at:], limit)
}

// refusalOfBlock decodes a header block as far as the check needs, and one that is refused to
// the field Accept: the form of the answer is chosen by it.
func refusalOfBlock(block []byte, limit int) (no h2.Refusal, form pages.Form) {
	next := qpack.NewDecoder().Decode(block)
	count := len(block) > limit/mostGrowth
	var scheme, path string
	var accept []string
	size, long := 0, false
	for {
		f, err := next()
		if err != nil { // malformed, or the end
			break
		}
		if size += len(f.Name) + len(f.Value) + 32; size > limit {
			long = true
			break
		}
		switch f.Name {
		case ":scheme":
			scheme = f.Value
		case ":path":
			path = f.Value
		case "accept":
			accept = append(accept, f.Value)
		}
		if !f.IsPseudo() && !count {
			if no = h2.Refuse(scheme, path); no.Status == 0 {
				return no, form
			}
		}
	}
	switch {
	case long && accept == nil: // it may stand behind, and a browser's cookies are what makes headers too long
		return h2.TooLong(), pages.HTML
	case long:
		return h2.TooLong(), pages.FormOf(accept)
	}
	return h2.Refuse(scheme, path), pages.FormOf(accept)
}

// writeRefusal answers a request that quic-go does not get.
func writeRefusal(str *quic.Stream, r h2.Refusal, form pages.Form, timeout time.Duration) {
	str.ReleaseStreamCredit()
	var block bytes.Buffer
	fields := qpack.NewEncoder(&block)
	write := func(name, value string) {
		_ = fields.WriteField(qpack.HeaderField{Name: name, Value: value}) // to memory
	}
	a := pages.Prepare(form, r.Status, r.Text, 0)
	write(":status", strconv.Itoa(r.Status))
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		write(field.Lower(name), a.Header[name][0])
	}
	answer := quicvarint.Append(quicvarint.Append(nil, frameHeaders), uint64(block.Len()))
	answer = append(answer, block.Bytes()...)
	answer = append(quicvarint.Append(quicvarint.Append(answer, frameData), uint64(len(a.Body))), a.Body...)
	_ = str.SetWriteDeadline(time.Now().Add(timeout)) // of a stream
	if _, err := str.Write(answer); err != nil {
		str.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
	}
	str.CancelRead(quic.StreamErrorCode(http3.ErrCodeNoError)) // RFC 9114, 4.1.1
	_ = str.Close()                                            // after a reset it is closed
}
