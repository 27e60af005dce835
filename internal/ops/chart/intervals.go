package chart

import (
	"fmt"
	"io"
	"math"
	"strconv"
)

// A Mark is what an interval means. Each has a colour and a shape of
// its own.
type Mark int

// The marks.
const (
	Plain Mark = iota // none of the others
	Good              // a filled disc
	Bad               // a filled diamond
	Same              // a filled square
	Open              // a ring: undecided
)

// An Interval is one row: a ratio and how far it may be off.
type Interval struct {
	// Group stands above the first of the rows that share it.
	Group string
	// Hint stands at the right end of the group's line: "← less is better".
	Hint             string
	Label            string
	Ratio, Low, High float64 // Low and High 0: not known
	Mark             Mark
	Verdict          string // one word, beside the figures, so that it needs no colour
	Tooltip          string
}

// Intervals are ratios with their intervals, one row each, on one logarithmic
// axis with a line at 1 and a band for what counts as equal (a forest plot).
type Intervals struct {
	Title, About string
	Rows         []Interval
	Delta        float64 // half the width of the band: 0.01 is from 1/1.01 to 1.01
}

// maxRows bounds the rows of any chart; one more says how many are left out.
const maxRows = 300

// Change writes a ratio as a change: "+6.1 %", "−31.0 %", and beyond a factor
// of three as a factor: "×12.3", "×0.0510", "over ×10000".
func Change(ratio float64) string {
	if !finite(ratio) || ratio <= 0 {
		return "–"
	}
	if isFactor(ratio) {
		return asFactor(ratio)
	}
	s := strconv.FormatFloat((ratio-1)*100, 'f', 1, 64)
	switch {
	case s == "0.0" || s == "-0.0":
		return "±0.0 %"
	case s[0] != '-':
		s = "+" + s
	}
	return minus(s) + " %"
}

// isFactor reports whether a ratio is so far from 1 that it reads better as a
// factor than in percent.
func isFactor(ratio float64) bool { return ratio >= 3 || ratio <= 1.0/3 }

// asFactor writes three digits of a ratio, and all three: a column of them is
// compared.
func asFactor(ratio float64) string {
	switch {
	case ratio > reach:
		return "over ×10000"
	case ratio < 1/reach:
		return "under ×0.0001"
	}
	digits := 2 - int(math.Floor(math.Log10(ratio)))
	return "×" + strconv.FormatFloat(ratio, 'f', min(max(digits, 0), 6), 64)
}

// Effect writes a ratio and its interval, all three in one unit, so that they
// can be compared at a glance: "+6.1 %" and "[+4.0 %, +8.3 %]", or, where any of
// them is beyond a factor of three, "×0.318" and "[×0.290, ×0.364]". An
// interval that is not known is "[no interval]".
func Effect(ratio, low, high float64) (change, interval string) {
	known := low > 0 && high > 0 && finite(low) && finite(high)
	write := Change
	if ratio > 0 && finite(ratio) && isFactor(ratio) || known && (isFactor(low) || isFactor(high)) {
		write = func(ratio float64) string {
			if !(ratio > 0) || !finite(ratio) {
				return Change(ratio)
			}
			return asFactor(ratio)
		}
	}
	if !known {
		return write(ratio), "[no interval]"
	}
	return write(ratio), "[" + write(low) + ", " + write(high) + "]"
}

// intervalDrawing is an interval plot with its columns found.
type intervalDrawing struct {
	*Intervals
	rows        []Interval
	x           scale
	ticks       []float64
	width       float64
	labelsAbove bool // labels stand above their row
	row         float64
	label       float64 // width of the column of labels
	// Where the columns of figures are: the change ends at the first, the
	// interval and the verdict begin at the others.
	change, interval, verdict float64
	height                    float64
}

// reach is how far from 1 the axis goes at most, either way; a mark beyond it is
// drawn at its end, with an arrow.
const reach = 1e4

// SVG draws the rows; the width is 720 if the size is zero, the height is what
// the rows need.
func (v *Intervals) SVG(w io.Writer, size Size) error {
	d := v.layout(size.or(defaultWidth, defaultHeight))
	s := newSVG(Size{int(d.width), int(d.height)}, v.Title, v.About, "class", "chart-intervals")
	d.draw(s)
	return s.writeTo(w)
}

// Standalone draws the rows as SVG for a file of its own: with the title, and on
// a ground that its colours can be seen on wherever it is shown.
func (v *Intervals) Standalone(w io.Writer, size Size) error {
	const margin, title = 16, 34
	size = size.or(defaultWidth, defaultHeight)
	d := v.layout(Size{size.Width - 2*margin, size.Height})
	whole := Size{size.Width, int(d.height) + title + margin}
	s := newSVG(whole, v.Title, v.About, "class", "chart-intervals")
	s.area(box(0, 0, float64(whole.Width), float64(whole.Height)), paper, stroke{})
	s.text(point{margin, 22}, cut(clean(v.Title), d.width, titleSize), font{size: titleSize, paint: ink, bold: true})
	fmt.Fprintf(&s.b, "<g transform=\"translate(%d %d)\">\n", margin, title)
	d.draw(s)
	s.b.WriteString("</g>\n")
	return s.writeTo(w)
}

