package websocket_test

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// deflate compresses a message as RFC 7692, 7.2.1, wants it, with the standard
// library. With pieces there are several blocks, flushed in between.
func deflate(message string, level, pieces int) string {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, level)
	for i := range pieces {
		_, _ = io.WriteString(w, message[len(message)*i/pieces:len(message)*(i+1)/pieces])
		_ = w.Flush()
	}
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

func inflate(message string) (string, error) {
	r, _ := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(r)
	_ = r.(flate.Resetter).Reset(strings.NewReader(message+"\x00\x00\xff\xff\x01\x00\x00\xff\xff"), nil)
	b, err := io.ReadAll(r)
	return string(b), err
}

var inflaters = sync.Pool{New: func() any { return flate.NewReader(strings.NewReader("")) }}

// document is so many bytes of JSON in UTF-8, at most what the longest has.
func document(n int) string {
	s := longest()[:n]
	for strings.ToValidUTF8(s, "") != s {
		s = s[:len(s)-1]
	}
	return s
}

var longest = sync.OnceValue(func() string {
	var b strings.Builder
	for i := 0; b.Len() < 200_000; i++ {
		line, _ := json.Marshal(map[string]any{"id": i, "name": fmt.Sprintf("Größe %d", i*i%1013), "tags": []string{"ä", "いろ", "z"}})
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
})

// fragmented is a message in frames of so many bytes (0: one frame).
func fragmented(first byte, payload string, size int) []byte {
	if size == 0 || len(payload) <= size {
		return masked(fin|first, payload)
	}
	b := masked(first, payload[:size])
	payload = payload[size:]
	for len(payload) > size {
		b = append(b, masked(opMore, payload[:size])...)
		payload = payload[size:]
	}
	return append(b, masked(fin|opMore, payload)...)
}

// exchange sends messages without waiting and wants them back in their order.
func (c *client) exchange(messages []event, pack func(event) []byte) {
	c.T.Helper()
	_ = c.SetDeadline(time.Now().Add(2 * patience))
	sent := make(chan error, 1)
	go func() {
		for _, m := range messages {
			if _, err := c.Write(pack(m)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i, m := range messages {
		if got, err := c.next(); err != nil || got != m {
			c.T.Fatalf("message %d of %d: got %v (error %v), want %v", i, len(messages), got, err, m)
		}
	}
	if err := <-sent; err != nil {
		c.T.Fatalf("sending: %v", err)
	}
}

func (c *client) goodbye() {
	c.T.Helper()
	c.write(masked(fin|opClose, closing(1000, "")))
	c.wantClosed(1000, false)
}

// The fields that clients offer compression with.
const (
	offerField = "Sec-WebSocket-Extensions: "
	usualOffer = offerField + "permessage-deflate; client_max_window_bits"
)

// TestCompressed is section 12: messages of all sizes and kinds, in one frame
// or many, one after the other and all at once.
func TestCompressed(t *testing.T) {
	kinds := []struct {
		name string
		op   byte
		make func(int) string
	}{
		{"document", opText, document},
		{"repetition", opText, func(n int) string { return strings.Repeat("aaaaaaab", n/8+1)[:n] }},
		{"noise", opBinary, noise},
		{"zeros", opBinary, func(n int) string { return strings.Repeat("\x00", n) }},
	}
	sizes := []struct{ bytes, fragment int }{
		{16, 0},
		{64, 0},
		{256, 0},
		{1024, 0},
		{4096, 0},
		{8192, 0},
		{16384, 0},
		{32768, 0},
		{65536, 0},
		{131072, 0},
		{8192, 256},
		{16384, 256},
		{32768, 256},
		{65536, 256},
		{131072, 256},
		{8192, 1024},
		{32768, 32},
		{131072, 4096},
	}
	const perRow = 128 << 10 // bytes; as many messages as make them
	type row struct {
		name     string
		messages []event
		packed   []byte
	}
	var rows []row
	for _, kind := range kinds {
		for _, size := range sizes {
			payload := kind.make(size.bytes)
			rows = append(rows, row{
				name:     fmt.Sprintf("%s of %d bytes in %d", kind.name, size.bytes, size.fragment),
				messages: slices.Repeat([]event{{kind.op, payload}}, min(1000, max(2, perRow/size.bytes))),
				packed:   fragmented(kind.op|rsv1, deflate(payload, 6, 1), size.fragment),
			})
		}
	}
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		for i, r := range rows {
			if !f.has(i, len(rows)) {
				continue
			}
			t.Run(r.name, func(t *testing.T) {
				c := f.open(t, nil, usualOffer)
				if !c.inflates {
					t.Fatalf("nothing was agreed: %v", c.answer)
				}
				c.exchange(r.messages, func(event) []byte { return r.packed })
				c.goodbye()
			})
		}
	})
}

// TestCompressionOffers is section 13: whatever is offered, the answer fits and
// messages go both ways.
func TestCompressionOffers(t *testing.T) {
	type offer struct {
		line, answer string // answer: what must be in it; "-": there is none
	}
	offers := []offer{
		{"permessage-deflate", ""},
		{"permessage-deflate; client_no_context_takeover", "client_no_context_takeover"},
		{"permessage-deflate; server_no_context_takeover", "server_no_context_takeover"},
		{"permessage-deflate; client_max_window_bits", ""},
		{"permessage-deflate;client_max_window_bits ; server_no_context_takeover", "server_no_context_takeover"},
		{"x-webkit-deflate-frame, permessage-deflate", ""},
		{"permessage-deflate; unknown, permessage-deflate", ""},
		{`permessage-deflate; server_max_window_bits="10"`, "server_max_window_bits=10"},
		{"permessage-deflate; server_max_window_bits=9; server_no_context_takeover; client_no_context_takeover; client_max_window_bits, permessage-deflate; client_max_window_bits", "server_max_window_bits=9"},
		{"permessage-deflate; server_max_window_bits=7, permessage-deflate; server_max_window_bits=12", "server_max_window_bits=12"},
		{"permessage-deflate; server_max_window_bits", "-"},
		{"permessage-deflate; server_max_window_bits=16", "-"},
		{"permessage-deflate; server_max_window_bits=08", "-"},
		{"permessage-deflate; client_max_window_bits=7", "-"},
		{"permessage-deflate; client_no_context_takeover=1", "-"},
		{"permessage-deflate; server_no_context_takeover; server_no_context_takeover", "-"},
		{"permessage-deflate; unknown", "-"},
		{"permessage-bzip2", "-"},
		{"deflate-frame", "-"},
		{"", "-"},
	}
	for bits := 8; bits <= 15; bits++ {
		offers = append(offers,
			offer{fmt.Sprintf("permessage-deflate; server_max_window_bits=%d", bits), fmt.Sprintf("server_max_window_bits=%d", bits)},
			offer{fmt.Sprintf("permessage-deflate; client_max_window_bits=%d", bits), ""},
			offer{fmt.Sprintf("permessage-deflate; client_max_window_bits; server_max_window_bits=%d; server_no_context_takeover", bits), fmt.Sprintf("server_max_window_bits=%d", bits)})
	}
	var messages []event
	packed := map[event][]byte{}
	for i, size := range []int{0, 5, 1023, 1024, 1025, 3000, 40_000, 700} {
		for _, m := range []event{{opText, document(size)}, {opBinary, noise(size + i)}} {
			messages = append(messages, m)
			packed[m] = masked(fin|rsv1|m.op, deflate(m.payload, 6, 1))
		}
	}
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		for i, o := range offers {
			if !f.has(i, len(offers)) {
				continue
			}
			t.Run(o.line, func(t *testing.T) {
				c := f.open(t, nil, offerField+o.line)
				answer := c.answer["Sec-Websocket-Extensions"]
				if o.answer == "-" {
					if answer != nil {
						t.Fatalf("the answer is %q", answer)
					}
				} else if len(answer) != 1 || !fits(answer[0], o.line) || !strings.Contains(answer[0], o.answer) {
					t.Fatalf("the answer is %q", answer)
				}
				c.exchange(messages, func(m event) []byte {
					if !c.inflates || len(m.payload) == 5 {
						return masked(fin|m.op, m.payload)
					}
					return packed[m]
				})
				c.goodbye()
			})
		}
	})
}

