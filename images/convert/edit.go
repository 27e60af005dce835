package convert

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"strconv"

	"millrace/images/picture"
)

// ErrOutside says that a rectangle is not in the image that it is to be cut out of.
var ErrOutside = errors.New("the rectangle is not inside the image")

// Gravity is what stays where something is cut off: a side, a corner, a point, or
// what is found in the pixels.
type Gravity string

// Gravities beside the sides and corners: north, south-east and so on as n, se.
const (
	Center Gravity = "center" // also ""
	// Entropy keeps the part with the most different shades.
	Entropy Gravity = "entropy"
	// Attention keeps the part with strong edges, strong colours and skin.
	Attention Gravity = "attention"
	// Focus keeps Edit.Focus as near to the middle as can be.
	Focus Gravity = "focus"
)

// Edit is what is done to an image beside giving it a size. All is in the order of
// the fields: a rectangle of the upright image, turned, trimmed, fitted into the
// box with gravity, filtered, and put on a ground.
type Edit struct {
	// Rect is x, y, width and height of what is cut out, in pixels of the upright
	// image; a width of 0: nothing is.
	Rect [4]int
	// Rotate is 90, 180 or 270 degrees clockwise. Flip is h (left and right change
	// places), v (top and bottom), hv, and comes after it.
	Rotate int
	Flip   string
	// Trim cuts off even borders: rows and columns that differ from the pixel in the upper left
	// corner by at most so many percent, 1 to 100. 0: nothing.
	Trim    int
	Gravity Gravity
	// Focus is x and y of the point for Gravity Focus, in thousandths of the sides.
	Focus [2]int
	// Enlarge makes images that are smaller than the box larger.
	Enlarge bool

	// Blur and Sharpen are the standard deviation of a Gaussian, in hundredths of a pixel of
	// the result.
	Blur, Sharpen int
	Grayscale     bool
	// Pad is what is put around the image: above, right, below, left.
	Pad [4]int
	// Background is the colour of what is put around and of what is transparent, rrggbb or
	// rrggbbaa. "": white around it, and transparent stays so.
	Background string
}

// ground is the background, and whether one was asked for.
func (e *Edit) ground() (c color.NRGBA, asked bool) {
	v, err := strconv.ParseUint(e.Background, 16, 32)
	switch {
	case err != nil:
		return color.NRGBA{255, 255, 255, 255}, false
	case len(e.Background) == 6:
		v = v<<8 | 255
	}
	return color.NRGBA{uint8(v >> 24), uint8(v >> 16), uint8(v >> 8), uint8(v)}, true
}

// finds reports whether the pixels say where the image is cut.
func (e *Edit) finds() bool { return e.Gravity == Entropy || e.Gravity == Attention }

// hasBorder reports whether the result has more than the image in it.
func (s Spec) hasBorder() bool {
	return s.Fit == Pad && s.Width > 0 && s.Height > 0 || s.Edit.Pad != [4]int{}
}

// plan is how the upright image becomes what is asked for, after the part of it that is cut
// out first was turned.
func (j *job) plan() (p plan, part image.Rectangle, err error) {
	e := &j.spec.Edit
	whole := image.Rectangle{Max: j.upright}
	part = whole
	if e.Rect[2] > 0 {
		part = image.Rect(e.Rect[0], e.Rect[1], e.Rect[0]+e.Rect[2], e.Rect[1]+e.Rect[3])
		if !part.In(whole) {
			return p, part, fmt.Errorf("%w, which has %d × %d pixels", ErrOutside, whole.Dx(), whole.Dy())
		}
	}
	w, h := part.Dx(), part.Dy()
	if e.Rotate == 90 || e.Rotate == 270 {
		w, h = h, w
	}
	return planFor(w, h, false, j.spec), part, nil
}

// turn cuts out a part of an upright image, which may be decoded smaller, and turns it.
func (j *job) turn(pic *picture.Picture, part image.Rectangle) *picture.Picture {
	e := &j.spec.Edit
	pic = crop(pic, scaled(part, pic.Width, j.upright.X, pic.Height, j.upright.Y))
	pic = pic.Orient(map[int]int{90: 6, 180: 3, 270: 8}[e.Rotate])
	return pic.Orient(map[string]int{"h": 2, "v": 4, "hv": 3}[e.Flip])
}

