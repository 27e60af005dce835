package gate

import (
	"fmt"

	"millrace/lab/record"
)

// Placebo asks whether a second instance of an arm came out as different from
// the first: then the procedure finds differences where there are none, and its
// other verdicts prove nothing. verdicts are those about placebo arms against
// their originals, and no others.
func Placebo(verdicts []record.Verdict) record.Gate {
	gate := record.Gate{Name: namePlacebo, Limit: "a second instance of an arm neither better nor worse than the first"}
	var failed []string
	widest, open := "", 0
	far := -1.0
	for _, v := range verdicts {
		text := fmt.Sprintf("%s of %s%s ÷ %s is %.4f [%.4f, %.4f], p %.2g", v.Metric, v.Arm, on(v.Workload), v.Baseline, v.Ratio, v.Low, v.High, v.P)
		if v.Outcome != record.Equal && v.Outcome != record.Undecided {
			failed = append(failed, text+": "+string(v.Outcome))
		}
		if v.Outcome == record.Undecided {
			open++
		}
		if out := max(v.High-1, 1-v.Low); out > far {
			far, widest = out, text
		}
	}
	switch {
	case len(failed) > 0:
		gate.Status, gate.Detail = record.Failed, list(failed, "; ")
	case len(verdicts) == 0:
		gate.Status, gate.Detail = record.Unknown, "there was no placebo"
	default:
		gate.Status = record.Passed
		gate.Detail = fmt.Sprintf("%d equal, %d undecided; furthest out: %s", len(verdicts)-open, open, widest)
	}
	return gate
}

func on(workload string) string {
	if workload == "" {
		return ""
	}
	return " on " + workload
}
