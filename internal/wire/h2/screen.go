package h2

import (
	"errors"
	"io"
	"net"

	"golang.org/x/net/http2/hpack"
)

// Screen stands before net/http's HTTP/2 where there is no [Conn]. It passes the client's
// frames on unchanged, except header blocks: a request that net/http would reset, or take
// for another one, is rewritten to one that a handler refuses (see [Refused]). All blocks
// are encoded anew, as literals, since HPACK has a state (RFC 7541, 2.2).
type Screen struct {
	net.Conn    // its preface was read
	dec         *hpack.Decoder
	list        headerList
	maxList     int
	in          []byte // the beginning of a frame
	backlog     bool   // in has whole frames, too
	out         []byte // for net/http
	payloadLeft int    // bytes of a frame's payload that pass unchanged
	raw         []byte // the frames of a header block that is not complete
	block       block
	transparent bool // everything passes: the client broke the protocol, and net/http will say so
	buf         [4 << 10]byte
}

// NewScreen returns a Screen. headerList is the largest header list that net/http takes.
func NewScreen(nc net.Conn, headerList int) *Screen {
	s := &Screen{Conn: nc, dec: hpack.NewDecoder(firstTable, nil), maxList: headerList}
	s.dec.SetEmitFunc(s.list.emit)
	s.dec.SetMaxStringLength(maxBlock)
	return s
}

// ReadPreface reads what a connection begins with (RFC 9113, 3.4).
func ReadPreface(r io.Reader) error {
	var b [len(preface)]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	if string(b[:]) != preface {
		return ErrProtocol
	}
	return nil
}

// Read implements [net.Conn].
func (s *Screen) Read(p []byte) (int, error) {
	for len(s.out) == 0 {
		if s.backlog {
			s.handleRead(nil)
			continue
		}
		if s.transparent || s.payloadLeft > 0 && len(s.in) == 0 {
			return s.readThrough(p)
		}
		n, err := s.Conn.Read(s.buf[:])
		s.handleRead(s.buf[:n])
		if err != nil && len(s.out) == 0 {
			return 0, err
		}
	}
	n := copy(p, s.out)
	if s.out = s.out[n:]; len(s.out) == 0 {
		s.out = nil // an idle connection holds no memory
	}
	return n, nil
}

// readThrough reads bytes that pass unchanged straight into p.
func (s *Screen) readThrough(p []byte) (int, error) {
	if !s.transparent && len(p) > s.payloadLeft {
		p = p[:s.payloadLeft]
	}
	n, err := s.Conn.Read(p)
	s.payloadLeft = max(0, s.payloadLeft-n)
	return n, err
}

// handleRead handles what was read.
func (s *Screen) handleRead(b []byte) {
	s.backlog = false
	if len(s.in) > 0 {
		b, s.in = append(s.in, b...), nil
	}
	for len(b) > 0 {
		if s.backlog = len(s.out) >= maxOut; s.backlog { // a few bytes may be many fields
			break
		}
		if n := min(s.payloadLeft, len(b)); n > 0 || s.transparent {
			if s.transparent {
				n = len(b)
			}
			s.out, b, s.payloadLeft = append(s.out, b[:n]...), b[n:], max(0, s.payloadLeft-n)
			continue
		}
		if len(b) < frameHead {
			break
		}
		h := parseHead(b)
		if !s.block.open && h.kind != frameHeaders || h.length > maxRead {
			s.passFrame(h, b[:frameHead])
			b = b[frameHead:]
			continue
		}
		if len(b) < frameHead+h.length {
			break
		}
		s.blockFrame(h, b[:frameHead+h.length])
		b = b[frameHead+h.length:]
	}
	s.in = append(s.in, b...)
}

// passFrame passes the head of a frame on. Its payload follows.
func (s *Screen) passFrame(h head, raw []byte) {
	if s.block.open || h.length > maxRead {
		s.turnTransparent()
	}
	s.out, s.payloadLeft = append(s.out, raw...), h.length
}

// turnTransparent passes the faulty frames and everything after them to net/http, which
// says what is wrong.
func (s *Screen) turnTransparent() {
	s.out, s.raw, s.transparent = append(s.out, s.raw...), nil, true
}

// blockFrame handles a frame of a header block, or one that stands where such a frame
// must.
func (s *Screen) blockFrame(h head, frame []byte) {
	s.raw = append(s.raw, frame...)
	p := frame[frameHead:]
	if !s.block.open {
		priority, fragment, why := h.unpad(p)
		if why != codeNo {
			s.turnTransparent()
			return
		}
		s.block = block{id: h.id, flags: h.flags, priority: append([]byte(nil), priority...), b: append([]byte(nil), fragment...)}
	} else {
		s.block.parts++
		if h.kind != frameContinuation || h.id != s.block.id || s.block.parts > maxParts || len(s.block.b)+len(p) > max(maxBlock, s.maxList) {
			s.turnTransparent()
			return
		}
		s.block.b = append(s.block.b, p...)
	}
	if s.block.open = !h.has(flagEndHeaders); !s.block.open {
		s.headerBlock()
	}
}

// headerBlock passes a complete header block on.
func (s *Screen) headerBlock() {
	s.list = headerList{max: s.maxList}
	_, err := s.dec.Write(s.block.b)
	if err = errors.Join(err, s.dec.Close()); err != nil || s.list.size > maxBomb*s.maxList {
		s.turnTransparent()
		return
	}
	own := s.list.refuse()
	s.out = appendBlock(s.out, s.block.id, s.block.flags|flagEndHeaders, s.block.priority, s.list.fields, own)
	s.raw, s.block, s.list = nil, block{}, headerList{}
}
