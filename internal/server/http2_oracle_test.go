package server

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millrace/internal/lane"
)

// The oracle: a script of frames gets the same answers with the lane and without.
// The bytes of an input choose the frames, how they are split, and the settings.

// h2Paths are asked for. The first three are hot where there is a lane.
var h2Paths = []string{"/hot", pathBig, "/query?q=1", "/slow?x", "/silent", "/nowhere", "/api/x", "/lang", "/coding", "/hot?x", "//hot"}

var (
	h2Methods = []string{"GET", "GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "OPTIONS"}
	h2Tables  = []uint32{4096, 0, 60, 100, 1000, 65536}
	h2Windows = []uint32{65535, 0, 1, 12, 13, 14, 100, 20000, 1 << 20}
	h2Frames  = []uint32{16384, 16385, 20000, 1 << 20}
	// h2Fields are of requests: some are harmless, some must be seen by the
	// handlers, some are refused.
	h2Fields = []hpack.HeaderField{
		{Name: "accept", Value: "*/*"},
		{Name: "user-agent", Value: strings.Repeat("agent ", 20)},
		{Name: "cookie", Value: "a=b", Sensitive: true},
		{Name: "cookie", Value: "c=d"},
		{Name: "accept-encoding", Value: "br"},
		{Name: "accept-language", Value: "de"},
		{Name: "if-none-match", Value: `"13"`},
		{Name: "range", Value: "bytes=1-3"},
		{Name: "te", Value: "trailers"},
		{Name: "te", Value: "gzip"},
		{Name: "priority", Value: "u=1, i"},
		{Name: "x-long", Value: strings.Repeat("long", 500)},
		{Name: "x-empty", Value: ""},
		{Name: "connection", Value: "close"},
		{Name: "Upper", Value: "case"},
		{Name: "host", Value: "b.example"},
		{Name: ":late", Value: "pseudo"},
		{Name: "content-length", Value: "0"},
		{Name: "x-bad", Value: "a\x00b"},
		{Name: "expect", Value: "nonsense"},
		{Name: "x-unknown", Value: "1"},
		{Name: "x-unknown", Value: "a\tb\xff"},
		{Name: "x_unknown", Value: "1"},
		{Name: "accept", Value: " a"},
		{Name: "accept-language", Value: "en "},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "content-encoding", Value: "br"},
		{Name: "if-none-match", Value: `"14", W/"13"`},
		{Name: "if-none-match", Value: "*"},
		{Name: "if-modified-since", Value: "Tue, 06 May 2025 07:08:09 GMT"},
		{Name: "if-modified-since", Value: "tomorrow"},
		{Name: "range", Value: "bytes=-1"},
		{Name: "range", Value: "bytes=99-"},
		{Name: "if-range", Value: `"13"`},
		{Name: "if-range", Value: `"14"`},
		{Name: "if-match", Value: `"14"`},
	}
)

// draw takes choices from an input.
type draw struct{ b []byte }

