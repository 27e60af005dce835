package report

import (
	"encoding/json"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/ops/chart"
	"millrace/lab/record"
)

// A reduction is how much of a result a page shows. Zero means no limit.
type reduction struct {
	points   int  // of a line
	wideOnly bool // no second, narrow image of lines
	series   int  // of a chart
	charts   int
	tables   int
	rows     int // of a table, and verdicts
	arms     int // and workloads, metrics, gates and notes
	text     int // characters of any text
}

// reductions are tried one after the other until the page is small enough. The
// last bounds it: 4 tables of 40 rows, 60 verdicts in plots and table and
// everything else come to 300 KB at most (TestSize).
var reductions = []reduction{
	{points: 400},
	{points: 200},
	{points: 120, wideOnly: true},
	{points: 100, wideOnly: true, series: 12, charts: 24, tables: 24, rows: 200, arms: 100, text: 1000},
	{points: 60, wideOnly: true, series: 8, charts: 12, tables: 12, rows: 100, arms: 40, text: 300},
	{points: 40, wideOnly: true, series: 6, charts: 6, tables: 4, rows: 40, arms: 24, text: 100},
}

// tableColumns bounds the columns of a table where rows are bounded, too.
const tableColumns = 16

// reduced is a copy of a result with what a reduction allows, and what it left
// out.
func reduced(res *record.Result, t reduction) (*record.Result, []string) {
	c := *res
	var notes []string
	if t.arms == 0 {
		return &c, nil
	}
	note := func(hidden int, one, many string) {
		if hidden > 0 {
			notes = append(notes, count(hidden, one, many))
		}
	}
	c.Arms, c.Workloads = cutList(res.Arms, t.arms), cutList(res.Workloads, t.arms)
	c.Metrics, c.Gates, c.Notes = cutList(res.Metrics, t.arms), cutList(gatesByUrgency(res.Gates), t.arms), cutList(res.Notes, t.arms)
	note(len(res.Arms)-len(c.Arms), "arm", "arms")
	note(len(res.Workloads)-len(c.Workloads), "workload", "workloads")
	note(len(res.Metrics)-len(c.Metrics), "metric", "metrics")
	note(len(res.Gates)-len(c.Gates), "check", "checks")
	note(len(res.Notes)-len(c.Notes), "note", "notes")
	c.Verdicts, c.Tables, c.Charts = cutList(res.Verdicts, t.rows), cutList(res.Tables, t.tables), cutList(res.Charts, t.charts)
	note(len(res.Verdicts)-len(c.Verdicts), "verdict", "verdicts")
	note(len(res.Tables)-len(c.Tables), "table", "tables")
	note(len(res.Charts)-len(c.Charts), "chart", "charts")
	rows, series := 0, 0
	for i := range c.Tables {
		table := &c.Tables[i]
		table.Columns = cutList(table.Columns, tableColumns)
		rows += len(table.Rows)
		table.Rows = cutList(table.Rows, t.rows)
		rows -= len(table.Rows)
		for j := range table.Rows {
			table.Rows[j] = cutList(table.Rows[j], len(table.Columns))
		}
	}
	for i := range c.Charts {
		series += len(c.Charts[i].Series)
		c.Charts[i].Series = cutList(c.Charts[i].Series, t.series)
		series -= len(c.Charts[i].Series)
	}
	note(rows, "row of tables", "rows of tables")
	note(series, "line of charts", "lines of charts")
	return cutTexts(&c, t.text), notes
}

// cutList is a copy of a list with at most n of its elements.
func cutList[T any](list []T, n int) []T { return slices.Clone(list[:min(len(list), n)]) }

// cutTexts is a copy of a result in which no text is longer than n characters.
// Figures, which may be very many, are not copied.
func cutTexts(res *record.Result, n int) *record.Result {
	bare := *res
	bare.Samples, bare.Charts = nil, slices.Clone(res.Charts)
	for i := range bare.Charts {
		bare.Charts[i].Series = slices.Clone(bare.Charts[i].Series)
		for j := range bare.Charts[i].Series {
			bare.Charts[i].Series[j].Points = nil
		}
	}
	var tree any
	data, err := json.Marshal(bare)
	if err == nil {
		err = json.Unmarshal(data, &tree)
	}
	if err == nil {
		data, err = json.Marshal(cutTree(tree, n))
	}
	c := new(record.Result)
	if err != nil || json.Unmarshal(data, c) != nil { // never: it was JSON before
		return res
	}
	c.Samples = res.Samples
	for i := range c.Charts {
		for j := range c.Charts[i].Series {
			c.Charts[i].Series[j].Points = res.Charts[i].Series[j].Points
		}
	}
	return c
}

