package websocket

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/record"
)

func ownMetrics() []record.Metric {
	return []record.Metric{
		{Key: cpuMetric, Name: "CPU time per connection", Unit: "ns", Decides: true, About: "of the server, user and kernel, for connecting, upgrading, one echo and closing; not the time that a client waits"},
		{Key: rssMetric, Name: "resident memory per connection", Unit: "bytes", Decides: true, About: "of the server, while all connections are open and after one echo on each; without what the kernel holds"},
		{Key: "step_ns", Name: "duration of the step", Unit: "ns", About: "opening, echoing and closing of all connections, clients and servers on the same cores"},
		{Key: "succeeded", Name: "connections that succeeded", Higher: true},
		{Key: "failed", Name: "connections that failed"},
		{Key: "connect_p50_ns", Name: "median time to connect", Unit: "ns"},
		{Key: "connect_p99_ns", Name: "99th percentile of the time to connect", Unit: "ns"},
		{Key: "upgrade_p50_ns", Name: "median time to upgrade", Unit: "ns"},
		{Key: "upgrade_p99_ns", Name: "99th percentile of the time to upgrade", Unit: "ns"},
		{Key: "echo_p50_ns", Name: "median time of an echo", Unit: "ns"},
		{Key: "echo_p99_ns", Name: "99th percentile of the time of an echo", Unit: "ns"},
	}
}

// The metrics that get verdicts.
const (
	cpuMetric = "cpu_ns_per_connection"
	rssMetric = "rss_bytes_per_connection"
)

// stepFigures are what an arm did at one number of connections, over all rounds.
type stepFigures struct {
	arm                    string
	connections            int
	rounds                 int
	duration, cpu, rss     float64 // medians; 0: unknown
	succeeded, failed      int     // of the worst round
	first                  string  // the first error of any round
	connect, upgrade, echo load.Histogram
}

// stepsOf puts findings together, by arm and then by connections, both in the
// order in which they were first measured.
func stepsOf(found []stepFinding, arm string) []*stepFigures {
	byStep := map[int][]stepFinding{}
	for _, f := range found {
		if f.arm == arm {
			byStep[f.connections] = append(byStep[f.connections], f)
		}
	}
	steps := make([]*stepFigures, 0, len(byStep))
	for n, findings := range byStep {
		s := &stepFigures{arm: arm, connections: n, rounds: len(findings), succeeded: n}
		var duration, cpu, rss []float64
		for _, f := range findings {
			duration = append(duration, float64(f.report.Duration))
			cpu, rss = appendKnown(cpu, f.cpu), appendKnown(rss, f.rss)
			s.succeeded = min(s.succeeded, f.report.Succeeded)
			s.failed = max(s.failed, f.report.Failed)
			if s.first == "" {
				s.first = reasonOf(f)
			}
			s.connect.Merge(&f.report.connect)
			s.upgrade.Merge(&f.report.upgrade)
			s.echo.Merge(&f.report.echo)
		}
		s.duration, s.cpu, s.rss = experiment.Median(duration), experiment.Median(cpu), experiment.Median(rss)
		steps = append(steps, s)
	}
	slices.SortFunc(steps, func(a, b *stepFigures) int { return a.connections - b.connections })
	return steps
}

func appendKnown(figures []float64, f float64) []float64 {
	if f > 0 {
		return append(figures, f)
	}
	return figures
}

// reasonOf is why a step broke, empty when it did not.
func reasonOf(f stepFinding) string {
	switch {
	case f.died != "":
		return f.died
	case f.report.Failed > 0 && f.report.First == "":
		return "no reason was given"
	case f.report.Failed > 0:
		return f.report.First
	}
	return ""
}

// breakingPoint is the first step at which anything failed, 0 when nothing did,
// and why.
func breakingPoint(steps []*stepFigures) (connections int, why string) {
	for _, s := range steps {
		if s.failed > 0 || s.first != "" {
			return s.connections, s.first
		}
	}
	return 0, ""
}