func (d *draw) byte() int {
	if len(d.b) == 0 {
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return int(c)
}

func oneOf[T any](d *draw, of []T) T { return of[d.byte()%len(of)] }

// h2Script is a client that follows a script.
type h2Script struct {
	d       draw
	nc      net.Conn
	buf     bytes.Buffer // not yet written
	said    bool         // the first SETTINGS
	fr      *http2.Framer
	enc     *hpack.Encoder
	block   bytes.Buffer
	next    uint32
	uploads []uint32        // streams that have not ended
	plain   map[uint32]bool // of them: those that the server does not end early
	seen    []uint32        // streams that net/http does not refuse unseen
	peer    *h2Peer
	err     error
	tame    uint32 // streams below this one are for GET and HEAD, with harmless fields
}

// flush writes what was said, in pieces.
func (s *h2Script) flush() {
	for b := s.buf.Bytes(); len(b) > 0 && s.err == nil; {
		n := len(b)
		switch s.d.byte() % 4 {
		case 0:
			n = min(n, 1+s.d.byte())
		case 1:
			n = min(n, 512)
		}
		_, s.err = s.nc.Write(b[:n])
		b = b[n:]
	}
	s.buf.Reset()
}

// headers sends a header block, in one frame or several.
func (s *h2Script) headers(id uint32, end, whole bool) {
	p := http2.HeadersFrameParam{StreamID: id, EndStream: end, EndHeaders: true}
	how := s.d.byte()
	if how&1 != 0 {
		p.PadLength = uint8(s.d.byte())
	}
	if how&2 != 0 {
		p.Priority = http2.PriorityParam{StreamDep: id - 1, Weight: uint8(how)}
	}
	b := s.block.Bytes()
	var rest []byte
	if how&12 == 12 && !whole {
		p.EndHeaders = false
		n := s.d.byte() % (len(b) + 1)
		b, rest = b[:n], b[n:]
	}
	p.BlockFragment = b
	_ = s.fr.WriteHeaders(p)
	for parts := 0; !p.EndHeaders; parts++ {
		n := min(len(rest), s.d.byte()*2)
		if parts == 6 {
			n = len(rest)
		}
		p.EndHeaders = n == len(rest)
		_ = s.fr.WriteContinuation(id, p.EndHeaders, rest[:n])
		rest = rest[n:]
	}
	s.block.Reset()
}

func (s *h2Script) field(f hpack.HeaderField) { _ = s.enc.WriteField(f) }

// request opens a stream.
func (s *h2Script) request() {
	id := s.next
	s.next += uint32(2 + 2*(s.d.byte()%8/7)) // gaps are legal
	if s.d.byte()%8 == 0 {
		s.enc.SetMaxDynamicTableSize([]uint32{4096, 0, 50, 1000}[s.d.byte()%4])
	}
	method, fields := oneOf(&s.d, h2Methods), h2Fields
	if id < s.tame {
		method, fields = h2Methods[s.d.byte()%5], h2Fields[:7]
	}
	path := oneOf(&s.d, h2Paths)
	upload := method == "POST" || method == "PUT" || s.d.byte()%32 == 1 && id >= s.tame
	if method == "POST" {
		path = "/echo"
	}
	s.field(hpack.HeaderField{Name: ":method", Value: method})
	s.field(hpack.HeaderField{Name: ":scheme", Value: "https"})
	plain := s.d.byte() != 255
	if plain {
		s.field(hpack.HeaderField{Name: ":authority", Value: "a.example"})
	}
	if s.d.byte() != 255 {
		s.field(hpack.HeaderField{Name: ":path", Value: path})
	} else {
		plain = false
	}
	unseen := false
	for range s.d.byte() % 4 {
		plain = false
		f := oneOf(&s.d, fields)
		s.field(f)
		upload = upload && f.Name != "content-length" // the handler may be faster than the error
		unseen = unseen || f.Name == "Upper" || f.Name == ":late" || f.Name == "x-bad"
	}
	if unseen { // further frames on such a stream end the connection
		upload = false
	} else {
		s.seen = append(s.seen, id)
	}
	s.headers(id, !upload, unseen) // net/http ends the connection when such a one has parts
	s.peer.open(id)
	if upload {
		s.uploads = append(s.uploads, id)
		s.plain[id] = plain && method == "POST"
	}
}

// upload sends a piece of a body, and may end it.
func (s *h2Script) upload() {
	if len(s.uploads) == 0 {
		return
	}
	i := s.d.byte() % len(s.uploads)
	id, how := s.uploads[i], s.d.byte()
	body := bytes.Repeat([]byte{'u'}, s.d.byte()*how%1200)
	switch {
	case how%8 == 7 && s.plain[id]: // on one that has ended they end the connection
		s.field(hpack.HeaderField{Name: "x-trailer", Value: "t"})
		s.headers(id, true, false)
	case how&64 != 0:
		_ = s.fr.WriteDataPadded(id, how&1 != 0, body, make([]byte, how%30))
	default:
		_ = s.fr.WriteData(id, how&1 != 0, body)
	}
	if how%8 == 7 || how&1 != 0 {
		s.uploads = append(s.uploads[:i], s.uploads[i+1:]...)
	}
}

// settings sends one to three settings.
func (s *h2Script) settings() {
	var list []http2.Setting
	how := s.d.byte()
	// Later than at the beginning net/http may change the table beside a block
	// that is being encoded with it, which ends the process.
	if how&1 != 0 && !s.said {
		list = append(list, http2.Setting{ID: http2.SettingHeaderTableSize, Val: oneOf(&s.d, h2Tables)})
	}
	if how&2 != 0 {
		list = append(list, http2.Setting{ID: http2.SettingInitialWindowSize, Val: oneOf(&s.d, h2Windows)})
	}
	if how&4 != 0 {
		list = append(list, http2.Setting{ID: http2.SettingMaxFrameSize, Val: oneOf(&s.d, h2Frames)})
	}
	if how&8 != 0 {
		list = append(list, http2.Setting{ID: 99, Val: 1}, http2.Setting{ID: http2.SettingEnablePush})
	}
	s.said = true
	s.peer.told(list)
	_ = s.fr.WriteSettings(list...)
}

// known is a stream that was opened.
func (s *h2Script) known() uint32 { return oneOf(&s.d, s.seen) }

// step sends one thing.
func (s *h2Script) step() {
	switch op := s.d.byte() % 32; {
	case op < 12 && s.next < 80:
		s.request()
	case op < 16:
		s.upload()
	case op < 18:
		s.settings()
	case op < 20:
		s.peer.grant(0, 1000)
		_ = s.fr.WriteWindowUpdate(0, 1000)
	case op < 22 && len(s.seen) > 0:
		id, n := s.known(), uint32(1+s.d.byte())
		s.peer.grant(id, int64(n))
		_ = s.fr.WriteWindowUpdate(id, n)
	case op == 22:
		_ = s.fr.WritePing(false, [8]byte{1})
	case op == 23:
		_ = s.fr.WritePriority(uint32(1+2*s.d.byte()), http2.PriorityParam{Weight: 3})
	case op == 24 && len(s.seen) > 0:
		id := s.known()
		s.peer.forget(id)
		for i, u := range s.uploads {
			if u == id {
				s.uploads = append(s.uploads[:i], s.uploads[i+1:]...)
				break
			}
		}
		_ = s.fr.WriteRSTStream(id, http2.ErrCodeCancel)
	case op == 25:
		_ = s.fr.WriteRawFrame(0x42, 0xff, uint32(s.d.byte()), []byte("unknown"))
	case op < 29:
		s.flush()
	}
}

// bad breaks the protocol, in one of the ways that end a connection.
func (s *h2Script) bad(how int) {
	u32 := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	frames := []func() error{
		func() error { return s.fr.WriteRawFrame(http2.FrameData, 0, 0, []byte("x")) },
		func() error { return s.fr.WriteRawFrame(http2.FrameData, 0, s.next, []byte("x")) },
		func() error { return s.fr.WriteRawFrame(http2.FrameHeaders, 5, 0, []byte{0x82}) },
		func() error { return s.fr.WriteRawFrame(http2.FrameHeaders, 5, s.next+1, []byte{0x82}) },
		func() error { return s.fr.WriteRawFrame(http2.FrameHeaders, 5, s.next, []byte{0xff, 0xff, 0x01}) },
		func() error { return s.fr.WriteRawFrame(http2.FramePing, 0, 0, []byte("short")) },
		func() error { return s.fr.WriteRawFrame(http2.FramePing, 0, 1, []byte("12345678")) },
		func() error { return s.fr.WriteRawFrame(http2.FrameSettings, 0, 0, []byte("five!")) },
		func() error { return s.fr.WriteRawFrame(http2.FrameSettings, 0, 1, nil) },
		func() error { return s.fr.WriteRawFrame(http2.FrameSettings, 1, 0, []byte("123456")) },
		func() error {
			return s.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		},
		func() error { return s.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}) },
		func() error { return s.fr.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2}) },
		func() error { return s.fr.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, u32(0)) },
		func() error { return s.fr.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, u32(1<<31-1)) },
		func() error { return s.fr.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, []byte("123")) },
		func() error { return s.fr.WriteRawFrame(http2.FrameWindowUpdate, 0, s.next, u32(1)) },
		func() error { return s.fr.WriteRawFrame(http2.FrameRSTStream, 0, s.next, u32(8)) },
		func() error { return s.fr.WriteRawFrame(http2.FrameRSTStream, 0, 0, u32(8)) },
		func() error { return s.fr.WriteRawFrame(http2.FrameContinuation, 4, s.next, []byte{0x82}) },
		func() error { return s.fr.WriteRawFrame(http2.FramePushPromise, 4, s.next, u32(2)) },
		func() error { return s.fr.WriteRawFrame(http2.FrameGoAway, 0, 1, make([]byte, 8)) },
	}
	_ = frames[how%len(frames)]()
}

