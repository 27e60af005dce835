package convert

import (
	"image"
	"math"

	"millrace/images/picture"
)

// lookedAt is the longer side of the small picture in which the interesting part is
// looked for.
const lookedAt = 256

// interesting is where the upper left corner of p.part goes, so that it holds what is
// most worth seeing of an image that may be decoded smaller. As wide or as high as the image
// it is, so it moves along the other axis alone.
func interesting(pic *picture.Picture, p plan, by Gravity) image.Point {
	room := image.Pt(p.width, p.height).Sub(p.part.Size())
	if room == (image.Point{}) {
		return room
	}
	k := max(1, float64(max(pic.Width, pic.Height))/lookedAt)
	small := pic.Resize(round(float64(pic.Width)/k), round(float64(pic.Height)/k)).NRGBA()
	along, side := small.Width, float64(p.part.Dx())/float64(p.width)
	if room.X == 0 {
		along, side = small.Height, float64(p.part.Dy())/float64(p.height)
	}
	window := min(round(side*float64(along)), along)
	if window == along {
		return image.Pt(room.X/2, room.Y/2)
	}
	lines := newLines(small, room.X > 0)
	best, at := math.Inf(-1), 0
	middle := (along - window) / 2
	for from := range along - window + 1 {
		score := lines.score(from, from+window, by)
		// Among equals the one nearest to the middle.
		if score > best+1e-9 || score > best-1e-9 && abs(from-middle) < abs(at-middle) {
			best, at = max(best, score), from
		}
	}
	return image.Pt(room.X*at/(along-window), room.Y*at/(along-window))
}

func abs(n int) int { return max(n, -n) }

// lines are what is seen in each column, or row, of a picture.
type lines struct {
	shades [][256]int // how many pixels have each shade, in all lines up to one
	sums   []float64  // of what draws attention, likewise
}

func newLines(p *picture.Picture, columns bool) *lines {
	n, across := p.Height, p.Width
	if columns {
		n, across = across, n
	}
	pixel := func(line, i int) []byte {
		x, y := i, line
		if columns {
			x, y = line, i
		}
		return p.Pix[min(y, p.Height-1)*p.Stride+4*min(x, p.Width-1):][:4]
	}
	l := &lines{make([][256]int, n+1), make([]float64, n+1)}
	for line := range n {
		l.shades[line+1], l.sums[line+1] = l.shades[line], l.sums[line]
		for i := range across {
			px := pixel(line, i)
			l.shades[line+1][luma(px)]++
			edge := abs(luma(px)-luma(pixel(line+1, i))) + abs(luma(px)-luma(pixel(line, i+1)))
			l.sums[line+1] += float64(px[3]) / 255 * (float64(edge) + colourful(px)/4)
		}
	}
	return l
}

func luma(px []byte) int { return (299*int(px[0]) + 587*int(px[1]) + 114*int(px[2])) / 1000 }

// colourful is how strong a colour is, 0 to 255, and twice that for those of skin, which in
// people of all shades are of one hue.
func colourful(px []byte) float64 {
	r, g, b := int(px[0]), int(px[1]), int(px[2])
	strong := float64(max(r, g, b) - min(r, g, b))
	if r > g && g > b && 2*(g-b) < 3*(r-g) && r-b > 25 && r > 60 {
		strong *= 2
	}
	return strong
}

// score of the lines from a number to before another.
func (l *lines) score(from, to int, by Gravity) float64 {
	if by == Attention {
		return l.sums[to] - l.sums[from]
	}
	all, entropy := 0, 0.0
	for s := range 256 {
		all += l.shades[to][s] - l.shades[from][s]
	}
	for s := range 256 {
		if n := l.shades[to][s] - l.shades[from][s]; n > 0 {
			p := float64(n) / float64(all)
			entropy -= p * math.Log2(p)
		}
	}
	return entropy
}
