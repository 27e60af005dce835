package embed

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/trial"
)

const (
	// curveSubject is the key of nethttp-embed with the curve's files in it.
	curveSubject = "nethttp-embed with files of many sizes"
	// curveConnections are few: what a byte costs is asked, not what a
	// connection does.
	curveConnections = 50
	// apart is how far two medians of the curve must differ before one way is
	// called cheaper: few slots stand behind each, so less may be chance.
	apart = 0.1
)

// curveSizes are the lengths in bytes of the files on the curve.
func curveSizes(mode record.Mode) []int {
	if mode == record.Quick {
		return []int{512, 2 << 10, 8 << 10, 64 << 10, 1 << 20}
	}
	var sizes []int
	for size := 512; size <= 1<<20; size *= 2 {
		sizes = append(sizes, size)
	}
	return sizes
}

// curveArms are the ways of serving on the curve.
func (m *measurement) curveArms(ctx context.Context) []trial.Arm {
	arms := []trial.Arm{
		m.subjectArm(base, "", ""),
		m.Arm(embeddedArm, "", m.Subject(curveSubject, "", siteArgs(embeddedArm))),
		m.Arm("millrace-disk", "", m.Millrace(false)),
		m.Arm(packedArm, "", m.packed),
		m.Arm("nginx", "", m.Nginx(ctx, "")),
	}
	if m.Env.Mode == record.Full {
		arms = append(arms, m.subjectArm("fasthttp-disk", fasthttpModule, ""))
	}
	return arms
}

func sizeName(size int) string {
	if size < 1<<10 {
		return fmt.Sprintf("%g KB", float64(size)/(1<<10))
	}
	if size < 1<<20 {
		return fmt.Sprintf("%d KB", size>>10)
	}
	return fmt.Sprintf("%d MB", size>>20)
}

// curve measures what a request costs by the size of its answer, in a trial of
// its own without verdicts, and adds samples, charts and a table to res.
func (m *measurement) curve(ctx context.Context, res *record.Result, budget time.Duration, watch record.Watch) ([]record.Series, error) {
	plan := trial.Plan{
		Arms: m.curveArms(ctx), Blocks: []int{2}, PerRestart: 2, Placebo: "-", Seed: m.Env.Seed,
		Slot: 300 * time.Millisecond, Warmup: 50 * time.Millisecond, Budget: budget,
	}
	if m.Env.Mode == record.Full {
		plan.Blocks = []int{4}
	}
	sizeOf := map[string]int{}
	for _, size := range m.sizes {
		w := trial.Workload{
			Name: sizeName(size), About: fmt.Sprintf("GET of %s, %d connections, closed loop", sizeName(size), curveConnections),
			Load: load.Config{Paths: []string{experiment.SizedFile(size).Path}, Connections: curveConnections, Threads: 2},
		}
		sizeOf[w.Name] = size
		plan.Workloads = append(plan.Workloads, w)
	}
	got := record.Result{Started: res.Started}
	err := trial.Run(ctx, plan, &got, watch)
	mergeCurve(res, &got)
	series := curveSeries(got.Samples, plan.Arms, sizeOf)
	if len(series) > 0 {
		res.Charts = append(res.Charts, curveCharts(series)...)
		res.Tables = append(res.Tables, curveTable(series, m.sizes))
	}
	return series, err
}

// mergeCurve adds the curve's raw data and what its gates say to the whole. Its
// arms and notes are there already.
func mergeCurve(res, got *record.Result) {
	res.Samples = append(res.Samples, got.Samples...)
	res.Workloads = append(res.Workloads, got.Workloads...)
	for _, g := range got.Gates {
		g.Name = "curve: " + g.Name
		res.Gates = append(res.Gates, g)
	}
	if res.Interrupted == "" && got.Interrupted != "" {
		res.Interrupted = "the curve of sizes: " + got.Interrupted
	}
}

// curveSeries is the median CPU time per request by size, for each arm.
func curveSeries(samples []record.Sample, arms []trial.Arm, sizeOf map[string]int) []record.Series {
	var out []record.Series
	for _, a := range arms {
		line := record.Series{Name: a.Name}
		bySize := map[int][]float64{}
		least, most := math.MaxInt, 0
		for _, s := range samples {
			size, here := sizeOf[s.Workload]
			if v, ok := s.Values["cpu_ns"]; ok && here && s.Arm == a.Name {
				bySize[size] = append(bySize[size], v)
				least, most = min(least, size), max(most, size)
			}
		}
		for size := least; size <= most && most > 0; size *= 2 {
			if v := bySize[size]; len(v) > 0 {
				line.Points = append(line.Points, [2]float64{float64(size), experiment.Median(v)})
			}
		}
		if len(line.Points) > 0 {
			out = append(out, line)
		}
	}
	return out
}

