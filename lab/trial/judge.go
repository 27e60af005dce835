package trial

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"millrace/internal/ops/chart"
	"millrace/lab/gate"
	"millrace/lab/record"
	"millrace/lab/stats"
)

// defaultAlpha is the chance of any wrong verdict about one arm.
const defaultAlpha = 0.01

// judge gives verdicts about the blocks so far. It may be called again after
// more blocks: it replaces what it said before.
func (t *trial) judge() {
	t.res.Verdicts = nil
	base := t.baseline()
	if base == nil {
		return
	}
	t.chooseMetrics()
	for _, pair := range t.judged(base.Name) {
		t.res.Verdicts = append(t.res.Verdicts, t.verdicts(pair.Arm, pair.Baseline)...) // none where one was left out
	}
	for _, r := range t.runners {
		if r.Name != r.of {
			t.res.Verdicts = append(t.res.Verdicts, t.verdicts(r.Name, r.of)...)
		}
	}
}

// judged are the pairs that get verdicts, each of them once, whichever way round:
// where the planned baseline was left out, another arm stands for it, and may
// be half of a pair that was asked for by name.
func (t *trial) judged(baseline string) []Pair {
	var pairs []Pair
	for _, r := range t.runners[1:] {
		asked := slices.ContainsFunc(t.plan.Also, func(p Pair) bool { return p == Pair{baseline, r.Name} })
		if r.Name == r.of && !asked {
			pairs = append(pairs, Pair{r.Name, baseline})
		}
	}
	for _, p := range t.plan.Also {
		if !slices.Contains(pairs, p) && !slices.Contains(pairs, Pair{p.Baseline, p.Arm}) {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// chooseMetrics lists what was measured, and which of it decides.
func (t *trial) chooseMetrics() {
	t.res.Metrics = gate.Measured(t.res.Samples)
	if len(t.res.Samples) == 0 {
		return
	}
	for i, m := range t.res.Metrics {
		t.res.Metrics[i] = t.metric(m.Key)
	}
	for _, w := range t.plan.Workloads {
		for _, wanted := range t.plan.decide(w) {
			i := slices.IndexFunc(t.res.Metrics, func(m record.Metric) bool { return m.Key == wanted })
			if i < 0 {
				t.note(fmt.Sprintf("no verdict about %s: it cannot be measured here", t.metric(wanted).Name))
				continue
			}
			t.res.Metrics[i].Decides = true
		}
	}
}

// metric is the one with a key: of the plan, or of those that all have.
func (t *trial) metric(key string) record.Metric {
	for _, m := range t.plan.Metrics {
		if m.Key == key {
			m.Decides = false // what it says where it gets verdicts
			return m
		}
	}
	return gate.MetricNamed(key)
}

// differ says why answers may differ, by workload.
func (p *Plan) differ() map[string]string {
	reasons := map[string]string{}
	if p.Differ != "" {
		reasons[""] = p.Differ
	}
	for _, w := range p.Workloads {
		if w.Differ != "" {
			reasons[w.Name] = w.Differ
		}
	}
	return reasons
}

// decide are the metrics that get verdicts on a workload.
func (p *Plan) decide(w Workload) []string {
	if slices.Contains(w.Decide, NoVerdict) {
		return nil
	}
	if len(w.Decide) > 0 {
		return w.Decide
	}
	return p.Decide
}

// comparison is one metric on one workload.
type comparison struct{ workload, metric string }

func (q comparison) key() string { return q.workload + "\x00" + q.metric }

// verdicts judges one arm against another in all deciding metrics, as one
// family: Holm's adjustment is over its metrics and workloads.
func (t *trial) verdicts(arm, baseline string) []record.Verdict {
	family := map[string][]stats.Pair{}
	var questions []comparison
	workloads := t.plan.Workloads
	if t.plan.Pooled != "" {
		workloads = []Workload{{Name: t.plan.Pooled}}
	}
	for _, w := range workloads {
		for _, m := range t.res.Metrics {
			if !slices.Contains(t.plan.decide(w), m.Key) {
				continue
			}
			q := comparison{w.Name, m.Key}
			if pairs := t.pairs(q, arm, baseline); len(pairs) > 0 {
				family[q.key()] = pairs
				questions = append(questions, q)
			}
		}
	}
	rule := t.rule()
	decisions := stats.Decide(family, rule)
	out := make([]record.Verdict, 0, len(questions))
	for _, q := range questions {
		if d := decisions[q.key()]; d.Units > 1 { // one alone has no interval
			out = append(out, t.verdict(q, arm, baseline, d))
		}
	}
	return out
}

func (t *trial) rule() stats.Rule {
	r := stats.Rule{
		Delta: t.plan.Delta, Alpha: t.plan.Alpha, Seed: t.plan.Seed,
		Looks: len(t.plan.Blocks), Look: t.look, PerRestart: t.plan.PerRestart,
	}
	if t.restartsNothing() {
		r.PerRestart = 1
	}
	r.Alpha = cmp.Or(r.Alpha, defaultAlpha)
	r.Delta = cmp.Or(r.Delta, 0.01)
	return r
}

// pairs are the log-ratios of the blocks in which both arms were measured. Of all
// workloads together, each workload of a block is a unit: what is pooled brings
// servers of its own each time.
func (t *trial) pairs(q comparison, arm, baseline string) []stats.Pair {
	type unit struct {
		workload string
		block    int
	}
	pooled := q.workload == t.plan.Pooled
	below, units := map[unit]float64{}, map[unit]int{}
	for _, s := range t.res.Samples {
		u := unit{s.Workload, s.Block}
		if _, known := units[u]; !known {
			units[u] = len(units)
		}
		if v := s.Values[q.metric]; s.Arm == baseline && (pooled || s.Workload == q.workload) && v > 0 {
			below[u] = v
		}
	}
	var out []stats.Pair
	for _, s := range t.res.Samples {
		u := unit{s.Workload, s.Block}
		v, b := s.Values[q.metric], below[u]
		if s.Arm != arm || v <= 0 || b <= 0 {
			continue
		}
		p := stats.Pair{Restart: s.Restart, Block: s.Block, LogRatio: math.Log(v / b)}
		if pooled {
			p.Restart, p.Block = units[u], units[u]
		}
		out = append(out, p)
	}
	return out
}

func (t *trial) verdict(q comparison, arm, baseline string, d stats.Decision) record.Verdict {
	m := t.metric(q.metric)
	v := record.Verdict{
		Workload: q.workload, Metric: q.metric, Arm: arm, Baseline: baseline,
		Ratio: d.Ratio, Low: d.Low, High: d.High, Level: 0.95, P: d.Adjusted, Delta: t.rule().Delta,
		Blocks: d.Blocks, Restarts: d.Restarts, Outcome: outcome(d.Outcome, m.Higher), More: d.More, Why: d.Why,
	}
	if v.Outcome == record.Undecided && d.More > 0 && t.blocks > 0 {
		v.Minutes = float64(d.More) * t.elapsed().Minutes() / float64(t.blocks)
	}
	v.Sentence = Sentence(v, m)
	return v
}

func outcome(o stats.Outcome, higherIsBetter bool) record.Outcome {
	switch {
	case o == stats.Equal:
		return record.Equal
	case o == stats.Undecided:
		return record.Undecided
	case (o == stats.Above) == higherIsBetter:
		return record.Better
	}
	return record.Worse
}

// Sentence says a verdict in words. It names the metric, so that nobody takes
// instructions for latency.
func Sentence(v record.Verdict, m record.Metric) string {
	change, interval := chart.Effect(v.Ratio, v.Low, v.High)
	s := fmt.Sprintf("%s: %s %s %s for %s against %s: %s",
		v.Workload, m.Name, change, interval, v.Arm, v.Baseline, v.Outcome)
	if v.Why != "" {
		s += ", since " + v.Why
	}
	switch {
	case v.Outcome == record.Equal:
		s += fmt.Sprintf(" within ±%.3g %%", v.Delta*100)
	case v.Outcome == record.Undecided && v.More > 0:
		took := time.Duration(v.Minutes * float64(time.Minute)).Round(time.Second)
		blocks := "blocks"
		if v.More == 1 {
			blocks = "block"
		}
		s += fmt.Sprintf("; about %d more %s (%v) would probably decide it", v.More, blocks, took)
	}
	return s
}

// decided reports whether nothing is left open but the placebo, which proves
// itself by staying undecided or equal.
func (t *trial) decided() bool {
	return !slices.ContainsFunc(t.res.Verdicts, func(v record.Verdict) bool {
		return v.Outcome == record.Undecided && !strings.HasSuffix(v.Arm, placeboMark)
	})
}

// check asks the sanity gates.
func (t *trial) check() {
	t.noteRepeats()
	if len(t.slots) == 0 {
		return
	}
	limits := gate.Limits{Failures: t.plan.ErrorsExpected, FailuresOn: map[string]float64{}}
	for _, w := range t.plan.Workloads {
		if w.ErrorsExpected > 0 {
			limits.FailuresOn[w.Name] = w.ErrorsExpected
		}
	}
	t.res.Gates = append(t.res.Gates, gate.Check(t.slots, limits)...)
	t.res.Gates = append(t.res.Gates, gate.Same(t.answers, t.plan.differ()))
	if t.plan.Placebo == "-" {
		return
	}
	var placebo []record.Verdict
	for _, v := range t.res.Verdicts {
		if strings.HasSuffix(v.Arm, placeboMark) {
			placebo = append(placebo, v)
		}
	}
	t.res.Gates = append(t.res.Gates, gate.Placebo(placebo))
}