// play follows a script and returns what was answered. Streams below tame are for
// simple requests.
func play(r *rig, input []byte, tame uint32) (string, error) {
	conf := r.clientTLS.Clone()
	conf.NextProtos = []string{"h2"}
	nc, err := tls.Dial("tcp", r.secure, conf)
	if err != nil {
		return "", err
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(patience))
	s := &h2Script{d: draw{input}, nc: nc, next: 1, plain: map[uint32]bool{}, peer: newH2Peer(nc), tame: tame}
	s.fr = http2.NewFramer(&s.buf, nil)
	s.fr.AllowIllegalWrites = true
	s.enc = hpack.NewEncoder(&s.block)
	s.buf.WriteString(http2.ClientPreface)
	s.settings()
	read := make(chan error, 1)
	go func() { read <- s.peer.read() }()
	for range 200 {
		if len(s.d.b) == 0 {
			break
		}
		s.step()
	}
	last := s.d.byte()
	for _, id := range s.uploads {
		_ = s.fr.WriteData(id, true, []byte("end"))
	}
	open := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1 << 20}}
	s.peer.told(open)
	_ = s.fr.WriteSettings(open...)
	s.peer.grant(0, 1<<24)
	_ = s.fr.WriteWindowUpdate(0, 1<<24)
	s.flush()
	if err := s.peer.wait(); err != nil {
		return "", fmt.Errorf("%w; so far:\n%s", err, s.peer.result())
	}
	s.bad(len(input) + last)
	s.flush()
	if err := <-read; err != nil {
		return "", err
	}
	return s.peer.result(), nil
}