// report adds tables, charts, gates, verdicts and sentences to the result. It
// is called once, with whatever was measured.
func (w *ramp) report() {
	if len(w.found) == 0 {
		return
	}
	w.res.Tables = append(w.res.Tables, publishedTable(w.arms, w.found), breakingTable(w.arms, w.found))
	for _, arm := range w.arms {
		if arm.placebo == "" {
			w.res.Tables = append(w.res.Tables, stepsTable(arm, stepsOf(w.found, arm.name)))
		}
	}
	w.res.Charts = append(w.res.Charts, allCharts(w.arms, w.found)...)
	w.judge()
	w.answer()
}

// claimedBreak is above how many connections the published server crashed.
const claimedBreak = 1500

// publishedTable holds what was published beside what was measured, step by step.
func publishedTable(arms []*echoServer, found []stepFinding) record.Table {
	t := record.Table{
		Title:   "Published and measured: connections that succeeded / failed",
		Lead:    true,
		About:   "Of the worst round at each step. Published was a crash above 1,500 connections, without the figures of the steps.",
		Columns: []string{"connections", "published, x/net"},
	}
	byStep := map[int]map[string]*stepFigures{}
	for _, arm := range arms {
		if arm.placebo != "" {
			continue
		}
		t.Columns = append(t.Columns, calledName(arm.name))
		for _, s := range stepsOf(found, arm.name) {
			if byStep[s.connections] == nil {
				byStep[s.connections] = map[string]*stepFigures{}
			}
			byStep[s.connections][arm.name] = s
		}
	}
	for _, n := range slices.Sorted(maps.Keys(byStep)) {
		row := []string{experiment.Count(n), "holds"}
		if n > claimedBreak {
			row[1] = "crashes"
		}
		for _, arm := range arms {
			s := byStep[n][arm.name]
			switch {
			case arm.placebo != "":
			case s == nil:
				row = append(row, "–")
			default:
				row = append(row, experiment.Count(s.succeeded)+" / "+experiment.Count(s.failed))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// breakingTable is the answer to the question in one look.
func breakingTable(arms []*echoServer, found []stepFinding) record.Table {
	t := record.Table{
		Title:   "Breaking point",
		About:   "The first number of connections at once at which any of them failed in any round.",
		Columns: []string{"arm", "breaks at", "measured up to", "rounds", "why"},
	}
	for _, arm := range arms {
		steps := stepsOf(found, arm.name)
		if len(steps) == 0 {
			continue
		}
		at, why := breakingPoint(steps)
		broke := "nowhere"
		if at > 0 {
			broke = strconv.Itoa(at)
		}
		last := steps[len(steps)-1]
		t.Rows = append(t.Rows, []string{arm.name, broke, strconv.Itoa(last.connections), strconv.Itoa(steps[0].rounds), firstLine(why)})
	}
	return t
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if line == "" {
		return "–"
	}
	return line
}

// stepsTable is one arm's, with the article's four columns first.
func stepsTable(arm *echoServer, steps []*stepFigures) record.Table {
	t := record.Table{
		Title: "Steps of " + arm.name,
		About: arm.about + ". Medians over the rounds; succeeded and failed of the worst round; percentiles over all rounds.",
		Columns: []string{
			"connections", "ns", "succeeded", "failed", "memory each", "CPU each",
			"connect p50", "p99", "upgrade p50", "p99", "echo p50", "p99",
		},
	}
	for _, s := range steps {
		row := []string{
			strconv.Itoa(s.connections), strconv.FormatFloat(s.duration, 'f', 0, 64), strconv.Itoa(s.succeeded), strconv.Itoa(s.failed),
			experiment.Known(s.rss, experiment.Bytes), experiment.Known(s.cpu, experiment.Duration),
		}
		for _, h := range []*load.Histogram{&s.connect, &s.upgrade, &s.echo} {
			row = append(row, experiment.Known(float64(h.Quantile(0.5)), experiment.Duration), experiment.Known(float64(h.Quantile(0.99)), experiment.Duration))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// allCharts are the article's two, which stand below the answer, memory, and a histogram of each phase.
func allCharts(arms []*echoServer, found []stepFinding) []record.Chart {
	connections := record.Axis{Name: "connections at once"}
	duration := record.Chart{Title: "Duration by connections", Lead: true, X: connections, Y: record.Axis{Name: "duration of the step", Unit: "ns"}}
	outcome := record.Chart{
		Title: "Succeeded and failed by connections", Lead: true, X: connections, Y: record.Axis{Name: "connections"},
		About: "Of the worst round. Where nothing failed, the lines of all arms lie on each other.",
	}
	memory := record.Chart{Title: "Memory per connection", X: connections, Y: record.Axis{Name: "resident memory per connection", Unit: "bytes"}}
	for _, arm := range arms {
		if arm.placebo != "" {
			continue
		}
		var took, good, bad, rss [][2]float64
		for _, s := range stepsOf(found, arm.name) {
			n := float64(s.connections)
			took = append(took, [2]float64{n, s.duration})
			good = append(good, [2]float64{n, float64(s.succeeded)})
			bad = append(bad, [2]float64{n, float64(s.failed)})
			if s.rss > 0 {
				rss = append(rss, [2]float64{n, s.rss})
			}
		}
		duration.Series = append(duration.Series, record.Series{Name: arm.name, Points: took})
		outcome.Series = append(outcome.Series, record.Series{Name: arm.name + " succeeded", Points: good}, record.Series{Name: arm.name + " failed", Points: bad})
		memory.Series = append(memory.Series, record.Series{Name: arm.name, Points: rss})
	}
	return append([]record.Chart{duration, outcome, memory}, phaseCharts(arms, found)...)
}

// phaseCharts draws each phase at the largest step that all arms finished.
func phaseCharts(arms []*echoServer, found []stepFinding) []record.Chart {
	n := 0
	byArm := map[string][]*stepFigures{}
	common := map[int]int{}
	for _, arm := range arms {
		byArm[arm.name] = stepsOf(found, arm.name)
		for _, s := range byArm[arm.name] {
			if s.failed == 0 {
				common[s.connections]++
			}
		}
	}
	for connections, count := range common {
		if count == len(arms) {
			n = max(n, connections)
		}
	}
	if n == 0 {
		return nil
	}
	var charts []record.Chart
	for _, phase := range []struct {
		name string
		of   func(*stepFigures) *load.Histogram
	}{
		{"connect", func(s *stepFigures) *load.Histogram { return &s.connect }},
		{"upgrade", func(s *stepFigures) *load.Histogram { return &s.upgrade }},
		{"echo", func(s *stepFigures) *load.Histogram { return &s.echo }},
	} {
		c := record.Chart{
			Title: fmt.Sprintf("Time to %s, with %d connections", phase.name, n),
			About: fmt.Sprintf("Histograms over all rounds, with %d connections busy at a time.", busyAtOnce),
			X:     record.Axis{Name: "time of one connection", Unit: "ns", Log: true}, Y: record.Axis{Name: "share of connections", Unit: "%"},
		}
		for _, arm := range arms {
			for _, s := range byArm[arm.name] {
				if s.connections == n && arm.placebo == "" {
					c.Series = append(c.Series, record.Series{Name: arm.name, Points: bins(phase.of(s))})
				}
			}
		}
		charts = append(charts, c)
	}
	return charts
}

// binsPerDecade is how many bins of a histogram's chart make a factor of ten.
const binsPerDecade = 10

// bins are a histogram's shares in percent by logarithmic bins, at their
// geometric middles.
func bins(h *load.Histogram) [][2]float64 {
	total := h.Count()
	if total == 0 {
		return nil
	}
	bin := func(ns float64) int { return int(math.Floor(math.Log10(ns) * binsPerDecade)) }
	first, last := bin(float64(h.Min())), bin(float64(h.Max()))
	counts := make([]int, last-first+1)
	// A histogram tells its quantiles: a thousand of them, evenly spread, are as
	// fine as a chart shows.
	const looks = 1000
	for i := range looks {
		at := bin(float64(h.Quantile((float64(i) + 0.5) / looks)))
		counts[min(max(at, first), last)-first]++
	}
	points := make([][2]float64, len(counts))
	for i, n := range counts {
		points[i] = [2]float64{math.Pow(10, (float64(first+i)+0.5)/binsPerDecade), float64(n) / looks * 100}
	}
	return points
}

// answer says in words what the question was about.
func (w *ramp) answer() {
	w.res.Answer = answerSentence(w.arms, w.found)
	var slowest time.Duration
	for _, f := range w.found {
		slowest = max(slowest, f.report.Duration)
	}
	w.Note("The slowest step took %s", experiment.Duration(float64(slowest)))
}
