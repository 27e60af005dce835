package draft

import (
	"strings"
	"testing"
)

// TestCauses: a reason stands once, with all lines that it is for, and a line once with all
// of its places.
func TestCauses(t *testing.T) {
	r := &Report{}
	for _, n := range []Note{
		{"a:1", "gzip on", Defaulted, "built in"},
		{"a:2", "mirror /x", Untranslated, "not here"},
		{"b:2", "mirror /x", Untranslated, "not here"},
		{"b:3", "mirror /y", Untranslated, "not here"},
		{"b:4", "perl x", Untranslated, "no scripts"},
		{"c:1", "mirror /x", Untranslated, "not here"},
		{"d:1", "mirror /x", Untranslated, "not here"},
		{"e:1", "mirror /x", Untranslated, "not here"},
		{"b:1", "gzip on", Defaulted, "built in"},
	} {
		r.Add(n)
	}
	const want = `a:2, b:2, c:1, d:1 and 1 more: mirror /x
b:3: mirror /y
    not here
b:4: perl x
    no scripts`
	if got := strings.Join(r.UntranslatedLines(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := strings.Join(r.Defaults(), "\n"); got != "gzip (a:1), gzip (b:1):\n    built in" {
		t.Errorf("got\n%s", got)
	}
}
