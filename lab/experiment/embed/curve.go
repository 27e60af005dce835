package embed

import (
	"fmt"
	"math"
	"strings"

	"millrace/lab/experiment"
	"millrace/lab/record"
)

const (
	// apart is how far two medians of the curve must differ before one way is
	// called cheaper: few slots stand behind each, so less may be chance.
	apart = 0.1
	// The sizes on the curve, in bytes: each twice the one before.
	leastSize, mostSize = 512, 1 << 20
)

func sizeName(size int) string {
	if size < 1<<10 {
		return fmt.Sprintf("%g KB", float64(size)/(1<<10))
	}
	if size < 1<<20 {
		return fmt.Sprintf("%d KB", size>>10)
	}
	return fmt.Sprintf("%d MB", size>>20)
}

// curve adds what a request costs by the size of its answer, where that was measured:
// two charts, and a table that says where lines cross.
func curve(r *experiment.Run) {
	var series []record.Series
	for _, w := range r.Chosen {
		if len(w.Decide) == 0 {
			continue
		}
		for _, arm := range w.Arms {
			series = append(series, line(r.Res, arm))
		}
		break
	}
	perByte := make([]record.Series, len(series))
	measured := false
	for i, s := range series {
		perByte[i].Name = s.Name
		for _, p := range s.Points {
			measured = true
			perByte[i].Points = append(perByte[i].Points, [2]float64{p[0], p[1] / p[0]})
		}
	}
	if !measured {
		return
	}
	size := record.Axis{Name: "size of the file", Unit: "bytes", Log: true}
	r.Res.Charts = append(r.Res.Charts, record.Chart{
		Title: "CPU time per request by size of the file", Lead: true,
		About: "Medians; 50 connections. Where lines cross, the cheaper way changes.",
		X:     size, Y: record.Axis{Name: "CPU time per request", Unit: "ns", Log: true}, Series: series,
	}, record.Chart{
		Title: "CPU time per byte by size of the file", Lead: true, About: "The same figures, divided by the size.",
		X: size, Y: record.Axis{Name: "CPU time per byte", Unit: "ns", Log: true}, Series: perByte,
	})
	r.Res.Tables = append(r.Res.Tables, curveTable(series))
}

// line is the median CPU time per request by size of an arm.
func line(res *record.Result, arm string) record.Series {
	s := record.Series{Name: arm}
	for size := leastSize; size <= mostSize; size *= 2 {
		if v := experiment.MedianOf(res, arm, sizeName(size), experiment.CPU); v > 0 {
			s.Points = append(s.Points, [2]float64{float64(size), v})
		}
	}
	return s
}

// curveTable is the curve in figures, and where embedded and disk cross.
func curveTable(series []record.Series) record.Table {
	t := record.Table{
		Title: "CPU time per request by size of the file",
		About: "Medians in µs, without a verdict. " + crossings(series, base, sized) + " " +
			crossings(series, "millrace-disk", "millrace-packed") + " " + crossings(series, "nginx", "millrace-disk"),
		Columns: []string{"size"},
	}
	for _, s := range series {
		t.Columns = append(t.Columns, s.Name)
	}
	for size := leastSize; size <= mostSize; size *= 2 {
		row, known := []string{sizeName(size)}, false
		for _, s := range series {
			v := pointsOf(series, s.Name)[float64(size)]
			known = known || v > 0
			row = append(row, experiment.Known(v, func(v float64) string { return fmt.Sprintf("%.1f", v/1e3) }))
		}
		if known {
			t.Rows = append(t.Rows, row)
		}
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
