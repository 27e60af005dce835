package plan

import (
	"regexp"
	"slices"
	"testing"
)

// TestLookahead: what RE2 cannot say is said in another way, or not at all.
func TestLookahead(t *testing.T) {
	for expr, paths := range map[string]map[string]bool{
		`/\.(?!well-known)`:            {"/.env": true, "/.well-known/x": false, "/.well": true, "/.": true, "/.well-knowN": true, "/.well-known/.git": true, "/a/.b": true, "/a.b": false},
		`/\.(?!well-known).*`:          {"/.git/config": true, "/.well-known": false, "/.wex": true},
		`(^|/)\.(?!well-known\/)`:      {"/.well-known": true, "/.well-known/": false},
		`^(/\.(?!well-known).*|/Tag)$`: {"/.well-known/x": false, "/.git": true, "/Tag": true, "/Tags": false},
		`^(/\.(?!a).*|/Tag)$|^/b$`:     {"/.x": true, "/.a": false, "/b": true, "/bc": false},
		`\.(?!jpg|png)`:                {"/a.jpg": false, "/a.gif": true, "/a.png": false, "/a.pn": true},
	} {
		got, err := Expression(expr, false)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		for path, want := range paths {
			if regexp.MustCompile(got).MatchString(path) != want {
				t.Errorf("%s as %s: %s is %v", expr, got, path, !want)
			}
		}
	}
	for _, expr := range []string{`/\.(?!well-known)\.php`, `a(?!b$)c`, `(?<!a)b`, `/(?!a+)x`, `(/(?!a)b)c`, `(?!`, `/(?!a)(?!b)`} {
		if got, err := Expression(expr, false); err == nil {
			t.Errorf("%s became %s", expr, got)
		}
	}
	rest, except, ok := Excepting(`^/(?!index|ocs\/v[12]|updater\/.+).*\.php`)
	if !ok || rest != `^/.*\.php` || except != `^/(?:index|ocs\/v[12]|updater\/.+)` {
		t.Error(rest, except, ok)
	}
	for text, paths := range map[string]map[string]bool{
		`/\.(?!well-known)`:      {"/.env": true, "/.well-known/x": false, "/.well": true, "/.": true, "/.well-known/.git": true, "/a/.b": true, "/a.b/": false, "/": false, "/.git/.well-known": true, "/.well-known/a/.well-known": false},
		`(^|/)\.(?!(?:a|b-c)).*`: {"/.a": false, "/.b": true, "/.b-c/x": false, "/.b-c/.x": true},
	} {
		rest, except, ok := Excepting(text)
		if !ok {
			t.Errorf("%s looks ahead", text)
		}
		for path, want := range paths {
			if got := regexp.MustCompile(rest).MatchString(path) && !regexp.MustCompile(except).MatchString(path); got != want {
				t.Errorf("%s as %s except %s: %s is %v", text, rest, except, path, got)
			}
		}
	}
	for _, expr := range []string{`/(?!a)`, `/\.(?!a/)`, `/\.(?!a).b`, `^/a*(?!b)`, `^/(a|b)(?!c)`, `^/[a](?!b)`} {
		if rest, except, ok := Excepting(expr); ok {
			t.Errorf("%s became %s except %s", expr, rest, except)
		}
	}
}

// TestWider: what an expression looks for before and behind is left out.
func TestWider(t *testing.T) {
	for expr, want := range map[string]string{`/(a|(?<!x/)b(?!\w+)|c)`: `/(a|b|c)`, `^/(?=a)[^/]+(?<=b(c))$`: `^/[^/]+$`, `/(?:a)(?<name>b)`: `/(?:a)(?<name>b)`, `a(?!`: `a(?!`} {
		if got := Wider(expr); got != want {
			t.Errorf("%s became %s, want %s", expr, got, want)
		}
	}
}

// TestMayMatch: which expressions may match a path by its beginning.
func TestMayMatch(t *testing.T) {
	for _, c := range []struct {
		expr, begins string
		want         bool
	}{
		{`^/(?:config|data)(?:$|/)`, "/index.php", false},
		{`^/(?:config|data)(?:$|/)`, "/con", true},
		{`^/(?:config|data)(?:$|/)`, "/data/x", true},
		{`(?i)^/INDEX\.php`, "/index.php", true},
		{`\.php$`, "/index", true},
		{`^/a.*b$`, "/a/c", true},
		{`(`, "/a", true},
	} {
		if got := MayMatch(c.expr, c.begins); got != c.want {
			t.Errorf("%s, %s: %v", c.expr, c.begins, got)
		}
	}
}

// TestWords: which expressions are for a few texts.
func TestWords(t *testing.T) {
	for expr, want := range map[string][]string{
		`^(www\.)?a\.(org|com)$`: {"www.a.org", "www.a.com", "a.org", "a.com"},
		`(?i)^A[12]$`:            {"a1", "a2"},
		`^a$|^b$`:                {"a", "b"},
		`^a|b$`:                  nil, // ^a matches more
		`^\S\.a$`:                nil,
		`^a+$`:                   nil,
		`a$`:                     nil,
	} {
		if got, ok := Words(expr); ok != (want != nil) || ok && !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", expr, got, ok)
		}
	}
}
