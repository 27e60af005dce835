package report

import (
	"fmt"
	"io"
	"strings"

	"millrace/internal/ops/chart"
	"millrace/lab/record"
)

// Markdown writes a result as GitHub-flavoured Markdown, in the order of the
// page but without its charts.
func Markdown(w io.Writer, res *record.Result) error {
	m := new(markdown)
	fmt.Fprintf(&m.b, "# %s\n", md(res.Title))
	for _, s := range stamps(res) {
		m.line("\n> **" + md(s) + "**")
	}
	if res.Answer != "" {
		m.line("\n**" + md(res.Answer) + ".**")
	}
	m.tables(res, true)
	if res.Answer != "" && len(findings(res)) > 0 {
		m.heading("Claimed and measured", "")
	}
	for _, s := range story(res) {
		m.line("\n" + md(s) + ".")
	}
	m.verdicts(res)
	m.medians(res)
	m.tables(res, false)
	m.gates(res)
	m.plan(res)
	m.machine(res)
	if len(res.Notes) > 0 {
		m.heading("Notes", "")
		for _, n := range res.Notes {
			m.line("- " + md(n))
		}
	}
	if _, err := io.WriteString(w, m.b.String()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// escapeMarkdown makes text of any kind nothing but text, in a table's cell, too.
var escapeMarkdown = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", "&lt;", ">", "&gt;", "&", "&amp;",
	"|", `\|`, "[", `\[`, "]", `\]`, "#", `\#`, "~", `\~`, "$", `\$`, "!", `\!`,
)

func md(s string) string { return escapeMarkdown.Replace(oneLine(s)) }

// code is text as it was typed.
func code(s string) string {
	s = strings.ReplaceAll(oneLine(s), "|", `\|`)
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 || strings.HasPrefix(s, "`") {
		return fence + " " + s + " " + fence
	}
	return fence + s + fence
}

type markdown struct{ b strings.Builder }

func (m *markdown) line(s string) { m.b.WriteString(s + "\n") }

func (m *markdown) heading(title, about string) {
	m.line("\n## " + md(title) + "\n")
	if about != "" {
		m.line(md(about) + "\n")
	}
}

// table writes rows; cells are escaped.
func (m *markdown) table(columns []string, rows [][]string, right []bool) {
	m.b.WriteString(markdownTable(columns, rows, right, md))
}

func markdownTable(columns []string, rows [][]string, right []bool, cell func(string) string) string {
	var b strings.Builder
	b.WriteString("|")
	for _, c := range columns {
		b.WriteString(" " + cell(c) + " |")
	}
	b.WriteString("\n|")
	for i := range columns {
		if i < len(right) && right[i] {
			b.WriteString("---:|")
		} else {
			b.WriteString("---|")
		}
	}
	b.WriteString("\n")
	for _, row := range rows {
		b.WriteString("|")
		for i := range columns {
			text := ""
			if i < len(row) {
				text = cell(row[i])
			}
			b.WriteString(" " + text + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// tables writes those that stand below the answer, or the others.
func (m *markdown) tables(res *record.Result, lead bool) {
	for _, t := range res.Tables {
		if t.Lead == lead {
			m.heading(t.Title, t.About)
			m.table(t.Columns, t.Rows, figureColumns(len(t.Columns), t.Rows))
		}
	}
}

func (m *markdown) verdicts(res *record.Result) {
	if len(res.Verdicts) == 0 {
		return
	}
	m.heading("Verdicts", "Change of the arm against its baseline, with the interval of it; p is adjusted for all verdicts together.")
	var rows [][]string
	for _, v := range res.Verdicts {
		words := outcomeWords(v)
		change, interval := effect(v)
		rows = append(rows, []string{
			v.Workload, metricOf(res, v.Metric).Name, v.Arm, v.Baseline, change, interval,
			pValue(v.P), fmt.Sprintf("%d in %d", v.Blocks, v.Restarts), sign(v.Outcome) + " " + words,
		})
	}
	m.table([]string{"workload", "metric", "arm", "against", "change", "interval", "p", "blocks in restarts", "verdict"}, rows, []bool{4: true, 6: true, 7: true, 8: false})
}

func (m *markdown) medians(res *record.Result) {
	for _, t := range medians(res) {
		m.heading("Medians, "+t.Workload.Name, t.Workload.About)
		columns, right := []string{"arm"}, []bool{false}
		for _, metric := range t.Metrics {
			columns, right = append(columns, metric.Name), append(right, true)
		}
		var rows [][]string
		for _, r := range t.Rows {
			row := []string{r.Arm}
			for i, metric := range t.Metrics {
				row = append(row, r.text(i, metric))
			}
			rows = append(rows, row)
		}
		m.table(columns, rows, right)
	}
}

func (m *markdown) gates(res *record.Result) {
	if len(res.Gates) == 0 {
		return
	}
	m.heading("Checks of the measurement itself", "")
	var rows [][]string
	for _, g := range gatesByUrgency(res.Gates) {
		rows = append(rows, []string{gateSign(g.Status) + " " + string(g.Status), g.Name, g.Detail, g.Limit})
	}
	m.table([]string{"", "check", "found", "allowed"}, rows, nil)
}

func (m *markdown) plan(res *record.Result) {
	m.heading("The plan", "")
	for _, p := range [][2]string{{"Question", res.Question}, {"Claim", res.Claim}, {"Rule", res.Rule}} {
		if p[1] != "" {
			m.line("**" + p[0] + ":** " + md(p[1]) + "\n")
		}
	}
	for _, w := range res.Workloads {
		m.line("- workload **" + md(w.Name) + "**: " + md(w.About))
	}
	for _, a := range res.Arms {
		s := "- arm **" + md(a.Name) + "**: " + md(a.About)
		if a.Placebo != "" {
			s += " (placebo: a second instance of " + md(a.Placebo) + ")"
		}
		if a.Version != "" {
			s += ", " + md(a.Version)
		}
		if a.Size > 0 {
			s += ", " + chart.Figure(float64(a.Size), "bytes")
		}
		if len(a.Command) > 0 {
			s += ", " + code(commandLine(a.Command))
		}
		if a.Skipped != "" {
			s += "; **not measured:** " + md(a.Skipped)
		}
		m.line(s)
	}
}

func (m *markdown) machine(res *record.Result) {
	m.heading("The machine", "")
	for _, p := range facts(res) {
		m.line("- " + p[0] + ": " + md(p[1]))
	}
}

// facts are where and how it was measured, name and value.
func facts(res *record.Result) [][2]string {
	var found [][2]string
	add := func(name, value string) {
		if value != "" {
			found = append(found, [2]string{name, value})
		}
	}
	const when = "2006-01-02 15:04:05 MST"
	add("measured", res.Started.UTC().Format(when))
	if !res.Ended.IsZero() {
		add("took", res.Ended.Sub(res.Started).Round(1e9).String())
	}
	mode := string(res.Mode)
	add("mode", mode)
	add("by", strings.TrimSpace("millrace "+res.Version))
	add("command", commandLine(res.Command))
	add("seed", fmt.Sprint(res.Seed))
	machine := res.Machine
	cores := ""
	if machine.Cores > 0 {
		cores = count(machine.Cores, "core", "cores")
	}
	add("processor", strings.TrimPrefix(strings.TrimSuffix(machine.CPU+", "+cores, ", "), ", "))
	if machine.Memory > 0 {
		add("memory", chart.Figure(float64(machine.Memory), "bytes"))
	}
	add("kernel", machine.Kernel)
	add("Go", machine.Go)
	counters := "no, so that there are no figures of instructions"
	if machine.Counters {
		counters = "yes"
	}
	add("hardware counters", counters)
	add("tools", strings.Join(machine.Tools, ", "))
	return found
}

// commandLine quotes what a shell would take apart.
func commandLine(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\$`;&|<>(){}*?#~") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		quoted[i] = a
	}
	return strings.Join(quoted, " ")
}
