package purge

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzGlob compares with a regular expression.
func FuzzGlob(f *testing.F) {
	for _, c := range [][2]string{
		{"*", ""},
		{"a*b?c", "aXbYc"},
		{"*a*a*a*b", strings.Repeat("a", 40)},
		{"a?", "a"},
		{"*aab*", "aaab"},
		{"?*?", "ab"},
		{"ab*ba", "aba"},
		{"*a?c*c?", "abcabcd"},
	} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		// ? is a byte here and a rune there.
		if strings.ContainsFunc(pattern+text, func(r rune) bool { return r >= 0x80 }) || len(pattern) > 200 || len(text) > 2000 {
			return
		}
		g, err := compile(pattern)
		if err != nil {
			return
		}
		if got, want := g.match(text), globRegexp(pattern).MatchString(text); got != want {
			t.Errorf("%q on %q: %v, want %v", pattern, text, got, want)
		}
	})
}

// FuzzSelector: the form that a selector is saved in means the same when it is
// read again, and a URL hits itself in every spelling.
func FuzzSelector(f *testing.F) {
	for _, s := range []string{"https://Example.com:443/a?b#c", "//h", "h?x", "h:80/", "[::1]:80/x", "*://h/*", "*A.b/*", "http://", "h*:443/x", "a:", "?h/x", "tag", "0::", "0:80:", "\xfbP*", "h?" + strings.Repeat("x", mostPattern-2)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range []Selector{{URL: text}, {Prefix: text}, {Glob: text}, {Tag: text}, {Host: text}} {
			e, err := s.entry()
			if err != nil {
				continue
			}
			again, err := parseEntry(e.kind, e.text)
			if err != nil || again.text != e.text || again.host != e.host || again.scheme != e.scheme {
				t.Errorf("%q is remembered as %+v, and read again as %+v, %v", text, e, again, err)
			}
		}
		s := Selector{URL: text}
		if s.Check() != nil {
			return
		}
		b := New(0)
		o := Object{URL: text, At: b.Now()}
		b.Purge(s)
		if b.State(&o, nil) != Stale {
			t.Errorf("%q does not hit itself", text)
		}
	})
}

// FuzzRestore: damage is refused or harmless.
func FuzzRestore(f *testing.F) {
	b := New(0)
	for _, s := range []Selector{{URL: "http://h/x"}, {Prefix: "h/y"}, {Glob: "h/*", Hard: true}, {Tag: "t"}, {Host: "h:80"}, {All: true}, {URL: "http://h/" + strings.Repeat("x", 200)}} {
		b.Purge(s)
		f.Add(b.Save())
	}
	f.Add(append(b.Save(), Record(Selector{Tag: "t", Hard: true}, 5)...))
	f.Add([]byte(header))
	f.Fuzz(func(t *testing.T, saved []byte) {
		b := New(8)
		start := b.Now()
		err := b.Restore(saved)
		if b.Now() < start {
			t.Error("the clock went back")
		}
		o := Object{URL: "http://h/x", Tags: []string{"t"}, At: 1}
		s := b.State(&o, nil)
		if err != nil {
			if s != Unsure {
				t.Errorf("refused, but an old object is %d", s)
			}
			return
		}
		again := New(8)
		once := b.Save()
		if err := again.Restore(once); err != nil {
			t.Fatalf("what was saved is refused: %v", err)
		}
		if got := again.State(&o, nil); got < s {
			t.Errorf("%d became %d", s, got)
		}
		n := b.Now()
		if p := b.Purge(Selector{All: true}); p <= n {
			t.Errorf("purge %d at %d", p, n)
		}
		if bytes.Equal(once, b.Save()) {
			t.Error("a purge changed nothing")
		}
	})
}
