package purge

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// times are when something was last purged, in both ways; 0: never. They are kept
// apart so that a soft purge after a hard one does not make it milder.
type times struct{ soft, hard Time }

func timesOf(hard bool, t Time) times {
	if hard {
		return times{hard: t}
	}
	return times{soft: t}
}

func (m *times) raise(n times) {
	m.soft = max(m.soft, n.soft)
	m.hard = max(m.hard, n.hard)
}

func (m times) latest() Time { return max(m.soft, m.hard) }

// state is what the times mean for an object that was valid at the moment since.
func (m times) state(since Time) State {
	switch {
	case m.hard > since:
		return Gone
	case m.soft > since:
		return Stale
	}
	return Valid
}

// ages remember names with their times in two generations of equal size. When
// the young one is full it becomes the old one, and the one before that is
// given up in O(1): its top times says all that must be known about it. A purge
// that had to sort or walk a hundred thousand names would hold up every request.
type ages struct {
	half       int
	byHost     bool // keep the top times of each host, too
	young, old generation
}

type generation struct {
	names map[string]times
	hosts map[string]times
	top   times
}

// longest is the length of names that are kept as they are; of longer ones the
// SHA-256 is, behind a NUL, which occurs in no name. So 100,000 URLs of 8 KB
// take no more room than short ones.
const longest = 96

func short(name string) string {
	if len(name) <= longest || name[0] == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "\x00" + string(sum[:])
}

// add notes a name. If full, the caller must take over what is given up.
func (a *ages) add(name, host string, m times) (givenUp generation, full bool) {
	name = short(name)
	if _, known := a.young.names[name]; !known && len(a.young.names) >= a.half {
		givenUp, full = a.old, a.old.names != nil
		a.old, a.young = a.young, generation{}
	}
	g := &a.young
	if g.names == nil {
		g.names = map[string]times{}
		if a.byHost {
			g.hosts = map[string]times{}
		}
	}
	// Strings are cloned: a selector may be a piece of a large request.
	put(g.names, name, m)
	if a.byHost {
		put(g.hosts, host, m)
	}
	g.top.raise(m)
	return givenUp, full
}

func put(names map[string]times, name string, m times) {
	if before, known := names[name]; known {
		m.raise(before)
	} else {
		name = strings.Clone(name)
	}
	names[name] = m
}

func (a *ages) find(name string) times {
	name = short(name)
	m := a.young.names[name]
	m.raise(a.old.names[name])
	return m
}

// findBytes is find for a name that is not a string yet.
func (a *ages) findBytes(name []byte) times {
	if len(name) > longest {
		return a.find(string(name))
	}
	m := a.young.names[string(name)]
	m.raise(a.old.names[string(name)])
	return m
}

func (a *ages) latest() Time { return max(a.young.top.latest(), a.old.top.latest()) }

// patterns are prefixes and globs, in the order in which they were last purged.
type patterns struct{ list []pattern }

type pattern struct {
	entry
	times times
}

// add notes a pattern. If full, the caller must take over the oldest.
func (p *patterns) add(e entry, m times) (oldest pattern, full bool) {
	i := slices.IndexFunc(p.list, func(q pattern) bool { return q.kind == e.kind && q.text == e.text })
	if i >= 0 {
		m.raise(p.list[i].times)
		p.list = slices.Delete(p.list, i, i+1)
	} else if len(p.list) >= mostPatterns {
		oldest, full = p.list[0], true
		p.list = slices.Delete(p.list, 0, 1)
	}
	e.text, e.host = strings.Clone(e.text), strings.Clone(e.host)
	p.list = append(p.list, pattern{e, m})
	return oldest, full
}

func (p *patterns) latest() Time {
	if len(p.list) == 0 {
		return 0
	}
	return p.list[len(p.list)-1].times.latest()
}

// state is the worst that a pattern purged after since means for an object at a place.
func (p *patterns) state(at *place, since Time) State {
	s := Valid
	for i := len(p.list) - 1; i >= 0; i-- {
		q := &p.list[i]
		if q.times.latest() <= since {
			break
		}
		if t := q.times.state(since); t > s && q.matches(at) {
			s = t
		}
	}
	return s
}
