package rfc9111

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestControlSeconds(t *testing.T) { // 1.2.2, 4.2.1, 5.2
	for _, c := range []struct {
		lines []string
		want  int
		ok    bool
	}{
		{nil, 0, false},
		{[]string{""}, 0, false},
		{[]string{"max-age=60"}, 60, true},
		{[]string{"MAX-Age=60"}, 60, true},
		{[]string{`max-age="60"`}, 60, true},
		{[]string{`max-age="6\0"`}, 60, true},
		{[]string{"max-age=0060"}, 60, true},
		{[]string{"foo, ,max-age=60 , bar=baz"}, 60, true},
		{[]string{"public", "max-age=60"}, 60, true},
		{[]string{"max-age=60, max-age=60"}, 60, true},
		{[]string{"max-age=2147483647"}, 1<<31 - 1, true},
		{[]string{"max-age=2147483649"}, 1 << 31, true},
		{[]string{"max-age=99999999999999999999999999999999"}, 1 << 31, true},
		{[]string{"xmax-age=60"}, 0, false},
		{[]string{`x="max-age=60"`}, 0, false},
		{[]string{`x="a\", max-age=60"`}, 0, false},
		// There, but not to be read: already stale.
		{[]string{"max-age=60, max-age=0"}, 0, true},
		{[]string{"max-age=60", "max-age=120"}, 0, true},
		{[]string{"max-age"}, 0, true},
		{[]string{"max-age="}, 0, true},
		{[]string{"max-age=-60"}, 0, true},
		{[]string{"max-age=+60"}, 0, true},
		{[]string{"max-age=60.0"}, 0, true},
		{[]string{"max-age=60s"}, 0, true},
		{[]string{"max-age='60'"}, 0, true},
		{[]string{"max-age =60"}, 0, true},
		{[]string{"max-age= 60"}, 0, true},
		{[]string{"max-age=6 0"}, 0, true},
		{[]string{`max-age="60`}, 0, true},
		{[]string{`max-age="60"1`}, 0, true},
		{[]string{"public max-age=60"}, 0, true},
		{[]string{`x="a, max-age=60`}, 0, true}, // the quote never ends
		{[]string{`x="a`, "max-age=60"}, 60, true},
	} {
		d, ok := ParseControl(c.lines).Seconds("max-age")
		if ok != c.ok || d != sec(c.want) {
			t.Errorf("%q: %v %v, want %v %v", c.lines, d, ok, sec(c.want), c.ok)
		}
	}
}

func TestControlDirectives(t *testing.T) {
	for _, c := range []struct {
		line        string
		has, grants bool // of public
	}{
		{"public", true, true},
		{"PUBLIC", true, true},
		{"public=x", true, true},
		{"max-age=1,public", true, true},
		{"max-age=1;public", false, false},
		{"public max-age=1", true, false}, // a comma is missing
		{"public =x", true, false},
		{`x=", public`, true, false},
		{"public, public =x", true, false},
		{"no-public", false, false},
	} {
		control := ParseControl([]string{c.line})
		if got := control.Has("public"); got != c.has {
			t.Errorf("%q: has %v", c.line, got)
		}
		if got := control.grants("public"); got != c.grants {
			t.Errorf("%q: grants %v", c.line, got)
		}
	}
}

func TestControlBound(t *testing.T) {
	many := strings.Repeat("a,", 2*maxDirectives) + "max-age=60"
	if c := ParseControl([]string{many}); !c.Has("no-store") || len(c.directives) > maxDirectives {
		t.Errorf("%d directives, no-store is %v", len(c.directives), c.Has("no-store"))
	}
	if c := ParseControl([]string{strings.Repeat("a ", 2*maxDirectives) + ", public"}); !c.Has("no-store") {
		t.Error("without commas it does not say no-store")
	}
	var members strings.Builder
	for i := range 2 * maxDirectives {
		fmt.Fprintf(&members, "a%d, ", i)
	}
	if _, ok := parseTarget([]string{members.String() + "max-age=60"}); ok {
		t.Error("a Dictionary without bounds")
	}
}

