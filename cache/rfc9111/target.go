package rfc9111

import (
	"net/http"
	"slices"
	"strings"
)

// control is the field that decides over h: the first valid targeted one, else
// Surrogate-Control, else Cache-Control. source is "" for the last, the only
// one beside which Expires counts (RFC 9213, 2.2).
func (p *Policy) control(h http.Header) (c Control, source string) {
	for _, name := range p.Targets {
		if lines := h.Values(name); len(lines) > 0 {
			if c, ok := parseTarget(lines); ok {
				return c, name
			}
		}
	}
	if p.Surrogate {
		if lines := h[surrogateControl]; len(lines) > 0 {
			if c := parseSurrogate(lines, p.Device); slices.ContainsFunc(c.directives, decides) {
				return c, surrogateControl
			}
		}
	}
	return ParseControl(h[cacheControl]), ""
}

// decides reports whether a directive is one for whose sake Surrogate-Control
// stands in for Cache-Control. Most have only content="ESI/1.0".
func decides(d directive) bool {
	switch d.name {
	case "max-age", "s-maxage", "no-store", "no-cache", "private":
		return true
	}
	return false
}

// parseTarget reads a targeted field: a Dictionary (RFC 8941, 3.2) whose
// members are cache directives. An empty one, one that is no Dictionary, and
// one in which a directive has a value of another type than it must have, is
// to be ignored as a whole (RFC 9213, 2.1).
func parseTarget(lines []string) (c Control, ok bool) {
	members, ok := parseDictionary(strings.Join(lines, ","))
	if !ok || len(members) == 0 {
		return Control{}, false
	}
	for _, m := range members {
		d := directive{name: m.key, value: m.value, arg: m.kind != sfTrue && m.kind != sfFalse}
		switch m.key {
		case "max-age", "s-maxage", "stale-while-revalidate", "stale-if-error":
			if m.kind != sfInteger {
				return Control{}, false
			}
			d.bad = strings.HasPrefix(m.value, "-")
		case "no-store", "must-revalidate", "proxy-revalidate", "public", "must-understand":
			if d.arg {
				return Control{}, false
			}
		case "no-cache", "private":
			if d.arg && m.kind != sfString {
				return Control{}, false
			}
		}
		if m.kind != sfFalse {
			c.directives = append(c.directives, d)
		}
	}
	return c, true
}

// parseSurrogate reads Surrogate-Control (Edge Architecture 1.0, 2.2): written
// like Cache-Control, but a directive may be for one device alone, named after
// a semicolon, and max-age=600+30 lets it be used stale for 30 seconds.
func parseSurrogate(lines []string, device string) Control {
	var general, own Control
	for _, line := range lines {
		for member := range membersOf(line) {
			text, name := cutUnquoted(member, ';')
			into := &general
			if name = strings.Trim(name, " \t"); name != "" {
				if name != device {
					continue
				}
				into = &own
			}
			into.read(strings.TrimRight(text, " \t"))
		}
	}
	// What is said to this device beats what is said to all.
	for _, d := range general.directives {
		if !own.Has(d.name) {
			own.directives = append(own.directives, d)
		}
	}
	for i, d := range own.directives {
		if fresh, stale, extended := strings.Cut(d.value, "+"); extended && d.name == "max-age" && !d.bad {
			own.directives[i].value = fresh
			own.directives = append(own.directives,
				directive{name: "stale-while-revalidate", value: stale, arg: true},
				directive{name: "stale-if-error", value: stale, arg: true})
		}
	}
	return own
}

// membersOf splits a list at the commas outside quoted-strings.
func membersOf(line string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line != "" {
			var member string
			member, line = cutUnquoted(line, ',')
			if member = strings.Trim(member, " \t"); member != "" && !yield(member) {
				return
			}
		}
	}
}

// cutUnquoted is strings.Cut at a byte outside quoted-strings.
func cutUnquoted(s string, sep byte) (before, after string) {
	inside := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			inside = !inside
		case c == '\\' && inside:
			i++
		case c == sep && !inside:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
