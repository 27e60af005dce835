// Package frame is the wire format of WebSockets (RFC 6455, section 5) and of
// their compression (RFC 7692): headers, masks, close frames, UTF-8 that is
// checked as it comes, and frames that are prepared once for many clients. It
// does no input or output, and it knows no connection.
package frame

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
	// MaxControl is the most bytes that a control frame's payload has (RFC 6455, 5.5).
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

// Parse reads the header at the start of b. n is its size in bytes, 0 if b does
// not hold all of it yet. An error is of type *Error with code ProtocolError:
// reserved bits 2 and 3, reserved opcodes, control frames that are fragmented,
// compressed or too long, lengths that are not written in the shortest form or have the
// highest bit set. Whether frames must be masked, and may be compressed, and which may
// follow which, is for the caller. It is called for every frame: it must be
// fast, and it does not allocate unless it fails.
func Parse(b []byte) (h Header, n int, err error) { panic("not built") }

// Append adds the header to dst and returns it; the mask only if Masked.
func (h Header) Append(dst []byte) []byte { panic("not built") }

// Mask masks or unmasks p in place (RFC 6455, 5.3); the first byte of p is
// number pos of the payload. It works eight bytes at a time.
func Mask(p []byte, key [4]byte, pos int64) { panic("not built") }

// UTF8 checks text that comes in pieces. The zero value is ready. It is small:
// every connection has one.
type UTF8 struct{ state uint32 }

// Feed takes the next piece and reports whether all that came so far can be
// the beginning of valid UTF-8 (RFC 3629: no surrogates, nothing above
// U+10FFFF, shortest forms). It fails at the first byte that cannot be. ASCII
// is checked eight bytes at a time.
func (u *UTF8) Feed(p []byte) bool { panic("not built") }

// Done reports whether the text may end here, and makes u ready for the next.
func (u *UTF8) Done() bool { panic("not built") }
