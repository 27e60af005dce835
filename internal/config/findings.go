package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxFindings bounds what is shown of a broken file: nobody reads on after
// that many, and a log line on SIGHUP must end somewhere.
const maxFindings = 50

// shownColumns is how much of a long source line is shown, so that the caret
// stays on one row of a usual terminal.
const shownColumns = 100

// Finding is one thing that is wrong with a config.
type Finding struct {
	File         string // as it was given to Load; "" when it comes from no file
	Line, Column int    // from 1; columns count characters
	Width        int    // characters that the caret underlines
	Source       string // the line itself

	From    string // the flag or environment variable, when it comes from one
	Message string // what is wrong
	Hint    string // what to do about it; may be empty

	// Missing: the text is good, and a file or folder that it names is not here.
	Missing bool
}

// Findings are all that is wrong with a config, in the file's order.
type Findings []Finding

// Error is the whole report, as a terminal shows it: for each finding
//
//	millrace.yaml:7:20: unknown key "rot" in static
//	    7 |       /: {static: {rot: ./public}}
//	      |                    ^^^ did you mean "root"?
func (f Findings) Error() string {
	var b strings.Builder
	for i, one := range f {
		if i == maxFindings {
			fmt.Fprintf(&b, "\n… and %d more", len(f)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(one.String())
	}
	return b.String()
}

// sort puts the findings into their files' order, those from flags first.
func (f Findings) sort() {
	slices.SortStableFunc(f, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// once is the list without those that are in it twice: a job and a part of it
// may agree on what is wrong.
func (f Findings) once() Findings {
	seen := map[Finding]bool{}
	return slices.DeleteFunc(f, func(one Finding) bool {
		twice := seen[one]
		seen[one] = true
		return twice
	})
}

// String is one finding's part of the report.
func (f Finding) String() string {
	var b strings.Builder
	switch {
	case f.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: %s", f.File, f.Line, f.Column, printable(f.Message))
	case f.From != "":
		fmt.Fprintf(&b, "%s: %s", f.From, printable(f.Message))
	default:
		b.WriteString(printable(f.Message))
	}
	if f.Line == 0 || strings.TrimSpace(f.Source) == "" {
		if f.Hint != "" {
			b.WriteString("\n    " + printable(f.Hint))
		}
		return b.String()
	}
	source, column := excerpt(f.Source, f.Column)
	width := max(1, min(f.Width, utf8.RuneCountInString(source)-column+1))
	fmt.Fprintf(&b, "\n%5s | %s\n%5s | ", strconv.Itoa(f.Line), source, "")
	b.WriteString(strings.Repeat(" ", column-1) + strings.Repeat("^", width))
	switch {
	case f.Hint == "":
	case column+width+len(f.Hint) <= shownColumns:
		b.WriteString(" " + printable(f.Hint))
	default:
		fmt.Fprintf(&b, "\n%5s = %s", "", printable(f.Hint))
	}
	return b.String()
}

// excerpt is the part of a line around a column, and that column in it.
func excerpt(line string, column int) (string, int) {
	runes := []rune(printable(strings.TrimRight(line, " \t\r\n")))
	column = max(1, min(column, len(runes)+1))
	if len(runes) <= shownColumns {
		return string(runes), column
	}
	start := max(0, min(column-1-shownColumns/2, len(runes)-shownColumns))
	end := min(len(runes), start+shownColumns)
	part := string(runes[start:end])
	column -= start
	if start > 0 {
		part, column = "…"+part, column+1
	}
	if end < len(runes) {
		part += "…"
	}
	return part, column
}

// printable keeps a config from writing to the terminal what moves its cursor,
// one character for one so that columns hold. A tab becomes a space.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsPrint(r) || r == '\n':
			return r
		}
		return '\uFFFD'
	}, s)
}

// Nearest is the candidate that was probably meant by word, or "".
func Nearest(word string, candidates []string) string {
	best, found := 1+len(word)/3, ""
	if len(word) < 2 {
		return ""
	}
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c), best+1); d <= best {
			best, found = d-1, c
		}
		if len(word) >= 3 && found == "" && (strings.HasPrefix(c, word) || strings.HasPrefix(word, c) && len(c) >= 3) {
			found = c // "redirects", "head"
		}
	}
	return found
}

// maxWord bounds the work of distance; no key or host is mistyped that long.
const maxWord = 64

// distance is how many characters must be put in, left out, exchanged or
// swapped with their neighbour to make b of a (optimal string alignment). It
// may stop at limit.
func distance(a, b string, limit int) int {
	if len(a) > maxWord || len(b) > maxWord || len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// meant is a hint that names the nearest candidate, or "".
func meant(word string, candidates []string) string {
	if n := Nearest(word, candidates); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return ""
}