func cutTree(v any, n int) any {
	switch v := v.(type) {
	case string:
		return shorten(v, n)
	case []any:
		for i := range v {
			v[i] = cutTree(v[i], n)
		}
	case map[string]any:
		for key, inner := range v {
			v[key] = cutTree(inner, n)
		}
	}
	return v
}

// weight is about how many bytes of a page a result's texts take, so that one
// that is far too large is not drawn to find that out.
func weight(res *record.Result) int {
	const row = 400 // of a verdict: a table's row and two rows of plots
	n := len(res.Verdicts) * row
	add := func(texts ...string) {
		for _, t := range texts {
			n += len(t)
		}
	}
	for _, v := range res.Verdicts {
		add(v.Sentence, v.Arm, v.Workload)
	}
	for _, t := range res.Tables {
		for _, r := range t.Rows {
			add(r...)
		}
	}
	for _, g := range res.Gates {
		add(g.Name, g.Detail, g.Limit)
	}
	for _, a := range res.Arms {
		add(a.Name, a.About, a.Skipped)
		add(a.Command...)
	}
	add(res.Notes...)
	add(res.Command...)
	add(res.Machine.Tools...)
	add(res.Title, res.Claim, res.Question, res.Rule)
	return n
}

// A rawReduction is how much of the raw data a page holds.
type rawReduction struct {
	points  int // of a line
	samples int // evenly over the run
}

// rawReductions are tried in turn, after all of it, until it fits.
var rawReductions = []rawReduction{{2000, 5000}, {1000, 2000}, {500, 1000}, {250, 500}, {120, 200}, {60, 50}, {30, 0}}

// rawData is the result as JSON in at most room bytes, safe within a script
// element: the whole of it where it fits, else with fewer points and samples.
func rawData(whole, small *record.Result, room int) (raw template.JS, complete bool) {
	if data, ok := marshalWithin(whole, room); ok {
		return data, true
	}
	for _, res := range []*record.Result{whole, small} {
		for _, t := range rawReductions {
			if data, ok := marshalWithin(reduceRaw(res, t), room); ok {
				return data, false
			}
		}
	}
	return "{}", false
}

// The least bytes that a point and a sample take in JSON.
const (
	pointBytes  = 6
	sampleBytes = 60
)

// escapeMarks keeps marks of direction in the data that a page may not show.
var escapeMarks = strings.NewReplacer(
	"\u202a", `\u202a`, "\u202b", `\u202b`, "\u202c", `\u202c`, "\u202d", `\u202d`, "\u202e", `\u202e`,
	"\u2066", `\u2066`, "\u2067", `\u2067`, "\u2068", `\u2068`, "\u2069", `\u2069`, "\u007f", `\u007f`,
)

// marshalWithin writes a result as JSON if that fits. json.Marshal escapes <, >
// and &, so that no text can end the script element.
func marshalWithin(res *record.Result, room int) (template.JS, bool) {
	least := len(res.Samples)*sampleBytes + weight(res)/2
	for _, c := range res.Charts {
		for _, s := range c.Series {
			least += len(s.Points) * pointBytes
		}
	}
	if least > room {
		return "", false
	}
	data, err := json.Marshal(res)
	if err != nil || len(data) > room {
		return "", false
	}
	return template.JS(escapeMarks.Replace(string(data))), true // escaped by json.Marshal
}

func reduceRaw(res *record.Result, t rawReduction) *record.Result {
	c := *res
	c.Samples = nil
	for i := range min(len(res.Samples), t.samples) {
		c.Samples = append(c.Samples, res.Samples[i*len(res.Samples)/min(len(res.Samples), t.samples)])
	}
	c.Charts = slices.Clone(res.Charts)
	for i := range c.Charts {
		c.Charts[i].Series = slices.Clone(c.Charts[i].Series)
		for j := range c.Charts[i].Series {
			s := &c.Charts[i].Series[j]
			s.Points = slices.Clone(chart.Downsample(s.Points, t.points))
			for k, p := range s.Points {
				s.Points[k] = [2]float64{fiveDigits(p[0]), fiveDigits(p[1])}
			}
		}
	}
	return &c
}

func fiveDigits(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	if err != nil {
		return v
	}
	return r
}
