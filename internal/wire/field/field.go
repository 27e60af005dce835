// Package field knows header fields: what their names stand for, the one spelling of
// a host and port, and their values, which it reads and writes as RFC 9110, 5.5
// and 5.6 define them: tokens, lists, quoted strings and weights. Tokens, the
// members of token lists and values are judged by golang.org/x/net/http/httpguts,
// as net/http judges them.
package field

import (
	"iter"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Token reports whether s is a token (RFC 9110, 5.6.2). The names of fields and
// methods are tokens.
func Token(s string) bool { return httpguts.ValidHeaderFieldName(s) }

// TokenByte reports whether c may be part of a token, for tables.
func TokenByte(c byte) bool { return httpguts.IsTokenRune(rune(c)) }

// Value reports whether s may be the value of a field (RFC 9110, 5.5): it has
// no control byte but the tab. A line break in it would be another field.
func Value(s string) bool { return httpguts.ValidHeaderFieldValue(s) }

// Lower puts the capitals of ASCII into lower case and leaves all other bytes
// alone. strings.ToLower would change other letters too, and replace what is no
// UTF-8 by something longer.
func Lower(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for j := i; j < len(b); j++ {
				if 'A' <= b[j] && b[j] <= 'Z' {
					b[j] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// Has reports whether one of the members of a list of tokens is the token, in
// any letter case (RFC 9110, 5.6.1).
func Has(lines []string, token string) bool {
	return httpguts.HeaderValuesContainsToken(lines, token)
}

// Members are those of a list of names, such as Connection, Upgrade and
// Vary: without the whitespace around them, and without the empty ones, which
// RFC 9110, 5.6.1.2 wants ignored. Such a list has no quoted strings, so a
// quote in it hides no comma. A member need not be a token.
func Members(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range lines {
			for name := range strings.SplitSeq(line, ",") {
				if name = strings.Trim(name, " \t"); name != "" && !yield(name) {
					return
				}
			}
		}
	}
}

// QuotedMembers are Members of a list in which quoted strings may stand.
func QuotedMembers(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range lines {
			for more := true; more; {
				var member string
				member, line, more = Cut(line, ',')
				if member = strings.Trim(member, " \t"); member != "" && !yield(member) {
					return
				}
			}
		}
	}
}

// Weight reads the value of q, from 0 to 1 with at most three decimals (RFC
// 9110, 12.4.2), in thousandths.
func Weight(s string) (thousandths int, ok bool) {
	if s == "" || len(s) > len("0.000") || s[0] != '0' && s[0] != '1' || len(s) > 1 && s[1] != '.' {
		return 0, false
	}
	w, unit := int(s[0]-'0')*1000, 100
	for i := 2; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		w += int(s[i]-'0') * unit
		unit /= 10
	}
	if w > 1000 {
		return 0, false
	}
	return w, true
}
