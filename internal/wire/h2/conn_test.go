package h2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"millrace/internal/process/servertest"
)

func TestHotAndCold(t *testing.T) {
	r := start(t, pages())
	r.ask(1, "/hot")
	if got := r.answer(1); got != "hot" || r.host.starts != 0 {
		t.Fatalf("%q, net/http was started %d times", got, r.host.starts)
	}
	for id := uint32(3); id < 40; id += 4 {
		r.ask(id, "/cold")
		if got := r.answer(id); got != "cold" || r.got["x-table"] == "" {
			t.Fatalf("%q, %v", got, r.got)
		}
		r.ask(id+2, "/hot/1000")
		if got := r.answer(id + 2); len(got) != 1000 || r.got["x-lane"] == "" {
			t.Fatalf("%d bytes, %v", len(got), r.got)
		}
	}
	servertest.Eventually(r, "the next request is awaited", func() bool { return r.host.waits() == WaitRequest })
}

// A read that fills the buffer of a quiet connection to the last byte has no rest.
func TestReadOfExactlyTheBuffer(t *testing.T) {
	r := start(t, pages())
	r.ask(1, "/hot")
	r.answer(1)
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: r.fields("/hot"), EndStream: true, EndHeaders: true})
	_ = fr.WriteRawFrame(0x77, 0, 0, make([]byte, waitBuffer-b.Len()-frameHead))
	if b.Len() != waitBuffer {
		t.Fatal(b.Len())
	}
	r.raw(b.Bytes())
	if got := r.answer(3); got != "hot" {
		t.Fatal(got)
	}
}

func TestLateFramesOnHotStreams(t *testing.T) {
	for _, cold := range []bool{false, true} {
		r := start(t, pages())
		if cold {
			r.ask(1, "/cold")
			r.answer(1)
		}
		r.ask(5, "/hot")
		r.answer(5)
		r.must(r.fr.WriteRSTStream(5, http2.ErrCodeCancel))
		r.must(r.fr.WriteRSTStream(3, http2.ErrCodeCancel)) // left out
		r.must(r.fr.WriteWindowUpdate(5, 1000))
		r.must(r.fr.WriteWindowUpdate(3, 1000))
		r.must(r.fr.WritePriority(5, http2.PriorityParam{Weight: 1}))
		r.ask(7, "/cold")
		if got := r.answer(7); got != "cold" {
			t.Fatal(got)
		}
	}
}

func TestBlocksInParts(t *testing.T) {
	r := start(t, pages())
	for i, path := range []string{"/hot", "/cold"} {
		id := uint32(1 + 2*i)
		block := r.fields(path)
		r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: block[:2], EndStream: true, PadLength: 7,
			Priority: http2.PriorityParam{StreamDep: 0, Weight: 9},
		}))
		servertest.Eventually(r, "the rest is awaited", func() bool { return r.host.waits() == WaitFrame })
		r.must(r.fr.WriteContinuation(id, false, nil))
		r.must(r.fr.WriteContinuation(id, true, block[2:]))
		if got := r.answer(id); got != path[1:] {
			t.Fatal(got)
		}
	}
	r.ask(5, "/cold", "x-long", strings.Repeat("a", 24000)) // without Huffman coding it takes two frames
	if f := r.next(); f.Header().StreamID != 5 {
		t.Fatal(f)
	}
}

func TestUploadWithTrailers(t *testing.T) {
	r := start(t, pages())
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.fields("/echo"), EndHeaders: true}))
	r.must(r.fr.WriteDataPadded(1, false, []byte("up"), make([]byte, 200)))
	r.ask(3, "/hot")
	if got := r.answer(3); got != "hot" {
		t.Fatal(got)
	}
	r.must(r.fr.WriteData(1, false, []byte("load")))
	r.b.Reset()
	r.must(r.enc.WriteField(field("x-end", "t")))
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.b.Bytes(), EndStream: true, EndHeaders: true}))
	if got := r.answer(1); got != "upload" {
		t.Fatal(got)
	}
}