func (v *Intervals) layout(size Size) *intervalDrawing {
	d := &intervalDrawing{Intervals: v, rows: v.Rows[:min(len(v.Rows), maxRows)], width: float64(size.Width)}
	d.labelsAbove = size.Width < 520
	var change, interval, verdict float64
	groups := 0
	e := extent{1, 1, true}
	for i, r := range d.rows {
		if d.newGroup(i) {
			groups++
		}
		d.label = math.Max(d.label, textWidth(clean(r.Label), textSize)+14)
		changed, between := r.effect()
		change = math.Max(change, textWidth(changed, smallSize))
		interval = math.Max(interval, textWidth(between, smallSize))
		verdict = math.Max(verdict, textWidth(clean(r.Verdict), smallSize))
		for _, ratio := range []float64{r.Ratio, r.Low, r.High} {
			if finite(ratio) && ratio > 0 {
				e.add(math.Min(math.Max(ratio, 1/reach), reach), true)
			}
		}
	}
	d.row = 22
	d.label = math.Min(d.label, d.width*0.34)
	d.verdict = d.width - verdict
	d.interval = d.verdict - interval - 12
	d.change = d.interval - 8
	from, to := d.label, d.change-change-16
	if d.labelsAbove {
		d.row, from, to = 38, 8, d.width-8
	}
	// Some room at both ends, and never a scale on which noise looks large.
	least := math.Log(1 + math.Max(3*v.Delta, 0.03))
	room := math.Max((math.Log(e.max)-math.Log(e.min))*0.06, 0.002)
	d.x = scale{
		min: math.Exp(math.Min(math.Log(e.min)-room, -least)), max: math.Exp(math.Max(math.Log(e.max)+room, least)),
		from: from, to: math.Max(to, from+40), log: true,
	}
	d.ticks = d.ratioTicks(int((d.x.to - d.x.from) / 62))
	d.height = float64(len(d.rows))*d.row + float64(groups)*26 + 30
	if len(d.rows) < len(v.Rows) || len(d.rows) == 0 {
		d.height += 22
	}
	return d
}

// factors reports whether the axis is so long that its ticks are factors, as
// Change writes ratios that far out.
func (d *intervalDrawing) factors() bool { return d.x.max >= 3 || d.x.min <= 1.0/3 }

// ratioTicks are round changes where the axis is short, and round factors where
// it is long.
func (d *intervalDrawing) ratioTicks(n int) []float64 {
	n = max(n, 3)
	if d.factors() {
		return d.x.ticks(n)
	}
	change := scale{min: (d.x.min - 1) * 100, max: (d.x.max - 1) * 100}
	ticks := change.ticks(n)
	for i := range ticks {
		ticks[i] = 1 + ticks[i]/100
	}
	return ticks
}

func (d *intervalDrawing) tick(ratio float64) string {
	if d.factors() {
		return "×" + tickText(ratio)
	}
	v := roundTick((ratio - 1) * 100)
	if math.Abs(v) < 1e-9 {
		return "0"
	}
	s := tickText(v)
	if v > 0 {
		s = "+" + s
	}
	return s + " %"
}

func (d *intervalDrawing) newGroup(i int) bool {
	return d.rows[i].Group != "" && (i == 0 || d.rows[i].Group != d.rows[i-1].Group)
}

// effect is the text of a row's change and of its interval, which is empty when
// it is not known.
func (r Interval) effect() (change, interval string) {
	change, interval = Effect(r.Ratio, r.Low, r.High)
	if !(r.Low > 0 && r.High > 0) {
		interval = ""
	}
	return change, interval
}

// figures is what a row says, in one line.
func (r Interval) figures() string {
	s, i := r.effect()
	if i != "" {
		s += " " + i
	}
	if r.Verdict != "" {
		s += "  " + clean(r.Verdict)
	}
	return s
}

func (d *intervalDrawing) draw(c canvas) {
	bottom := d.height - 24
	if hidden := len(d.Rows) - len(d.rows); hidden > 0 || len(d.rows) == 0 {
		bottom -= 22
		text := "no data"
		if hidden > 0 {
			text = fmt.Sprintf("and %d more, not drawn", hidden)
		}
		c.text(point{8, d.height - 6}, text, font{size: smallSize, paint: muted})
	}
	d.drawAxis(c, bottom)
	y := 0.0
	for i, r := range d.rows {
		if d.newGroup(i) {
			d.drawGroup(c, y, r)
			y += 26
		}
		d.drawRow(c, y, r)
		y += d.row
	}
}

