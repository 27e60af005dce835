package report

import (
	"bytes"
	"fmt"
	"strings"

	"millrace/lab/record"
)

// TableInto replaces what stands between <!-- lab:MARKER --> and
// <!-- /lab:MARKER --> in a Markdown file, each on a line of its own. It fails
// where they are missing, stand there twice or in the wrong order: a table that
// lands elsewhere would destroy text.
func TableInto(readme []byte, marker, table string) ([]byte, error) {
	begin, end := "<!-- lab:"+marker+" -->", "<!-- /lab:"+marker+" -->"
	if strings.Contains(table, begin) || strings.Contains(table, end) {
		return nil, fmt.Errorf("the table itself holds %s", begin)
	}
	for _, mark := range []string{begin, end} {
		switch n := bytes.Count(readme, []byte(mark)); {
		case n == 0:
			return nil, fmt.Errorf("%s is missing: put it where the table shall stand, with %s after it", mark, end)
		case n > 1:
			return nil, fmt.Errorf("%s stands there %d times", mark, n)
		}
	}
	from := bytes.Index(readme, []byte(begin)) + len(begin)
	to := bytes.Index(readme, []byte(end))
	if to < from {
		return nil, fmt.Errorf("%s stands before %s", end, begin)
	}
	var b bytes.Buffer
	b.Write(readme[:from])
	b.WriteString("\n" + strings.Trim(table, "\n") + "\n")
	b.Write(readme[to:])
	return b.Bytes(), nil
}

// SummaryTable is a Markdown table of the verdicts of several results about
// millrace, or of all verdicts of a result that has none such. Every one of
// them is a row: those in which millrace loses in bold. A void result has one
// row that says so, and no figures.
func SummaryTable(results []*record.Result) string {
	var rows [][]string
	for _, res := range results {
		rows = append(rows, summaryRows(res)...)
	}
	columns := []string{"measurement", "workload", "metric", "arm", "against", "change", "interval", "verdict"}
	return markdownTable(columns, rows, []bool{5: true, 7: false}, func(s string) string { return s })
}

func summaryRows(res *record.Result) [][]string {
	name := md(res.Name) + ", " + res.Started.UTC().Format("2006-01-02")
	for _, g := range res.Gates {
		if g.Status == record.Failed {
			return [][]string{{name, "", "", "", "", "", "", "void: " + md(g.Name)}}
		}
	}
	if res.Interrupted != "" {
		name += ", interrupted"
	}
	isPlacebo := placebos(res)
	var ours, all [][]string
	for _, v := range res.Verdicts {
		if isPlacebo[v.Arm] || isPlacebo[v.Baseline] {
			continue
		}
		words := sign(v.Outcome) + " " + md(outcomeWords(v))
		if loses(v) {
			words = "**" + words + "**"
		}
		change, interval := effect(v)
		row := []string{
			name, md(v.Workload), md(metricOf(res, v.Metric).Name), md(v.Arm), md(v.Baseline),
			change, strings.NewReplacer("[", `\[`, "]", `\]`).Replace(interval), words,
		}
		all = append(all, row)
		if isOurs(v.Arm) || isOurs(v.Baseline) {
			ours = append(ours, row)
		}
	}
	if len(ours) > 0 {
		return ours
	}
	return all
}

// isOurs reports whether an arm is millrace.
func isOurs(arm string) bool { return strings.Contains(strings.ToLower(arm), "millrace") }

// loses reports whether a verdict is against millrace.
func loses(v record.Verdict) bool {
	switch {
	case isOurs(v.Arm):
		return v.Outcome == record.Worse
	case isOurs(v.Baseline):
		return v.Outcome == record.Better
	}
	return false
}
