package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"millrace/internal/ops/chart"
	"millrace/lab/record"
	"millrace/lab/stats"
)

// The answer of an experiment is one plain sentence with its figure. It stands
// before everything else in a report, so it says what was found and never more: a
// difference only where a verdict shows it.

// VerdictOn finds a verdict.
func VerdictOn(res *record.Result, arm, baseline, workload, metric string) (record.Verdict, bool) {
	i := slices.IndexFunc(res.Verdicts, func(v record.Verdict) bool {
		return v.Arm == arm && v.Baseline == baseline && v.Workload == workload && v.Metric == metric
	})
	if i < 0 {
		return record.Verdict{}, false
	}
	return res.Verdicts[i], true
}

// Difference is a verdict as the part of a sentence: its outcome with the interval,
// "−32.8 % [−34.0 %, −31.5 %], better".
func Difference(v record.Verdict) string {
	change, interval := chart.Effect(v.Ratio, v.Low, v.High)
	switch v.Outcome {
	case record.Equal:
		return fmt.Sprintf("equal within ±%.3g %% %s", v.Delta*100, interval)
	case record.Undecided:
		if v.Why != "" {
			return fmt.Sprintf("undecided %s (%s)", interval, v.Why)
		}
		return "undecided " + interval
	case record.Better, record.Worse:
	}
	return fmt.Sprintf("%s %s, %s", change, interval, v.Outcome)
}

// MedianOf is the median of an arm's metric over all samples, 0 without any.
func MedianOf(res *record.Result, arm, workload, metric string) float64 {
	var all []float64
	for _, s := range res.Samples {
		if v, ok := s.Values[metric]; ok && s.Arm == arm && s.Workload == workload {
			all = append(all, v)
		}
	}
	return Median(all)
}

// Median is the middle of some figures, the mean of the two middle ones of an
// even number, and 0 of none.
func Median(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	return stats.Median(figures)
}

// List joins names: "a, b and c".
func List(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// Count writes a count with commas: 5,000.
func Count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Capital makes the beginning of a sentence.
func Capital(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if s == "" || strings.HasPrefix(s, "x/") || strings.HasPrefix(s, "net/http") {
		return s
	}
	return string(unicode.ToUpper(first)) + s[size:]
}

// Known shows a figure, or a dash for one that is not known.
func Known(v float64, show func(float64) string) string {
	if v <= 0 {
		return "–"
	}
	return show(v)
}

// Against is a figure and its ratio to another: "116485 (+39.5 %)". It is a dash
// where the figure is 0.
func Against(v, base, scale float64, digits int) string {
	switch {
	case v == 0:
		return "–"
	case base == 0 || v == base:
		return fmt.Sprintf("%.*f", digits, v*scale)
	}
	return fmt.Sprintf("%.*f (%s)", digits, v*scale, Change(v/base))
}

// Change is a ratio as a difference with one decimal: "+39.5 %".
func Change(ratio float64) string {
	return strings.Replace(fmt.Sprintf("%+.1f %%", (ratio-1)*100), "-", "−", 1)
}

// Duration is a duration in ns, with its unit.
func Duration(ns float64) string { return chart.Figure(ns, "ns") }

// Bytes is a size with its unit.
func Bytes(n float64) string { return chart.Figure(n, "bytes") }

// FirstLine is the first line of a text, or a dash.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return cmp.Or(line, "–")
}
