package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"millrace/lab/record"
)

const (
	// leastWidth is the narrowest terminal that text is laid out for.
	leastWidth = 40
	// maxTextRows bounds a table on a terminal; the files have all of it.
	maxTextRows = 60
)

// Text writes a result for a terminal of some width in characters: sentences,
// the checks that failed or could not look, tables, and notes. It holds no
// control characters but line ends, wherever its texts come from.
func Text(w io.Writer, res *record.Result, width int) error {
	t := texter{width: max(width, leastWidth)}
	t.paragraph(oneLine(res.Title), "")
	passed := t.opening(res)
	t.verdicts(res)
	t.tables(res, false)
	if len(res.Tables) == 0 {
		t.medians(res)
	}
	if len(res.Notes) > 0 || len(passed) > 0 {
		t.heading("Notes", "")
	}
	for _, n := range res.Notes {
		t.paragraph("- "+oneLine(n), "  ")
	}
	if len(passed) > 0 {
		t.paragraph("- checks passed: "+strings.Join(passed, ", "), "  ")
	}
	if _, err := io.WriteString(w, t.b.String()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// opening writes what a reader wants first: whether it may be believed, the
// answer, and the tables that it rests on. Where there is an answer the verdicts
// are told by their tables; else they are told in sentences here. It returns the
// checks that passed.
func (t *texter) opening(res *record.Result) (passed []string) {
	if res.Answer == "" {
		for _, s := range Sentence(res) {
			t.paragraph(s, "  ")
		}
		return t.gates(res)
	}
	for _, s := range stamps(res) {
		t.paragraph(oneLine(s), "  ")
	}
	t.b.WriteString("\n")
	t.paragraph(oneLine(res.Answer)+".", "")
	said := []string{claimed(res.Claim)}
	if len(res.Verdicts) == 0 {
		said = oneLines(story(res))
	}
	for _, s := range said {
		if s != "" {
			t.b.WriteString("\n")
			t.paragraph(oneLine(s)+".", "  ")
		}
	}
	passed = t.gates(res)
	t.tables(res, true)
	return passed
}

// tables writes those that stand below the answer, or the others.
func (t *texter) tables(res *record.Result, lead bool) {
	for _, table := range res.Tables {
		if table.Lead != lead {
			continue
		}
		t.heading(table.Title, table.About)
		rows := append([][]string{table.Columns}, table.Rows...)
		t.table(rows, figureColumns(len(table.Columns), table.Rows))
	}
}

// A texter lays text out.
type texter struct {
	b     strings.Builder
	width int
}

// paragraph writes text in lines, those after the first with an indent.
func (t *texter) paragraph(text, indent string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > t.width:
			t.b.WriteString(line + "\n")
			line = indent + word
		default:
			line += " " + word
		}
	}
	if line != "" {
		t.b.WriteString(line + "\n")
	}
}

func (t *texter) heading(title, about string) {
	t.b.WriteString("\n")
	t.paragraph(oneLine(title), "")
	if about != "" {
		t.paragraph(oneLine(about), "")
	}
}

// gates writes those that did not pass, and returns the names of the others.
func (t *texter) gates(res *record.Result) (passed []string) {
	for _, g := range gatesByUrgency(res.Gates) {
		if g.Status == record.Passed {
			passed = append(passed, oneLine(g.Name))
			continue
		}
		s := fmt.Sprintf("%s %s %s", gateSign(g.Status), oneLine(g.Name), g.Status)
		if g.Detail != "" {
			s += ": " + oneLine(g.Detail)
		}
		if g.Limit != "" {
			s += " (allowed: " + oneLine(g.Limit) + ")"
		}
		t.paragraph(s, "  ")
	}
	return passed
}

func (t *texter) verdicts(res *record.Result) {
	if len(res.Verdicts) == 0 {
		return
	}
	var baselines []string // in the order in which verdicts name them
	for _, v := range res.Verdicts {
		if !slices.Contains(baselines, v.Baseline) {
			baselines = append(baselines, v.Baseline)
		}
	}
	for _, baseline := range baselines {
		t.against(baseline, res)
	}
}

// against writes the verdicts against one baseline.
func (t *texter) against(baseline string, res *record.Result) {
	t.heading("Verdicts against "+baseline, "")
	rows := [][]string{{"", "workload", "metric", "change", "interval", "p", "verdict"}}
	for _, v := range res.Verdicts {
		if v.Baseline != baseline {
			continue
		}
		change, interval := effect(v)
		rows = append(rows, []string{
			sign(v.Outcome) + " " + v.Arm, v.Workload, metricOf(res, v.Metric).Name,
			change, interval, pValue(v.P), outcomeReason(v),
		})
	}
	t.table(rows, []bool{3: true, 5: true, 6: false})
}