func TestControlFields(t *testing.T) { // 5.2.2.4, 5.2.2.7
	for _, c := range []struct {
		line  string
		want  []string
		whole bool
	}{
		{"public", nil, false},
		{"no-cache", nil, true},
		{`no-cache=""`, nil, true},
		{`no-cache=","`, nil, true},
		{`no-cache="a"`, []string{"A"}, false},
		{`no-cache=set-cookie`, []string{"Set-Cookie"}, false},
		{`no-cache="a, x-b ,,c"`, []string{"A", "X-B", "C"}, false},
		{`no-cache="a", no-cache="b"`, []string{"A", "B"}, false},
		{`no-cache="a", no-cache`, []string{"A"}, true},
		{`no-cache="a b"`, nil, true},
		{`no-cache="a, content-encoding"`, []string{"A", "Content-Encoding"}, true},
		{`no-cache="a`, nil, true},
	} {
		control := ParseControl([]string{c.line})
		if got := control.Fields("no-cache"); !slices.Equal(got, c.want) {
			t.Errorf("%q: fields %q, want %q", c.line, got, c.want)
		}
		if got := control.whole("no-cache"); got != c.whole {
			t.Errorf("%q: whole %v", c.line, got)
		}
	}
}

func TestTarget(t *testing.T) { // RFC 9213, 2.1; RFC 8941, 4.2.2
	for _, c := range []struct {
		lines []string
		age   int // of max-age
		ok    bool
	}{
		{[]string{"max-age=60"}, 60, true},
		{[]string{"max-age=60, no-store=?0, foo, bar=?1;x=1"}, 60, true},
		{[]string{"max-age=60;a;b=1;c=\"d\""}, 60, true},
		{[]string{`x=(1 "a" b);q=1.5, y=:YWI=:, z=1.25, max-age=60`}, 60, true},
		{[]string{`x=(), max-age=60`}, 60, true},
		{[]string{"max-age=1, max-age=60"}, 60, true}, // the last counts
		{[]string{"foo", "max-age=60"}, 60, true},
		{[]string{`no-cache="a, b", max-age=60`}, 60, true},
		{[]string{"max-age=99999999999"}, 1 << 31, true},
		{[]string{"*x=a/b:c, max-age=60"}, 60, true},
		{[]string{"max-age=-1"}, 0, true},
		{lines: []string{""}},
		{lines: []string{"max-age=60,"}},
		{lines: []string{"max-age=60, &&&&&"}},
		{lines: []string{"Max-Age=60"}},
		{lines: []string{"max-age =60"}},
		{lines: []string{"max-age= 60"}},
		{lines: []string{"max-age=60 no-store"}},
		{lines: []string{`max-age="60"`}},
		{lines: []string{"max-age=60.0"}},
		{lines: []string{"max-age=60."}},
		{lines: []string{"max-age=60.1234"}},
		{lines: []string{"max-age=-"}},
		{lines: []string{"max-age=a"}},
		{lines: []string{"max-age"}},
		{lines: []string{"max-age=1234567890123456"}},
		{lines: []string{"max-age=60, no-store=1"}},
		{lines: []string{"max-age=60, no-cache=set-cookie"}},
		{lines: []string{`max-age=60, x="\a"`}},
		{lines: []string{`max-age=60, x="a`}},
		{lines: []string{"max-age=60, x=\"\x80\""}},
		{lines: []string{"max-age=60, x=:a"}},
		{lines: []string{"max-age=60, x=?2"}},
		{lines: []string{"max-age=60, x=(1"}},
		{lines: []string{"max-age=60, x=(1\"a\")"}},
		{lines: []string{"max-age=60;A"}},
		{lines: []string{"max-age=60, x;y="}},
	} {
		control, ok := parseTarget(c.lines)
		d, _ := control.Seconds("max-age")
		if ok != c.ok || d != sec(c.age) {
			t.Errorf("%q: %v %v, want %v %v", c.lines, d, ok, sec(c.age), c.ok)
		}
	}
}

func TestSurrogate(t *testing.T) { // Edge Architecture 1.0, 2.2
	for _, c := range []struct {
		line       string
		age, stale int
		ok         bool
	}{
		{"max-age=60", 60, 0, true},
		{"MaX-aGe=60, foo", 60, 0, true},
		{"max-age=60;us", 60, 0, true},
		{"max-age=60;", 60, 0, true},
		{"max-age=60;them", 0, 0, false},
		{"max-age=60, max-age=30;us, max-age=5;them", 30, 0, true},
		{"max-age=60+30", 60, 30, true},
		{`content="a;b, max-age=5", max-age=60`, 60, 0, true},
		{"max-age =60", 0, 0, true},
	} {
		control := parseSurrogate([]string{c.line}, "us")
		d, ok := control.Seconds("max-age")
		stale, _ := control.Seconds("stale-if-error")
		if ok != c.ok || d != sec(c.age) || stale != sec(c.stale) {
			t.Errorf("%q: %v+%v %v", c.line, d, stale, ok)
		}
	}
}
