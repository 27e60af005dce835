package former

import (
	"slices"

	"millrace/internal/ops/chart"
	"millrace/lab/record"
)

// Beside is a table of some arms beside others: each verdict about them, with
// both medians, losses as well as gains. It stands right below the answer.
func Beside(res *record.Result, arms ...string) record.Table {
	t := record.Table{
		Title: Capital(arms[0]) + " beside the others", Lead: true,
		About:   "Medians over all blocks; change and interval are those of the verdict, block by block. What is lost is in it like what is gained.",
		Columns: []string{"workload", "figure", "arm", "", "against", "", "change", "interval", "verdict"},
	}
	placebo := func(name string) bool {
		return slices.ContainsFunc(res.Arms, func(a record.Arm) bool { return a.Name == name && a.Placebo != "" })
	}
	for _, w := range res.Workloads {
		for _, v := range res.Verdicts {
			if v.Workload != w.Name || !slices.Contains(arms, v.Arm) || placebo(v.Baseline) {
				continue
			}
			i := slices.IndexFunc(res.Metrics, func(m record.Metric) bool { return m.Key == v.Metric })
			if i < 0 {
				continue
			}
			m := res.Metrics[i]
			change, interval := chart.Effect(v.Ratio, v.Low, v.High)
			t.Rows = append(t.Rows, []string{
				w.Name, m.Name, v.Arm, chart.Figure(MedianOf(res, v.Arm, w.Name, m.Key), m.Unit),
				v.Baseline, chart.Figure(MedianOf(res, v.Baseline, w.Name, m.Key), m.Unit), change, interval, string(v.Outcome),
			})
		}
	}
	return t
}
