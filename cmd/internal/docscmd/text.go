package docscmd

import (
	"bufio"
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// width is how long a line is in the terminal, in characters.
const width = 84

// plain writes a page for people: its Markdown with lines of a terminal's length, tables as
// lists, and, where bold is set, headings in bold.
func plain(w io.Writer, p *page, bold bool) error {
	out := &printer{w: bufio.NewWriter(w), bold: bold}
	lines := bufio.NewScanner(bytes.NewReader(p.source))
	lines.Buffer(nil, 1<<20)
	code := false
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			if code = !code; !code {
				out.line("")
			}
		case code:
			out.line("    " + line)
		case strings.HasPrefix(line, "|"):
			out.row(line)
		default:
			out.prose(line)
		}
	}
	return out.w.Flush() //nolint:wrapcheck // the output's
}

// printer writes lines. An error stays with its writer until Flush.
type printer struct {
	w     *bufio.Writer
	bold  bool
	heads []string // of the table that is being written; nil: there is none
	blank bool     // the last line was empty
}

func (o *printer) line(s string) {
	if s = strings.TrimRight(s, " "); s == "" && o.blank {
		return
	}
	o.blank = s == ""
	_, _ = o.w.WriteString(s + "\n")
}

// addresses are those of links to other pages and files, which nobody can follow here.
var addresses = regexp.MustCompile(`!?\[([^\]]+)\]\((?:[^):]*)\)`)

// prose writes a line that is not code.
func (o *printer) prose(line string) {
	o.heads = nil
	if strings.HasPrefix(line, "<!--") {
		return
	}
	line = addresses.ReplaceAllString(line, "$1")
	if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
		o.line("")
		o.line(o.strong(strings.ReplaceAll(strings.TrimSpace(title), "`", "")))
		return
	}
	text := strings.TrimLeft(line, " ")
	indent := strings.Repeat(" ", len(line)-len(text))
	hang := indent
	if strings.HasPrefix(text, "- ") {
		hang += "  "
	}
	o.wrapped(indent, hang, text)
}

// row writes a row of a table as its first cell, and the others below it.
func (o *printer) row(line string) {
	line = addresses.ReplaceAllString(line, "$1")
	cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, "\x00"), "| "), "|")
	for i := range cells {
		cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "\x00", "|")
	}
	switch {
	case o.heads == nil:
		o.heads = cells
		return
	case !slices.ContainsFunc(cells, func(c string) bool { return strings.Trim(c, ":- ") != "" }):
		return // the line below the heads
	}
	o.wrapped("  ", "    ", cells[0])
	for i, cell := range cells[1:] {
		if i+1 < len(o.heads) && o.heads[i+1] != "" {
			cell = o.heads[i+1] + ": " + cell
		}
		o.wrapped("      ", "      ", cell)
	}
}

// wrapped writes a text in lines of width.
func (o *printer) wrapped(first, then, text string) {
	now := first
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(now)+1+utf8.RuneCountInString(word) > width {
			o.line(now)
			now, empty = then, true
		}
		if !empty {
			now += " "
		}
		now += word
		empty = false
	}
	o.line(now)
}

// strong is a text in bold.
func (o *printer) strong(s string) string {
	if !o.bold {
		return s + "\n" + strings.Repeat("=", utf8.RuneCountInString(s))
	}
	return "\x1b[1m" + s + "\x1b[0m"
}