// fits reports whether an answer is one that RFC 7692, 7.1, allows: its client
// parameters only where they may be sent unasked, each once.
func fits(answer, offer string) bool {
	params := strings.Split(answer, ";")
	seen := map[string]bool{}
	for i, p := range params {
		p = strings.TrimSpace(p)
		name, _, _ := strings.Cut(p, "=")
		switch {
		case seen[name]:
			return false
		case i == 0 && p != "permessage-deflate":
			return false
		case name == "client_max_window_bits" && !strings.Contains(offer, name):
			return false
		}
		seen[name] = true
	}
	return true
}

// TestCompressedForms are all the ways in which RFC 7692, 7.2.3, lets a
// message be compressed, and what is none.
func TestCompressedForms(t *testing.T) {
	hello := "\xf2\x48\xcd\xc9\xc9\x07\x00"
	packed := func(op byte, payload string) []byte { return masked(fin|rsv1|op, payload) }
	list := []ordeal{
		{name: "one block", parts: atOnce(packed(opText, hello)), want: []event{{opText, "Hello"}}},
		{name: "in two frames", parts: atOnce(masked(opText|rsv1, hello[:3]), masked(fin|opMore, hello[3:])), want: []event{{opText, "Hello"}}},
		{name: "in two frames and empty ones", parts: atOnce(masked(opText|rsv1, ""), masked(opMore, hello[:3]), masked(opMore, hello[3:]), masked(fin|opMore, "")), want: []event{{opText, "Hello"}}},
		{name: "with a ping within", parts: atOnce(masked(opText|rsv1, hello[:3]), masked(fin|opPing, "x"), masked(fin|opMore, hello[3:])), want: []event{{opPong, "x"}, {opText, "Hello"}}},
		{name: "stored", parts: atOnce(packed(opText, "\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00")), want: []event{{opText, "Hello"}}},
		{name: "final", parts: atOnce(packed(opText, "\xf3\x48\xcd\xc9\xc9\x07\x00\x00")), want: []event{{opText, "Hello"}}},
		{name: "two blocks", parts: atOnce(packed(opText, "\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00")), want: []event{{opText, "Hello"}}},
		{name: "empty", parts: atOnce(packed(opText, "\x00")), want: []event{{opText, ""}}},
		{name: "nothing", parts: atOnce(packed(opBinary, "")), want: []event{{opBinary, ""}}},
		{name: "plain ones between", parts: atOnce(packed(opText, hello), masked(fin|opText, "Hello"), packed(opBinary, hello)), want: []event{{opText, "Hello"}, {opText, "Hello"}, {opBinary, "Hello"}}},
		{name: "many blocks", parts: atOnce(packed(opText, deflate(document(9000), 9, 12))), want: []event{{opText, document(9000)}}},

		{name: "the text is not UTF-8", parts: atOnce(packed(opText, deflate("Hello\xff", 6, 1)), masked(fin|opPing, "")), code: 1007},
		{name: "the text ends within a character", parts: atOnce(packed(opText, deflate("Hello\xe2\x82", 6, 1))), code: 1007},
		{name: "not compressed at all", parts: atOnce(packed(opText, "Hello, this is text")), code: 1007},
		{name: "cut", parts: atOnce(packed(opText, hello[:3])), code: 1007},
		{name: "continuation marked", parts: atOnce(masked(opText|rsv1, hello[:3]), masked(fin|opMore|rsv1, hello[3:])), code: 1002},
		{name: "compressed ping", parts: atOnce(packed(opPing, hello)), code: 1002},
		{name: "compressed close frame", parts: atOnce(packed(opClose, deflate(closing(1000, ""), 6, 1))), code: 1002},
		{name: "bit 2", parts: atOnce(masked(fin|rsv2|opText, hello)), code: 1002},
	}
	for level := flate.HuffmanOnly; level <= 9; level++ {
		list = append(list, ordeal{
			name:  fmt.Sprintf("level %d", level),
			parts: atOnce(packed(opText, deflate(document(50_000), level, 1)), packed(opBinary, deflate(noise(50_000), level, 2))),
			want:  []event{{opText, document(50_000)}, {opBinary, noise(50_000)}},
		})
	}
	var doubled []ordeal
	for _, o := range list {
		if len(o.parts[0].send) < 1000 {
			doubled = append(doubled, both(o)...)
		} else {
			doubled = append(doubled, o)
		}
	}
	ordealsWith(t, doubled, usualOffer)
}

// TestBomb sends little that becomes much.
func TestBomb(t *testing.T) {
	o := echoOptions()
	o.MaxMessage = 1 << 20
	bomb := deflate(strings.Repeat("\x00", 8<<20), 9, 1)
	onAll(t, o, func(t *testing.T, f front) {
		c := f.open(t, nil, usualOffer)
		c.write(join(masked(fin|opText, "before"), masked(fin|rsv1|opBinary, bomb), masked(fin|opText, "behind")))
		c.want(event{opText, "before"})
		c.wantClosed(1009, true)
	})
}