// A header block of net/http's that takes several frames stays together,
// whatever the host answers meanwhile.
func TestBlocksStayTogether(t *testing.T) {
	r := start(t, pages())
	const n = 40
	go func() {
		for id := uint32(1); id < 4*n; id += 4 {
			r.ask(id, "/wide")
			r.ask(id+2, "/hot")
		}
	}()
	open, ends := uint32(0), 0
	for ends < 2*n {
		f, err := r.fr.ReadFrame()
		r.must(err) // the framer sees to the order
		h := f.Header()
		switch {
		case open != 0 && (h.Type != http2.FrameContinuation || h.StreamID != open):
			t.Fatalf("%v inside a header block", f)
		case h.Type == http2.FrameHeaders || h.Type == http2.FrameContinuation:
			if open = h.StreamID; h.Flags.Has(http2.FlagHeadersEndHeaders) {
				open = 0
			}
		}
		if h.Type != http2.FrameContinuation && h.Type != http2.FrameSettings && h.Type <= http2.FrameHeaders && h.Flags.Has(http2.FlagDataEndStream) {
			ends++
		}
	}
}

// A table that has shrunk is named by the next block, whoever answers.
func TestTableShrinks(t *testing.T) {
	block := func(r *rig) (b []byte) {
		for {
			f := r.next()
			if f, ok := f.(*http2.HeadersFrame); ok {
				b = append(b, f.HeaderBlockFragment()...)
			}
			if f.Header().Flags.Has(http2.FlagDataEndStream) {
				return b
			}
		}
	}
	table := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingHeaderTableSize, Val: n} }
	r := start(t, pages(), table(100))
	r.must(r.fr.WriteSettings(table(4096)))
	r.ask(1, "/hot") // by net/http, which says so
	if b := block(r); !bytes.HasPrefix(b, []byte{0x3f, 100 - 31}) {
		t.Fatalf("% x", b[:8])
	}
	r.ask(3, "/hot")
	if r.answer(3); r.got["x-lane"] != "hot" {
		t.Fatal("the lane stays away")
	}
	r.must(r.fr.WriteSettings(table(100))) // net/http does not hear of it
	r.ask(5, "/cold")
	r.answer(5)
	servertest.Eventually(r, "net/http has ended", func() bool { return r.conn.inner.Load() == nil })
	r.must(r.fr.WriteSettings(table(50)))
	r.ask(7, "/hot")
	if b := block(r); !bytes.HasPrefix(b, []byte{0x3f, 50 - 31}) {
		t.Fatalf("% x", b[:8])
	}
	r.ask(9, "/hang")
	r.must(r.fr.WriteSettings(table(0))) // which net/http cannot do beside an answer
	if f := r.gone(); f.ErrCode != http2.ErrCodeInternal {
		t.Fatal(f)
	}
}

