package report

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"millrace/internal/ops/chart"
	"millrace/lab/record"
	"millrace/lab/stats"
)

// shorten cuts text to n characters, with an ellipsis.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return strings.TrimRight(string(r[:n-1]), " ") + "…"
}

// oneLine makes printable text of one line: names come from command lines and
// files, and may hold what would command a terminal or break a table.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == utf8.RuneError:
			return '\ufffd'
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// count is a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// metricOf finds a metric by its key; one that is not declared has its key as
// its name.
func metricOf(res *record.Result, key string) record.Metric {
	for _, m := range res.Metrics {
		if m.Key == key {
			return m
		}
	}
	return record.Metric{Key: key, Name: strings.ReplaceAll(key, "_", " ")}
}

// placebos are the arms that are second instances of others.
func placebos(res *record.Result) map[string]bool {
	found := map[string]bool{}
	for _, a := range res.Arms {
		if a.Placebo != "" {
			found[a.Name] = true
		}
	}
	return found
}

// effect is a verdict's change and its interval, in one unit.
func effect(v record.Verdict) (change, interval string) { return chart.Effect(v.Ratio, v.Low, v.High) }

// outcomeReason is a verdict with the reason of one that its interval does not
// explain.
func outcomeReason(v record.Verdict) string {
	if v.Outcome == record.Undecided && v.Why != "" {
		return "undecided: " + oneLine(v.Why)
	}
	return string(v.Outcome)
}

// outcomeWords is a verdict with what it needs to be understood.
func outcomeWords(v record.Verdict) string {
	switch v.Outcome {
	case record.Equal:
		if v.Delta > 0 {
			return "equal within ±" + percent(v.Delta)
		}
		return "equal"
	case record.Undecided:
		s := outcomeReason(v)
		if v.More > 0 {
			s += " (about " + count(v.More, "more block", "more blocks")
			if v.Minutes > 0 {
				s += ", " + minutes(v.Minutes)
			}
			s += ")"
		}
		return s
	}
	return string(v.Outcome)
}

func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e5)/1e3, 'f', -1, 64) + " %"
}

func minutes(m float64) string {
	if m < 1 {
		return fmt.Sprintf("%.0f s", math.Max(1, m*60))
	}
	return fmt.Sprintf("%.0f min", m)
}

// pValue is a p as it should be read: not below what it can show.
func pValue(p float64) string {
	switch {
	case p < 0.001:
		return "< 0.001"
	case p < 0.1:
		return strconv.FormatFloat(p, 'f', 3, 64)
	}
	return strconv.FormatFloat(p, 'f', 2, 64)
}

// sign is an outcome without colour, the shape of its mark in interval plots.
func sign(o record.Outcome) string {
	switch o {
	case record.Better:
		return "●"
	case record.Worse:
		return "◆"
	case record.Equal:
		return "■"
	}
	return "○"
}

// gateSign is a gate's status in one character.
func gateSign(s record.GateStatus) string {
	switch s {
	case record.Passed:
		return "✓"
	case record.Failed:
		return "✗"
	case record.Doubtful:
		return "!"
	}
	return "?"
}

// gatesByUrgency are failed gates first, then what is doubtful, then those that
// could not look.
func gatesByUrgency(gates []record.Gate) []record.Gate {
	order := map[record.GateStatus]int{record.Failed: 0, record.Doubtful: 1, record.Unknown: 2, record.Passed: 3}
	gates = slices.Clone(gates)
	sort.SliceStable(gates, func(i, j int) bool { return order[gates[i].Status] < order[gates[j].Status] })
	return gates
}

// A medianTable is what each arm measured under one workload.
type medianTable struct {
	Workload record.Workload
	Metrics  []record.Metric
	Rows     []medianRow
}

type medianRow struct {
	Arm     string
	Samples int
	Values  []float64 // by metric; NaN where it was not measured
}

// text is the figure of a column.
func (r medianRow) text(i int, m record.Metric) string { return chart.Figure(r.Values[i], m.Unit) }

// medians are the medians of all samples, one table for each workload. Metrics
// that get a verdict stand first; those that no sample has are left out.
func medians(res *record.Result) []medianTable {
	metrics := slices.Clone(res.Metrics)
	sort.SliceStable(metrics, func(i, j int) bool { return metrics[i].Decides && !metrics[j].Decides })
	values := map[[3]string][]float64{}
	samples := map[[2]string]int{}
	for _, s := range res.Samples {
		samples[[2]string{s.Workload, s.Arm}]++
		for key, v := range s.Values {
			if number(v) {
				values[[3]string{s.Workload, s.Arm, key}] = append(values[[3]string{s.Workload, s.Arm, key}], v)
			}
		}
	}
	var tables []medianTable
	for _, w := range res.Workloads {
		t := medianTable{Workload: w}
		for _, m := range metrics {
			if slices.ContainsFunc(res.Arms, func(a record.Arm) bool { return len(values[[3]string{w.Name, a.Name, m.Key}]) > 0 }) {
				t.Metrics = append(t.Metrics, m)
			}
		}
		for _, a := range res.Arms {
			n := samples[[2]string{w.Name, a.Name}]
			if n == 0 {
				continue
			}
			row := medianRow{Arm: a.Name, Samples: n}
			for _, m := range t.Metrics {
				row.Values = append(row.Values, stats.Median(values[[3]string{w.Name, a.Name, m.Key}]))
			}
			t.Rows = append(t.Rows, row)
		}
		if len(t.Rows) > 0 && len(t.Metrics) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

// isFigure reports whether a cell is a number, perhaps with a unit: such
// columns are aligned right.
func isFigure(cell string) bool {
	cell = strings.TrimLeft(strings.TrimSpace(cell), "+-−±×<>≤≥≈~( ")
	return cell != "" && cell[0] >= '0' && cell[0] <= '9'
}

// figureColumns says which columns of a table hold figures and nothing else.
func figureColumns(columns int, rows [][]string) []bool {
	right := make([]bool, columns)
	for i := range right {
		found := false
		right[i] = true
		for _, row := range rows {
			if i >= len(row) || row[i] == "" || row[i] == "–" || row[i] == "-" || row[i] == "?" {
				continue
			}
			found = true
			right[i] = right[i] && isFigure(row[i])
		}
		right[i] = right[i] && found
	}
	return right
}
