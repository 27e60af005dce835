package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var nan, inf = math.NaN(), math.Inf(1)

// lineOf is a chart of one series with these y.
func lineOf(log bool, ys ...float64) *Line {
	l := &Line{Title: "t", X: Axis{Name: "time", Unit: "s"}, Y: Axis{Name: "y", Unit: "ns", Log: log}}
	s := Series{Name: "a"}
	for i, y := range ys {
		s.Points = append(s.Points, [2]float64{float64(i), y})
	}
	l.Series = []Series{s}
	return l
}

func svgOf(t *testing.T, draw func(io.Writer, Size) error, size Size) string {
	t.Helper()
	var b bytes.Buffer
	if err := draw(&b, size); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, b.String())
	return b.String()
}

// wellFormed fails unless the text is XML without figures that are none.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, text)
		}
	}
	for _, bad := range []string{"NaN", "Inf"} {
		if strings.Contains(text, bad) {
			t.Errorf("the picture holds %q:\n%s", bad, text)
		}
	}
}

func TestOddFiguresGiveAPicture(t *testing.T) {
	t.Parallel()
	hard := map[string][]float64{
		"none":      nil,
		"one":       {5},
		"zero":      {0},
		"equal":     {7, 7, 7},
		"zeros":     {0, 0, 0},
		"negative":  {-3, -1, -2},
		"mixed":     {-3, 4},
		"nan":       {nan, nan},
		"gap":       {1, nan, 2, inf, 3},
		"huge":      {1e308, -1e308, 1},
		"large":     {1e299, -1e299},
		"tiny":      {1e-300, 2e-300},
		"spread":    {1e-200, 1e200},
		"denormal":  {5e-324, 1},
		"thousands": make([]float64, 5000),
	}
	sizes := []Size{{}, {1, 1}, {-5, -5}, {340, 200}, {1 << 30, 1 << 30}}
	for name, ys := range hard {
		for _, log := range []bool{false, true} {
			for _, size := range sizes {
				svgOf(t, lineOf(log, ys...).SVG, size)
			}
		}
		if name == "gap" || name == "none" || name == "huge" {
			var b bytes.Buffer
			if err := PNG(&b, Size{300, 150}, lineOf(false, ys...)); err != nil {
				t.Error(name, err)
			}
		}
		rows := Intervals{Delta: 0.01}
		flame := Flame{Root: Frame{Name: "root", Value: 1}}
		for _, y := range ys {
			rows.Rows = append(rows.Rows, Interval{Label: "l", Ratio: y, Low: y, High: 2 * y})
			flame.Root.Children = append(flame.Root.Children, Frame{Name: "f", Value: y, Delta: y})
		}
		for _, size := range sizes {
			svgOf(t, rows.SVG, size)
			svgOf(t, flame.SVG, size)
			flame.Difference = !flame.Difference
		}
	}
	if s := svgOf(t, lineOf(false).SVG, Size{}); !strings.Contains(s, "no data") {
		t.Error("an empty chart does not say that it has no data")
	}
	if s := svgOf(t, lineOf(true, -1, 0).SVG, Size{}); !strings.Contains(s, "no data") {
		t.Error("a logarithmic chart of what is not above 0 does not say that it has no data")
	}
}

func TestNamesAreEscaped(t *testing.T) {
	t.Parallel()
	evil := "</svg><script>alert(1)</script>\" onload='x' & \x00\x1b[31m\xff"
	l := lineOf(false, 1, 2)
	l.Title, l.About, l.X.Name, l.Y.Name, l.Y.Unit = evil, evil, evil, evil, evil
	l.Series[0].Name = evil
	l.Series = append(l.Series, Series{Name: evil + strings.Repeat("long", 4000)})
	rows := Intervals{Title: evil, Rows: []Interval{{Group: evil, Hint: evil, Label: evil, Verdict: evil, Tooltip: evil, Ratio: 1, Low: 1, High: 1}}}
	flame := Flame{Title: evil, Unit: evil, Root: Frame{Name: evil, Value: 1}}
	for _, draw := range []func(io.Writer, Size) error{l.SVG, rows.SVG, flame.SVG} {
		s := svgOf(t, draw, Size{})
		if strings.Contains(s, "<script") || strings.Contains(s, `" onload`) || strings.ContainsAny(s, "\x00\x1b") {
			t.Errorf("a name got out of its place:\n%s", s)
		}
		if len(s) > 20_000 {
			t.Errorf("a long name makes a picture of %d bytes", len(s))
		}
	}
}

