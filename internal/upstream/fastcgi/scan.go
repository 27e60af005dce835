package fastcgi

import "encoding/binary"

// AppendRequest appends a whole request, after which the application closes the
// connection. ok is false where the parameters do not fit into one record.
func AppendRequest(b []byte, params func(b []byte) []byte, body []byte) (out []byte, ok bool) {
	b = appendBegin(b, false)
	at := len(b)
	b = params(appendHeader(b, kindParams, 0))
	n := len(b) - at - headerLen
	if n > maxContent {
		return b, false
	}
	binary.BigEndian.PutUint16(b[at+4:], uint16(n))
	b = appendHeader(b, kindParams, 0)
	b = appendStream(b, kindStdin, body)
	return appendHeader(b, kindStdin, 0), true
}

// State is how much of an answer Scan was given.
type State int

// The states.
const (
	Partial State = iota // all right so far
	Done                 // a whole answer, and nothing behind it
	Odd                  // one that [Client.Resume] has to look at
)

// Scan reads all that has come of an answer, and appends the output in it to out. It
// is Odd if the request did not go well, or wrote to standard error.
func Scan(out, raw []byte) ([]byte, State) {
	for {
		if len(raw) < headerLen {
			return out, Partial
		}
		kind, content, padding := raw[1], int(binary.BigEndian.Uint16(raw[4:])), int(raw[6])
		if raw[0] != version1 || binary.BigEndian.Uint16(raw[2:]) != requestID || kind != kindStdout && kind != kindEnd && (kind != kindStderr || content > 0) {
			return out, Odd
		}
		raw = raw[headerLen:]
		if len(raw) < content+padding {
			return out, Partial
		}
		if kind == kindEnd {
			if content != 8 || len(raw) != content+padding || raw[4] != 0 || binary.BigEndian.Uint32(raw) != 0 {
				return out, Odd
			}
			return out, Done
		}
		out = append(out, raw[:content]...)
		raw = raw[content+padding:]
	}
}
