package convert

import (
	"image"
	"math"

	"millrace/images/header"
	"millrace/images/picture"
)

// A plan is how a stored image, not yet upright, becomes one of its size.
type plan struct {
	width, height int // stored
	// part is what is kept of the stored image.
	part image.Rectangle
	// to is the size of the result, before it is turned upright.
	to image.Point
}

// planFor fits a stored image into the box of s. turned says that upright it
// has rows where it has columns now, so the box is turned as well.
func planFor(width, height int, turned bool, s Spec) plan {
	p := plan{width: width, height: height, part: image.Rect(0, 0, width, height), to: image.Pt(width, height)}
	if !s.Resizes() {
		return p
	}
	boxW, boxH := float64(s.Width), float64(s.Height)
	if turned {
		boxW, boxH = boxH, boxW
	}
	w, h := float64(width), float64(height)
	fit, most := s.Fit, 1.0 // which the scale may be
	if s.Edit.Enlarge {
		most = math.Inf(1)
	}
	switch {
	case boxW == 0: // one side alone keeps the proportions, whatever the fit
		boxW, fit = math.Inf(1), Contain
	case boxH == 0:
		boxH, fit = math.Inf(1), Contain
	}
	switch fit {
	case Fill, Cover:
		k := min(1, most*w/boxW, most*h/boxH)
		p.to = image.Pt(round(boxW*k), round(boxH*k))
		if fit == Fill {
			break
		}
		scale := min(w/boxW, h/boxH) // of the box, to lie in the image
		partW, partH := min(width, round(boxW*scale)), min(height, round(boxH*scale))
		p.part = image.Rect(0, 0, partW, partH).Add(s.Edit.place(image.Pt(width-partW, height-partH), image.Pt(width, height)))
		if !s.Edit.Enlarge {
			p.to = image.Pt(min(p.to.X, partW), min(p.to.Y, partH))
		}
	case Outside:
		k := min(most, max(boxW/w, boxH/h))
		p.to = image.Pt(round(w*k), round(h*k))
	default:
		k := min(most, boxW/w, boxH/h)
		p.to = image.Pt(round(w*k), round(h*k))
	}
	return p
}

// upright is the size of an image when it is shown.
func upright(i header.Info) image.Point {
	if i.Orientation >= 5 { // TIFF 6.0: these change rows and columns
		return image.Pt(i.Height, i.Width)
	}
	return image.Pt(i.Width, i.Height)
}

// planOf is the plan for an image, as far as its headers tell: by Edit.Trim the result may be
// smaller.
func (s Spec) planOf(i header.Info) plan {
	if !s.Edits() {
		return planFor(i.Width, i.Height, i.Orientation >= 5, s)
	}
	size := upright(i)
	if r := s.Edit.Rect; r[2] > 0 {
		size = image.Pt(min(r[2], size.X), min(r[3], size.Y))
	}
	if s.Edit.Rotate == 90 || s.Edit.Rotate == 270 {
		size = image.Pt(size.Y, size.X)
	}
	return planFor(size.X, size.Y, false, s)
}

func round(v float64) int { return max(1, int(math.Round(v))) }

// denominator is the largest of 8, 4 and 2 that a JPEG may be decoded by so
// that what is kept of it is larger than the result by a quarter at least; else
// 1. What the decoder makes small by itself has ripples that are not in the
// image where patterns are fine, and the little step that is left blurs:
// without the quarter, photographs of 2560 pixels at w=300 lost up to 4 of
// SSIMULACRA2 at quality 80. It costs a third of such a conversion's CPU.
func (p plan) denominator() int {
	for _, d := range []int{8, 4, 2} {
		if roomy(p.part.Dx(), d, p.to.X) && roomy(p.part.Dy(), d, p.to.Y) {
			return d
		}
	}
	return 1
}

// roomy reports whether a side decoded by d leaves room for a good filter. One
// pixel is enough for one pixel.
func roomy(side, d, to int) bool {
	n := ceil(side, d)
	return 4*n >= 5*to || side == 1
}

func ceil(n, d int) int { return (n + d - 1) / d }

// apply cuts and scales an image that was decoded at any scale.
func (p plan) apply(pic *picture.Picture) *picture.Picture {
	part := p.part
	if pic.Width != p.width || pic.Height != p.height {
		part = scaled(part, pic.Width, p.width, pic.Height, p.height)
	}
	if part != image.Rect(0, 0, pic.Width, pic.Height) {
		pic = pic.Crop(part)
	}
	if pic.Width != p.to.X || pic.Height != p.to.Y {
		pic = pic.Resize(p.to.X, p.to.Y)
	}
	return pic
}

// scaled is r in an image of nx × ny instead of dx × dy, not empty.
func scaled(r image.Rectangle, nx, dx, ny, dy int) image.Rectangle {
	s := image.Rect(r.Min.X*nx/dx, r.Min.Y*ny/dy, ceil(r.Max.X*nx, dx), ceil(r.Max.Y*ny, dy))
	return s.Intersect(image.Rect(0, 0, nx, ny))
}