func curveCharts(series []record.Series) []record.Chart {
	perByte := make([]record.Series, len(series))
	for i, s := range series {
		perByte[i].Name = s.Name
		for _, p := range s.Points {
			perByte[i].Points = append(perByte[i].Points, [2]float64{p[0], p[1] / p[0]})
		}
	}
	size := record.Axis{Name: "size of the file", Unit: "bytes", Log: true}
	return []record.Chart{
		{
			Title: "CPU time per request by size of the file", Lead: true,
			About: "Medians; 50 connections. Where lines cross, the cheaper way changes.",
			X:     size, Y: record.Axis{Name: "CPU time per request", Unit: "ns", Log: true}, Series: series,
		},
		{
			Title: "CPU time per byte by size of the file", Lead: true, About: "The same figures, divided by the size.",
			X: size, Y: record.Axis{Name: "CPU time per byte", Unit: "ns", Log: true}, Series: perByte,
		},
	}
}

// curveTable is the curve in figures, and where embedded and disk cross.
func curveTable(series []record.Series, sizes []int) record.Table {
	t := record.Table{
		Title: "CPU time per request by size of the file",
		About: "Medians in µs, without a verdict. " + crossings(series, base, embeddedArm) + " " +
			crossings(series, "millrace-disk", packedArm) + " " + crossings(series, "nginx", "millrace-disk"),
		Columns: []string{"size"},
	}
	for _, s := range series {
		t.Columns = append(t.Columns, s.Name)
	}
	for _, size := range sizes {
		row := []string{sizeName(size)}
		for _, s := range series {
			cell := "–"
			for _, p := range s.Points {
				if p[0] == float64(size) {
					cell = fmt.Sprintf("%.1f", p[1]/1e3)
				}
			}
			row = append(row, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// A stretch is a range of sizes in which one of two ways is cheaper.
type stretch struct {
	arm  string
	from float64 // bytes; of the first, the smallest size
}

// stretches say which of two ways is cheaper from which size on. Sizes at which
// they are less than [apart] from each other belong to none; measured reports
// whether there was any size with both.
func stretches(series []record.Series, a, b string) (found []stretch, measured bool) {
	first, second := pointsOf(series, a), pointsOf(series, b)
	var size, ratio float64 // of the last size that decided, as logarithms
	for x := 1.0; x <= 1<<30; x *= 2 {
		if first[x] <= 0 || second[x] <= 0 {
			continue
		}
		measured = true
		now, at := math.Log(first[x]/second[x]), math.Log2(x)
		if math.Abs(now) < math.Log1p(apart) {
			continue
		}
		cheaper := b
		if now < 0 {
			cheaper = a
		}
		switch {
		case found == nil:
			found = append(found, stretch{cheaper, x})
		case now*ratio < 0:
			// Between two sizes the logarithms are joined by a straight line.
			found = append(found, stretch{cheaper, math.Exp2(size + (at-size)*ratio/(ratio-now))})
		}
		size, ratio = at, now
	}
	return found, measured
}

// pointsOf are the points of an arm's line: CPU time by size.
func pointsOf(series []record.Series, arm string) map[float64]float64 {
	points := map[float64]float64{}
	for _, s := range series {
		if s.Name != arm {
			continue
		}
		for _, p := range s.Points {
			points[p[0]] = p[1]
		}
	}
	return points
}

// crossings says in words from which size on which of two ways is cheaper.
func crossings(series []record.Series, a, b string) string {
	found, measured := stretches(series, a, b)
	switch {
	case !measured:
		return fmt.Sprintf("Whether %s and %s cross was not measured.", a, b)
	case len(found) == 0:
		return fmt.Sprintf("There is less than %.0f %% between %s and %s at every size.", apart*100, a, b)
	case len(found) == 1:
		return fmt.Sprintf("Of %s and %s, %s is the cheaper wherever they differ by %.0f %% or more.", a, b, found[0].arm, apart*100)
	}
	text := []string{fmt.Sprintf("Of %s and %s, %s is the cheaper at %s", a, b, found[0].arm, sizeName(int(found[0].from)))}
	for _, s := range found[1:] {
		text = append(text, fmt.Sprintf("%s from about %s on", s.arm, roughly(s.from)))
	}
	return strings.Join(text, ", ") + "."
}

// roughly is a size between those that were measured.
func roughly(size float64) string {
	if size < 1<<10 {
		return "1 KB"
	}
	return sizeName(int(math.Round(size/(1<<10))) << 10)
}
