package rfc9111

import (
	"net/textproto"
	"slices"
	"strings"
	"time"

	"millrace/internal/wire/field"
)

// forever stands for every number of seconds that is too large to be meant:
// 2^31 s, as 1.2.2 advises. Twice that still fits into a Duration.
const forever = (1 << 31) * time.Second

// maxDirectives bounds what is looked through again and again. It is what RFC
// 8941, 3.2 has every parser of Dictionaries support; real fields have ten.
const maxDirectives = 1024

const (
	cacheControl     = "Cache-Control"
	cdnCacheControl  = "Cdn-Cache-Control"
	surrogateControl = "Surrogate-Control"
)

// Control is a parsed Cache-Control field, or one of its kind (RFC 9213).
type Control struct{ directives []directive }

// directive is one member. A bad one was not written as the grammar wants it:
// it counts where it restricts, never where it permits.
type directive struct {
	name, value string // name in lower case, value without quotes
	arg, bad    bool
}

// ParseControl reads all lines of a field. What cannot be read is ignored,
// as RFC 9111, 4.2.1 and 5.2 ask for: towards not storing and not reusing. A
// field with more than 1024 directives means no-store.
func ParseControl(lines []string) Control {
	var c Control
	for _, line := range lines {
		c.read(line)
	}
	return c
}

func (c *Control) read(rest string) {
	broken := false // a quote that does not end: nothing after it is to be trusted
	loose := false  // no comma before: "max-age=60 no-store"
	for {
		rest = strings.TrimLeft(rest, " \t,") // RFC 9110, 5.6.1: empty members
		if rest == "" {
			return
		}
		if len(c.directives) >= maxDirectives {
			c.directives = []directive{{name: "no-store", bad: true}}
			return
		}
		end := strings.IndexAny(rest, "=,")
		if end < 0 {
			end = len(rest)
		}
		d := directive{bad: broken || loose}
		names := rest[:end]
		rest, loose = rest[end:], false
		if strings.HasPrefix(rest, "=") {
			var ok, closed bool
			d.value, rest, ok, closed = argument(rest[1:])
			rest = strings.TrimLeft(rest, " \t")
			loose = rest != "" && rest[0] != ','
			broken = broken || !closed
			// No whitespace around "=" (5.2).
			d.arg, d.bad = true, d.bad || !ok || loose || strings.HasSuffix(names, " ") || strings.HasSuffix(names, "\t")
		}
		c.add(names, d)
	}
}

// add appends d under its name. Names that only whitespace divides are missing
// a comma: "no-cache no-store" is meant, and counts as far as it restricts.
func (c *Control) add(names string, d directive) {
	if d.name = field.Lower(strings.TrimRight(names, " \t")); field.Token(d.name) {
		c.directives = append(c.directives, d)
		return
	}
	for name := range strings.FieldsSeq(names) {
		if len(c.directives) >= maxDirectives {
			return
		}
		c.directives = append(c.directives, directive{name: field.Lower(name), value: d.value, arg: d.arg, bad: true})
	}
}

// argument reads a token or a quoted-string (5.2 wants both understood). closed
// is false when a quote does not end; it is then taken for a part of the word.
func argument(s string) (value, rest string, ok, closed bool) {
	if value, rest, ok = field.CutQuoted(s); ok {
		return value, rest, true, true
	}
	end := strings.IndexAny(s, ", \t")
	if end < 0 {
		end = len(s)
	}
	return s[:end], s[end:], field.Token(s[:end]), !strings.HasPrefix(s, `"`)
}

// Has reports whether a directive is there, with or without an argument, well
// written or not. name is in lower case.
func (c Control) Has(name string) bool {
	return slices.ContainsFunc(c.directives, func(d directive) bool { return d.name == name })
}

// grants reports whether a directive that permits something is there, and
// written so that it must be meant.
func (c Control) grants(name string) bool {
	found := false
	for _, d := range c.directives {
		if d.name == name {
			if d.bad {
				return false
			}
			found = true
		}
	}
	return found
}

// Seconds is the argument of a directive like max-age. ok is false when the
// directive is missing; one that is there and cannot be read, or contradicts
// itself, is 0: already stale (RFC 9111, 4.2.1). Too large is 2^31 (1.2.2).
func (c Control) Seconds(name string) (d time.Duration, ok bool) {
	for _, x := range c.directives {
		if x.name != name {
			continue
		}
		v, readable := seconds(x.value)
		if x.bad || !readable || ok && v != d {
			return 0, true
		}
		d, ok = v, true
	}
	return d, ok
}

// seconds reads delta-seconds (1.2.2): digits and nothing else.
func seconds(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	n := int64(0)
	for i := range len(s) {
		if !digit(s[i]) {
			return 0, false
		}
		n = min(n*10+int64(s[i]-'0'), int64(forever/time.Second))
	}
	return time.Duration(n) * time.Second, true
}

// Fields lists the field names, canonical, of a qualified no-cache or private;
// nil when the directive is missing or has no argument.
func (c Control) Fields(name string) []string {
	var names []string
	for _, d := range c.directives {
		if d.name != name || !d.arg {
			continue
		}
		for part := range field.Members([]string{d.value}) {
			if field.Token(part) {
				names = append(names, canonical(part))
			}
		}
	}
	return names
}

// whole reports whether no-cache or private is meant for the response as a
// whole: without an argument, with one that cannot be read, or with a field
// that the rest makes no sense without.
func (c Control) whole(name string) bool {
	for _, d := range c.directives {
		if d.name != name {
			continue
		}
		if !d.arg || d.bad {
			return true
		}
		some := false
		for part := range field.Members([]string{d.value}) {
			if !field.Token(part) || essential[canonical(part)] {
				return true
			}
			some = true
		}
		if !some {
			return true
		}
	}
	return false
}

// withheld lists the fields that must not be kept: those that no-cache or
// private name (5.2.2.4, 5.2.2.7).
func (c Control) withheld() []string {
	return append(c.Fields("no-cache"), c.Fields("private")...)
}

func canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

func digit(c byte) bool { return '0' <= c && c <= '9' }
