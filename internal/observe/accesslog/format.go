package accesslog

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// The most bytes that a field has in a line, escapes included. More is cut and
// marked. They bound the memory and the disk that one request can take: a
// target or a user agent may be as long as the server's header limit.
const (
	maxRemote    = 64
	maxHost      = 256
	maxMethod    = 32
	maxTarget    = 4096
	maxProto     = 16
	maxReferer   = 2048
	maxUserAgent = 1024
	maxID        = 128

	cutMark = "…" // not escaped, unlike everything else beyond ASCII in the text formats

	// maxLine is more than any line has in any format: the fields above with
	// their marks, and less than 500 bytes for everything around them.
	maxLine = 8 << 10
)

// format is a way to write a line. It is not a function value: through one,
// the compiler would put every caller's Record on the heap.
type format uint8

const (
	off format = iota
	combined
	common
	jsonLines
)

func parseFormat(name string) (format, error) {
	switch name {
	case "", "off":
		return off, nil
	case "combined":
		return combined, nil
	case "common":
		return common, nil
	case "json":
		return jsonLines, nil
	}
	return off, fmt.Errorf("access log format %q is unknown: use combined, common, json or off", name)
}

// appendLine appends one line of at most maxLine bytes with its newline.
func appendLine(b []byte, f format, fields []field, r *Record, c *clock) []byte {
	switch f {
	case jsonLines:
		if fields == nil {
			b = appendJSON(b, r, c)
		} else {
			b = appendFields(b, fields, r, c)
		}
	case combined:
		b = appendCommon(b, r, c)
		b = append(b, ' ', '"')
		b = appendText(b, r.Referer, maxReferer, &quoted)
		b = append(b, '"', ' ', '"')
		b = appendText(b, r.UserAgent, maxUserAgent, &quoted)
		b = append(b, '"')
	default:
		b = appendCommon(b, r, c)
	}
	return append(b, '\n')
}

// appendCommon appends the NCSA Common Log Format without a newline.
func appendCommon(b []byte, r *Record, c *clock) []byte {
	b = appendText(b, r.Remote, maxRemote, &bare)
	b = append(b, " - - ["...)
	b = append(b, c.common(r.Time)...)
	b = append(b, `] "`...)
	b = appendText(b, r.Method, maxMethod, &bare)
	b = append(b, ' ')
	b = appendText(b, r.Target, maxTarget, &bare)
	b = append(b, ' ')
	b = appendText(b, r.Proto, maxProto, &bare)
	b = append(b, '"', ' ')
	b = appendStatus(b, r.Status)
	b = append(b, ' ')
	return strconv.AppendInt(b, max(r.Bytes, 0), 10)
}

func appendJSON(b []byte, r *Record, c *clock) []byte {
	b = append(b, `{"time":"`...)
	b = appendTime(b, r.Time, c)
	b = append(b, `","remote":"`...)
	b = appendJSONString(b, r.Remote, maxRemote)
	b = append(b, `","host":"`...)
	b = appendJSONString(b, r.Host, maxHost)
	b = append(b, `","method":"`...)
	b = appendJSONString(b, r.Method, maxMethod)
	b = append(b, `","target":"`...)
	b = appendJSONString(b, r.Target, maxTarget)
	b = append(b, `","proto":"`...)
	b = appendJSONString(b, r.Proto, maxProto)
	b = append(b, `","status":`...)
	b = appendStatus(b, r.Status)
	b = append(b, `,"bytes":`...)
	b = strconv.AppendInt(b, max(r.Bytes, 0), 10)
	b = append(b, `,"duration_us":`...)
	b = strconv.AppendInt(b, max(r.Duration, 0).Microseconds(), 10)
	b = append(b, `,"referer":"`...)
	b = appendJSONString(b, r.Referer, maxReferer)
	b = append(b, `","user_agent":"`...)
	b = appendJSONString(b, r.UserAgent, maxUserAgent)
	if r.ID != "" {
		b = append(b, `","request_id":"`...)
		b = appendJSONString(b, r.ID, maxID)
	}
	switch {
	case r.Fast:
		return append(b, `","lane":"fast"}`...)
	case r.Through:
		return append(b, `","lane":"through"}`...)
	}
	return append(b, `","lane":"slow"}`...)
}

