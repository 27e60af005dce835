package frame

import "encoding/binary"

// UTF8 checks text that comes in pieces. The zero value is ready. It is small:
// every connection has one.
type UTF8 struct {
	state uint32 // one of those below
}

// The states of a text that is checked byte by byte: what may come next
// (RFC 3629, 4: the syntax of UTF-8). Each is where its six bits are in the
// steps of a byte.
const (
	between   = 6 * iota // between two characters
	broken               // something was wrong; it stays so
	tail1                // the last byte of a character
	tail2                // the last two
	tail3                // the last three
	afterE0              // the second of three, which must not be too small: the character would fit into two
	afterED              // the second of three, which must not be too great: it would be a surrogate
	afterF0              // the second of four, which must not be too small
	afterF4              // the second of four, which must not be too great: there is nothing above U+10FFFF
	allStates = 9
)

const ascii8 = 0x8080808080808080

// utf8Steps has all steps from state to state: the six bits at the old state
// of the byte's number are the new state. So a step is a load, which does not
// wait for the one before, and a shift; and it takes as long for all texts.
var utf8Steps = makeUTF8Steps()

func makeUTF8Steps() [256]uint64 {
	var steps [256]uint64
	for b := range steps {
		for state := uint64(0); state < 6*allStates; state += 6 {
			steps[b] |= utf8Step(state, byte(b)) << state
		}
	}
	return steps
}

func utf8Step(state uint64, b byte) uint64 {
	second := func(least, greatest byte, next uint64) uint64 {
		if b < least || b > greatest {
			return broken
		}
		return next
	}
	switch state {
	case between:
		return utf8First(b)
	case tail1:
		return second(0x80, 0xBF, between)
	case tail2:
		return second(0x80, 0xBF, tail1)
	case tail3:
		return second(0x80, 0xBF, tail2)
	case afterE0:
		return second(0xA0, 0xBF, tail1)
	case afterED:
		return second(0x80, 0x9F, tail1)
	case afterF0:
		return second(0x90, 0xBF, tail2)
	case afterF4:
		return second(0x80, 0x8F, tail2)
	}
	return broken
}

// utf8First is the state behind the first byte of a character.
func utf8First(b byte) uint64 {
	switch {
	case b < 0x80:
		return between
	case b < 0xC2: // no first byte, or of a character that would fit into one
		return broken
	case b < 0xE0:
		return tail1
	case b == 0xE0:
		return afterE0
	case b == 0xED:
		return afterED
	case b < 0xF0:
		return tail2
	case b == 0xF0:
		return afterF0
	case b < 0xF4:
		return tail3
	case b == 0xF4:
		return afterF4
	}
	return broken
}

// Feed takes the next piece and reports whether all that came so far can be
// the beginning of valid UTF-8 (RFC 3629: no surrogates, nothing above
// U+10FFFF, shortest forms). It fails with the first byte that cannot be, and
// from then on until Done. ASCII is checked eight bytes at a time.
func (u *UTF8) Feed(p []byte) bool {
	state := uint64(u.state)
	for len(p) >= 8 {
		if state == between {
			p = p[asciiWords(p):]
			if len(p) < 8 {
				break
			}
		}
		b := p[:8]
		state = utf8Steps[b[0]] >> (state & 63)
		state = utf8Steps[b[1]] >> (state & 63)
		state = utf8Steps[b[2]] >> (state & 63)
		state = utf8Steps[b[3]] >> (state & 63)
		state = utf8Steps[b[4]] >> (state & 63)
		state = utf8Steps[b[5]] >> (state & 63)
		state = utf8Steps[b[6]] >> (state & 63)
		state = utf8Steps[b[7]] >> (state & 63) & 63
		p = p[8:]
	}
	for _, b := range p {
		state = utf8Steps[b] >> (state & 63) & 63
	}
	u.state = uint32(state)
	return state != broken
}

// asciiWords is how many bytes at the beginning of p are ASCII: a multiple of
// eight.
func asciiWords(p []byte) int {
	i := 0
	for ; i+32 <= len(p); i += 32 {
		b := p[i : i+32 : i+32]
		if (binary.LittleEndian.Uint64(b)|binary.LittleEndian.Uint64(b[8:])|
			binary.LittleEndian.Uint64(b[16:])|binary.LittleEndian.Uint64(b[24:]))&ascii8 != 0 {
			break
		}
	}
	for i+8 <= len(p) && binary.LittleEndian.Uint64(p[i:i+8])&ascii8 == 0 {
		i += 8
	}
	return i
}

// Done reports whether the text may end here, and makes u ready for the next.
func (u *UTF8) Done() bool {
	ok := u.state == between
	u.state = between
	return ok
}