func TestThin(t *testing.T) {
	t.Parallel()
	var points [][2]float64
	for i := range 10_000 {
		points = append(points, [2]float64{float64(i), 1})
	}
	points[7777][1], points[1234][1] = 99, -5
	for i := 4000; i < 6000; i++ {
		points[i][1] = nan
	}
	kept := Downsample(points, 600)
	if len(kept) > 600 || len(kept) < 280 {
		t.Errorf("%d points are left", len(kept))
	}
	var spike, dip, gap bool
	last := -1.0
	for _, p := range kept {
		spike = spike || p == [2]float64{7777, 99}
		dip = dip || p == [2]float64{1234, -5}
		gap = gap || math.IsNaN(p[1])
		if p[0] <= last {
			t.Errorf("x goes back to %v", p[0])
		}
		last = p[0]
	}
	if !spike || !dip || !gap {
		t.Errorf("spike %v, dip %v, gap %v: all must stay", spike, dip, gap)
	}
	if kept[0] != points[0] || last != 9999 {
		t.Error("the ends are lost")
	}
	few := points[:100]
	if got := Downsample(few, 100); &got[0] != &few[0] || len(got) != 100 {
		t.Error("few points are not left alone")
	}
	if got := Downsample(points, 0); len(got) > 4 {
		t.Errorf("%d points for none asked", len(got))
	}
}

func TestFigure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{98214, "ns", "98.2 µs"},
		{999.96, "ns", "1.00 µs"},
		{999.4, "ns", "999 ns"},
		{12, "ns", "12 ns"},
		{12.34, "ns", "12.3 ns"},
		{0.5, "ns", "0.5 ns"},
		{3e12, "ns", "3000 s"},
		{0.0021, "s", "2.10 ms"},
		{60, "s", "60 s"},
		{83519, "1/s", "83.5 k/s"},
		{7, "1/s", "7/s"},
		{9_100_000, "bytes", "9.10 MB"},
		{1023, "bytes", "1.02 KB"},
		{1536, "KiB", "1.50 MiB"},
		{6.53e9, "bytes/s", "6.53 GB/s"},
		{2345, "", "2.35 k"},
		{0, "ns", "0 ns"},
		{0, "", "0"},
		{-1500, "", "−1.50 k"},
		{1.5, "cores", "1.50 cores"},
		{33, "%", "33 %"},
		{nan, "ns", "–"},
		{inf, "ns", "–"},
	} {
		if got := Figure(c.v, c.unit); got != c.want {
			t.Errorf("Figure(%v, %q) = %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

func TestChange(t *testing.T) {
	t.Parallel()
	for ratio, want := range map[float64]string{
		1.061: "+6.1 %", 0.69: "−31.0 %", 1: "±0.0 %", 0.9999: "±0.0 %", 2.5: "+150.0 %",
		12.34: "×12.3", 1e9: "over ×10000", 1e-9: "under ×0.0001", 0.051: "×0.0510", 0.17: "×0.170", 120: "×120", 0: "–", -1: "–", inf: "–",
	} {
		if got := Change(ratio); got != want {
			t.Errorf("Change(%v) = %q, want %q", ratio, got, want)
		}
	}
	for _, c := range []struct {
		ratio, low, high float64
		want             string
	}{
		{1.061, 1.04, 1.083, "+6.1 % [+4.0 %, +8.3 %]"},
		{0.318, 0.290, 0.364, "×0.318 [×0.290, ×0.364]"}, // not one end in percent
		{2.9, 2.5, 3.2, "×2.90 [×2.50, ×3.20]"},
		{1.02, 1e-9, 1e9, "×1.02 [under ×0.0001, over ×10000]"},
		{1.02, 0, 0, "+2.0 % [no interval]"},
		{0, 0.2, 0.9, "– [×0.200, ×0.900]"},
	} {
		change, interval := Effect(c.ratio, c.low, c.high)
		if got := change + " " + interval; got != c.want {
			t.Errorf("Effect(%v, %v, %v) = %q, want %q", c.ratio, c.low, c.high, got, c.want)
		}
	}
}

func TestTicks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    scale
		n    int
		want []float64
	}{
		{scale{min: 0, max: 100}, 5, []float64{0, 20, 40, 60, 80, 100}},
		{scale{min: 0, max: 0.3}, 3, []float64{0, 0.1, 0.2, 0.3}},
		{scale{min: -10, max: 10}, 4, []float64{-10, -5, 0, 5, 10}},
		{scale{min: 1, max: 100, log: true}, 8, []float64{1, 2, 5, 10, 20, 50, 100}},
		{scale{min: 1, max: 1e6, log: true}, 4, []float64{1, 100, 1e4, 1e6}},
		{scale{min: 1e-3, max: 1e3, log: true}, 3, []float64{0.01, 1, 100}},
		{scale{min: 512, max: 1 << 20, log: true}, 4, []float64{1e3, 1e4, 1e5, 1e6}},
		{scale{min: 300, max: 400, log: true}, 4, []float64{300, 350, 400}},
	} {
		if got := c.s.ticks(c.n); !cmp.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.s, got, c.want)
		}
	}
}