const digits = "0123456789ABCDEF"

// appendStatus appends a code, 0 for one that cannot be one. (A JSON number
// must not start with a zero, so no padding.)
func appendStatus(b []byte, status int) []byte {
	if status < 100 || status > 999 {
		return append(b, '0')
	}
	return append(b, digits[status/100], digits[status/10%10], digits[status%10])
}

// plainSet says which bytes may stand in a field as they are: printable ASCII
// from lowest on, but quotes and backslashes.
type plainSet struct {
	lowest byte
	table  [256]bool
}

// The sets: within quotes, and outside of them, where a space would end the field.
var (
	quoted = makePlainSet(' ')
	bare   = makePlainSet('!')
)

func makePlainSet(lowest byte) plainSet {
	set := plainSet{lowest: lowest}
	for c := lowest; c <= '~'; c++ {
		set.table[c] = c != '"' && c != '\\'
	}
	return set
}

// prefix is how many bytes at the start of s are in the set. It looks at eight
// at once as long as all of them are: almost every field is plain throughout.
func (set *plainSet) prefix(s string) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := load(s[i : i+8])
		// The top bit of a byte of (x-ones)&^x is set if that byte of x is
		// zero, and of no byte if no byte is; likewise with lowest for ones.
		quote, backslash, del := w^'"'*ones, w^'\\'*ones, w^0x7f*ones
		low := (w - uint64(set.lowest)*ones) &^ w
		if (w|low|(quote-ones)&^quote|(backslash-ones)&^backslash|(del-ones)&^del)&tops != 0 {
			break
		}
	}
	for ; i < len(s); i++ {
		if !set.table[s[i]] {
			return i
		}
	}
	return len(s)
}

// load is eight bytes as a number; the compiler makes it one instruction.
func load(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// appendText appends a field of the text formats, "-" for an empty one.
func appendText(b []byte, s string, limit int, plain *plainSet) []byte {
	if s == "" {
		return append(b, '-')
	}
	s = s[:min(len(s), limit+1)] // the rest could not fit: no byte becomes less than one
	for room := limit; ; {
		n := plain.prefix(s)
		if n > room {
			return append(append(b, s[:room]...), cutMark...)
		}
		b = append(b, s[:n]...)
		if n == len(s) {
			return b
		}
		const escape = len(`\xHH`)
		if room -= n + escape; room < 0 {
			return append(b, cutMark...)
		}
		b = append(b, '\\', 'x', digits[s[n]>>4], digits[s[n]&15])
		s = s[n+1:]
	}
}

// lane is the way that the request took.
func (r *Record) lane() string {
	switch {
	case r.Fast:
		return "fast"
	case r.Through:
		return "through"
	}
	return "slow"
}

// appendJSONString appends the inside of a JSON string (RFC 8259, 7).
func appendJSONString(b []byte, s string, limit int) []byte {
	s = s[:min(len(s), limit+1)] // as in appendText
	for room := limit; ; {
		n := quoted.prefix(s)
		if n > room {
			return append(append(b, s[:room]...), cutMark...)
		}
		b = append(b, s[:n]...)
		if n == len(s) {
			return b
		}
		const longest = len(`\uHHHH`)
		if room -= n; room < longest {
			return append(b, cutMark...)
		}
		before := len(b)
		r, size := utf8.DecodeRuneInString(s[n:])
		b = appendJSONRune(b, r, size)
		room -= len(b) - before
		s = s[n+size:]
	}
}

// appendJSONRune appends what is not printable ASCII. Beyond what JSON asks
// for, it escapes what has no shape of its own: controls that move a terminal's
// cursor, characters that turn the direction of text (U+202E) or join it unseen, and
// the two separators that some readers take for the end of a line. Above U+FFFF,
// where an escape has twice the length, one such is U+FFFD.
func appendJSONRune(b []byte, r rune, size int) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r == utf8.RuneError && size == 1: // not UTF-8
		return append(b, `\uFFFD`...)
	case !unicode.IsPrint(r) && r > 0xffff:
		return append(b, `\uFFFD`...)
	case !unicode.IsPrint(r):
		return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
	}
	return utf8.AppendRune(b, r)
}
