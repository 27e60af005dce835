package report

import (
	"cmp"
	"fmt"
	"sort"
	"strings"

	"millrace/internal/ops/chart"
	"millrace/lab/record"
	"millrace/lab/stats"
)

// maxFindings is how many findings are told in sentences; the rest is in the
// table.
const maxFindings = 6

// longClaim is from how many characters on a claim is a sentence of its own.
const longClaim = 110

// A finding is one arm under one workload: the main figure and the others.
type finding struct {
	record.Verdict
	Main   record.Metric
	Others []other
}

// other is a further figure of a finding.
type other struct {
	record.Verdict
	Metric record.Metric
}

// Change is the main figure: "+6.1 %".
func (f finding) Change() string {
	change, _ := effect(f.Verdict)
	return change
}

// Range is its interval.
func (f finding) Range() string {
	_, interval := effect(f.Verdict)
	return interval
}

// Words is the verdict.
func (f finding) Words() string { return outcomeWords(f.Verdict) }

// Detail is what follows the outcome's own word.
func (f finding) Detail() string { return strings.TrimPrefix(f.Words(), string(f.Outcome)) }

// Sign is the verdict without colour.
func (f finding) Sign() string { return sign(f.Outcome) }

func (o other) String() string {
	change, interval := effect(o.Verdict)
	return o.Metric.Name + " " + change + " " + interval + ", " + outcomeReason(o.Verdict)
}

// measured says a finding without its verdict. It names the metric.
func (f finding) measured(workloads int) string {
	s := fmt.Sprintf("measured %s %s %s for %s against %s", f.Change(), f.Main.Name, f.Range(), f.Arm, f.Baseline)
	if workloads > 1 {
		s += " on " + f.Workload
	}
	if len(f.Others) > 0 {
		texts := make([]string, len(f.Others))
		for i, o := range f.Others {
			texts[i] = o.String()
		}
		s += " (" + strings.Join(texts, "; ") + ")"
	}
	return s
}

// findings are the verdicts but the placebos', one for each arm and workload,
// in the order in which the result lists those.
func findings(res *record.Result) []finding {
	isPlacebo := placebos(res)
	first := mainMetric(res)
	var found []finding
	index := map[[3]string]int{}
	for _, v := range res.Verdicts {
		if isPlacebo[v.Arm] || isPlacebo[v.Baseline] {
			continue
		}
		m := metricOf(res, v.Metric)
		key := [3]string{v.Arm, v.Baseline, v.Workload}
		i, ok := index[key]
		switch {
		case !ok:
			index[key] = len(found)
			found = append(found, finding{Verdict: v, Main: m})
		case v.Metric == first && found[i].Main.Key != first:
			f := &found[i]
			f.Others = append([]other{{f.Verdict, f.Main}}, f.Others...)
			f.Verdict, f.Main = v, m
		default:
			found[i].Others = append(found[i].Others, other{v, m})
		}
	}
	place := map[string]int{}
	for i, a := range res.Arms {
		place["arm "+a.Name] = i
	}
	for i, w := range res.Workloads {
		place["workload "+w.Name] = i
	}
	sort.SliceStable(found, func(i, j int) bool {
		a, b := found[i], found[j]
		if a.Arm != b.Arm {
			return place["arm "+a.Arm] < place["arm "+b.Arm]
		}
		return place["workload "+a.Workload] < place["workload "+b.Workload]
	})
	return found
}

// mainMetric is the one that the claim is about, if it names one; else the
// first that has verdicts.
func mainMetric(res *record.Result) string {
	judged := map[string]bool{}
	for _, v := range res.Verdicts {
		judged[v.Metric] = true
	}
	claim := plain(res.Claim)
	first := ""
	for _, m := range res.Metrics {
		if !judged[m.Key] {
			continue
		}
		if m.Name != "" && strings.Contains(claim, plain(m.Name)) {
			return m.Key
		}
		first = cmp.Or(first, m.Key)
	}
	return first
}

