package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2Peer reads a server's frames as a strict client: it holds the server to the
// windows, the frame size, the order of frames and the size of the table.
type h2Peer struct {
	nc  net.Conn
	fr  *http2.Framer
	dec *hpack.Decoder

	mu      sync.Mutex
	streams map[uint32]*h2Stream
	grants  map[uint32]int64
	sent    map[uint32]int64
	said    [][]http2.Setting // not yet acknowledged
	table   uint32
	window  int64
	frame   int
	renew   bool // the next header block begins with a size
	early   int  // so many of said may have been heeded by one before: net/http does
	fields  []string
	goAway  string
	fault   error
}

type h2Stream struct {
	fields []string
	body   int
	sum    uint64
	end    string
	forgot bool
}

func newH2Peer(nc net.Conn) *h2Peer {
	p := &h2Peer{
		nc: nc, fr: http2.NewFramer(io.Discard, nc), table: 4096, window: 65535, frame: 16384,
		streams: map[uint32]*h2Stream{}, grants: map[uint32]int64{0: 65535}, sent: map[uint32]int64{},
	}
	p.fr.SetMaxReadFrameSize(1<<24 - 1)
	p.dec = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name != "date" {
			p.fields = append(p.fields, f.Name+": "+f.Value)
		}
	})
	p.dec.SetAllowedMaxDynamicTableSize(65536)
	return p
}

func (p *h2Peer) open(id uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams[id] = &h2Stream{}
}

func (p *h2Peer) forget(id uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.streams[id]; s != nil {
		s.forgot = true
	}
}

func (p *h2Peer) grant(id uint32, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants[id] += n
}

func (p *h2Peer) told(list []http2.Setting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, list)
}

// most is the largest value that the server may still believe in.
func (p *h2Peer) most(id http2.SettingID, now int64) int64 {
	for _, list := range p.said {
		for _, s := range list {
			if s.ID == id {
				now = max(now, int64(s.Val))
			}
		}
	}
	return now
}

// wait waits until every stream has ended.
func (p *h2Peer) wait() error {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		fault, left := p.fault, []uint32(nil)
		for id, s := range p.streams {
			if s.end == "" && !s.forgot {
				left = append(left, id)
			}
		}
		over := p.goAway
		p.mu.Unlock()
		switch {
		case fault != nil:
			return fault
		case len(left) == 0:
			return nil
		case over != "":
			return fmt.Errorf("the server ended the connection (%s) before streams %v", over, left)
		case time.Now().After(end):
			return fmt.Errorf("no end of streams %v", left)
		}
	}
}

// read reads to the end of the connection.
func (p *h2Peer) read() error {
	first := true
	block := uint32(0)
	for {
		f, err := p.fr.ReadFrame()
		p.mu.Lock()
		if err == nil {
			h := f.Header()
			switch {
			case first && h.Type != http2.FrameSettings:
				err = errors.New("the first frame is not SETTINGS")
			case block != 0 && (h.Type != http2.FrameContinuation || h.StreamID != block):
				err = errors.New("a header block was torn apart")
			case int64(h.Length) > p.most(http2.SettingMaxFrameSize, int64(p.frame)):
				err = fmt.Errorf("a frame of %d bytes", h.Length)
			default:
				block, err = p.take(f, block)
			}
			first = false
		} else {
			if p.goAway == "" {
				p.goAway = "closed"
			}
			p.mu.Unlock()
			return p.fault
		}
		if err != nil {
			p.fault = err
		}
		over := p.goAway != ""
		p.mu.Unlock()
		if err != nil || over { // net/http waits a second before it closes
			_ = p.nc.Close()
			return err
		}
	}
}

