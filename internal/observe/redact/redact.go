// Package redact masks secrets in what is shown to people: log lines, what an
// operator asks of a running cache, and the lines of a config that a mistake is
// pointed out in. Everything that writes a request's target, a Referer or an
// error down asks it, so that there is one list of names and one reading of them.
//
// A secret is the value of a query parameter whose name says so, and whatever
// stands between "://" and "@" in a URL (RFC 3986, 3.2.1). Names are compared as a server
// reads them: percent-decoded, also twice; without regard to case; and with
// hyphens, dots and spaces taken for underscores, as some servers do. A capital
// behind a small letter begins a word. A URL within a parameter of another one is
// read, too. Where in doubt, more is masked.
package redact

import (
	"bytes"
	"strings"
)

// mask stands for a secret.
const mask = "..."

// tails are what the names of further secrets end in, whatever stands before: words
// that nothing separates, or that are no secret alone. Other codes are those of
// places, errors and goods.
var tails = [...]string{
	"token", "secret", "password", "passwd", "passphrase", "signature", "sessionid", "session_id", "sessid",
	"apikey", "accesskey", "secretkey", "privatekey", "authkey", "appkey", "userkey", "sharedkey", "streamkey", "licensekey", "masterkey",
	"access_key_id", "accesskeyid", "id_token_hint", "samlresponse", "saml_response", "samlrequest", "saml_request",
	"authcode", "auth_code", "authorization_code", "access_code", "device_code", "user_code", "login_code", "verification_code", "confirmation_code",
	"activation_code", "reset_code", "invite_code", "security_code", "backup_code", "recovery_code", "otp_code", "mfa_code", "sms_code",
}

// maxName is the longest name of a parameter that is looked at.
const maxName = 64

// Target masks a request's target, a Referer or a URL. What has no secret is
// returned as it is, without an allocation.
func Target(s string) string { return masked(s, false) }

// Text masks every URL and target within a text, such as an error's.
func Text(s string) string { return masked(s, true) }

func masked(s string, text bool) string {
	if _, _, ok := next(s, 0, text); !ok {
		return s
	}
	return string(appendMasked(nil, s, text))
}

// Needed reports whether Target would change s. It does not allocate.
func Needed(s string) bool {
	_, _, ok := next(s, 0, false)
	return ok
}

// AppendTarget appends Target(s) to b.
func AppendTarget(b []byte, s string) []byte { return appendMasked(b, s, false) }

func appendMasked(b []byte, s string, text bool) []byte {
	at := 0
	for {
		from, to, ok := next(s, at, text)
		if !ok {
			return append(b, s[at:]...)
		}
		b = append(append(b, s[at:from]...), mask...)
		at = to
	}
}

// InPlace masks what Text would, each character by a "*", so that columns hold.
func InPlace(s string) string {
	var b strings.Builder
	at := 0
	for {
		from, to, ok := next(s, at, true)
		if !ok {
			b.WriteString(s[at:])
			return b.String()
		}
		b.WriteString(s[at:from])
		b.WriteString(Stars(s[from:to]))
		at = to
	}
}

// Stars is a "*" for each character of s.
func Stars(s string) string { return strings.Repeat("*", len([]rune(s))) }

// next finds the next secret of s from at on. In a text, a URL ends at a space
// or a quote; else the whole of s is one.
func next(s string, at int, text bool) (from, to int, ok bool) {
	// Nearly everything ends here, at the speed of memory.
	if rest := s[at:]; strings.IndexByte(rest, '=') < 0 && strings.IndexByte(rest, '%') < 0 && strings.IndexByte(rest, '@') < 0 {
		return 0, 0, false
	}
	var name reader
	for i := at; i < len(s); {
		c, width := decoded(s, i)
		switch {
		case c == '=' && name.secret():
			if from, to = i+width, valueEnd(s, i+width, text); to > from && s[from:to] != mask {
				return from, to, true
			}
			name.stop()
		case c == '=':
			name.stop()
		case c == '?', c == '&', c == ';', c == '#':
			name.start()
		case c == '[':
			name.inner()
		case c == ':' && strings.HasPrefix(s[i:], "://"):
			if from, to = i+len("://"), userEnd(s, i+len("://")); to > from && s[from:to] != mask {
				return from, to, true
			}
			name.stop()
		default:
			name.add(c)
		}
		i += width
	}
	return 0, 0, false
}

