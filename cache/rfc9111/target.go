package rfc9111

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"

	"millrace/internal/wire/field"
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

// parseTarget reads a targeted field: a Dictionary (RFC 9651, 3.2) whose
// members are cache directives. An empty one, one that is not a Dictionary, and
// one in which a directive has a value of another type than it must have, is
// to be ignored as a whole (RFC 9213, 2.1).
func parseTarget(lines []string) (c Control, ok bool) {
	members, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil || len(members.Names()) == 0 || len(members.Names()) > maxDirectives {
		return Control{}, false
	}
	for _, name := range members.Names() {
		member, _ := members.Get(name)
		item, _ := member.(httpsfv.Item) // no value for an inner list, which no directive has
		if !typed(name, item.Value) {
			return Control{}, false
		}
		d := directive{name: name, arg: true}
		switch v := item.Value.(type) {
		case bool:
			if !v {
				continue
			}
			d.arg = false
		case int64:
			d.value, d.bad = strconv.FormatInt(v, 10), v < 0
		case string:
			d.value = v
		case httpsfv.Token:
			d.value = string(v)
		}
		c.directives = append(c.directives, d)
	}
	return c, true
}

// typed reports whether a directive may have a value of this type (RFC 9213, 2.1).
func typed(name string, value any) bool {
	_, integer := value.(int64)
	_, boolean := value.(bool)
	_, text := value.(string)
	switch name {
	case "max-age", "s-maxage", "stale-while-revalidate", "stale-if-error":
		return integer
	case "no-store", "must-revalidate", "proxy-revalidate", "public", "must-understand":
		return boolean
	case "no-cache", "private":
		return boolean || text
	}
	return true
}

// parseSurrogate reads Surrogate-Control (Edge Architecture 1.0, 2.2): written
// like Cache-Control, but a directive may be for one device alone, named after
// a semicolon, and max-age=600+30 lets it be used stale for 30 seconds.
func parseSurrogate(lines []string, device string) Control {
	var general, own Control
	for member := range field.QuotedMembers(lines) {
		text, name, _ := field.Cut(member, ';')
		into := &general
		if name = strings.Trim(name, " \t"); name != "" {
			if name != device {
				continue
			}
			into = &own
		}
		into.read(strings.TrimRight(text, " \t"))
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
