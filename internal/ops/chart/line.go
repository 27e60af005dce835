package chart

import (
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// A Line chart is series over one axis. A linear y axis always holds zero.
type Line struct {
	Title, About string
	X, Y         Axis
	Series       []Series
}

// The bounds of a line chart.
const (
	// maxPoints of a series are drawn: two for each pixel of a usual width say
	// all there is to see.
	maxPoints = 600
	// maxSeries are drawn: more cannot be told apart.
	maxSeries = 24
	// fewPoints is how many points of a series get a mark each.
	fewPoints = 40
)

// SVG draws the chart; 720×300 if the size is zero. The root element carries
// what a script needs to map the pointer to figures: data-plot (left, top,
// width, height of the plot), data-x and data-y (from, to, and "log" or
// "linear") and data-x-unit and data-y-unit. Each series is a group with the
// class chart-series.
func (l *Line) SVG(w io.Writer, size Size) error {
	return l.svg(w, size, false)
}

// Standalone draws the chart as SVG for a file of its own: with its title, and
// on a ground that its colours can be seen on wherever it is shown.
func (l *Line) Standalone(w io.Writer, size Size) error {
	return l.svg(w, size, true)
}

func (l *Line) svg(w io.Writer, size Size, alone bool) error {
	size = size.or(defaultWidth, defaultHeight)
	d := l.layout(size, alone)
	s := newSVG(size, l.Title, l.About,
		"class", "chart-line",
		"data-plot", fmt.Sprintf("%.0f %.0f %.0f %.0f", d.x.from, d.y.to, d.x.to-d.x.from, d.y.from-d.y.to),
		"data-x", d.x.describe(), "data-y", d.y.describe(),
		"data-x-unit", l.X.Unit, "data-y-unit", l.Y.Unit)
	if alone {
		s.area(box(0, 0, float64(size.Width), float64(size.Height)), paper, stroke{})
	}
	d.draw(s)
	return s.writeTo(w)
}

// maxLines is how many line charts an image holds: more make it larger than
// viewers open.
const maxLines = 8

// PNG draws line charts below each other in light colours, with their titles: at most
// eight, each of the size; 720×300 CSS pixels if that is zero.
func PNG(w io.Writer, size Size, lines ...*Line) error {
	size = size.or(defaultWidth, defaultHeight)
	lines = lines[:min(len(lines), maxLines)]
	r, err := newRaster(size.Width, size.Height*max(len(lines), 1))
	if err != nil {
		return err
	}
	for i, l := range lines {
		r.top = float64(i * size.Height)
		l.layout(size, true).draw(r)
	}
	return r.writeTo(w)
}

func (s scale) describe() string {
	kind := "linear"
	if s.log {
		kind = "log"
	}
	return strconv.FormatFloat(s.min, 'g', -1, 64) + " " + strconv.FormatFloat(s.max, 'g', -1, 64) + " " + kind
}

// A lineDrawing is a line chart with all its places found.
type lineDrawing struct {
	*Line
	series         []Series // thinned, not too many
	size           Size
	title          float64 // baseline of the title; 0: none
	x, y           scale
	xTicks, yTicks []float64
	xUnit, yUnit   prefix
	legend         [][]legendItem // rows above the plot; nil: labels at the lines' ends
	legendTop      float64
	name           float64 // baseline of the y axis' name
	labels         []endLabel
}

// legendItem is one name of a legend.
type legendItem struct {
	series int
	text   string
	x      float64
}

// endLabel is a name at the end of its line.
type endLabel struct {
	series int
	text   string
	line   float64 // y of the line's end
	y      float64 // y of the label, moved so that labels don't overlap
}

const (
	lineHeight = 16
	swatch     = 18 // length of a legend's piece of line
)

// layout finds the places of everything.
func (l *Line) layout(size Size, titled bool) *lineDrawing {
	d := &lineDrawing{Line: l, size: size}
	for _, s := range l.Series[:min(len(l.Series), maxSeries)] {
		s.Points = Downsample(s.Points, min(maxPoints, 2*size.Width))
		d.series = append(d.series, s)
	}
	var ex, ey extent
	for _, s := range d.series {
		for _, p := range s.Points {
			if l.drawable(p) {
				ex.add(p[0], l.X.Log)
				ey.add(p[1], l.Y.Log)
			}
		}
	}
	top := 6.0
	if titled {
		d.title = top + titleSize
		top = d.title + 10
	}
	d.name = top + textSize
	top = d.name + 12
	bottom := float64(size.Height) - 2*lineHeight - 6

	d.x, d.y = tight(ex, l.X.Log), round(ey, l.Y.Log, yTickCount(bottom-top))
	d.xUnit, d.yUnit = prefixFor(l.X.Unit, largest(d.x)), prefixFor(l.Y.Unit, largest(d.y))
	d.yTicks = d.y.ticks(yTickCount(bottom - top))
	left := 8.0
	for _, t := range d.yTicks {
		left = math.Max(left, textWidth(d.tick(t, d.y, d.yUnit, l.Y.Unit), smallSize)+10)
	}
	right := d.placeNames(bottom - top)
	if d.legend != nil {
		d.legendTop = top
		top += float64(len(d.legend))*lineHeight + 6
	}
	d.x.from, d.x.to = left, math.Max(float64(size.Width)-right, left+20)
	d.y.from, d.y.to = bottom, math.Min(top, bottom-20)
	d.xTicks = d.x.ticks(int((d.x.to - d.x.from) / 80))
	d.endLabels()
	return d
}

func yTickCount(height float64) int { return min(max(int(height/42), 2), 8) }

func largest(s scale) float64 { return math.Max(math.Abs(s.min), math.Abs(s.max)) }

func (l *Line) drawable(p [2]float64) bool {
	return finite(p[0]) && finite(p[1]) && (!l.X.Log || p[0] > 0) && (!l.Y.Log || p[1] > 0)
}

// tick is a tick's text: a plain number on a linear axis, whose name has the
// unit, and a figure with its own unit on a logarithmic one.
func (d *lineDrawing) tick(v float64, s scale, p prefix, unit string) string {
	if s.log {
		if _, known := prefixes[unit]; known {
			return Figure(v, unit)
		}
		return Figure(v, "")
	}
	return tickText(v / p.per)
}

// placeNames decides between names at the lines' ends and a legend, and returns
// the room to leave on the right.
func (d *lineDrawing) placeNames(height float64) float64 {
	const margin = 14
	if !d.named() {
		return margin
	}
	var widest float64
	for _, s := range d.series {
		widest = math.Max(widest, textWidth(s.Name, smallSize))
	}
	width := float64(d.size.Width)
	if width >= 480 && widest < width*0.26 && float64(len(d.series))*(lineHeight-2) <= height && len(d.Series) <= maxSeries && d.endTogether() {
		return widest + margin + 14
	}
	x := 8.0
	row := []legendItem{}
	add := func(item legendItem) {
		item.text = cut(item.text, width-swatch-24, smallSize)
		w := swatch + 6 + textWidth(item.text, smallSize) + 14
		if x+w > width && len(row) > 0 {
			d.legend = append(d.legend, row)
			row, x = []legendItem{}, 8
		}
		item.x = x
		row = append(row, item)
		x += w
	}
	for i, s := range d.series {
		add(legendItem{series: i, text: clean(s.Name)})
	}
	if more := len(d.Series) - len(d.series); more > 0 {
		add(legendItem{series: -1, text: fmt.Sprintf("and %d more, not drawn", more)})
	}
	d.legend = append(d.legend, row)
	// A legend may take half of the image and no more.
	d.legend = d.legend[:min(len(d.legend), max(int(height/2/lineHeight), 1))]
	return margin
}

// endTogether reports whether all lines end at the right side, where their names
// would stand: that of a line which ends before would seem to belong to another.
func (d *lineDrawing) endTogether() bool {
	x := d.x // it has no place yet
	x.from, x.to = 0, 1
	const nearEnd = 0.97
	for _, s := range d.series {
		last := slices.IndexFunc(s.Points, func(p [2]float64) bool { return d.drawable(p) && x.at(p[0]) >= nearEnd })
		if last < 0 && slices.ContainsFunc(s.Points, d.drawable) {
			return false
		}
	}
	return true
}

// named reports whether the lines need names: one alone is named by the axis.
func (d *lineDrawing) named() bool {
	if len(d.Series) == 1 {
		name := strings.ToLower(d.Series[0].Name)
		return !strings.Contains(strings.ToLower(d.Title), name) && name != strings.ToLower(d.Y.Name)
	}
	return len(d.Series) > 1
}

// endLabels places names beside the lines' ends, as near as they can be without
// overlapping.
func (d *lineDrawing) endLabels() {
	if d.legend != nil || !d.named() {
		return
	}
	for i, s := range d.series {
		at := d.y.from
		for _, p := range s.Points {
			if d.drawable(p) {
				at = d.y.at(p[1])
			}
		}
		d.labels = append(d.labels, endLabel{series: i, text: clean(s.Name), line: at, y: at})
	}
	sort.SliceStable(d.labels, func(i, j int) bool { return d.labels[i].line < d.labels[j].line })
	const gap = lineHeight - 2
	floor := d.y.from
	for i := len(d.labels) - 1; i >= 0; i-- { // from below: up, where there is no room
		d.labels[i].y = math.Min(d.labels[i].y, floor)
		floor = d.labels[i].y - gap
	}
	ceiling := d.y.to
	for i := range d.labels { // and down again from above
		d.labels[i].y = math.Max(d.labels[i].y, ceiling)
		ceiling = d.labels[i].y + gap
	}
}

func (d *lineDrawing) draw(c canvas) {
	if d.title > 0 {
		title := cut(clean(d.Title), float64(d.size.Width)-16, titleSize)
		c.text(point{4, d.title}, title, font{size: titleSize, paint: ink, bold: true})
	}
	c.begin("chart-axes", "")
	d.drawY(c)
	d.drawX(c)
	c.end()
	empty := true
	for i, s := range d.series {
		if d.drawSeries(c, i, s) {
			empty = false
		}
	}
	if empty {
		c.text(point{(d.x.from + d.x.to) / 2, (d.y.from + d.y.to) / 2}, "no data", font{size: textSize, paint: muted, anchor: middle})
	}
	d.drawNames(c)
}

func (d *lineDrawing) drawY(c canvas) {
	for _, t := range d.yTicks {
		y := d.y.at(t)
		c.line([]point{{d.x.from, y}, {d.x.to, y}}, stroke{paint: grid, width: 1})
		c.text(point{d.x.from - 6, y + 4}, d.tick(t, d.y, d.yUnit, d.Y.Unit), font{size: smallSize, paint: muted, anchor: end})
	}
	name := cut(d.axisName(d.Y, d.yUnit), float64(d.size.Width)-12, textSize)
	c.text(point{4, d.name}, name, font{size: textSize, paint: ink})
}

func (d *lineDrawing) drawX(c canvas) {
	y := d.y.from
	c.line([]point{{d.x.from, y}, {d.x.to, y}}, stroke{paint: muted, width: 1})
	c.begin("chart-x", "")
	free := math.Inf(-1)
	for _, t := range d.xTicks {
		x := d.x.at(t)
		c.line([]point{{x, y}, {x, y + 4}}, stroke{paint: muted, width: 1})
		text := d.tick(t, d.x, d.xUnit, d.X.Unit)
		half := textWidth(text, smallSize) / 2
		if x-half < free { // labels must not touch
			continue
		}
		free = x + half + 6
		c.text(point{x, y + lineHeight}, text, font{size: smallSize, paint: muted, anchor: middle})
	}
	c.end()
	name := cut(d.axisName(d.X, d.xUnit), d.x.to-d.x.from, textSize)
	c.text(point{d.x.to, y + 2*lineHeight}, name, font{size: textSize, paint: ink, anchor: end})
}

// axisName is an axis' name with the unit of its ticks, where they have none of
// their own.
func (d *lineDrawing) axisName(a Axis, p prefix) string {
	unit := p.name
	if _, known := prefixes[a.Unit]; known && a.Log {
		unit = ""
	}
	switch {
	case unit == "":
		return clean(a.Name)
	case a.Name == "":
		return clean(unit)
	}
	return clean(a.Name + " (" + unit + ")")
}

// drawSeries draws a line, with gaps where there are no figures, and reports
// whether there was anything to draw.
func (d *lineDrawing) drawSeries(c canvas, i int, s Series) bool {
	st := seriesStroke(i)
	var runs [][]point
	var run []point
	drawn := 0
	for _, p := range s.Points {
		if !d.drawable(p) {
			runs, run = append(runs, run), nil
			continue
		}
		run = append(run, point{d.x.at(p[0]), d.y.at(p[1])})
		drawn++
	}
	runs = append(runs, run)
	c.begin("chart-series", d.summary(s))
	for _, run := range runs {
		c.line(run, st)
		if len(run) == 1 && drawn > fewPoints { // alone between gaps
			c.disc(run[0], 1.5, st.paint, stroke{})
		}
	}
	c.end()
	if drawn <= fewPoints {
		c.begin("chart-marks", "")
		for _, p := range s.Points {
			if !d.drawable(p) {
				continue
			}
			c.begin("", fmt.Sprintf("%s: %s at %s", s.Name, Figure(p[1], d.Y.Unit), Figure(p[0], d.X.Unit)))
			c.disc(point{d.x.at(p[0]), d.y.at(p[1])}, 2.6, st.paint, stroke{})
			c.end()
		}
		c.end()
	}
	return drawn > 0
}

// summary is a line's tooltip.
func (d *lineDrawing) summary(s Series) string {
	var e extent
	var last float64
	for _, p := range s.Points {
		if d.drawable(p) {
			e.add(p[1], d.Y.Log)
			last = p[1]
		}
	}
	if !e.ok {
		return s.Name + ": no data"
	}
	return fmt.Sprintf("%s: %s to %s, at the end %s", s.Name, Figure(e.min, d.Y.Unit), Figure(e.max, d.Y.Unit), Figure(last, d.Y.Unit))
}

// drawNames draws the legend, or the names at the lines' ends with a thin line
// to those that had to move.
func (d *lineDrawing) drawNames(c canvas) {
	label := font{size: smallSize, paint: ink}
	for i, row := range d.legend {
		y := d.legendTop + float64(i)*lineHeight + 4
		for _, item := range row {
			if item.series < 0 {
				c.text(point{item.x, y + 4}, item.text, font{size: smallSize, paint: muted})
				continue
			}
			st := seriesStroke(item.series)
			st.width = 2.4
			c.line([]point{{item.x, y}, {item.x + swatch, y}}, st)
			c.text(point{item.x + swatch + 6, y + 4}, item.text, label)
		}
	}
	if len(d.labels) == 0 {
		return
	}
	c.begin("chart-ends", "")
	for _, l := range d.labels {
		paint := seriesStroke(l.series).paint
		c.line([]point{{d.x.to + 4, l.line}, {d.x.to + 14, l.y}}, stroke{paint: paint, width: 1.6})
		c.text(point{d.x.to + 18, l.y + 4}, l.text, label)
	}
	c.end()
}