func TestProtocolErrors(t *testing.T) {
	u32 := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	for name, c := range map[string]struct {
		kind  http2.FrameType
		flags http2.Flags
		id    uint32
		p     []byte
		want  http2.ErrCode
	}{
		"DATA on a hot stream":      {http2.FrameData, 0, 1, nil, http2.ErrCodeStreamClosed},
		"DATA on an idle stream":    {http2.FrameData, 0, 9, nil, http2.ErrCodeProtocol},
		"HEADERS on a hot stream":   {http2.FrameHeaders, 5, 1, []byte{0x82}, http2.ErrCodeStreamClosed},
		"HEADERS on an even stream": {http2.FrameHeaders, 5, 2, []byte{0x82}, http2.ErrCodeProtocol},
		"HEADERS with padding only": {http2.FrameHeaders, 5 | 8, 3, []byte{1}, http2.ErrCodeProtocol},
		"short priority":            {http2.FrameHeaders, 5 | 32, 3, []byte{1}, http2.ErrCodeFrameSize},
		"bad HPACK":                 {http2.FrameHeaders, 5, 3, []byte{0xff, 0xff, 1}, http2.ErrCodeCompression},
		"half a field":              {http2.FrameHeaders, 5, 3, []byte{0, 9}, http2.ErrCodeCompression},
		"RST_STREAM idle":           {http2.FrameRSTStream, 0, 9, u32(8), http2.ErrCodeProtocol},
		"RST_STREAM even":           {http2.FrameRSTStream, 0, 0, u32(8), http2.ErrCodeProtocol},
		"a window too large":        {http2.FrameWindowUpdate, 0, 0, u32(1<<31 - 1), http2.ErrCodeFlowControl},
		"a window of nothing":       {http2.FrameWindowUpdate, 0, 0, u32(0), http2.ErrCodeProtocol},
		"CONTINUATION alone":        {http2.FrameContinuation, 4, 1, nil, http2.ErrCodeProtocol},
		"PUSH_PROMISE":              {http2.FramePushPromise, 4, 1, u32(2), http2.ErrCodeProtocol},
		"a frame too large":         {0x50, 0, 0, make([]byte, maxRead+1), http2.ErrCodeFrameSize},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, pages())
			r.ask(1, "/hot/none")
			r.answer(1)
			r.must(r.fr.WriteRawFrame(c.kind, c.flags, c.id, c.p))
			if f := r.gone(); f.ErrCode != c.want {
				t.Errorf("%v, want %v", f.ErrCode, c.want)
			}
			if err := r.ended(); !errors.Is(err, ErrProtocol) {
				t.Error(err)
			}
		})
	}
}

func TestSettingsComeFirst(t *testing.T) {
	c := New(nil, Options{})
	tn := &task{}
	c.host = &deaf{}
	if _, err := c.handleFrames(tn, appendHead(nil, head{kind: framePing, length: 8})); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
}

// A header list that is too long is answered with 431, and no more of it than
// that reaches net/http; the connection goes on. One that is far too long is a bomb.
func TestLongHeaders(t *testing.T) {
	long := func(n int) (fields []string) {
		for range n / 1000 {
			fields = append(fields, "x-part", strings.Repeat("p", 1000-32-len("x-part")))
		}
		return append(fields, "x-last", strings.Repeat("l", n%1000))
	}
	r := start(t, pages())
	id := uint32(1)
	for _, fields := range [][]string{long(66000), long(70000), long(100_000), {"x", strings.Repeat("e", 60000), "y", strings.Repeat("e", 30000)}} {
		r.fields("/cold", fields...)
		block, kind := r.b.Bytes(), http2.FrameHeaders
		for len(block) > 0 {
			n, flags := min(len(block), maxRead), http2.FlagHeadersEndStream
			if n == len(block) {
				flags |= http2.FlagHeadersEndHeaders
			}
			r.must(r.fr.WriteRawFrame(kind, flags, id, block[:n]))
			block, kind = block[n:], http2.FrameContinuation
		}
		for over := false; !over; {
			f := r.next()
			h := f.Header()
			if h.Type == http2.FrameHeaders && r.got[":status"] != "431" || h.StreamID != id {
				t.Fatalf("stream %d: %v, %v", id, f, r.got)
			}
			over = h.Flags.Has(http2.FlagDataEndStream)
		}
		id += 2
	}
	r.ask(id, "/cold")
	if got := r.answer(id); got != "cold" {
		t.Error(got)
	}
	block := append([]byte(nil), r.fields("/cold", "x-bomb", strings.Repeat("b", 3500))...)
	block = append(block, bytes.Repeat([]byte{0x80 | 62}, 1000)...)
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id + 2, BlockFragment: block, EndStream: true, EndHeaders: true}))
	if f := r.gone(); f.ErrCode != http2.ErrCodeEnhanceYourCalm {
		t.Error(f)
	}
	if err := r.ended(); !errors.Is(err, ErrFlood) || r.conn.Reason() != Headers {
		t.Error(err, r.conn.Reason())
	}
}
