package auth

import (
	"strings"
	"unicode/utf8"
)

// placeholder stands for the user in patterns of the options.
const placeholder = "{sub}"

// A pattern is what stands between its wildcards: n of them make n+1 parts. It
// is kept so, and not as text, because a user's name may hold a *, which then
// stands for itself.
type pattern []string

func parsePattern(text string) pattern { return strings.Split(text, "*") }

// match reports whether the whole of a name fits. Every part between two
// wildcards is looked for as early as it can be, which leaves most to the ones
// behind it; so nothing is ever tried twice.
func (p pattern) match(name string) bool {
	first, last := p[0], p[len(p)-1]
	if len(p) == 1 {
		return name == first
	}
	rest, ok := strings.CutPrefix(name, first)
	if !ok {
		return false
	}
	if rest, ok = strings.CutSuffix(rest, last); !ok {
		return false
	}
	for _, part := range p[1 : len(p)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}

// Match reports whether a channel's name fits into a pattern.
func Match(text, channel string) bool { return parsePattern(text).match(channel) }

// fill puts a user's name in for the placeholders. It reports false if the name
// would not end where the pattern says.
func (p pattern) fill(user string) (pattern, bool) {
	if user == "" {
		return nil, false
	}
	filled := make(pattern, len(p))
	for i, part := range p {
		pieces := strings.Split(part, placeholder)
		for k := range pieces[1:] {
			before, after := pieces[k], pieces[k+1]
			if r, n := utf8.DecodeLastRuneInString(before); n > 0 && strings.ContainsRune(user, r) {
				return nil, false
			}
			if r, n := utf8.DecodeRuneInString(after); n > 0 && strings.ContainsRune(user, r) {
				return nil, false
			}
		}
		filled[i] = strings.Join(pieces, user)
	}
	return filled, true
}

// patterns are those that all clients share, and those of one.
type patterns struct{ shared, own []pattern }

func (p patterns) match(channel string) bool {
	for _, list := range [2][]pattern{p.shared, p.own} {
		for _, one := range list {
			if one.match(channel) {
				return true
			}
		}
	}
	return false
}

// A right is a permission that the options give to anyone: always holds for clients
// without a name, too.
type right struct{ always, named []pattern }

func newRight(texts []string) right {
	var r right
	for _, text := range texts {
		p := parsePattern(text)
		if strings.Contains(text, placeholder) {
			r.named = append(r.named, p)
		} else {
			r.always = append(r.always, p)
		}
	}
	return r
}

// of returns the patterns of a user: the options' and its own.
func (r right) of(user string, own []pattern) patterns {
	all := patterns{shared: r.always, own: own}
	for _, p := range r.named {
		if filled, ok := p.fill(user); ok {
			all.own = append(all.own, filled)
		}
	}
	return all
}

type rights struct{ subscribe, publish, presence right }

// some reports whether who has no name may do anything.
func (r rights) some() bool {
	return len(r.subscribe.always)+len(r.publish.always)+len(r.presence.always) > 0
}

func (r rights) grant(user string, c claimed) *Grant {
	return &Grant{
		User:      user,
		Info:      c.info,
		Expires:   c.expires,
		Given:     c.given,
		renewable: c.token,
		subscribe: r.subscribe.of(user, c.subscribe),
		publish:   r.publish.of(user, c.publish),
		presence:  r.presence.of(user, c.presence),
	}
}