// TestZero: an axis that is cut off makes small differences look large.
func TestZero(t *testing.T) {
	t.Parallel()
	s := round(extent{98, 101, true}, false, 5)
	if s.min != 0 || s.max < 101 {
		t.Errorf("the axis goes from %v to %v", s.min, s.max)
	}
}

func TestNamesDoNotOverlap(t *testing.T) {
	t.Parallel()
	for _, y := range []float64{0, 50, 100} {
		l := lineOf(false, 0, 100)
		for i := range 10 {
			l.Series = append(l.Series, Series{Name: fmt.Sprint("arm", i), Points: [][2]float64{{0, 0}, {1, y}}})
		}
		d := l.layout(Size{720, 300}, false)
		if len(d.labels) != 11 {
			t.Fatalf("%d names at the lines' ends", len(d.labels))
		}
		for i := 1; i < len(d.labels); i++ {
			if gap := d.labels[i].y - d.labels[i-1].y; gap < 11 {
				t.Errorf("names %d and %d are %.1f apart", i-1, i, gap)
			}
		}
		if first, last := d.labels[0].y, d.labels[10].y; first < d.y.to-1 || last > d.y.from+1 {
			t.Errorf("names from %.0f to %.0f leave the plot, %.0f to %.0f", first, last, d.y.to, d.y.from)
		}
	}
	// Where there is no room beside the plot, they stand above it.
	l := lineOf(false, 1, 2)
	for i := range 40 {
		l.Series = append(l.Series, Series{Name: fmt.Sprint("a rather long name ", i)})
	}
	s := svgOf(t, l.SVG, Size{})
	if !strings.Contains(s, ">a rather long name 3<") || strings.Contains(s, "chart-ends") {
		t.Error("no legend")
	}
}

// A name stands beside the end of its line or not at all: where a line ends
// before the others, all names stand above the plot.
func TestNamesStandAtTheEndsOfTheirLines(t *testing.T) {
	t.Parallel()
	l := lineOf(false, 0, 100)
	l.Series = []Series{
		{Name: "tools", Points: [][2]float64{{0, 1}, {9, 0}}},
		{Name: "embedded", Points: [][2]float64{{0, 1}, {17, 0}}},
	}
	if s := svgOf(t, l.SVG, Size{}); strings.Contains(s, "chart-ends") {
		t.Error("the name of a line that ended stands at the end of another")
	}
	l.Series[0].Points[1][0] = 17
	if s := svgOf(t, l.SVG, Size{}); !strings.Contains(s, "chart-ends") {
		t.Error("both lines end at the right side, and their names do not stand there")
	}
}

