package frame

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Code says why a connection is closed (RFC 6455, 7.4, and IANA's registry of
// WebSocket close code numbers).
type Code uint16

// Codes that this program sends or knows.
const (
	Normal          Code = 1000
	GoingAway       Code = 1001
	ProtocolError   Code = 1002
	Unsupported     Code = 1003
	NoStatus        Code = 1005 // never on the wire: the close frame had none
	Abnormal        Code = 1006 // never on the wire: there was no close frame
	InvalidPayload  Code = 1007
	PolicyViolation Code = 1008
	TooBig          Code = 1009
	InternalError   Code = 1011
	ServiceRestart  Code = 1012
	TryAgainLater   Code = 1013
	BadGateway      Code = 1014
	Unauthorized    Code = 3000 // a token is missing, wrong or expired
	Forbidden       Code = 3003
	Timeout         Code = 3008
)

// maxReason is the most bytes that a reason has: a control frame's payload
// without the code (RFC 6455, 5.5.1).
const maxReason = MaxControl - 2

// onWire reports whether a close frame may hold the code: those that IANA's
// registry has (1000 to 1003 and 1007 to 1014; the rest of those below 3000 is
// reserved, RFC 6455, 7.4.2), and those of libraries and applications, of
// which nobody knows all.
func (c Code) onWire() bool {
	return c >= 1000 && c <= 1003 || c >= 1007 && c <= 1014 || c >= 3000 && c <= 4999
}

// Error is why a connection has to be closed.
type Error struct {
	Code   Code
	Reason string // at most 123 bytes: it goes to the peer
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s (close code %d)", e.Reason, e.Code) }

// ParseClose reads the payload of a close frame: nothing (NoStatus), or a code
// and a reason in UTF-8. An error is of type *Error: ProtocolError for one
// byte alone or a code that must not be on the wire (below 1000, 1004, 1005,
// 1006, 1015, 1016 to 2999, above 4999), InvalidPayload for a reason that is
// not UTF-8.
func ParseClose(payload []byte) (code Code, reason string, err error) {
	switch len(payload) {
	case 0:
		return NoStatus, "", nil
	case 1:
		return 0, "", &Error{ProtocolError, "close frame of one byte"}
	}
	code = Code(binary.BigEndian.Uint16(payload))
	if !code.onWire() {
		return 0, "", &Error{ProtocolError, fmt.Sprintf("close code %d must not be sent", uint16(code))}
	}
	if !utf8.Valid(payload[2:]) {
		return 0, "", &Error{InvalidPayload, "the reason of a close frame is not UTF-8"}
	}
	return code, string(payload[2:]), nil
}

// AppendClose adds a close frame of a server (unmasked) to dst. A code that
// must not be on the wire (NoStatus, Abnormal) is left out together with the
// reason. The reason is cut, at a character's boundary, to what a control frame
// can hold; bytes in it that are not UTF-8 are replaced.
func AppendClose(dst []byte, code Code, reason string) []byte {
	if !code.onWire() {
		return Header{Fin: true, Op: Close}.Append(dst)
	}
	reason = cutReason(reason)
	dst = Header{Fin: true, Op: Close, Length: int64(2 + len(reason))}.Append(dst)
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	return append(dst, reason...)
}

// cutReason makes a reason fit for a close frame.
func cutReason(reason string) string {
	if !utf8.ValidString(reason) {
		reason = strings.ToValidUTF8(reason, string(utf8.RuneError))
	}
	if len(reason) <= maxReason {
		return reason
	}
	end := maxReason
	for !utf8.RuneStart(reason[end]) {
		end--
	}
	return reason[:end]
}
