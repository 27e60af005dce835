package channels

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"millrace/store/bus"
	"millrace/websocket/centrifuge"
	"millrace/websocket/frame"
	"millrace/websocket/hub"
)

// What is sent often is put together by hand: one allocation, no reflection.

// The forms of publications and notes: for our own protocol, for event streams, and
// from formSDK on for SDKs, by centrifuge.Form.
const (
	formText = iota
	formEvent
	formSDK
)

func (c *Channels) forms() []hub.Form {
	forms := []hub.Form{
		formText:  {Message: c.text, Note: note, Op: frame.Text},
		formEvent: {Message: c.event, Note: note, Op: frame.Text},
	}
	for form := range centrifuge.Form(centrifuge.Forms) {
		forms = append(forms, hub.Form{
			Message: func(m bus.Message) []byte { return form.Append(nil, &centrifuge.Reply{Push: c.pushOf(m, form)}) },
			Note: func(n hub.Note) []byte {
				if p := pushOfNote(n); p != nil {
					return form.Append(nil, &centrifuge.Reply{Push: p})
				}
				return nil
			},
			Op: Opcode(form),
		})
	}
	return forms
}

// text is a publication as clients get it. On a bus of several machines it has its ID
// besides the offset: the machine on which it was published may deliver it without an
// offset, earlier or (if the others only seemed to be missing) also later, and a
// client may move from one machine to another.
func (c *Channels) text(m bus.Message) []byte { return appendText(newText(0, m), m, c.shared) }

// newText allocates room for a publication behind head bytes.
func newText(head int, m bus.Message) []byte {
	return make([]byte, 0, head+len(`{"message":"","offset":,"id":"","data":}`)+21+len(m.Channel)+len(m.ID)+len(m.Data))
}

func appendText(b []byte, m bus.Message, withID bool) []byte {
	b = appendQuoted(append(b, `{"message":`...), m.Channel)
	b = appendPlace(append(b, ','), m, withID)
	return append(appendData(b, m), '}')
}

// appendPlace adds the offset. It adds the ID if there is no offset, or withID is set.
func appendPlace(b []byte, m bus.Message, withID bool) []byte {
	if m.Offset > 0 {
		b = strconv.AppendUint(append(b, `"offset":`...), m.Offset, 10)
		if !withID {
			return b
		}
		b = append(b, ',')
	}
	return appendQuoted(append(b, `"id":`...), m.ID)
}

func appendData(b []byte, m bus.Message) []byte {
	b = append(b, `,"data":`...)
	if len(m.Data) == 0 { // of another program on the bus
		return append(b, `null`...)
	}
	return append(b, m.Data...)
}

// event is a publication for event streams (WHATWG HTML, 9.2.5), but for its id
// and the empty line at the end. JSON in one line needs no more than one.
func (c *Channels) event(m bus.Message) []byte {
	const head = "event: message\ndata: "
	b := appendText(append(newText(len(head), m), head...), m, c.shared)
	for i := len(head); i < len(b); i++ {
		if b[i] == '\n' || b[i] == '\r' { // another program on the bus wrote JSON in several lines
			b[i] = ' '
		}
	}
	return append(b, '\n')
}

// note makes the message about a channel's news.
func note(n hub.Note) []byte {
	switch n.Kind {
	case hub.Placed:
		b := appendQuoted([]byte(`{"placed":`), n.Channel)
		b = appendQuoted(append(b, `,"id":`...), n.ID)
		return append(strconv.AppendUint(append(b, `,"offset":`...), n.Offset, 10), '}')
	case hub.Join, hub.Leave:
		b := appendQuoted([]byte(`{"`+n.Kind+`":`), n.Channel)
		if n.Member != nil {
			b = appendMember(append(b, `,"member":`...), *n.Member)
		}
		return append(b, '}')
	default: // hub.Reset
		return append(appendQuoted([]byte(`{"reset":`), n.Channel), '}')
	}
}

func appendPosition(b []byte, p bus.Position) []byte {
	b = appendQuoted(append(b, `,"epoch":`...), p.Epoch)
	return strconv.AppendUint(append(b, `,"offset":`...), p.Offset, 10)
}

// known is JSON that says something of a client; nil for what is none. What another
// machine says is looked at once more: one broken member would break the message for
// all.
func known(info []byte) []byte {
	if !json.Valid(info) || !utf8.Valid(info) {
		return nil
	}
	return info
}

// appendMember adds a client.
func appendMember(b []byte, m bus.Member) []byte {
	b = appendQuoted(append(b, `{"client":`...), m.Client)
	if m.User != "" {
		b = appendQuoted(append(b, `,"user":`...), m.User)
	}
	if info := known(m.Info); info != nil {
		b = append(append(b, `,"info":`...), info...)
	}
	return append(b, '}')
}

// answer begins an answer: {"kind":"channel","id":…; the caller adds the end.
func answer(kind, channel string, id json.RawMessage) []byte {
	b := append(make([]byte, 0, 96+len(channel)+len(id)), `{"`...)
	b = append(append(b, kind...), `":`...)
	return appendID(appendQuoted(b, channel), id)
}

func appendID(b []byte, id json.RawMessage) []byte {
	if len(id) == 0 {
		return b
	}
	return append(append(b, `,"id":`...), id...)
}

// failure makes the message about an error.
func failure(f *fault, id json.RawMessage) []byte {
	b := appendQuoted([]byte(`{"error":`), f.text)
	b = appendQuoted(append(b, `,"code":`...), string(f.code))
	b = appendID(b, id)
	if f.channel != "" {
		b = appendQuoted(append(b, `,"channel":`...), f.channel)
	}
	return append(b, '}')
}

// appendQuoted adds s as a JSON string (RFC 8259, 7). What is not UTF-8
// becomes U+FFFD.
func appendQuoted(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}
