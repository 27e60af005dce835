package images

import (
	"fmt"

	"millrace/internal/ops/chart"
	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
)

// gains is what the profile changes, by workload, as the begin of a sentence.
func gains(res *record.Result) string {
	var parts []string
	for _, w := range res.Workloads {
		if v, ok := experiment.VerdictOn(res, withProfile, withoutProfile, w.Name, "cpu_ns"); ok {
			parts = append(parts, fmt.Sprintf("%s on the workload %q", experiment.Difference(v), w.Name))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "CPU time per request with the profile: " + experiment.List(parts) + "; "
}

// compared holds what was published beside what was measured.
func (p *proof) compared(res *record.Result) record.Table {
	t := record.Table{
		Title: "Published and measured", Lead: true, About: "CPU time per request is the median over all blocks; the change is that of the verdict, block by block.",
		Columns: []string{"", "what", "without a profile", "with it", "change"},
	}
	if p.itself() {
		t.Rows = [][]string{
			{"published", "a whole run, once", "104.92 s", "99 s", "−5.6 %"},
			{"published", "ab -k -c 5 -n 20000, a request, once", "0.022 ms", "0.020 ms", "−9.1 %"},
		}
	}
	for _, w := range res.Workloads {
		v, ok := experiment.VerdictOn(res, withProfile, withoutProfile, w.Name, "cpu_ns")
		if !ok {
			continue
		}
		t.Rows = append(t.Rows, []string{
			"measured", "CPU time per request, " + w.Name, experiment.Duration(experiment.MedianOf(res, withoutProfile, w.Name, "cpu_ns")),
			experiment.Duration(experiment.MedianOf(res, withProfile, w.Name, "cpu_ns")), chart.Change(v.Ratio) + ", " + string(v.Outcome),
		})
	}
	return t
}
