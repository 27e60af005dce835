package websocket

import (
	"fmt"

	experiment "millrace/lab/experiment/former"
)

// answerSentence is where servers broke, and what a connection costs those that held.
func answerSentence(arms []*echoServer, found []stepFinding) string {
	highest := 0
	var broken, each []string
	baseline := ""
	for _, arm := range arms {
		steps := stepsOf(found, arm.name)
		if arm.placebo != "" || len(steps) == 0 {
			continue
		}
		at, _ := breakingPoint(steps)
		last := steps[len(steps)-1]
		highest = max(highest, last.connections)
		cost := ""
		if last.rss > 0 {
			cost = fmt.Sprintf("%.1f KB", last.rss/1000)
		}
		switch {
		case at > 0:
			broken = append(broken, fmt.Sprintf("%s failed at %s connections", calledName(arm.name), experiment.Count(at)))
			if arm.name == baselineArm {
				baseline = calledName(arm.name) + ", said to break at 1,500, did not hold"
			}
		case arm.name == baselineArm:
			baseline = fmt.Sprintf("%s, said to break at 1,500, held all of them", calledName(arm.name))
			if cost != "" {
				baseline += " with " + cost + " each"
			}
		case arm.name == millraceArm && cost != "":
			each = append(each, calledName(arm.name)+" with "+cost)
		}
	}
	if highest == 0 {
		return ""
	}
	s := fmt.Sprintf("No server failed up to %s connections", experiment.Count(highest))
	if len(broken) > 0 {
		s = experiment.Capital(experiment.List(broken)) + fmt.Sprintf("; the others held %s", experiment.Count(highest))
	}
	if baseline != "" {
		s += "; " + baseline
	}
	if len(each) > 0 {
		s += ", " + each[0]
	}
	return s
}

// calledName is an arm's name as people know it.
func calledName(arm string) string {
	switch arm {
	case baselineArm:
		return "x/net"
	case arm386:
		return "x/net on 32 bits"
	}
	return arm
}
