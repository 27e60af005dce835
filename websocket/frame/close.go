package frame

import "fmt"

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

// Error is why a connection has to be closed.
type Error struct {
	Code   Code
	Reason string // at most 123 bytes: it goes to the peer
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s (close code %d)", e.Reason, e.Code) }

// ParseClose reads the payload of a close frame: nothing (NoStatus), or a code
// and a reason in UTF-8. An error is of type *Error: ProtocolError for one
// byte alone or a code that must not be on the wire (below 1000, 1004, 1005, 1006,
// 1015, 1016 to 2999 but those registered, above 4999), InvalidPayload for a reason that is not UTF-8.
func ParseClose(payload []byte) (code Code, reason string, err error) { panic("not built") }

// AppendClose adds a close frame of a server (unmasked) to dst. A code that must not be
// on the wire is left out together with the reason. The reason is cut, at a
// character's boundary, to what a control frame can hold.
func AppendClose(dst []byte, code Code, reason string) []byte { panic("not built") }
