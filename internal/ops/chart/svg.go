package chart

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// escaper makes text safe in SVG, in content and in attributes.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

func escape(s string) string { return escaper.Replace(clean(s)) }

// svg writes what is drawn as SVG.
type svg struct{ b strings.Builder }

// newSVG begins an image. data are further attributes of the root element,
// name and value in turn, for scripts.
func newSVG(size Size, title, about string, data ...string) *svg {
	s := new(svg)
	label := title
	if about != "" {
		label += ": " + about
	}
	fmt.Fprintf(&s.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s" font-family="system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"`,
		size.Width, size.Height, size.Width, size.Height, escape(label))
	for i := 0; i+1 < len(data); i += 2 {
		fmt.Fprintf(&s.b, ` %s="%s"`, data[i], escape(data[i+1]))
	}
	s.b.WriteString(">\n")
	return s
}

func (s *svg) writeTo(w io.Writer) error {
	s.b.WriteString("</svg>\n")
	_, err := io.WriteString(w, s.b.String())
	return err
}

// coordinate writes a pixel position to a tenth, as short as it can.
func (s *svg) coordinate(v float64) {
	if !finite(v) {
		v = 0
	}
	text := strconv.FormatFloat(v, 'f', 1, 64)
	s.b.WriteString(strings.TrimSuffix(text, ".0"))
}

func (s *svg) attribute(name string, v float64) {
	s.b.WriteString(" " + name + `="`)
	s.coordinate(v)
	s.b.WriteByte('"')
}

func (s *svg) paint(attribute string, p paint) {
	if p == none {
		s.b.WriteString(" " + attribute + `="none"`)
		return
	}
	s.b.WriteString(" " + attribute + `="var(--chart-` + string(p) + "," + paints[p] + `)"`)
}

func (s *svg) stroke(st stroke) {
	if st.paint == none || st.width <= 0 {
		return
	}
	s.paint("stroke", st.paint)
	s.attribute("stroke-width", st.width)
	if len(st.dash) > 0 {
		s.b.WriteString(` stroke-dasharray="`)
		for i, d := range st.dash {
			if i > 0 {
				s.b.WriteByte(' ')
			}
			s.coordinate(d)
		}
		s.b.WriteByte('"')
	}
}

func (s *svg) path(points []point) {
	s.b.WriteString(`<path d="`)
	for i, p := range points {
		if i == 0 {
			s.b.WriteByte('M')
		} else {
			s.b.WriteByte('L')
		}
		s.coordinate(p.x)
		s.b.WriteByte(' ')
		s.coordinate(p.y)
	}
}

func (s *svg) line(points []point, st stroke) {
	if len(points) < 2 {
		return
	}
	s.path(points)
	s.b.WriteString(`" fill="none"`)
	s.stroke(st)
	if len(points) > 2 {
		s.b.WriteString(` stroke-linejoin="round"`)
	}
	s.b.WriteString("/>\n")
}

func (s *svg) area(points []point, fill paint, st stroke) {
	if len(points) < 3 {
		return
	}
	s.path(points)
	s.b.WriteString(`Z"`)
	s.paint("fill", fill)
	s.stroke(st)
	s.b.WriteString("/>\n")
}

func (s *svg) disc(center point, radius float64, fill paint, st stroke) {
	s.b.WriteString("<circle")
	s.attribute("cx", center.x)
	s.attribute("cy", center.y)
	s.attribute("r", radius)
	s.paint("fill", fill)
	s.stroke(st)
	s.b.WriteString("/>\n")
}

func (s *svg) text(at point, text string, f font) {
	if text == "" {
		return
	}
	s.b.WriteString("<text")
	s.attribute("x", at.x)
	s.attribute("y", at.y)
	s.attribute("font-size", f.size)
	s.paint("fill", f.paint)
	switch f.anchor {
	case middle:
		s.b.WriteString(` text-anchor="middle"`)
	case end:
		s.b.WriteString(` text-anchor="end"`)
	}
	if f.bold {
		s.b.WriteString(` font-weight="600"`)
	}
	s.b.WriteString(">" + escape(text) + "</text>\n")
}

func (s *svg) begin(class, tooltip string) {
	s.b.WriteString("<g")
	if class != "" {
		s.b.WriteString(` class="` + escape(class) + `"`)
	}
	s.b.WriteByte('>')
	if tooltip != "" {
		s.b.WriteString("<title>" + escape(tooltip) + "</title>")
	}
	s.b.WriteByte('\n')
}

func (s *svg) end() { s.b.WriteString("</g>\n") }