// An image in a file of its own has its title, and a ground: on a dark page it
// would be dark on dark.
func TestStandalone(t *testing.T) {
	t.Parallel()
	l := lineOf(false, 0, 100)
	l.Title = "CPU while a folder is converted"
	if s := svgOf(t, l.Standalone, Size{}); !strings.Contains(s, ">"+l.Title+"</text>") || !strings.Contains(s, `fill="var(--chart-paper`) {
		t.Errorf("no title, or no ground: %s", s)
	}
	if s := svgOf(t, l.SVG, Size{}); strings.Contains(s, ">"+l.Title+"</text>") {
		t.Error("within a page the title would stand there twice")
	}
	v := &Intervals{Title: "CPU of others", Rows: []Interval{{Group: "a page", Label: "nginx", Ratio: 0.6, Low: 0.5, High: 0.7}}}
	if s := svgOf(t, v.Standalone, Size{}); !strings.Contains(s, ">"+v.Title+"</text>") || !strings.Contains(s, `fill="var(--chart-paper`) {
		t.Errorf("intervals have no title, or no ground: %s", s)
	}
}

func TestSpikesReachThePicture(t *testing.T) {
	t.Parallel()
	ys := make([]float64, 100_000)
	ys[55_555] = 1000
	s := svgOf(t, lineOf(false, ys...).SVG, Size{})
	if !strings.Contains(s, "a: 0 ns to 1 µs, at the end 0 ns") {
		t.Error("the spike is lost")
	}
	if n := strings.Count(s, "L"); n > maxPoints+50 {
		t.Errorf("%d line segments", n)
	}
}

// TestMarksNeedNoColour draws every mark and compares shapes.
func TestMarksNeedNoColour(t *testing.T) {
	t.Parallel()
	seen := map[string]Mark{}
	for _, m := range []Mark{Good, Bad, Same, Open} {
		s := newSVG(Size{10, 10}, "", "")
		m.draw(s, point{5, 5})
		_, shape, _ := strings.Cut(s.b.String(), "\n")
		for p, hex := range paints {
			shape = strings.ReplaceAll(shape, "var(--chart-"+string(p)+","+hex+")", "c")
		}
		if other, ok := seen[shape]; ok {
			t.Errorf("marks %v and %v have one shape", m, other)
		}
		seen[shape] = m
	}
}

