package h2

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// pieces is a connection on which bytes come in pieces.
type pieces struct {
	net.Conn
	b   []byte
	rnd *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.b[:min(len(p.b), 1+p.rnd.IntN(300))])
	p.b = p.b[n:]
	return n, nil
}

// What goes through a Screen is what the client has sent, however it comes: uploads as
// they are, blocks without a state, and requests that must be refused with what they were.
func TestScreen(t *testing.T) {
	var sent, block bytes.Buffer
	fr, enc := http2.NewFramer(&sent, nil), hpack.NewEncoder(&block)
	_ = fr.WriteSettings()
	large := strings.Repeat("l", 3000)
	for i := range 200 {
		block.Reset()
		path := "/a"
		if i%3 == 1 {
			path = "/a%"
		}
		for _, f := range [][2]string{{":method", "POST"}, {":scheme", "HTTPS"}, {":authority", "a.example"}, {":path", path}, {"x-large", large}, {refused, "431 https /"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		id, b := uint32(2*i+1), block.Bytes()
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:len(b)/2], PadLength: uint8(i)})
		_ = fr.WriteContinuation(id, true, b[len(b)/2:])
		_ = fr.WriteData(id, true, bytes.Repeat([]byte{byte(i)}, i*7))
	}
	for seed := range uint64(20) {
		s := NewScreen(&pieces{b: bytes.Clone(sent.Bytes()), rnd: rand.New(rand.NewPCG(seed, 0))}, 64<<10)
		all, err := io.ReadAll(s)
		if err != nil {
			t.Fatal(err)
		}
		got := http2.NewFramer(nil, bytes.NewReader(all))
		requests := 0
		for {
			f, err := got.ReadFrame()
			if err != nil {
				break
			}
			switch f := f.(type) {
			case *http2.HeadersFrame:
				fields := map[string]string{}
				dec := hpack.NewDecoder(0, func(f hpack.HeaderField) { fields[f.Name] += f.Value })
				if _, err := dec.Write(f.HeaderBlockFragment()); err != nil || !f.HeadersEnded() {
					t.Fatal(err)
				}
				want := ""
				if requests%3 == 1 {
					want = "400 HTTPS /a%"
				}
				if fields[refused] != want || fields["x-large"] != large || fields[":scheme"] != "https" || (want == "") != (fields[":path"] == "/a") {
					t.Fatalf("request %d: %q %q", requests, fields[":path"], fields[refused])
				}
				requests++
			case *http2.DataFrame:
				if i := requests - 1; !bytes.Equal(f.Data(), bytes.Repeat([]byte{byte(i)}, i*7)) {
					t.Fatalf("the body of request %d: %d bytes", i, len(f.Data()))
				}
			}
		}
		if requests != 200 {
			t.Fatalf("%d requests", requests)
		}
	}
}

// What breaks the protocol is for net/http to see, with all that follows.
func TestScreenExposes(t *testing.T) {
	for name, frames := range map[string][]byte{
		"padding beyond the frame": append(appendHead(nil, head{length: 1, kind: frameHeaders, flags: flagPadded, id: 1}), 9),
		"a block that is none":     append(appendHead(nil, head{length: 1, kind: frameHeaders, flags: flagEndHeaders, id: 1}), 0xff),
		"a frame within a block":   appendHead(append(appendHead(nil, head{length: 1, kind: frameHeaders, id: 1}), 0x82), head{length: 8, kind: framePing}),
		"a frame too long":         appendHead(nil, head{length: maxRead + 1, kind: frameHeaders, id: 1}),
		"no block to continue":     appendHead(nil, head{length: 1, kind: frameContinuation, id: 1}),
	} {
		sent := append(bytes.Clone(frames), "what follows, as it is"...)
		got, err := io.ReadAll(NewScreen(&pieces{b: bytes.Clone(sent), rnd: rand.New(rand.NewPCG(1, 0))}, 64<<10))
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, sent)
		}
	}
}
