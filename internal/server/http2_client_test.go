package server

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// hostile is a connection that sends what it likes.
type hostile struct {
	nc  net.Conn
	out *bufio.Writer
	*http2.Framer
	hot, cold []byte // header blocks without a state
	dec       *hpack.Decoder
	away      []http2.GoAwayFrame // what came of these
}

// literals are a header block without a state: repeated it means the same.
func literals(fields ...string) []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true}) // to memory
	}
	return b.Bytes()
}

func asking(path string, more ...string) []byte {
	return literals(append([]string{":method", "GET", ":scheme", "https", ":authority", "a.example", ":path", path}, more...)...)
}

// speakHTTP2 connects, and says the preface.
func speakHTTP2(tb testing.TB, addr string, conf *tls.Config, settings ...http2.Setting) *hostile {
	tb.Helper()
	nc, err := tls.Dial("tcp", addr, conf)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(2 * patience))
	h := &hostile{nc: nc, out: bufio.NewWriterSize(nc, 16<<10), hot: asking("/hot"), cold: asking("/slow"), dec: hpack.NewDecoder(4096, nil)}
	h.Framer = http2.NewFramer(h.out, nc)
	h.AllowIllegalWrites = true
	_, _ = h.out.WriteString(http2.ClientPreface) // to memory, as all of it up to Flush
	_ = h.WriteSettings(settings...)
	return h
}

func (h *hostile) open(id uint32, block []byte) error {
	return h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: true, EndHeaders: true})
}

// end reads up to the end of the connection, and returns what GOAWAY has said.
func (h *hostile) end() (why http2.ErrCode) {
	for {
		f, err := h.ReadFrame()
		if err != nil {
			return why
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			why = g.ErrCode
		}
	}
}

// answer reads the answer to a stream: the status and the body. Other streams'
// frames are skipped.
func (h *hostile) answer(tb testing.TB, id uint32) (status, body string) {
	tb.Helper()
	if err := h.out.Flush(); err != nil {
		tb.Fatal(err)
	}
	for {
		f, err := h.ReadFrame()
		if err != nil {
			tb.Fatalf("stream %d: %v", id, err)
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			// Every block is decoded, since net/http's have a state.
			fields, err := h.dec.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				tb.Fatal(err)
			}
			if f.StreamID == id && status == "" {
				status = fields[0].Value
			}
		case *http2.DataFrame:
			if f.StreamID == id {
				body += string(f.Data())
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return f.ErrCode.String(), body
			}
		case *http2.GoAwayFrame:
			h.away = append(h.away, *f)
			if f.ErrCode != http2.ErrCodeNo {
				tb.Fatal(f)
			}
		}
		t := f.Header().Type
		if (t == http2.FrameHeaders || t == http2.FrameData) && f.Header().StreamID == id && f.Header().Flags.Has(http2.FlagDataEndStream) {
			return status, body
		}
	}
}

// get asks for a path on a stream.
func (h *hostile) get(tb testing.TB, id uint32, path string) (status, body string) {
	tb.Helper()
	if err := h.open(id, asking(path)); err != nil {
		tb.Fatal(err)
	}
	return h.answer(tb, id)
}

// http2 connects to a rig.
func (r *rig) http2(tb testing.TB, settings ...http2.Setting) *hostile {
	tb.Helper()
	conf := r.clientTLS.Clone()
	conf.NextProtos = []string{"h2"}
	return speakHTTP2(tb, r.secure, conf, settings...)
}
