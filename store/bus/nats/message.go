package nats

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/store/bus"
)

// Headers of a message in the stream, beside the server's own. Who publishes
// without them (nats pub NAME.in.CHANNEL TEXT) gets an ID made of the number,
// and the time at which it came.
const (
	idHeader   = "Millrace-Id"   // the ID, as encodeID has it
	timeHeader = "Millrace-Time" // when it was published, in ms since 1970
	// The client, and the tags, as JSON in encodeID's way; often missing.
	fromHeader = "Millrace-From"
	tagsHeader = "Millrace-Tags"
	// headerRoom is what headers take beside the ID.
	headerRoom = 256
)

const upperHex = "0123456789ABCDEF"

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// plainID leaves out upper case: nats-server 2.9 looks for its own headers
// (Nats-Msg-Id:) with a search through all of them, and must not find one in
// an ID that somebody made up.
func plainID(c byte) bool { return plain(c) && (c < 'A' || c > 'Z') }

// encode makes one token of a subject out of a channel's name: letters, digits,
// - and _ as they are, every other byte as = and two hexadecimal digits.
func encode(channel string) string { return escape(channel, plain) }

// encodeID makes the value of a header out of an ID, as encode does, but with
// upper case escaped too.
func encodeID(id string) string { return escape(id, plainID) }

func decodeID(value string) (string, bool) { return unescape(value, plainID) }

func escape(text string, plain func(byte) bool) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('=')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}

func unescape(token string, plain func(byte) bool) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		switch c := token[i]; {
		case plain(c):
			b.WriteByte(c)
		case c == '=' && i+2 < len(token):
			high, low := strings.IndexByte(upperHex, token[i+1]), strings.IndexByte(upperHex, token[i+2])
			if high < 0 || low < 0 || plain(byte(high<<4|low)) {
				return "", false
			}
			b.WriteByte(byte(high<<4 | low))
			i += 2
		default:
			return "", false
		}
	}
	return b.String(), b.Len() > 0
}

// keyOf is what the server knows a publication by again. It knows the keys of all
// channels together, so the channel is part of it; and it keeps them in memory,
// so it is short.
func keyOf(token, id string) string {
	sum := sha256.Sum256([]byte(token + " " + id))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// wire is a message on its way to the stream.
func (b *Bus) wire(p *pending) *nats.Msg {
	m := &nats.Msg{
		Subject: b.in(p.token),
		Data:    p.message.Data,
		Header: nats.Header{
			nats.MsgIdHdr: {p.key},
			idHeader:      {encodeID(p.message.ID)},
			timeHeader:    {strconv.FormatInt(p.message.Time.UnixMilli(), 10)},
		},
	}
	for name, value := range about(p.message) {
		m.Header[name] = []string{value}
	}
	return m
}

// about are the headers that few messages have.
func about(m bus.Message) map[string]string {
	if m.From == nil && len(m.Tags) == 0 {
		return nil
	}
	headers := map[string]string{}
	if m.From != nil {
		headers[fromHeader] = encodeJSON(m.From)
	}
	if len(m.Tags) > 0 {
		headers[tagsHeader] = encodeJSON(m.Tags)
	}
	return headers
}

// aboutSize is how many bytes about makes.
func aboutSize(m bus.Message) (n int) {
	for _, value := range about(m) {
		n += len(value)
	}
	return n
}

// encodeJSON makes the value of a header.
func encodeJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // cannot be: there is nothing in it that has no JSON
	}
	return encodeID(string(text))
}

// decodeJSON is nil for what is no such value.
func decodeJSON[T any](value string) *T {
	text, ok := decodeID(value)
	v := new(T)
	if !ok || json.Unmarshal([]byte(text), v) != nil {
		return nil
	}
	return v
}

// tooBig reports whether the server would refuse a message.
func (b *Bus) tooBig(m bus.Message) error {
	most := b.nc.MaxPayload()
	if most <= 0 { // no server has told yet
		most = 1 << 20
	}
	if size := int64(len(m.Data) + 3*len(m.ID) + aboutSize(m) + headerRoom); size > most {
		return fmt.Errorf("%w: %d bytes, and the server takes %d with headers (max_payload)", bus.ErrTooBig, len(m.Data), most)
	}
	return nil
}

// stored is a message of the stream.
type stored struct {
	token  string
	seq    uint64
	header nats.Header
	data   []byte
	time   time.Time // when the server took it
}

// message is what the listener gets.
func (s stored) message(channel string) bus.Message {
	m := bus.Message{Channel: channel, Offset: s.seq, Data: s.data, Time: s.time}
	id, ok := decodeID(s.header.Get(idHeader))
	if !ok {
		id = "nats-" + strconv.FormatUint(s.seq, 36)
	}
	m.ID, m.From = id, decodeJSON[bus.Member](s.header.Get(fromHeader))
	if tags := decodeJSON[map[string]string](s.header.Get(tagsHeader)); tags != nil {
		m.Tags = *tags
	}
	if ms, err := strconv.ParseInt(s.header.Get(timeHeader), 10, 64); err == nil {
		m.Time = time.UnixMilli(ms)
	}
	return m
}

// live reads a message that the server has published again, and the number of
// the channel's one before.
func (b *Bus) live(m *nats.Msg) (s stored, before uint64, ok bool) {
	token, ok := strings.CutPrefix(m.Subject, b.o.Name+".out.")
	if !ok {
		return stored{}, 0, false
	}
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil || seq == 0 {
		return stored{}, 0, false // not from a stream
	}
	before, err = strconv.ParseUint(m.Header.Get("Nats-Last-Sequence"), 10, 64)
	if err != nil {
		return stored{}, 0, false
	}
	return stored{token: token, seq: seq, header: m.Header, data: m.Data, time: time.Now()}, before, true
}