// edited decodes an image and does all that the spec asks for but finish.
func (j *job) edited() (*picture.Picture, error) {
	e := &j.spec.Edit
	p, part, err := j.plan()
	if err != nil {
		return nil, err
	}
	decoded := p
	if e.Trim > 0 { // what stays may be much smaller
		decoded.part, decoded.to = part, part.Size()
	}
	pic, err := j.decode(decoded)
	if err != nil {
		return nil, err
	}
	if err := j.ctx.Err(); err != nil {
		return nil, fmt.Errorf("after decoding: %w", err)
	}
	pic = j.turn(pic.Orient(j.info.Orientation), part)
	if e.Trim > 0 {
		pic = crop(pic, pic.Trim(e.Trim))
		p = planFor(pic.Width, pic.Height, false, j.spec)
	}
	if e.finds() {
		p.part = p.part.Sub(p.part.Min).Add(interesting(pic, p, e.Gravity))
	}
	return p.apply(pic), nil
}

// crop cuts out a rectangle exactly: chroma that would have to move becomes colours.
func crop(p *picture.Picture, r image.Rectangle) *picture.Picture {
	if r == image.Rect(0, 0, p.Width, p.Height) {
		return p
	}
	if p.Model == picture.YCbCr && (r.Min.X|r.Min.Y)&1 != 0 && p.Sub != picture.Sub444 {
		p = p.NRGBA()
	}
	return p.Crop(r)
}

// finish filters an image whose colours are settled, and puts it on its ground.
// profile is what the result's samples are in; nil is sRGB.
func (j *job) finish(p *picture.Picture, profile []byte) (*picture.Picture, []byte) {
	e := &j.spec.Edit
	if e.Blur > 0 {
		p = p.Blur(float64(e.Blur) / 100)
	}
	if e.Sharpen > 0 {
		p = p.Sharpen(float64(e.Sharpen) / 100)
	}
	if e.Grayscale {
		p = p.Grayscale()
	}
	ground, asked := e.ground()
	if (asked || j.spec.hasBorder() || j.mark != nil) && profile != nil {
		p, profile = toSRGB(p, profile) // which the ground and the watermark are in
	}
	if asked && ground.A > 0 {
		p = p.Over(ground)
	}
	at, size := j.spec.frame(p.Width, p.Height)
	p = p.Extend(at.X, at.Y, size.X, size.Y, ground)
	return j.spec.Watermark.lay(j.mark, p), profile
}

// frame is where an image of a size stands in its result, and how large that is: in
// the box, for fit=pad, and with what is put around that.
func (s Spec) frame(width, height int) (at, size image.Point) {
	size = image.Pt(width, height)
	if s.Fit == Pad && s.Width > 0 && s.Height > 0 {
		box := image.Pt(max(s.Width, width), max(s.Height, height))
		at = s.Edit.place(box.Sub(size), box)
		size = box
	}
	p := s.Edit.Pad
	return at.Add(image.Pt(p[3], p[0])), size.Add(image.Pt(p[1]+p[3], p[0]+p[2]))
}

// place divides what is left over between both sides: room is how much that is.
func (e *Edit) place(room, whole image.Point) image.Point {
	x, y := 1, 1 // halves of the room
	switch e.Gravity {
	case Focus:
		return image.Pt(
			min(max(e.Focus[0]*whole.X/1000-(whole.X-room.X)/2, 0), room.X),
			min(max(e.Focus[1]*whole.Y/1000-(whole.Y-room.Y)/2, 0), room.Y))
	case Center, Entropy, Attention:
	default:
		for _, side := range e.Gravity {
			switch side {
			case 'n':
				y = 0
			case 's':
				y = 2
			case 'w':
				x = 0
			case 'e':
				x = 2
			}
		}
	}
	return image.Pt(room.X*x/2, room.Y*y/2)
}