func (p *h2Peer) take(f http2.Frame, block uint32) (uint32, error) {
	id := f.Header().StreamID
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return 0, p.acked()
		}
	case *http2.HeadersFrame:
		b := f.HeaderBlockFragment()
		if len(b) > 0 && b[0]&0xe0 == 0x20 {
			p.early = len(p.said)
		} else if p.renew {
			return 0, errors.New("the table has shrunk, and the next block does not begin with its size")
		}
		for len(b) > 1 && b[0]&0xe0 == 0x20 { // the decoder takes one size at a time
			n := 1
			for more := b[0]&0x1f == 0x1f; more; n++ {
				more = b[n]&0x80 != 0
			}
			_, err := p.dec.Write(b[:n])
			if err = errors.Join(err, p.dec.Close()); err != nil {
				return 0, err
			}
			b = b[n:]
		}
		p.renew, p.fields = false, nil
		return p.header(id, b, f.HeadersEnded(), f.StreamEnded())
	case *http2.ContinuationFrame:
		return p.header(block, f.HeaderBlockFragment(), f.HeadersEnded(), false)
	case *http2.DataFrame:
		return 0, p.data(id, f)
	case *http2.RSTStreamFrame:
		p.end(id, "RST_STREAM "+f.ErrCode.String())
	case *http2.GoAwayFrame:
		p.goAway = "GOAWAY " + f.ErrCode.String()
	}
	return 0, nil
}

func (p *h2Peer) acked() error {
	if len(p.said) == 0 {
		return errors.New("one SETTINGS too many was acknowledged")
	}
	for _, s := range p.said[0] {
		switch s.ID {
		case http2.SettingHeaderTableSize:
			p.renew = p.renew || s.Val < p.table && p.early == 0
			p.table = s.Val
		case http2.SettingInitialWindowSize:
			p.window = int64(s.Val)
		case http2.SettingMaxFrameSize:
			p.frame = int(s.Val)
		}
	}
	p.said, p.early = p.said[1:], max(0, p.early-1)
	return nil
}

func (p *h2Peer) header(id uint32, b []byte, whole, end bool) (uint32, error) {
	if _, err := p.dec.Write(b); err != nil {
		return 0, err
	}
	s := p.streams[id]
	if end && s != nil {
		defer p.end(id, "END_STREAM")
	}
	if !whole {
		return id, nil
	}
	if err := p.dec.Close(); err != nil {
		return 0, err
	}
	if s == nil {
		return 0, fmt.Errorf("an answer to stream %d, which was never opened", id)
	}
	if !s.forgot {
		slices.Sort(p.fields)
		s.fields = append(s.fields, p.fields...)
	}
	return 0, nil
}

func (p *h2Peer) data(id uint32, f *http2.DataFrame) error {
	n := int64(f.Length)
	p.sent[0] += n
	p.sent[id] += n
	switch {
	case n == 0:
	case p.sent[0] > p.grants[0]:
		return fmt.Errorf("%d bytes of DATA, the window has %d", p.sent[0], p.grants[0])
	case p.sent[id] > p.grants[id]+p.most(http2.SettingInitialWindowSize, p.window):
		return fmt.Errorf("%d bytes of DATA on stream %d: more than its window", p.sent[id], id)
	}
	if s := p.streams[id]; s != nil {
		s.body += len(f.Data())
		for _, c := range f.Data() {
			s.sum = s.sum*31 + uint64(c)
		}
	}
	if f.StreamEnded() {
		p.end(id, "END_STREAM")
	}
	return nil
}

// end notes the first end of a stream.
func (p *h2Peer) end(id uint32, how string) {
	if s := p.streams[id]; s != nil && s.end == "" {
		s.end = how
	}
}

// result is what was answered, but for streams that the script has reset.
func (p *h2Peer) result() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	ids := make([]uint32, 0, len(p.streams))
	for id := range p.streams {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if s := p.streams[id]; !s.forgot {
			fmt.Fprintf(&b, "%d: %s %q, %d bytes (%x)\n", id, s.end, s.fields, s.body, s.sum)
		}
	}
	return b.String() + p.goAway
}
