package chart

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"strconv"

	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// density is how many pixels of a PNG a CSS pixel is, each way.
const density = 2

// raster draws into an image. The fonts are read when a picture begins and
// forgotten with it: a program that draws none pays nothing for them.
type raster struct {
	img           *image.RGBA
	top           float64 // where the chart that is drawn begins, in CSS pixels
	pen           *vector.Rasterizer
	regular, bold *opentype.Font
	faces         map[font]xfont.Face // by size and weight
}

func newRaster(width, height int) (*raster, error) {
	regular, regularErr := opentype.Parse(goregular.TTF)
	bold, boldErr := opentype.Parse(gobold.TTF)
	if err := errors.Join(regularErr, boldErr); err != nil {
		return nil, fmt.Errorf("reading the fonts of charts: %w", err)
	}
	r := &raster{
		img:     image.NewRGBA(image.Rect(0, 0, width*density, height*density)),
		pen:     new(vector.Rasterizer),
		regular: regular, bold: bold,
		faces: map[font]xfont.Face{},
	}
	draw.Draw(r.img, r.img.Bounds(), image.NewUniform(rgba(paper)), image.Point{}, draw.Src)
	return r, nil
}

func (r *raster) writeTo(w io.Writer) error {
	return png.Encode(w, r.img)
}

// rgba is the colour that a paint has in a light image.
func rgba(p paint) color.RGBA {
	v, err := strconv.ParseUint(paints[p][1:], 16, 32)
	if err != nil {
		return color.RGBA{A: 255}
	}
	return color.RGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 255}
}

// shapes collects polygons to fill at once. All of them turn the same way, so
// that where they overlap they don't cancel.
type shapes struct{ polygons [][]point }

func (s *shapes) polygon(points []point) { s.polygons = append(s.polygons, points) }

// bounds are the pixels that the shapes may touch.
func (s *shapes) bounds(top float64) image.Rectangle {
	lo, hi := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, polygon := range s.polygons {
		for _, p := range polygon {
			lo = point{math.Min(lo.x, p.x), math.Min(lo.y, p.y)}
			hi = point{math.Max(hi.x, p.x), math.Max(hi.y, p.y)}
		}
	}
	return image.Rect(pixel(lo.x*density)-1, pixel((lo.y+top)*density)-1, pixel(hi.x*density)+2, pixel((hi.y+top)*density)+2)
}

// pixel is a coordinate as a whole number, no further from the image than one
// pixel.
func pixel(v float64) int { return int(math.Min(math.Max(v, -1), maxLines*maxSide*density+1)) }

// fill rasterises shapes, in no more of the image than they touch.
func (r *raster) fill(s *shapes, p paint) {
	if len(s.polygons) == 0 {
		return
	}
	at := s.bounds(r.top)
	r.pen.Reset(at.Dx(), at.Dy())
	for _, polygon := range s.polygons {
		for i, p := range polygon {
			x, y := float32(p.x*density)-float32(at.Min.X), float32((p.y+r.top)*density)-float32(at.Min.Y)
			if i == 0 {
				r.pen.MoveTo(x, y)
			} else {
				r.pen.LineTo(x, y)
			}
		}
		r.pen.ClosePath()
	}
	r.pen.Draw(r.img, at, image.NewUniform(rgba(p)), image.Point{})
}

// segment adds a straight line of some width, with round ends.
func (s *shapes) segment(a, b point, width float64) {
	dx, dy := b.x-a.x, b.y-a.y
	length := math.Hypot(dx, dy)
	if length > 0 {
		nx, ny := -dy/length*width/2, dx/length*width/2
		s.polygon([]point{{a.x - nx, a.y - ny}, {b.x - nx, b.y - ny}, {b.x + nx, b.y + ny}, {a.x + nx, a.y + ny}})
	}
}

// circle is a polygon that looks like one.
func circle(c point, radius float64) []point {
	const corners = 32
	points := make([]point, corners)
	for i := range points {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		points[i] = point{c.x + radius*cos, c.y + radius*sin}
	}
	return points
}

func (r *raster) line(points []point, st stroke) {
	if len(points) < 2 || st.paint == none || st.width <= 0 {
		return
	}
	s := new(shapes)
	if len(st.dash) == 0 {
		for i := 1; i < len(points); i++ {
			s.segment(points[i-1], points[i], st.width)
			if i > 1 { // a round joint
				s.polygon(circle(points[i-1], st.width/2))
			}
		}
	} else {
		s.dashed(points, st)
	}
	r.fill(s, st.paint)
}

// dashed adds the drawn parts of a dashed line.
func (s *shapes) dashed(points []point, st stroke) {
	at, left := 0, st.dash[0]
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		length := math.Hypot(b.x-a.x, b.y-a.y)
		for done := 0.0; done < length; {
			step := math.Min(left, length-done)
			if at%2 == 0 {
				s.segment(between(a, b, done/length), between(a, b, (done+step)/length), st.width)
			}
			done += step
			if left -= step; left <= 1e-9 {
				at = (at + 1) % len(st.dash)
				left = st.dash[at]
			}
		}
	}
}

func between(a, b point, share float64) point {
	return point{a.x + (b.x-a.x)*share, a.y + (b.y-a.y)*share}
}

func (r *raster) area(points []point, fill paint, st stroke) {
	if len(points) < 3 {
		return
	}
	if fill != none {
		s := new(shapes)
		s.polygon(points)
		r.fill(s, fill)
	}
	r.line(append(points[:len(points):len(points)], points[0], points[1]), st)
}

func (r *raster) disc(center point, radius float64, fill paint, st stroke) {
	r.area(circle(center, radius), fill, st)
}

// text writes with the face of its size and weight. The face is not hinted: text
// looks the same wherever on the line it begins.
func (r *raster) text(at point, text string, f font) {
	d := xfont.Drawer{Dst: r.img, Src: image.NewUniform(rgba(f.paint)), Face: r.face(f)}
	text = clean(text)
	d.Dot = fixed.Point26_6{X: fixed.Int26_6(at.x * density * 64), Y: fixed.Int26_6((at.y + r.top) * density * 64)}
	switch f.anchor {
	case start:
	case middle:
		d.Dot.X -= d.MeasureString(text) / 2
	case end:
		d.Dot.X -= d.MeasureString(text)
	}
	d.DrawString(text)
}

// face is the font at a size, made when it is needed first.
func (r *raster) face(f font) xfont.Face {
	of := r.regular
	if f.bold {
		of = r.bold
	}
	key := font{size: f.size, bold: f.bold}
	if r.faces[key] == nil {
		// It fails for no size.
		r.faces[key], _ = opentype.NewFace(of, &opentype.FaceOptions{Size: f.size * density, DPI: 72, Hinting: xfont.HintingNone})
	}
	return r.faces[key]
}

func (r *raster) begin(string, string) {}
func (r *raster) end()                 {}