// drawAxis draws the band, the line at 1 and the ticks below.
func (d *intervalDrawing) drawAxis(c canvas, bottom float64) {
	if d.Delta > 0 && finite(d.Delta) {
		lo, hi := math.Max(d.x.at(1/(1+d.Delta)), d.x.from), math.Min(d.x.at(1+d.Delta), d.x.to)
		c.begin("", "counts as equal: within "+tickText(roundTick(d.Delta*100))+" %")
		c.area(box(lo, 2, hi-lo, bottom-2), band, stroke{})
		c.end()
	}
	free := math.Inf(-1)
	for _, t := range d.ticks {
		x := d.x.at(t)
		c.line([]point{{x, 2}, {x, bottom}}, stroke{paint: grid, width: 1})
		text := d.tick(t)
		half := textWidth(text, smallSize) / 2
		if x-half >= math.Max(free, 0) && x+half <= d.width {
			c.text(point{x, bottom + 15}, text, font{size: smallSize, paint: muted, anchor: middle})
			free = x + half + 6
		}
	}
	one := d.x.at(1)
	c.line([]point{{one, 2}, {one, bottom}}, stroke{paint: muted, width: 1.2})
}

func (d *intervalDrawing) drawGroup(c canvas, y float64, r Interval) {
	hint := clean(r.Hint)
	room := d.width - textWidth(hint, smallSize) - 16
	group := cut(clean(r.Group), room, textSize)
	c.area(box(0, y, d.width, 26), paper, stroke{})
	c.text(point{0, y + 18}, group, font{size: textSize, paint: ink, bold: true})
	c.text(point{d.width, y + 18}, hint, font{size: smallSize, paint: muted, anchor: end})
}

func (d *intervalDrawing) drawRow(c canvas, y float64, r Interval) {
	tip := r.Tooltip
	if tip == "" {
		tip = clean(r.Label) + ": " + r.figures()
	}
	c.begin("", tip)
	defer c.end()
	label, figures := font{size: textSize, paint: ink}, font{size: smallSize, paint: ink}
	right := font{size: smallSize, paint: ink, anchor: end}
	middle := y + d.row/2
	if d.labelsAbove {
		text := r.figures()
		room := d.width - textWidth(text, smallSize) - 10
		c.area(box(0, y, d.width, 19), paper, stroke{}) // no axis through the text
		c.text(point{0, y + 14}, cut(clean(r.Label), room, textSize), label)
		c.text(point{d.width, y + 14}, text, right)
		middle = y + 28
	} else {
		c.text(point{0, middle + 4}, cut(clean(r.Label), d.label-10, textSize), label)
		change, interval := r.effect()
		c.text(point{d.change, middle + 4}, change, right)
		c.text(point{d.interval, middle + 4}, interval, figures)
		c.text(point{d.verdict, middle + 4}, clean(r.Verdict), figures)
	}
	d.drawMark(c, middle, r)
}

// drawMark draws the interval and its mark, with an arrow where they go beyond
// the axis.
func (d *intervalDrawing) drawMark(c canvas, y float64, r Interval) {
	paint := r.Mark.paint()
	clamp := func(ratio float64) float64 { return math.Min(math.Max(d.x.at(ratio), d.x.from), d.x.to) }
	if finite(r.Low) && finite(r.High) && r.Low > 0 && r.High >= r.Low {
		lo, hi := clamp(r.Low), clamp(r.High)
		c.line([]point{{lo, y}, {hi, y}}, stroke{paint: paint, width: 1.8})
		at := clamp(r.Ratio)
		d.drawEnd(c, point{lo, y}, r.Low < d.x.min, at-lo, -1, paint)
		d.drawEnd(c, point{hi, y}, r.High > d.x.max, hi-at, 1, paint)
	}
	if finite(r.Ratio) && r.Ratio > 0 {
		r.Mark.draw(c, point{clamp(r.Ratio), y})
	}
}

// drawEnd draws a short line across, or an arrow. A line so near to the mark
// that it would change its shape is left out.
func (d *intervalDrawing) drawEnd(c canvas, p point, beyond bool, room, way float64, paint paint) {
	if !beyond && room < 8 {
		return
	}
	if beyond {
		c.area([]point{{p.x, p.y - 4}, {p.x + 7*way, p.y}, {p.x, p.y + 4}}, paint, stroke{})
		return
	}
	c.line([]point{{p.x, p.y - 3.5}, {p.x, p.y + 3.5}}, stroke{paint: paint, width: 1.4})
}

func (m Mark) paint() paint {
	switch m {
	case Good:
		return good
	case Bad:
		return bad
	case Same:
		return same
	case Open:
		return open
	}
	return "1"
}

func (m Mark) draw(c canvas, p point) {
	switch m {
	case Bad:
		c.area([]point{{p.x, p.y - 6}, {p.x + 6, p.y}, {p.x, p.y + 6}, {p.x - 6, p.y}}, bad, stroke{})
	case Same:
		c.area(box(p.x-4.2, p.y-4.2, 8.4, 8.4), same, stroke{})
	case Open:
		c.disc(p, 4.4, paper, stroke{paint: open, width: 1.8})
	default:
		c.disc(p, 5, m.paint(), stroke{})
	}
}
