package live

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
)

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 5, []string{""}},
		{"one two three", 7, []string{"one two", "three"}},
		{"one two three", 100, []string{"one two three"}},
		{"abcdefgh ij", 3, []string{"abc", "def", "gh", "ij"}},
		{"日本語", 4, []string{"日本", "語"}},
		{"日本", 1, []string{"日", "本"}},
	} {
		if d := cmp.Diff(c.want, wrap(c.text, c.width)); d != "" {
			t.Errorf("%q on %d columns (-want +got):\n%s", c.text, c.width, d)
		}
	}
}

func TestCut(t *testing.T) {
	const styled = "\x1b[1mbold\x1b[m and more"
	for width, want := range map[int]string{2: "\x1b[1mbo\x1b[m", 6: "\x1b[1mbold\x1b[m a", 50: styled} {
		if got := cut(styled, width); got != want {
			t.Errorf("%d columns: %q, not %q", width, got, want)
		}
	}
	if got := plainText(styled); got != "bold and more" {
		t.Errorf("without styles: %q", got)
	}
}

// FuzzText holds widths against a library that knows Unicode: they are never less
// than what it says, so no line is longer than the terminal's.
func FuzzText(f *testing.F) {
	for _, s := range []string{"plain", "日本語", "e\u0301", "👩‍👩‍👧", "©\ufe0f 1\ufe0f\u20e3", "⌚ ▂▄ · … —", "\x1b[31mred\x1b[m", "ｆｕｌｌ"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, text string, width int) {
		if width < 2 || width > 300 || !utf8.ValidString(text) {
			t.Skip()
		}
		text = printable(text)
		if ours, theirs := textWidth(text), ansi.StringWidth(text); ours < theirs {
			t.Errorf("%q takes %d columns, not %d", text, theirs, ours)
		}
		if got := textWidth(cut(text, width)); got > width {
			t.Errorf("%q is cut to %d columns, not %d", text, got, width)
		}
		lines := wrap(text, width)
		if got, want := strings.Join(strings.Fields(strings.Join(lines, "")), ""), strings.Join(strings.Fields(text), ""); got != want {
			t.Errorf("%q became %q", text, lines)
		}
		for _, l := range lines {
			if textWidth(l) > width {
				t.Errorf("%q is wider than %d", l, width)
			}
		}
	})
}