// decoded is the byte at i, percent-decoded as often as it was encoded, and how
// many bytes of s it took.
func decoded(s string, i int) (c byte, width int) {
	c, width = s[i], 1
	for c == '%' {
		high, n := digit(s, i+width)
		low, m := digit(s, i+width+n)
		if high > 15 || low > 15 {
			break
		}
		c, width = high<<4|low, width+n+m
	}
	return c, width
}

// digit is the hexadecimal digit at i, which may be percent-encoded itself
// (%25%36%66), and how many bytes it took.
func digit(s string, i int) (d byte, width int) {
	if i >= len(s) {
		return 0xff, 0
	}
	if s[i] == '%' && i+3 <= len(s) {
		high, low := unhex(s[i+1]), unhex(s[i+2])
		if high > 15 || low > 15 {
			return 0xff, 0
		}
		return unhex(high<<4 | low), 3
	}
	return unhex(s[i]), 1
}

func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

// valueEnd is where the value that begins at i ends: at the next parameter.
// Semicolons and encoded signs may be part of it, and belong to what is masked.
func valueEnd(s string, i int, text bool) int {
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c == '&' || c == '#':
			return i
		case text && (c <= ' ' || c == '"' && s[i-1] != '\\'):
			return i
		}
	}
	return i
}

// userEnd is where the user of a URL ends whose authority begins at i, or i if
// it names none.
func userEnd(s string, i int) int {
	end := i
	for j := i; j < len(s); j++ {
		switch c := s[j]; {
		case c == '@':
			end = j // the last one: a password may hold one, wrongly
		case c == '/' || c == '?' || c == '#' || c <= ' ' || c == '"':
			return end
		}
	}
	return end
}

// reader reads a parameter's name, behind what separates parameters.
type reader struct {
	b      [maxName]byte
	n      int
	open   bool
	small  bool // the last byte was a small letter: a capital behind it begins a word
	within bool // what stands before the bracket is a secret's name: token[]
}

func (r *reader) start() { r.n, r.open, r.small, r.within = 0, true, false, false }
func (r *reader) inner() { within := r.secret(); r.start(); r.within = within }
func (r *reader) stop()  { r.open = false }

func (r *reader) add(c byte) {
	if c == ']' || !r.open { // of user[password]
		return
	}
	if r.small && 'A' <= c && c <= 'Z' {
		r.put('_')
	}
	r.small = 'a' <= c && c <= 'z'
	r.put(fold(c))
}

func (r *reader) put(c byte) {
	if r.n == len(r.b) {
		r.open = false
		return
	}
	r.b[r.n] = c
	r.n++
}

func (r *reader) secret() bool { return r.open && (r.within || secret(r.b[:r.n])) }

// fold takes names that servers take for the same as the same.
func fold(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c + 'a' - 'A'
	case c == '-', c == '.', c == ' ', c == '+':
		return '_'
	}
	return c
}

func secret(name []byte) bool {
	for len(name) > 0 && name[0] == '_' {
		name = name[1:]
	}
	for len(name) > 0 && name[len(name)-1] == '_' {
		name = name[:len(name)-1]
	}
	if len(name) < shortest {
		return false
	}
	if string(name) == "code" || ending(name[bytes.LastIndexByte(name, '_')+1:]) { // code: of OAuth (RFC 6749, 4.1.2)
		return true
	}
	last := name[len(name)-1]
	for _, n := range tails {
		if n[len(n)-1] == last && len(name) >= len(n) && string(name[len(name)-len(n):]) == n {
			return true
		}
	}
	return false
}

// shortest is the length of the shortest name of a secret.
const shortest = 3

// ending reports whether the last word of a name says that the value is a secret:
// api_key, id_token, client_secret, and each such word alone.
func ending(word []byte) bool {
	switch string(word) {
	case "token", "key", "secret", "password", "passwd", "pwd", "passphrase", "passcode", "pass",
		"signature", "sig", "hmac", "credential", "credentials",
		"auth", "jwt", "bearer", "authorization", "assertion", "verifier",
		"session", "sessionid", "sessid", "sid", "otp", "totp", "pin", "ticket":
		return true
	}
	return false
}