func TestIntervalsStayInThePicture(t *testing.T) {
	t.Parallel()
	v := Intervals{Delta: 0.01, Rows: []Interval{
		{Label: "far", Ratio: 1e9, Low: 1e-9, High: 1e12, Mark: Bad},
		{Label: "near", Ratio: 1.02, Low: 1.01, High: 1.03, Mark: Bad, Verdict: "worse"},
	}}
	d := v.layout(Size{720, 1})
	for _, r := range v.Rows {
		if x := d.x.at(r.Ratio); r.Label == "near" && (x < d.x.from || x > d.x.to) {
			t.Errorf("%s is at %v", r.Label, x)
		}
	}
	s := svgOf(t, v.SVG, Size{})
	for _, want := range []string{"worse", "+2.0 %", "[+1.0 %, +3.0 %]", "counts as equal: within 1 %"} {
		if !strings.Contains(s, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for range 1000 {
		v.Rows = append(v.Rows, v.Rows[1])
	}
	if s := svgOf(t, v.SVG, Size{}); !strings.Contains(s, "and 702 more, not drawn") {
		t.Error("rows are left out without a word")
	}
}

func TestPNG(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := PNG(&b, Size{400, 200}, lineOf(false, 0, 10, 0, 10)); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if img.Bounds() != image.Rect(0, 0, 800, 400) {
		t.Errorf("the picture is %v", img.Bounds())
	}
	seen := map[color.Color]int{}
	for y := range 400 {
		for x := range 800 {
			seen[color.RGBAModel.Convert(img.At(x, y))]++
		}
	}
	for _, p := range []paint{paper, ink, "1"} {
		if seen[rgba(p)] < 20 {
			t.Errorf("%d pixels in the colour of %s", seen[rgba(p)], p)
		}
	}
}

// TestTextOfPNG: text stands where its anchor says, and what does not fit is cut
// off by the picture's edges.
func TestTextOfPNG(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		anchor   anchor
		at       point
		text     string
		from, to int // about where it lies, in pixels from the left
	}{
		{start, point{50, 15}, "Łódź × 3.5 µs", 100, 246},
		{middle, point{50, 15}, "Łódź × 3.5 µs", 27, 173},
		{end, point{100, 15}, "Łódź × 3.5 µs", 54, 200},
		{start, point{-20, 15}, "longer than the picture is wide, by far and further", 0, 300},
		{end, point{170, 15}, "longer than the picture is wide, by far and further", 0, 300},
		{start, point{500, 10}, "beside it", 300, 0},
		{start, point{10, -50}, "above it", 300, 0},
		{start, point{10, 10}, "", 300, 0},
	} {
		r, err := newRaster(150, 20)
		if err != nil {
			t.Fatal(err)
		}
		r.text(c.at, c.text, font{size: textSize, paint: ink, anchor: c.anchor})
		left, right := 300, 0
		for y := range 40 {
			for x := range 300 {
				if r.img.RGBAAt(x, y) != rgba(paper) {
					left, right = min(left, x), max(right, x+1)
				}
			}
		}
		const about = 4
		if max(left-c.from, c.from-left, right-c.to, c.to-right) > about {
			t.Errorf("%q at %v lies between %d and %d", c.text, c.at, left, right)
		}
	}
}

func TestEveryPaintHasAColour(t *testing.T) {
	t.Parallel()
	for p, hex := range paints {
		if len(hex) != 7 || hex[0] != '#' {
			t.Errorf("%s: %q", p, hex)
		}
	}
	for i := range 40 {
		if st := seriesStroke(i); paints[st.paint] == "" {
			t.Errorf("series %d has no colour", i)
		}
	}
}

func TestFlame(t *testing.T) {
	t.Parallel()
	root := Frame{Name: "all", Value: 1000, Children: []Frame{
		{Name: "net/http.(*conn).serve", Value: 600, Delta: 30},
		{Name: "too.small", Value: 0.5},
		{Name: "main.f", Value: 300, Delta: -30, Children: []Frame{{Name: "more.than.its.parent", Value: 350}}},
	}}
	s := svgOf(t, (&Flame{Unit: "ns", Root: root}).SVG, Size{})
	for _, want := range []string{"net/http.(*conn).serve: 600 ns, 60 %", "main.f: 350 ns, 35 %"} {
		if !strings.Contains(s, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(s, "too.small") {
		t.Error("a frame narrower than a thousandth is drawn")
	}
	s = svgOf(t, (&Flame{Unit: "ns", Root: root, Difference: true}).SVG, Size{})
	for _, want := range []string{"+ net/http", "− main.f", "changed by +30 ns", "chart-more-3", "chart-less-3"} {
		if !strings.Contains(s, want) {
			t.Errorf("%q is missing in the difference", want)
		}
	}
	// Deep and wide trees stay small.
	deep := Frame{Name: "f", Value: 1}
	for range 5000 {
		deep = Frame{Name: "f", Value: 1, Children: []Frame{deep}}
	}
	wide := Frame{Name: "w"}
	for range 900 {
		at := Frame{Name: "leaf.of.a.wide.tree", Value: 1}
		for range 30 {
			at = Frame{Name: "leaf.of.a.wide.tree", Value: 1, Children: []Frame{at}}
		}
		wide.Children = append(wide.Children, at)
	}
	for _, root := range []Frame{deep, wide} {
		s := svgOf(t, (&Flame{Root: root}).SVG, Size{})
		if n := strings.Count(s, "<title>"); n > maxFrames || len(s) > 1_000_000 {
			t.Errorf("%d frames, %d bytes", n, len(s))
		}
	}
}