// plain makes spellings of a metric comparable.
func plain(s string) string { return strings.ReplaceAll(strings.ToLower(s), " per second", "/s") }

// claimed is the claim as the begin of a sentence.
func claimed(claim string) string {
	claim = strings.TrimRight(strings.TrimSpace(claim), ".")
	if claim == "" || strings.HasPrefix(strings.ToLower(claim), "claimed") {
		return claim
	}
	if strings.ContainsAny(claim[:1], "+-−0123456789") || strings.HasPrefix(claim, "−") {
		return "claimed " + claim
	}
	return "claimed: " + claim
}

// stamps are what must be said before any figure: void, interrupted.
func stamps(res *record.Result) []string {
	var lines []string
	for _, g := range res.Gates {
		if g.Status == record.Failed {
			s := fmt.Sprintf("VOID: the check %q failed", g.Name)
			if g.Detail != "" {
				s += ": " + g.Detail
			}
			lines = append(lines, s)
		}
	}
	if len(lines) > 0 {
		lines[len(lines)-1] += "; no figure below proves anything"
	}
	if res.Interrupted != "" {
		lines = append(lines, "INTERRUPTED: "+res.Interrupted+"; what was measured until then is below")
	}
	return lines
}

// Sentence says in a few sentences the answer, what was claimed, measured and
// proved, each with the name of its metric. A void or interrupted result says so first.
func Sentence(res *record.Result) []string {
	lines := stamps(res)
	if res.Answer != "" {
		lines = append(lines, res.Answer)
	}
	return oneLines(append(lines, story(res)...))
}

// story is what was claimed, measured and proved.
func story(res *record.Result) (lines []string) {
	claim := claimed(res.Claim)
	found := findings(res)
	if len(found) == 0 {
		if claim != "" {
			claim += "; "
		}
		return oneLines(append(lines, claim+unjudged(res)))
	}
	if len([]rune(claim)) > longClaim {
		lines = append(lines, claim)
		claim = ""
	}
	for i, f := range found[:min(len(found), maxFindings)] {
		s := f.measured(len(res.Workloads)) + "; verdict: " + f.Words()
		if i == 0 && claim != "" {
			s = claim + "; " + s
		}
		lines = append(lines, s)
	}
	if more := len(found) - maxFindings; more > 0 {
		lines = append(lines, "and "+count(more, "more verdict", "more verdicts")+" in the table")
	}
	return oneLines(lines)
}

func oneLines(lines []string) []string {
	for i := range lines {
		lines[i] = oneLine(lines[i])
	}
	return lines
}

// unjudged is the sentence of a result without verdicts.
func unjudged(res *record.Result) string {
	if len(res.Samples) == 0 {
		if len(res.Tables) == 0 {
			return "nothing was measured"
		}
		return "measured: see the tables; verdict: none"
	}
	if res.Kind != record.KindLoad {
		return count(len(res.Samples), "sample", "samples") + ", shown in the tables; verdict: none"
	}
	var texts []string
	for _, h := range highlights(res) {
		texts = append(texts, h[0]+" "+h[1])
	}
	return "measured " + strings.Join(texts, ", ") + "; verdict: none, since one target alone proves no difference"
}

// highlights are the figures that somebody who loads one target wants first:
// name and value.
func highlights(res *record.Result) [][2]string {
	const most = 5
	keys := []string{"requests_per_second", "latency_p50_ns", "latency_p99_ns", "cpu_ns", "rss_bytes", "errors"}
	for _, m := range res.Metrics {
		keys = append(keys, m.Key)
	}
	var found [][2]string
	seen := map[string]bool{}
	for _, key := range keys {
		if seen[key] || len(found) == most {
			continue
		}
		seen[key] = true
		var values []float64
		for _, s := range res.Samples {
			if v, ok := s.Values[key]; ok && number(v) {
				values = append(values, v)
			}
		}
		if len(values) > 0 {
			m := metricOf(res, key)
			found = append(found, [2]string{m.Name, chart.Figure(stats.Median(values), m.Unit)})
		}
	}
	return found
}
