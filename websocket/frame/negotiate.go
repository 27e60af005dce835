package frame

import (
	"strconv"
	"strings"

	"millrace/internal/wire/field"
)

// Params are what permessage-deflate was agreed with. The zero value is none.
// It is small: every connection has one.
type Params struct {
	On bool
	// Window is the exponent of the window that we compress with, 8 to 15
	// (server_max_window_bits). Nobody keeps a context from one message to the
	// next: both no_context_takeover parameters are always part of our answer.
	Window uint8
}

// The bounds of a window's exponent (RFC 7692, 7.1.2). zlib cannot compress
// with the smallest, but our compressor can, and zlib does decompress it: it is
// agreed to as it is.
const (
	minWindow = 8
	maxWindow = 15
)

// The names of RFC 7692, 7. They are compared as they are.
const (
	extension        = "permessage-deflate"
	serverNoTakeover = "server_no_context_takeover"
	clientNoTakeover = "client_no_context_takeover"
	serverWindow     = "server_max_window_bits"
	clientWindow     = "client_max_window_bits"
)

// Negotiate reads the lines of Sec-WebSocket-Extensions of a client (RFC 7692, 5
// and 7.1), takes the first offer of permessage-deflate that can be honoured as
// it is, and returns the value of the same field for the answer. Offers that
// are malformed, unknown or cannot be honoured are declined by leaving them
// out, as the RFC wants it: then Params is zero and the answer empty.
//
// The answer holds both no_context_takeover parameters, which need not have
// been offered, and server_max_window_bits if that was, with the same value. It
// never limits the client's window: what is inflated here has room for the
// greatest.
func Negotiate(lines []string) (p Params, answer string) {
	for offer := range field.QuotedMembers(lines) {
		if p, answer := honour(offer); p.On {
			return p, answer
		}
	}
	return Params{}, ""
}

// honour says what an offer is accepted with; the zero Params decline it.
func honour(offer string) (p Params, answer string) {
	name, rest, more := cut(offer, ';')
	if name != extension {
		return Params{}, ""
	}
	p = Params{On: true, Window: maxWindow}
	answer = extension + "; " + serverNoTakeover + "; " + clientNoTakeover
	seen := make(map[string]bool, 4)
	for more {
		var param string
		param, rest, more = cut(rest, ';')
		name, value, hasValue := cut(param, '=')
		if seen[name] { // RFC 7692, 7.1: not twice in one offer
			return Params{}, ""
		}
		window, ok := uint8(0), true
		if hasValue {
			window, ok = windowBits(value)
		}
		switch name {
		case serverNoTakeover, clientNoTakeover:
			ok = !hasValue
		case serverWindow: // must have a value (RFC 7692, 7.1.2.1)
			ok = ok && hasValue
			p.Window = window
			answer += "; " + serverWindow + "=" + strconv.Itoa(int(window))
		case clientWindow: // may have one (RFC 7692, 7.1.2.2)
		default:
			ok = false
		}
		if !ok {
			return Params{}, ""
		}
		seen[name] = true
	}
	return p, answer
}

// windowBits reads 8 to 15, written without leading zeros, in quotes or not: a
// quoted value says the same as the token in it (RFC 6455, 9.1).
func windowBits(value string) (bits uint8, ok bool) {
	value, ok = field.Unquote(strings.Trim(value, " \t"))
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < minWindow || n > maxWindow || strconv.Itoa(n) != value {
		return 0, false
	}
	return uint8(n), true
}

// cut is field.Cut, and trims the part before.
func cut(list string, separator byte) (first, rest string, found bool) {
	first, rest, found = field.Cut(list, separator)
	return strings.Trim(first, " \t"), rest, found
}
