package rfc9111

import "strings"

// The types of Structured Field values (RFC 8941, 3.3), as far as directives
// tell them apart.
type sfKind int

const (
	sfTrue sfKind = iota
	sfFalse
	sfInteger
	sfString
	sfToken
	sfOther // Decimal, Byte Sequence, Inner List: no directive has one
)

type sfMember struct {
	key, value string // value of Integer, String and Token
	kind       sfKind
}

// parseDictionary reads a Dictionary strictly (RFC 8941, 4.2.2). Parameters
// are read and dropped: RFC 9213, 2.1 has directives ignore them. A key that
// comes again replaces the first.
func parseDictionary(s string) (members []sfMember, ok bool) {
	p := sfParser{strings.Trim(s, " ")}
	for p.s != "" {
		m := sfMember{}
		if m.key, ok = p.key(); !ok {
			return nil, false
		}
		if p.eat('=') {
			m.kind, m.value, ok = p.memberValue()
			if !ok {
				return nil, false
			}
		}
		if !p.parameters() {
			return nil, false
		}
		replaced := false
		for i := range members {
			if members[i].key == m.key {
				members[i], replaced = m, true
			}
		}
		if len(members) == maxDirectives {
			return nil, false
		}
		if !replaced {
			members = append(members, m)
		}
		p.s = strings.TrimLeft(p.s, " \t")
		if p.s == "" {
			return members, true
		}
		if !p.eat(',') {
			return nil, false
		}
		if p.s = strings.TrimLeft(p.s, " \t"); p.s == "" {
			return nil, false // a trailing comma
		}
	}
	return members, true
}

type sfParser struct{ s string }

func (p *sfParser) eat(c byte) bool {
	if p.s == "" || p.s[0] != c {
		return false
	}
	p.s = p.s[1:]
	return true
}

// take cuts off the longest front made of bytes that in accepts.
func (p *sfParser) take(in func(c byte) bool) string {
	i := 0
	for i < len(p.s) && in(p.s[i]) {
		i++
	}
	front := p.s[:i]
	p.s = p.s[i:]
	return front
}

// key reads a key (4.2.3.3): lower case alone.
func (p *sfParser) key() (string, bool) {
	if p.s == "" || !lcalpha(p.s[0]) && p.s[0] != '*' {
		return "", false
	}
	return p.take(func(c byte) bool {
		return lcalpha(c) || digit(c) || c == '_' || c == '-' || c == '.' || c == '*'
	}), true
}

func (p *sfParser) memberValue() (kind sfKind, value string, ok bool) {
	if !p.eat('(') {
		return p.bareItem()
	}
	for { // an Inner List (4.2.1.2)
		p.s = strings.TrimLeft(p.s, " ")
		if p.eat(')') {
			return sfOther, "", true
		}
		if _, _, ok := p.bareItem(); !ok || !p.parameters() {
			return 0, "", false
		}
		if p.s == "" || p.s[0] != ' ' && p.s[0] != ')' {
			return 0, "", false
		}
	}
}

// parameters reads and drops what follows an item (4.2.3.2).
func (p *sfParser) parameters() bool {
	for p.eat(';') {
		p.s = strings.TrimLeft(p.s, " ")
		if _, ok := p.key(); !ok {
			return false
		}
		if p.eat('=') {
			if _, _, ok := p.bareItem(); !ok {
				return false
			}
		}
	}
	return true
}

func (p *sfParser) bareItem() (kind sfKind, value string, ok bool) {
	if p.s == "" {
		return 0, "", false
	}
	switch c := p.s[0]; {
	case c == '-' || digit(c):
		return p.number()
	case c == '"':
		return p.text()
	case c == '*' || lcalpha(c|0x20) && c >= 'A': // 4.2.6
		return sfToken, p.take(func(c byte) bool { return tchar[c] || c == ':' || c == '/' }), true
	case c == ':': // a Byte Sequence (4.2.7)
		p.s = p.s[1:]
		p.take(func(c byte) bool {
			return lcalpha(c|0x20) && c >= 'A' || digit(c) || c == '+' || c == '/' || c == '='
		})
		return sfOther, "", p.eat(':')
	case c == '?': // 4.2.8
		p.s = p.s[1:]
		switch {
		case p.eat('1'):
			return sfTrue, "", true
		case p.eat('0'):
			return sfFalse, "", true
		}
	}
	return 0, "", false
}

// number reads an Integer of at most 15 digits or a Decimal of at most 12 and
// 3 (4.2.4).
func (p *sfParser) number() (kind sfKind, value string, ok bool) {
	start := p.s
	p.eat('-')
	whole := p.take(digit)
	if whole == "" || len(whole) > 15 {
		return 0, "", false
	}
	if !p.eat('.') {
		return sfInteger, start[:len(start)-len(p.s)], true
	}
	fraction := p.take(digit)
	return sfOther, "", len(whole) <= 12 && fraction != "" && len(fraction) <= 3
}

// text reads a String (4.2.5): printable ASCII, in which only " and \ may be escaped.
func (p *sfParser) text() (kind sfKind, value string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c == '"':
			p.s = p.s[i+1:]
			return sfString, b.String(), true
		case c == '\\':
			i++
			if i == len(p.s) || p.s[i] != '"' && p.s[i] != '\\' {
				return 0, "", false
			}
			b.WriteByte(p.s[i])
		case c < 0x20 || c > 0x7e:
			return 0, "", false
		default:
			b.WriteByte(c)
		}
	}
	return 0, "", false
}

func digit(c byte) bool   { return '0' <= c && c <= '9' }
func lcalpha(c byte) bool { return 'a' <= c && c <= 'z' }
