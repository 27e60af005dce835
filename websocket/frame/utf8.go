package frame

import "encoding/binary"

// UTF8 checks text that comes in pieces. The zero value is ready. It is small:
// every connection has one.
type UTF8 struct {
	// state is 0 between two characters, and failed after a byte that cannot
	// be. Within a character it is how many bytes of it are missing, and from
	// bit 8 on the least and from bit 16 on the greatest value that the next
	// one may have.
	state uint32
}

const (
	failed = 1 << 31
	// anyTail is the range of all bytes of a character but the first, and of
	// the second after most first ones.
	anyTail = 0x80<<8 | 0xBF<<16
	ascii8  = 0x8080808080808080
)

// Feed takes the next piece and reports whether all that came so far can be
// the beginning of valid UTF-8 (RFC 3629: no surrogates, nothing above
// U+10FFFF, shortest forms). It fails at the first byte that cannot be, and
// from then on until Done. ASCII is checked eight bytes at a time.
func (u *UTF8) Feed(p []byte) bool {
	state := u.state
	for i := 0; i < len(p); {
		if state == 0 {
			for len(p)-i >= 16 &&
				(binary.LittleEndian.Uint64(p[i:])|binary.LittleEndian.Uint64(p[i+8:]))&ascii8 == 0 {
				i += 16
			}
			if len(p)-i >= 8 && binary.LittleEndian.Uint64(p[i:])&ascii8 == 0 {
				i += 8
			}
			for i < len(p) && p[i] < 0x80 {
				i++
			}
			if i == len(p) {
				break
			}
			state = firstByte(p[i])
			i++
		} else {
			state = nextByte(state, p[i])
			i++
		}
		if state == failed {
			break
		}
	}
	u.state = state
	return state != failed
}

// firstByte is the state behind the first byte of a character that is not
// ASCII (RFC 3629, 4: the table of well-formed sequences).
func firstByte(b byte) uint32 {
	switch {
	case b < 0xC2:
		return failed
	case b < 0xE0:
		return 1 | anyTail
	case b == 0xE0:
		return 2 | 0xA0<<8 | 0xBF<<16
	case b == 0xED:
		return 2 | 0x80<<8 | 0x9F<<16
	case b < 0xF0:
		return 2 | anyTail
	case b == 0xF0:
		return 3 | 0x90<<8 | 0xBF<<16
	case b < 0xF4:
		return 3 | anyTail
	case b == 0xF4:
		return 3 | 0x80<<8 | 0x8F<<16
	}
	return failed
}

// nextByte is the state behind another byte of a character.
func nextByte(state uint32, b byte) uint32 {
	if state == failed || b < byte(state>>8) || b > byte(state>>16) {
		return failed
	}
	if missing := state & 0xFF; missing > 1 {
		return missing - 1 | anyTail
	}
	return 0
}

// Done reports whether the text may end here, and makes u ready for the next.
func (u *UTF8) Done() bool {
	ok := u.state == 0
	u.state = 0
	return ok
}
