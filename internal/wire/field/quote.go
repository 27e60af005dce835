package field

import "strings"

// Cut is strings.Cut at the first separator that stands in no quoted string. A
// quoted string without an end reaches to the end of s: see [Closed].
func Cut(s string, separator byte) (before, after string, found bool) {
	end := strings.IndexByte(s, separator)
	if end < 0 {
		return s, "", false
	}
	if strings.IndexByte(s[:end], '"') < 0 { // nearly always
		return s[:end], s[end+1:], true
	}
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == separator && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// Closed reports whether every quoted string in s has an end.
func Closed(s string) bool {
	quoted := false
	for i := strings.IndexByte(s, '"'); i >= 0 && i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		}
	}
	return !quoted
}

// CutQuoted reads a quoted string off the front of s (RFC 9110, 5.6.4). ok is
// false where none begins there, or where it has no end; rest is s then.
func CutQuoted(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", s, false
	}
	escaped := false
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			text = s[1:i]
			if escaped {
				text = unescape(text)
			}
			return text, s[i+1:], true
		case '\\':
			escaped = true
			i++
		}
	}
	return "", s, false
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Unquote is what a token or a quoted string says, which is the same (RFC 9110,
// 5.6.6). ok is false where s is neither.
func Unquote(s string) (text string, ok bool) {
	if s == "" || s[0] != '"' {
		return s, Token(s)
	}
	text, rest, ok := CutQuoted(s)
	return text, ok && rest == ""
}

// AppendQuote appends s as a token, or as a quoted string where it is none.
func AppendQuote(b []byte, s string) []byte {
	if Token(s) {
		return append(b, s...)
	}
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}