// h2Rigs are servers with the lane and without.
func h2Rigs(tb testing.TB) (on, off *rig) {
	on, off = start(tb, plan{}), start(tb, plan{lane: lane.Options{Off: true}})
	on.teach(tb, "tls", "/hot", pathBig, "/query?q=1")
	return on, off
}

func compare(t *testing.T, on, off *rig, input []byte, tame uint32) {
	t.Helper()
	a, err := play(on, input, tame)
	if err != nil {
		t.Fatalf("with the lane, %x: %v", input, err)
	}
	b, err := play(off, input, tame)
	if err != nil {
		t.Fatalf("without the lane, %x: %v", input, err)
	}
	if a != b {
		t.Fatalf("script %x: with the lane\n%s\nwithout\n%s", input, a, b)
	}
}

func TestHTTP2Oracle(t *testing.T) {
	on, off := h2Rigs(t)
	seed := rand.New(rand.NewPCG(15, 2026))
	before := on.fast()
	for range 300 {
		input := make([]byte, 20+seed.IntN(600))
		for i := range input {
			input[i] = byte(seed.Uint32())
		}
		compare(t, on, off, input, 0)
	}
	if on.fast() == before {
		t.Error("no answer came from the lane")
	}
}

func FuzzHTTP2Oracle(f *testing.F) {
	on, off := h2Rigs(f)
	f.Add([]byte{0})
	f.Add(bytes.Repeat([]byte{1, 2, 3, 0, 7}, 40))
	f.Add([]byte("102A0107000200")) // two fields "te"
	f.Fuzz(func(t *testing.T, input []byte) { compare(t, on, off, input[:min(len(input), 2000)], 0) })
}
