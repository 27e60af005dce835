package auth

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPattern(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"news", "news", true},
		{"news", "news2", false},
		{"news", "", false},
		{"*", "", true},
		{"*", "anything:at all", true},
		{"**", "x", true},
		{"a*", "a", true},
		{"a*", "ba", false},
		{"*a", "ba", true},
		{"*a", "ab", false},
		{"a*a", "a", false}, // one a cannot be both
		{"a*a", "aa", true},
		{"a*b*c", "aXbYc", true},
		{"a*b*c", "acb", false},
		{"a*bb*b", "abb", false},
		{"a*bb*b", "abbb", true},
		{"a*ab*b", "aabab", true},
		{"a.c", "abc", false}, // nothing but * is special
		{"a?c", "abc", false},
		{"[ab]", "a", false},
		{`\*`, "*", false},
		{"ü*", "über", true},
	} {
		if got := parsePattern(tt.pattern).match(tt.name); got != tt.want {
			t.Errorf("%q, %q: got %v", tt.pattern, tt.name, got)
		}
	}
}

func TestFill(t *testing.T) {
	for _, tt := range []struct {
		pattern, user, name string
		want                bool
	}{
		{"user:{sub}:*", "7", "user:7:inbox", true},
		{"user:{sub}:*", "7", "user:8:inbox", false},
		{"user:{sub}:*", "", "user::inbox", false},
		{"user:{sub}:*", "*", "user:8:inbox", false},
		{"user:{sub}:*", "*", "user:*:inbox", true}, // a star in a name is a star
		{"user:{sub}:*", "7*", "user:77:inbox", false},
		{"user:{sub}:*", "7:private", "user:7:private:x", false}, // that is 7's
		{"user:{sub}", "x:y", "user:x:y", false},
		{"{sub}/in", "a/b", "a/b/in", false},
		{"{sub}", "a/b:c", "a/b:c", true},
		{"*:{sub}", "7", "any:7", true},
		{"*:{sub}", "x:7", "any:x:7", false},
		{"a:{sub}:b:{sub}", "7", "a:7:b:7", true},
		{"a:{sub}:b:{sub}", "7", "a:7:b:8", false},
		{"a:{sub}", "{sub}", "a:{sub}", true},
		{"ü{sub}ß", "x", "üxß", true},
		{"ü{sub}ß", "ß", "üßß", false},
	} {
		p, ok := parsePattern(tt.pattern).fill(tt.user)
		if got := ok && p.match(tt.name); got != tt.want {
			t.Errorf("%q for %q, %q: got %v", tt.pattern, tt.user, tt.name, got)
		}
	}
}

// FuzzPattern compares with a regular expression that says the same.
func FuzzPattern(f *testing.F) {
	f.Add("a*b*c", "aXbYc")
	f.Add("*a*a*a*b", "aaaaaaaa")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, text, name string) {
		if !utf8.ValidString(text) || !utf8.ValidString(name) || len(text) > maxPattern {
			return // regexp reads runes
		}
		parts := strings.Split(text, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		want := regexp.MustCompile(`(?s)\A` + strings.Join(parts, ".*") + `\z`).MatchString(name)
		if got := parsePattern(text).match(name); got != want {
			t.Errorf("%q, %q: got %v", text, name, got)
		}
	})
}

// FuzzFill looks for two users of whom one gets a channel of the other.
func FuzzFill(f *testing.F) {
	f.Add("user:{sub}:*", "7", "7:private", "user:7:private:x")
	f.Add("{sub}/*", "a", "a/b", "a/b/c")
	f.Add("*.{sub}.x.*", "*", "b", "a.b.x.c")
	f.Fuzz(func(t *testing.T, text, one, other, channel string) {
		if one == other || glued(text) || !strings.Contains(text, placeholder) || len(text) > maxPattern {
			return
		}
		for _, s := range []string{text, one, other, channel} {
			if !utf8.ValidString(s) {
				return // names are valid: json.Unmarshal sees to it
			}
		}
		// With wildcards on both sides one channel may hold two names.
		if at := strings.Index(text, placeholder); strings.Contains(text[:at], "*") && strings.Contains(text[at:], "*") {
			return
		}
		p, q := parsePattern(text), parsePattern(text)
		p, ok1 := p.fill(one)
		q, ok2 := q.fill(other)
		if ok1 && ok2 && p.match(channel) && q.match(channel) {
			t.Errorf("%q: %q and %q both get %q", text, one, other, channel)
		}
	})
}
