package live

import (
	"strings"
	"unicode/utf8"
)

// resetStyle ends a style.
const resetStyle = "\x1b[m"

// columns is how many columns of a terminal a character takes at most. Those
// from far away count as wide, and combining ones as one: a line may end earlier
// than it had to, and never too late. Tables of Unicode would know better, for
// 0.15 MB of program.
func columns(r rune) int {
	switch {
	case r < 0x1100, r >= 0x2010 && r <= 0x2027, r >= 0x2190 && r <= 0x21ff, r >= 0x2200 && r <= 0x22ff, r >= 0x2500 && r <= 0x259f:
		return 1 // the alphabets of Europe and the Near East; dashes, arrows, signs of mathematics, bars
	}
	return 2
}

// textWidth is how many columns a text takes. Styles take none.
func textWidth(s string) (n int) {
	for len(s) > 0 {
		if skip := styleLength(s); skip > 0 {
			s = s[skip:]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		n += columns(r)
		s = s[size:]
	}
	return n
}

// styleLength is the length of the style that a text begins with, 0 for none.
func styleLength(s string) int {
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	return strings.IndexByte(s, 'm') + 1
}

// cut shortens a line to the width. Styles behind the cut are kept: they end
// those before it.
func cut(line string, width int) string {
	var b strings.Builder
	for used := 0; len(line) > 0; {
		size := styleLength(line)
		if size == 0 {
			var r rune
			r, size = utf8.DecodeRuneInString(line)
			if used += columns(r); used > width {
				line = line[size:]
				continue
			}
		}
		b.WriteString(line[:size])
		line = line[size:]
	}
	return b.String()
}

// plainText is a text without styles.
func plainText(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if skip := styleLength(s); skip > 0 {
			s = s[skip:]
			continue
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	return b.String()
}

// wrap breaks a text without styles between words, and words that are longer
// than a line.
func wrap(text string, width int) []string {
	var lines []string
	line, used := "", 0
	for word := range strings.FieldsSeq(text) {
		need := textWidth(word)
		if line != "" && used+1+need <= width {
			line, used = line+" "+word, used+1+need
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		for need > width {
			part := cut(word, width)
			if part == "" { // a wide character on a line of one column
				_, size := utf8.DecodeRuneInString(word)
				part = word[:size]
			}
			lines = append(lines, part)
			word = word[len(part):]
			need = textWidth(word)
		}
		line, used = word, need
	}
	if line != "" || lines == nil {
		lines = append(lines, line)
	}
	return lines
}

// hang breaks a text into lines that stand beside its mark.
func hang(mark, text string, width int) []string {
	indent := textWidth(mark)
	lines := wrap(text, max(1, width-indent))
	for i, l := range lines {
		if i == 0 {
			lines[i] = mark + l
		} else {
			lines[i] = strings.Repeat(" ", indent) + l
		}
	}
	return lines
}
