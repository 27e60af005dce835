// Package frame is the wire format of WebSockets (RFC 6455, section 5) and of
// their compression (RFC 7692): headers, masks, close frames, UTF-8 that is
// checked as it comes, and frames that are prepared once for many clients. It
// does no input or output, and it knows no connection.
package frame

import (
	"encoding/binary"
	"math/bits"
)

// Opcode says what a frame holds (RFC 6455, 5.2).
type Opcode uint8

// The opcodes. All others are reserved.
const (
	Continuation Opcode = 0x0
	Text         Opcode = 0x1
	Binary       Opcode = 0x2
	Close        Opcode = 0x8
	Ping         Opcode = 0x9
	Pong         Opcode = 0xA
)

// IsControl reports whether frames with this opcode are control frames: at
// most MaxControl bytes, never fragmented, allowed between fragments.
func (o Opcode) IsControl() bool { return o&0x8 != 0 }

const (
	// MaxHeader is the most bytes that a frame's header has.
	MaxHeader = 14
	// MaxControl is the most bytes that a control frame's payload has
	// (RFC 6455, 5.5).
	MaxControl = 125
)

// Header is a frame's header.
type Header struct {
	Fin    bool
	Rsv1   bool // the message is compressed (RFC 7692, 6)
	Op     Opcode
	Masked bool
	Mask   [4]byte
	Length int64 // of the payload, in bytes
}

// The bits of a header's first two bytes (RFC 6455, 5.2), and the two values
// of the seven bits of length that say where the length really is.
const (
	bitFin    = 0x80
	bitRsv1   = 0x40
	bitsRsv23 = 0x30
	bitsOp    = 0x0F
	bitMask   = 0x80
	length16  = 126
	length64  = 127
)

// knownOps has a bit for each opcode that is not reserved.
const knownOps = 1<<Continuation | 1<<Text | 1<<Binary | 1<<Close | 1<<Ping | 1<<Pong

// Parse reads the header at the start of b. n is its size in bytes, 0 if b does
// not hold all of it yet; it never looks behind the header. An error is of type
// *Error with code ProtocolError, and comes as soon as the bytes it depends on
// are there: reserved bits 2 and 3, reserved opcodes, control frames that are
// fragmented, compressed or too long, continuations that are marked as
// compressed (RFC 7692, 6.1: only a message's first frame is), lengths that are
// not written in the shortest form or have the highest bit set. Whether frames
// must be masked, and may be compressed, and which may follow which, is for the
// caller. It is called for every frame: it must be fast, and it does not
// allocate unless it fails.
func Parse(b []byte) (h Header, n int, err error) {
	if len(b) < 2 {
		if len(b) == 1 {
			err = checkFirst(b[0])
		}
		return h, 0, err
	}
	first, second := b[0], b[1]
	h.Fin = first&bitFin != 0
	h.Rsv1 = first&bitRsv1 != 0
	h.Op = Opcode(first & bitsOp)
	h.Masked = second&bitMask != 0
	h.Length = int64(second &^ bitMask)
	if first&(bitFin|bitRsv1|bitsRsv23) != bitFin || knownOps>>h.Op&1 == 0 {
		// Not one of the usual ones: fragmented or compressed data, or wrong.
		if err = checkFirst(first); err != nil {
			return Header{}, 0, err
		}
	}
	n = 2
	if h.Length > MaxControl {
		if n, err = h.parseLength(b); n == 0 {
			return Header{}, 0, err
		}
	}
	if h.Masked {
		if len(b) < n+4 {
			return Header{}, 0, nil
		}
		h.Mask = [4]byte(b[n:])
		n += 4
	}
	return h, n, nil
}

// checkFirst says what is wrong with a header's first byte.
func checkFirst(first byte) error {
	op := Opcode(first & bitsOp)
	switch {
	case first&bitsRsv23 != 0:
		return &Error{ProtocolError, "a reserved bit is set"}
	case knownOps>>op&1 == 0:
		return &Error{ProtocolError, "reserved opcode"}
	case op.IsControl() && first&bitFin == 0:
		return &Error{ProtocolError, "fragmented control frame"}
	case op.IsControl() && first&bitRsv1 != 0:
		return &Error{ProtocolError, "compressed control frame"}
	case op == Continuation && first&bitRsv1 != 0:
		return &Error{ProtocolError, "a continuation is marked as compressed"}
	}
	return nil
}

// parseLength reads a length that did not fit into seven bits (RFC 6455, 5.2)
// and returns where it ends; 0 if b ends before, or with an error.
func (h *Header) parseLength(b []byte) (n int, err error) {
	switch {
	case h.Op.IsControl():
		return 0, &Error{ProtocolError, "control frame of more than 125 bytes"}
	case h.Length == length16:
		if len(b) < 4 {
			return 0, nil
		}
		h.Length = int64(binary.BigEndian.Uint16(b[2:]))
		if h.Length < length16 {
			return 0, &Error{ProtocolError, "length is not in its shortest form"}
		}
		return 4, nil
	}
	if len(b) < 10 {
		return 0, nil
	}
	length := binary.BigEndian.Uint64(b[2:])
	if length>>63 != 0 {
		return 0, &Error{ProtocolError, "length of more than 63 bits"}
	}
	if length>>16 == 0 {
		return 0, &Error{ProtocolError, "length is not in its shortest form"}
	}
	h.Length = int64(length)
	return 10, nil
}

// Append adds the header to dst and returns it; the mask only if Masked. The
// length is written in its shortest form; it must not be negative.
func (h Header) Append(dst []byte) []byte {
	first, mask := byte(h.Op), byte(0)
	if h.Fin {
		first |= bitFin
	}
	if h.Rsv1 {
		first |= bitRsv1
	}
	if h.Masked {
		mask = bitMask
	}
	switch {
	case h.Length < length16:
		dst = append(dst, first, mask|byte(h.Length))
	case h.Length>>16 == 0:
		dst = append(dst, first, mask|length16, byte(h.Length>>8), byte(h.Length))
	default:
		dst = append(dst, first, mask|length64)
		dst = binary.BigEndian.AppendUint64(dst, uint64(h.Length))
	}
	if h.Masked {
		dst = append(dst, h.Mask[:]...)
	}
	return dst
}

// Mask masks or unmasks p in place (RFC 6455, 5.3); the first byte of p is
// number pos of the payload. It works eight bytes at a time.
func Mask(p []byte, key [4]byte, pos int64) {
	k := bits.RotateLeft32(binary.LittleEndian.Uint32(key[:]), -8*int(pos&3))
	k8 := uint64(k)<<32 | uint64(k)
	for len(p) >= 32 {
		b := p[:32:32]
		binary.LittleEndian.PutUint64(b[0:], binary.LittleEndian.Uint64(b[0:])^k8)
		binary.LittleEndian.PutUint64(b[8:], binary.LittleEndian.Uint64(b[8:])^k8)
		binary.LittleEndian.PutUint64(b[16:], binary.LittleEndian.Uint64(b[16:])^k8)
		binary.LittleEndian.PutUint64(b[24:], binary.LittleEndian.Uint64(b[24:])^k8)
		p = p[32:]
	}
	for len(p) >= 8 {
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)^k8)
		p = p[8:]
	}
	if len(p) >= 4 {
		binary.LittleEndian.PutUint32(p, binary.LittleEndian.Uint32(p)^k)
		p = p[4:]
	}
	for i := range p {
		p[i] ^= byte(k)
		k >>= 8
	}
}
