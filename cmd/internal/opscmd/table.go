package opscmd

import (
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"millrace/internal/ops/dashboard"
)

const (
	gap = "  "
	// maxText is how wide a text's column may be unless there is room.
	maxText = 32
	// leastText is how narrow it becomes before a column on the right is left out, and
	// leastAddress is that for servers: of a shorter one nobody knows which it is.
	leastText    = 12
	leastAddress = 24
)

// table draws the columns of a panel that fit, the first ones for sure.
func (s *screen) table(st *styles, p *dashboard.Panel, title string, keys []string) []string {
	var lines []string
	if title != "" {
		lines = append(lines, st.title.Render(cut(title, s.width)))
	}
	if len(p.Rows) == 0 {
		return append(lines, st.dim.Render(cut(p.Empty, s.width)))
	}
	var columns []int
	for _, k := range keys {
		if at := column(p, k); at >= 0 {
			columns = append(columns, at)
		}
	}
	cells := make([][]string, 0, len(p.Rows)+1)
	var head []string
	for _, c := range columns {
		head = append(head, shortName(&p.Columns[c]))
	}
	cells = append(cells, head)
	for _, row := range p.Rows {
		var line []string
		for _, c := range columns {
			line = append(line, printable(dashboard.Show(p.Columns[c].Unit, row.Values[c])))
		}
		cells = append(cells, line)
	}
	number := func(i int) bool { return p.Columns[columns[i]].Number() }
	address := func(i int) bool { return p.Columns[columns[i]].Key == "server" }
	least := func(i int) int {
		if address(i) {
			return leastAddress
		}
		return leastText
	}
	widths := s.widths(cells, number, least)
	for i, line := range cells {
		var b strings.Builder
		for k, w := range widths {
			if k > 0 {
				b.WriteString(gap)
			}
			text := cut(line[k], w)
			if address(k) {
				text = cutAddress(line[k], w)
			}
			pad := strings.Repeat(" ", w-ansi.StringWidth(text))
			if number(k) {
				b.WriteString(pad + text)
			} else if b.WriteString(text); k < len(widths)-1 {
				b.WriteString(pad)
			}
		}
		text := strings.TrimRight(b.String(), " ")
		if i == 0 {
			lines = append(lines, st.dim.Render(text))
		} else {
			lines = append(lines, st.level(p.Rows[i-1].Level, text))
		}
	}
	return lines
}

// shortName is what a column is called where there is less room than on the page.
func shortName(c *dashboard.Column) string {
	if c.Key == "waiting" {
		return "waiting"
	}
	return c.Name
}

// widths are those of the columns that are shown, from the left.
func (s *screen) widths(cells [][]string, number func(int) bool, least func(int) int) []int {
	var widths []int
	for k := range cells[0] {
		w := 0
		for _, line := range cells {
			w = max(w, ansi.StringWidth(line[k]))
		}
		widths = append(widths, w)
	}
	sum := func() (n int) {
		for _, w := range widths {
			n += w + len(gap)
		}
		return n - len(gap)
	}
	most := func(int) int { return maxText }
	for _, least := range []func(int) int{most, least} { // texts become narrower, the widest first
		for sum() > s.width {
			at := -1
			for k, w := range widths {
				if !number(k) && w > least(k) && (at < 0 || w > widths[at]) {
					at = k
				}
			}
			if at < 0 {
				break
			}
			widths[at]--
		}
	}
	for len(widths) > 1 && sum() > s.width { // then the last columns go
		widths = widths[:len(widths)-1]
	}
	widths[0] = max(1, min(widths[0], s.width))
	return widths
}

// cut shortens a text to a width.
func cut(s string, width int) string { return ansi.Truncate(s, max(0, width), "…") }

// cutAddress shortens the address of a server to a width: first the scheme goes, then
// the end of the domain, then the middle of the host's own name, or of a socket's
// path. The port stays.
func cutAddress(s string, width int) string {
	if ansi.StringWidth(s) <= width {
		return s
	}
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	port := ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.Trim(s[i+1:], "0123456789") == "" {
		s, port = s[:i], s[i:]
	}
	room := width - len(port)
	name, domain, _ := strings.Cut(s, ".")
	switch {
	case room < leastText/2: // that says nothing
		return cut(s+port, width)
	case ansi.StringWidth(name) < room: // some of the domain stays
		return cut(s, room) + port
	case strings.HasPrefix(s, "unix:"):
		name = s
	case domain != "":
		room--
		port = "…" + port
	}
	return cutMiddle(name, room) + port
}

// cutMiddle shortens a text to a width of at least 2.
func cutMiddle(s string, width int) string {
	long := ansi.StringWidth(s)
	if long <= width {
		return s
	}
	tail := (width - 1) / 2
	end := ansi.TruncateLeft(s, long-tail, "")
	if ansi.StringWidth(end) > tail { // the cut went through a wide character, which stays
		end = ansi.TruncateLeft(s, long-tail+1, "")
	}
	return cut(s, width-tail) + end
}

// printable keeps what clients choose from commanding the terminal.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return unicode.ReplacementChar
		}
		return c
	}, s)
}
