package h2

import (
	"errors"
	"io"
	"net"

	"golang.org/x/net/http2/hpack"
)

// Screen stands before net/http's HTTP/2 where there is no [Conn]. What the client sends
// goes through as it is, but for header blocks: those of requests that net/http would
// reset, or take for others, are made such that a handler refuses them (see [Refused]).
// All blocks are written anew, as literals, since HPACK has a state (RFC 7541, 2.2).
type Screen struct {
	net.Conn // of which the preface was read
	dec      *hpack.Decoder
	list     headerList
	most     int
	in       []byte // the beginning of a frame
	more     bool   // in has more than that
	out      []byte // for net/http
	rest     int    // of the payload of a frame that goes through
	raw      []byte // the frames of a header block that has not ended
	block    block
	blind    bool // the client broke the protocol: net/http says so
	buf      [4 << 10]byte
}

// NewScreen returns one. headerList is the largest header list that net/http takes.
func NewScreen(nc net.Conn, headerList int) *Screen {
	s := &Screen{Conn: nc, dec: hpack.NewDecoder(firstTable, nil), most: headerList}
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
		if s.more {
			s.take(nil)
			continue
		}
		if s.blind || s.rest > 0 && len(s.in) == 0 {
			return s.through(p)
		}
		n, err := s.Conn.Read(s.buf[:])
		s.take(s.buf[:n])
		if err != nil && len(s.out) == 0 {
			return 0, err
		}
	}
	n := copy(p, s.out)
	if s.out = s.out[n:]; len(s.out) == 0 {
		s.out = nil // a quiet connection holds nothing
	}
	return n, nil
}

// through reads what nobody looks at.
func (s *Screen) through(p []byte) (int, error) {
	if !s.blind && len(p) > s.rest {
		p = p[:s.rest]
	}
	n, err := s.Conn.Read(p)
	s.rest = max(0, s.rest-n)
	return n, err
}

// take works off what was read.
func (s *Screen) take(b []byte) {
	s.more = false
	if len(s.in) > 0 {
		b, s.in = append(s.in, b...), nil
	}
	for len(b) > 0 {
		if s.more = len(s.out) >= maxOut; s.more { // a few bytes may be many fields
			break
		}
		if n := min(s.rest, len(b)); n > 0 || s.blind {
			if s.blind {
				n = len(b)
			}
			s.out, b, s.rest = append(s.out, b[:n]...), b[n:], max(0, s.rest-n)
			continue
		}
		if len(b) < frameHead {
			break
		}
		h := parseHead(b)
		if !s.block.open && h.kind != frameHeaders || h.length > maxRead {
			s.give(h, b[:frameHead])
			b = b[frameHead:]
			continue
		}
		if len(b) < frameHead+h.length {
			break
		}
		s.part(h, b[:frameHead+h.length])
		b = b[frameHead+h.length:]
	}
	s.in = append(s.in, b...)
}

// give has a frame go through, whose payload follows.
func (s *Screen) give(h head, raw []byte) {
	if s.block.open || h.length > maxRead {
		s.expose()
	}
	s.out, s.rest = append(s.out, raw...), h.length
}

// expose lets net/http see what is wrong, and everything behind it.
func (s *Screen) expose() {
	s.out, s.raw, s.blind = append(s.out, s.raw...), nil, true
}

// part works off a frame of a header block, or one that should be.
func (s *Screen) part(h head, frame []byte) {
	s.raw = append(s.raw, frame...)
	p := frame[frameHead:]
	if !s.block.open {
		priority, fragment, why := h.unpad(p)
		if why != codeNo {
			s.expose()
			return
		}
		s.block = block{id: h.id, flags: h.flags, priority: append([]byte(nil), priority...), b: append([]byte(nil), fragment...)}
	} else {
		s.block.parts++
		if h.kind != frameContinuation || h.id != s.block.id || s.block.parts > maxParts || len(s.block.b)+len(p) > max(maxBlock, s.most) {
			s.expose()
			return
		}
		s.block.b = append(s.block.b, p...)
	}
	if s.block.open = !h.has(flagEndHeaders); !s.block.open {
		s.whole()
	}
}

// whole works off a complete header block.
func (s *Screen) whole() {
	s.list = headerList{most: s.most}
	_, err := s.dec.Write(s.block.b)
	if err = errors.Join(err, s.dec.Close()); err != nil || s.list.size > maxBomb*s.most {
		s.expose()
		return
	}
	own := s.list.refuse()
	s.out = appendBlock(s.out, s.block.id, s.block.flags|flagEndHeaders, s.block.priority, s.list.fields, own)
	s.raw, s.block, s.list = nil, block{}, headerList{}
}
