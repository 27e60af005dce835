package lane

import "millrace/internal/wire/message"

import "bytes"

// Bounds of a chunk's size and of a trailer's line. net/http's are about the same.
const (
	maxChunkDigits = 15
	maxChunkLine   = 4 << 10 // an extension, or a line of the trailer
)

// chunks finds the end of a chunked body (RFC 9112, 7.1). Like scanHead, it accepts only what
// all parsers read alike: every line ends in CRLF, a size has nothing but digits before
// its extension, a trailer's line has a name.
type chunks struct {
	stage  chunkStage
	left   int64 // the chunk's size so far, then how many of its bytes are still to come
	digits int
	line   int // bytes of the line so far
}

type chunkStage uint8

// The stages of a chunked body.
const (
	chunkSize chunkStage = iota
	chunkExtension
	chunkSizeEnd // the LF of the line
	chunkData
	chunkDataCR
	chunkDataLF
	trailerStart // of a line of the trailer, or the end
	trailerName
	trailerLine
	trailerLF
	chunksEnd // the last LF
)

// feed reads the next bytes. It returns how many of them are the body's, and whether the
// body ends with them. ok is false where parsers might differ.
func (c *chunks) feed(b []byte) (n int, end, ok bool) {
	for n < len(b) {
		if c.stage == chunkData {
			k := min(int64(len(b)-n), c.left)
			c.left -= k
			n += int(k)
			if c.left == 0 {
				c.stage = chunkDataCR
			}
			continue
		}
		last := c.stage == chunksEnd
		if !c.step(b[n]) {
			return n, false, false
		}
		if n++; last {
			return n, true, true
		}
	}
	return n, false, true
}

// step reads a byte that is not a chunk's data.
func (c *chunks) step(b byte) bool {
	switch c.stage {
	case chunkSize:
		return c.size(b)
	case chunkExtension, trailerLine:
		if b == '\r' {
			c.stage++ // the LF of either
			return true
		}
		c.line++
		return c.line <= maxChunkLine && (b >= ' ' || b == '\t') && b != 0x7f
	case chunkSizeEnd:
		c.stage = chunkData
		if c.left == 0 {
			c.stage = trailerStart
		}
		c.digits, c.line = 0, 0
		return b == '\n'
	case chunkDataCR:
		c.stage = chunkDataLF
		return b == '\r'
	case chunkDataLF:
		c.stage = chunkSize
		return b == '\n'
	case trailerStart:
		if c.stage, c.line = trailerName, 1; b == '\r' {
			c.stage = chunksEnd
			return true
		}
		return message.Class[b]&message.TokenByte != 0
	case trailerName:
		if b == ':' {
			c.stage = trailerLine
			return true
		}
		c.line++
		return c.line <= maxChunkLine && message.Class[b]&message.TokenByte != 0
	case trailerLF:
		c.stage = trailerStart
		return b == '\n'
	}
	return b == '\n' // chunksEnd
}

// size reads a byte of the line with a chunk's size.
func (c *chunks) size(b byte) bool {
	digit := bytes.IndexByte([]byte("0123456789abcdef"), b|0x20)
	switch {
	case b == '\r' && c.digits > 0:
		c.stage = chunkSizeEnd
	case b == ';' && c.digits > 0:
		c.stage = chunkExtension
	case b >= '0' && digit >= 0 && c.digits < maxChunkDigits:
		c.left = c.left<<4 | int64(digit)
		c.digits++
	default:
		return false
	}
	return true
}