// maxTextMetrics is how many metrics stand beside each other on a terminal.
const maxTextMetrics = 5

func (t *texter) medians(res *record.Result) {
	for _, m := range medians(res) {
		t.heading("Medians, "+m.Workload.Name, "")
		rows, right := [][]string{{"arm"}}, []bool{false}
		for _, metric := range m.Metrics[:min(len(m.Metrics), maxTextMetrics)] {
			rows[0], right = append(rows[0], metric.Name), append(right, true)
		}
		for _, row := range m.Rows {
			cells := []string{row.Arm}
			for i := range len(rows[0]) - 1 {
				cells = append(cells, row.text(i, m.Metrics[i]))
			}
			rows = append(rows, cells)
		}
		t.table(rows, right)
	}
}

// table writes rows in columns, the first of them the head. Where they are too
// wide together, cells of the widest are broken between words: a figure without
// its end would be a wrong one.
func (t *texter) table(rows [][]string, right []bool) {
	if len(rows) == 0 {
		return
	}
	columns := make([]column, len(rows[0]))
	hidden := 0
	if len(rows) > maxTextRows+1 {
		hidden = len(rows) - maxTextRows - 1
		rows = rows[:maxTextRows+1]
	}
	clean := make([][]string, len(rows))
	for i, row := range rows {
		clean[i] = make([]string, len(columns))
		for j, cell := range row[:min(len(row), len(columns))] {
			clean[i][j] = shorten(oneLine(cell), t.width)
			columns[j].hold(clean[i][j])
			columns[j].right = j < len(right) && right[j]
		}
	}
	t.fit(columns)
	for _, row := range clean {
		t.row(row, columns)
	}
	if hidden > 0 {
		fmt.Fprintf(&t.b, "… and %s, see the files\n", count(hidden, "more row", "more rows"))
	}
}

// A column is how wide one is, and how narrow it may become.
type column struct {
	width, word int // of the longest cell, of the longest word in any
	right       bool
}

func (c *column) hold(cell string) {
	c.width = max(c.width, utf8.RuneCountInString(cell))
	for _, word := range words(cell) {
		c.word = max(c.word, utf8.RuneCountInString(word))
	}
}

// row writes one row, as many lines high as its highest cell.
func (t *texter) row(cells []string, columns []column) {
	broken, height := make([][]string, len(cells)), 1
	for j, cell := range cells {
		broken[j] = wrap(cell, columns[j].width)
		height = max(height, len(broken[j]))
	}
	for k := range height {
		line := ""
		for j, c := range columns {
			text := ""
			if k < len(broken[j]) {
				text = broken[j][k]
			}
			pad := strings.Repeat(" ", max(0, c.width-utf8.RuneCountInString(text)))
			if c.right {
				text, pad = pad+text, ""
			}
			line += text + pad + "  "
		}
		t.b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// words splits a text where a line may end: not before a unit, after a sign, or
// within the brackets of an interval.
func words(text string) []string {
	var out []string
	open := false
	for word := range strings.FieldsSeq(text) {
		if n := len(out); n > 0 && (open || strings.HasPrefix(word, "%") || out[n-1] == "<") {
			out[n-1] += " " + word
		} else {
			out = append(out, word)
		}
		switch last := out[len(out)-1]; {
		case strings.HasPrefix(last, "["):
			open = !strings.HasSuffix(last, "]") && len(last) < 3*maxTogether
		case strings.HasPrefix(last, "("):
			open = !strings.HasSuffix(last, ")") && len(last) < maxTogether
		default:
			open = false
		}
	}
	return out
}

// maxTogether bounds a bracket that stays on one line: "(−21.8 %)", not a remark.
const maxTogether = 16

// wrap breaks a text between words into lines of at most width characters; a
// longer word has a line of its own.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range words(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// fit takes width away from the widest columns until the line is as wide as
// the terminal, or every column is as narrow as its longest word.
func (t *texter) fit(columns []column) {
	for {
		total, widest := -2, -1
		for j, c := range columns {
			total += c.width + 2
			if c.width > c.word && (widest < 0 || c.width > columns[widest].width) {
				widest = j
			}
		}
		if total <= t.width || widest < 0 {
			return
		}
		columns[widest].width--
	}
}
