package frame

// Params are what permessage-deflate was agreed with. The zero value is none.
// It is small: every connection has one.
type Params struct {
	On bool
	// Window is the exponent of the window that we compress with, 8 to 15
	// (server_max_window_bits). Nobody keeps a context from one message to the
	// next: both no_context_takeover parameters are always part of our answer.
	Window uint8
}

// Negotiate reads the lines of Sec-WebSocket-Extensions of a client (RFC 7692, 5 and
// 7.1), takes the first offer of permessage-deflate that can be honoured as
// it is, and returns the value of the same field for the answer. Offers that
// are malformed, unknown or cannot be honoured are declined by leaving them out, as the RFC
// wants it: then Params is zero and the answer empty.
func Negotiate(lines []string) (p Params, answer string) { panic("not built") }

// Deflate appends the compressed form of a message to dst (RFC 7692, 7.2.1:
// ends in an empty stored block whose last four bytes are left out). Its
// working memory comes from a pool.
func (p Params) Deflate(dst, message []byte) []byte { panic("not built") }

// Inflate appends the message to dst. Beyond limit bytes it stops at once with
// an *Error of code TooBig, so that a small bomb costs little; what is no valid
// DEFLATE is an InvalidPayload. A final block ends the message early (RFC
// 7692, 7.2.3.4 allows it); bytes behind it are an error.
func Inflate(dst, compressed []byte, limit int64) ([]byte, error) { panic("not built") }
