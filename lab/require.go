package lab

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/ops/chart"
	"millrace/lab/gate"
	"millrace/lab/record"
	"millrace/lab/stats"
)

// A Requirement is a bound for one figure of a load: "p99 < 200ms".
type Requirement struct {
	text     string
	metric   record.Metric
	below    bool // else it is above
	bound    float64
	relative bool // to the figure of an earlier result
}

// requirable are the short names of figures that a requirement may be about.
func requirable() map[string]string {
	names := map[string]string{
		"rate": "requests_per_second", "errors": "failed", "mean": "latency_mean_ns", "max": "latency_max_ns",
		"cpu": "cpu_ns", "memory": "rss_bytes", "bytes": "bytes_per_second",
	}
	for _, p := range []string{"p50", "p75", "p90", "p95", "p99", "p99.9", "p99.99"} {
		names[p] = "latency_" + p + "_ns"
	}
	return names
}

// ParseRequirement reads FIGURE < BOUND or FIGURE > BOUND. The figure is p50 to
// p99.99, mean, max, rate, errors, cpu, memory or the key of a metric. The bound is a
// time (200ms), a share (0.1 %), a number, or, with its sign, how far the figure may be
// from that of an earlier result (+10 %).
func ParseRequirement(s string) (Requirement, error) {
	r := Requirement{text: s}
	wrong := func(why string) (Requirement, error) {
		return r, fmt.Errorf("the requirement %q %s: write 'p99 < 200ms', 'errors < 0.1 %%', 'rate > 1000', or 'p99 < +10 %%' of an earlier result", s, why)
	}
	at := strings.IndexAny(s, "<>")
	if at < 0 {
		return wrong("has no < or >")
	}
	r.below = s[at] == '<'
	name, bound := strings.TrimSpace(s[:at]), strings.TrimSpace(s[at+1:])
	key, short := requirable()[name]
	if !short {
		key = name
	}
	i := slices.IndexFunc(gate.Metrics(), func(m record.Metric) bool { return m.Key == key })
	if i < 0 {
		return wrong("is about a figure that there is not")
	}
	r.metric = gate.Metrics()[i]
	var err error
	number, percent := strings.CutSuffix(bound, "%")
	switch number = strings.TrimSpace(number); {
	case percent:
		r.bound, err = strconv.ParseFloat(number, 64)
		r.bound /= 100
		r.relative = strings.HasPrefix(number, "+") || strings.HasPrefix(number, "-")
		if !r.relative && r.metric.Key != "failed" {
			return wrong("has a share for a bound, of nothing")
		}
	case r.metric.Unit == "ns":
		var d time.Duration
		d, err = time.ParseDuration(strings.ReplaceAll(bound, " ", ""))
		r.bound = float64(d)
	default:
		r.bound, err = strconv.ParseFloat(number, 64)
	}
	if err != nil || math.IsNaN(r.bound) {
		return wrong("has no bound that can be read")
	}
	return r, nil
}

// Relative reports whether it takes an earlier result to say whether it is met.
func (r Requirement) Relative() bool { return r.relative }

// Require holds a load's figures against requirements, and against those of an earlier
// result if there is one. It writes into the result what came out, also as a table, and
// returns how many requirements are not met.
func Require(res *record.Result, requirements []Requirement, earlier *record.Result) (unmet int) {
	if earlier != nil {
		res.Tables = append(res.Tables, againstTable(res, earlier))
	}
	table := record.Table{Title: "Requirements", Columns: []string{"", "requirement", "found"}}
	for _, r := range requirements {
		found, known := figure(res, r.metric.Key)
		out := record.Requirement{Text: r.text, Found: "not measured"}
		bound := r.bound
		if known {
			out.Found = written(r.metric, found)
		}
		if r.relative {
			before, ok := 0.0, false
			if earlier != nil {
				before, ok = figure(earlier, r.metric.Key)
			}
			bound, known = before*(1+r.bound), known && ok
			if ok {
				out.Found += ", before " + written(r.metric, before)
			} else {
				out.Found += ", and there is no earlier figure"
			}
		}
		out.Met = known && (r.below && found < bound || !r.below && found > bound)
		sign := "✓ met"
		if !out.Met {
			unmet++
			sign = "✗ not met"
		}
		res.Requirements = append(res.Requirements, out)
		table.Rows = append(table.Rows, []string{sign, out.Text, out.Found})
	}
	if len(table.Rows) > 0 {
		res.Tables = slices.Insert(res.Tables, 0, table)
	}
	return unmet
}

// figure is a figure of a result: the median of its samples.
func figure(res *record.Result, key string) (float64, bool) {
	var values []float64
	for _, s := range res.Samples {
		if v, ok := s.Values[key]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return 0, false
	}
	return stats.Median(values), true
}

func written(m record.Metric, v float64) string {
	if m.Key == "failed" {
		return fmt.Sprintf("%.3g %%", 100*v)
	}
	return chart.Figure(v, m.Unit)
}

// againstTable has the figures of two loads side by side.
func againstTable(res, earlier *record.Result) record.Table {
	t := record.Table{
		Title:   "Against " + earlier.Title + " of " + earlier.Started.Format(time.DateTime),
		About:   "Two runs at two times: what differs may be the machine's doing. millrace-lab compare tells.",
		Columns: []string{"", "then", "now", "change"},
	}
	for _, m := range res.Metrics {
		now, _ := figure(res, m.Key)
		then, ok := figure(earlier, m.Key)
		if !ok {
			continue
		}
		change := ""
		if then != 0 {
			change = fmt.Sprintf("%+.1f %%", 100*(now/then-1))
		}
		t.Rows = append(t.Rows, []string{m.Name, written(m, then), written(m, now), change})
	}
	return t
}
