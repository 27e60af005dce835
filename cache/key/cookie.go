package key

import (
	"slices"
	"strings"
)

const cookieHeader = "Cookie"

// appendCookies adds the listed cookies of a request, each with all its values
// in their order: which of several counts is the upstream's choice.
//
// net/http's own parser is of no use here: it leaves out what it finds
// malformed, and cuts quotes off; an upstream that does not would be asked for
// one thing and have it stored as another. For the same reason a field that
// parsers read in different ways counts as a whole.
func (m *Maker) appendCookies(b []byte, lines []string) []byte {
	if slices.ContainsFunc(lines, ambiguous) {
		return appendValues(append(b, "\nC:"...), lines)
	}
	for _, name := range m.cookies {
		found := false
		for _, line := range lines {
			for more := true; more; {
				var pair string
				pair, line, more = strings.Cut(line, ";")
				key, value, valued := strings.Cut(pair, "=")
				if strings.Trim(key, " ") != name {
					continue
				}
				if found {
					b = append(b, ',')
				} else {
					b = append(append(append(b, "\nc:"...), name...), ':')
				}
				found = true
				if valued {
					b = appendValue(b, strings.Trim(value, " "))
				} else {
					b = append(b, '-') // no value, not even an empty one
				}
			}
		}
	}
	return b
}

// ambiguous reports whether a Cookie field holds bytes that RFC 6265, 4.2.1 has
// not: some parsers take what is quoted for one value, semicolons and all, or a
// comma for a separator (RFC 2109 had both).
func ambiguous(line string) bool {
	for i := range len(line) {
		switch c := line[i]; {
		case c < ' ', c >= 0x7f, c == '"', c == ',', c == '\\':
			return true
		}
	}
	return false
}
