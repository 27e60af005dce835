package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"millrace/internal/chart"
	"millrace/lab/result"
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
func Text(w io.Writer, res *result.Result, width int) error {
	t := texter{width: max(width, leastWidth)}
	t.paragraph(oneLine(res.Title), "")
	for _, s := range Sentence(res) {
		t.paragraph(s, "  ")
	}
	passed := t.gates(res)
	t.verdicts(res)
	for _, table := range res.Tables {
		t.heading(table.Title, table.About)
		rows := append([][]string{table.Columns}, table.Rows...)
		t.table(rows, figureColumns(len(table.Columns), table.Rows))
	}
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

// A texter lays text out.
type texter struct {
	b     strings.Builder
	width int
}

// paragraph writes text in lines, those after the first with an indent.
func (t *texter) paragraph(text, indent string) {
	line := ""
	for _, word := range strings.Fields(text) {
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
func (t *texter) gates(res *result.Result) (passed []string) {
	for _, g := range gatesByUrgency(res.Gates) {
		if g.Status == result.Passed {
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

func (t *texter) verdicts(res *result.Result) {
	if len(res.Verdicts) == 0 {
		return
	}
	t.heading("Verdicts", "")
	rows := [][]string{{"", "arm", "against", "workload", "metric", "change", "interval", "p", "verdict"}}
	for _, v := range res.Verdicts {
		rows = append(rows, []string{
			sign(v.Outcome), v.Arm, v.Baseline, v.Workload, metricOf(res, v.Metric).Name,
			chart.Change(v.Ratio), chart.Range(v.Low, v.High), pValue(v.P), string(v.Outcome),
		})
	}
	t.table(rows, []bool{5: true, 7: true, 8: false})
}

// maxTextMetrics is how many metrics stand beside each other on a terminal.
const maxTextMetrics = 5

func (t *texter) medians(res *result.Result) {
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
// wide together, the widest are cut.
func (t *texter) table(rows [][]string, right []bool) {
	if len(rows) == 0 {
		return
	}
	widths := make([]int, len(rows[0]))
	hidden := 0
	if len(rows) > maxTextRows+1 {
		hidden = len(rows) - maxTextRows - 1
		rows = rows[:maxTextRows+1]
	}
	clean := make([][]string, len(rows))
	for i, row := range rows {
		clean[i] = make([]string, len(widths))
		for j, cell := range row[:min(len(row), len(widths))] {
			clean[i][j] = oneLine(cell)
			widths[j] = max(widths[j], utf8.RuneCountInString(clean[i][j]))
		}
	}
	t.fit(widths)
	for _, row := range clean {
		line := ""
		for j, cell := range row {
			cell = shorten(cell, max(widths[j], 1))
			pad := strings.Repeat(" ", widths[j]-min(widths[j], utf8.RuneCountInString(cell)))
			if j < len(right) && right[j] {
				cell, pad = pad+cell, ""
			}
			line += cell + pad + "  "
		}
		t.b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if hidden > 0 {
		fmt.Fprintf(&t.b, "… and %s, see the files\n", count(hidden, "more row", "more rows"))
	}
}

// fit takes width away from the widest columns until the line is as wide as
// the terminal, or no column is wide any more.
func (t *texter) fit(widths []int) {
	const narrow = 8
	for {
		total, widest := -2, 0
		for j, w := range widths {
			total += w + 2
			if w > widths[widest] {
				widest = j
			}
		}
		if total <= t.width || len(widths) == 0 || widths[widest] <= narrow {
			return
		}
		widths[widest]--
	}
}
