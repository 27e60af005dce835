package draft

import (
	"slices"
	"testing"
)

func TestClosing(t *testing.T) {
	for text, want := range map[string]int{
		"a)b": 1, "(a)b)": 4, `\)a)`: 3, "[)]a)": 4, "[])]a)": 5, "[^])]a)": 6, `[\])]a)`: 6, "a": -1, "[)": -1, "": -1, `\`: -1, "[": -1, "[^": -1,
	} {
		if got := Closing(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestAlternatives(t *testing.T) {
	for expr, want := range map[string][]string{
		"":         {""},
		"a|b":      {"a", "b"},
		"(a|b)|c":  {"(a|b)", "c"},
		`a\|b|c`:   {`a\|b`, "c"},
		"[a|]|b":   {"[a|]", "b"},
		"[]|]|b":   {"[]|]", "b"},
		"[^]|x]|b": {"[^]|x]", "b"},
		"a|":       {"a", ""},
	} {
		if got := Alternatives(expr); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", expr, got, want)
		}
	}
}
