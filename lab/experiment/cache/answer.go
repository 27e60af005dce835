package cache

import (
	"fmt"

	experiment "millrace/lab/experiment/former"
)

// answerSentence is what clients of a slow API wait, and whether they get their own
// answers.
func answerSentence(runs []loadFinding) string {
	var parts, wrong []string
	for _, f := range inOrder(runs, coldLoad) {
		if n, _ := f.wrong(); n > 0 {
			wrong = append(wrong, f.arm)
		}
		called := map[string]string{directArm: "the slow API alone", baselineArm: "the Go proxy", "nginx": "nginx", millraceName: "millrace"}[f.arm]
		if h := &f.result.Latency; called != "" && h.Count() > 0 {
			parts = append(parts, fmt.Sprintf("%s answers in %s ms on average (answers: %s)", called, ms(h.Mean()), experiment.Count(int(h.Count())))) // far below the largest int
		}
	}
	if len(parts) == 0 {
		return ""
	}
	s := "From an empty cache " + experiment.List(parts)
	if len(wrong) > 0 {
		return s + "; wrong answers came from " + experiment.List(wrong)
	}
	return s + "; no wrong answer was seen"
}
