package websocket

import (
	"math"

	"millrace/lab/gate"
	"millrace/lab/record"
	"millrace/lab/stats"
	"millrace/lab/trial"
)

// alpha is the chance of any wrong verdict about one arm.
const alpha = 0.01

// judge compares the arms with the baseline over all steps that both finished
// without a failure, and checks the placebo.
func (w *ramp) judge() {
	var placebo []record.Verdict
	for _, arm := range w.arms {
		if arm.name == baselineArm {
			continue
		}
		verdicts := w.verdicts(arm.name)
		w.res.Verdicts = append(w.res.Verdicts, verdicts...)
		if arm.placebo != "" {
			placebo = append(placebo, verdicts...)
		}
	}
	w.res.Gates = append(w.res.Gates, gate.Placebo(placebo))
}

// pairsOf are the log-ratios of one figure in the blocks that both arms
// finished. Every block had servers of its own, so each is a unit.
func pairsOf(found []stepFinding, arm string, figure func(stepFinding) float64) []stats.Pair {
	base := map[int]float64{}
	for _, f := range found {
		if f.arm == baselineArm && f.report.Failed == 0 {
			base[f.block] = figure(f)
		}
	}
	var pairs []stats.Pair
	for _, f := range found {
		if v, b := figure(f), base[f.block]; f.arm == arm && f.report.Failed == 0 && v > 0 && b > 0 {
			pairs = append(pairs, stats.Pair{Restart: f.block, Block: f.block, LogRatio: math.Log(v / b)})
		}
	}
	return pairs
}

func (w *ramp) verdicts(arm string) []record.Verdict {
	family := map[string][]stats.Pair{
		cpuMetric: pairsOf(w.found, arm, func(f stepFinding) float64 { return f.cpu }),
		rssMetric: pairsOf(w.found, arm, func(f stepFinding) float64 { return f.rss }),
	}
	decisions := stats.Decide(family, stats.Rule{Delta: smallestEffect, Alpha: alpha, Seed: w.env.Seed})
	var out []record.Verdict
	for _, m := range ownMetrics() {
		d, ok := decisions[m.Key]
		if !ok || d.Units < 2 { // one block has no interval
			continue
		}
		v := record.Verdict{
			Workload: allSteps, Metric: m.Key, Arm: arm, Baseline: baselineArm, Outcome: lessIsBetter(d.Outcome),
			Ratio: d.Ratio, Low: d.Low, High: d.High, Level: 0.95, P: d.Adjusted, Delta: smallestEffect,
			Blocks: d.Blocks, Restarts: d.Restarts, More: d.More, Why: d.Why,
		}
		if d.More > 0 {
			var spent float64
			for _, f := range w.found {
				spent += f.spent.Minutes()
			}
			v.Minutes = spent / float64(max(1, w.blocks())) * float64(d.More)
		}
		v.Sentence = trial.Sentence(v, m)
		out = append(out, v)
	}
	return out
}

// blocks is how many were begun.
func (w *ramp) blocks() int {
	last := -1
	for _, f := range w.found {
		last = max(last, f.block)
	}
	return last + 1
}

// lessIsBetter is an outcome for a figure of which less is better.
func lessIsBetter(o stats.Outcome) record.Outcome {
	switch o {
	case stats.Below:
		return record.Better
	case stats.Above:
		return record.Worse
	case stats.Equal:
		return record.Equal
	}
	return record.Undecided
}
