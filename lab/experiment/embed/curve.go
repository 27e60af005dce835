package embed

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/experiment/fileserver"
	"millrace/lab/load"
	"millrace/lab/result"
	"millrace/lab/trial"
)

const (
	// curveSubject is the key of nethttp-embed with the curve's files in it.
	curveSubject = "nethttp-embed with files of many sizes"
	// curveConnections are few: what a byte costs is asked, not what a
	// connection does.
	curveConnections = 50
)

// curveSizes are the lengths in bytes of the files on the curve.
func curveSizes(mode result.Mode) []int {
	if mode == result.Quick {
		return []int{512, 8 << 10, 128 << 10, 1 << 20}
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
		m.Arm("nethttp-embed", "", m.Subject(curveSubject, "", fileserver.SiteArgs)),
		m.Arm("millrace-disk", "", m.Millrace(false)),
		m.Arm(packedArm, "", m.packed),
		m.Arm("nginx", "", m.Nginx(ctx, "")),
	}
	if m.Env.Mode == result.Full {
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
func (m *measurement) curve(ctx context.Context, res *result.Result, budget time.Duration, watch result.Watch) error {
	plan := trial.Plan{
		Arms: m.curveArms(ctx), Blocks: []int{2}, PerRestart: 2, Placebo: "-", Seed: m.Env.Seed,
		Slot: 300 * time.Millisecond, Warmup: 50 * time.Millisecond, Budget: budget,
	}
	if m.Env.Mode == result.Full {
		plan.Blocks = []int{4}
	}
	sizeOf := map[string]int{}
	for _, size := range m.sizes {
		w := trial.Workload{
			Name: sizeName(size), About: fmt.Sprintf("GET of %s, %d connections, closed loop", sizeName(size), curveConnections),
			Load: load.Config{Paths: []string{fileserver.SizedFile(size).Path}, Connections: curveConnections, Threads: 2},
		}
		sizeOf[w.Name] = size
		plan.Workloads = append(plan.Workloads, w)
	}
	got := result.Result{Started: res.Started}
	err := trial.Run(ctx, plan, &got, watch)
	mergeCurve(res, &got)
	series := curveSeries(got.Samples, plan.Arms, sizeOf)
	if len(series) > 0 {
		res.Charts = append(res.Charts, curveCharts(series)...)
		res.Tables = append(res.Tables, curveTable(series, m.sizes))
	}
	return err
}

// mergeCurve adds the curve's raw data and what its gates say to the whole. Its
// arms and notes are there already.
func mergeCurve(res, got *result.Result) {
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
func curveSeries(samples []result.Sample, arms []trial.Arm, sizeOf map[string]int) []result.Series {
	var out []result.Series
	for _, a := range arms {
		line := result.Series{Name: a.Name}
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

func curveCharts(series []result.Series) []result.Chart {
	perByte := make([]result.Series, len(series))
	for i, s := range series {
		perByte[i].Name = s.Name
		for _, p := range s.Points {
			perByte[i].Points = append(perByte[i].Points, [2]float64{p[0], p[1] / p[0]})
		}
	}
	size := result.Axis{Name: "size of the file", Unit: "bytes", Log: true}
	return []result.Chart{
		{
			Title: "CPU time per request by size of the file", About: "Medians; 50 connections. Where lines cross, the cheaper way changes.",
			X: size, Y: result.Axis{Name: "CPU time per request", Unit: "ns", Log: true}, Series: series,
		},
		{
			Title: "CPU time per byte by size of the file", About: "The same figures, divided by the size.",
			X: size, Y: result.Axis{Name: "CPU time per byte", Unit: "ns", Log: true}, Series: perByte,
		},
	}
}

// curveTable is the curve in figures, and where embedded and disk cross.
func curveTable(series []result.Series, sizes []int) result.Table {
	t := result.Table{
		Title: "CPU time per request by size of the file",
		About: "Medians in µs, without a verdict. " + crossover(series, "nethttp-disk", "nethttp-embed") + " " +
			crossover(series, "millrace-disk", packedArm),
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

// crossover says in words from which size on which of two ways is cheaper.
func crossover(series []result.Series, a, b string) string {
	find := func(name string) map[float64]float64 {
		points := map[float64]float64{}
		for _, s := range series {
			if s.Name != name {
				continue
			}
			for _, p := range s.Points {
				points[p[0]] = p[1]
			}
		}
		return points
	}
	first, second := find(a), find(b)
	var text []string
	var size, ratio float64 // of the size before, as logarithms
	for x := 1.0; x <= 1<<30; x *= 2 {
		if first[x] <= 0 || second[x] <= 0 {
			continue
		}
		now, at := math.Log(first[x]/second[x]), math.Log2(x)
		switch {
		case text == nil:
			cheaper := b
			if now < 0 {
				cheaper = a
			}
			text = append(text, fmt.Sprintf("At %s %s is the cheaper of %s and %s", sizeName(int(x)), cheaper, a, b))
		case now*ratio < 0:
			// Between two sizes the logarithms are joined by a straight line.
			cross := math.Exp2(size + (at-size)*ratio/(ratio-now))
			cheaper := b
			if now < 0 {
				cheaper = a
			}
			text = append(text, fmt.Sprintf("from about %.0f KB on %s is", cross/1024, cheaper))
		}
		size, ratio = at, now
	}
	switch len(text) {
	case 0:
		return fmt.Sprintf("Whether %s and %s cross was not measured.", a, b)
	case 1:
		return text[0] + ", and that does not change with size."
	}
	return strings.Join(text, "; ") + "."
}
