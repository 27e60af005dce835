package picture

import "math/bits"

// What Graphic looks at and what it decides by. The figures are of a dozen
// photographs, each as it is and scaled in four ways, and of some fifty drawings,
// charts and screenshots.
const (
	// gridBlocks blocks of blockSide pixels are looked at along either axis: at
	// most 65,536 pixels, half a millisecond.
	gridBlocks = 16
	blockSide  = 16
	// A step between neighbours of at most softStep in every channel is one of
	// shading or noise, which drawings have little of.
	softStep = 6
)

// Graphic reports whether the picture looks like a drawing, a chart or a
// screenshot (few colours, flat areas, hard edges) rather than a photograph:
// then lossless coding is smaller and better. It looks at a sample of pixels.
//
// YCbCr and CMYK are never graphics here: they have been through a lossy format,
// whose errors a lossless one would keep at great cost. For the same reason,
// don't ask for gray pictures that were JPEG.
func (p *Picture) Graphic() bool {
	if p.Model == YCbCr || p.Model == CMYK {
		return false
	}
	s := p.look()
	return s.graphic()
}

// sample is what was seen of a picture.
type sample struct {
	pixels int // looked at
	flat   int // equal to those at the left and above
	steps  int // pairs of neighbours that differ
	soft   int // of those: by no more than softStep
	// seen has a bit for each colour's hash: too few where there are very many,
	// which is then no matter.
	seen [1 << 10]uint64
}

func (s *sample) colours() int {
	n := 0
	for _, v := range s.seen {
		n += bits.OnesCount64(v)
	}
	return n
}

// graphic decides. Seen in photographs, also blurred, scaled up four and eight
// times or down: soft 0.50 to 1.00, and above 0.94 wherever flat was over 0.4. In
// nearly all charts, screenshots and text: flat 0.72 to 0.97, soft 0.00 to 0.15 (with
// drawn shading and logos to 0.82). So what is half flat has to have hard steps,
// and what is mostly flat may have soft ones. Many colours with soft steps are a
// photograph on an even ground.
func (s *sample) graphic() bool {
	flat := float64(s.flat) / float64(s.pixels)
	soft := float64(s.soft) / float64(max(s.steps, 1))
	colours, rest := s.colours(), s.pixels-s.flat
	switch {
	case soft > 0.3 && colours > 2000 && 4*colours > rest:
		return false
	case flat >= 0.75:
		return soft <= 0.85
	case flat >= 0.5:
		return soft <= 0.6
	}
	return colours <= 32 && soft <= 0.6 // dots, hatching, pixel art
}

// look samples blocks on a grid, or the whole picture if it is small.
func (p *Picture) look() *sample {
	s := new(sample)
	blocksX, blocksY := blocks(p.Width), blocks(p.Height)
	for by := range blocksY {
		y0, y1 := block(by, blocksY, p.Height)
		for bx := range blocksX {
			x0, x1 := block(bx, blocksX, p.Width)
			s.block(p, [4]int{x0, y0, x1, y1})
		}
	}
	return s
}

func blocks(n int) int { return min((n+blockSide-1)/blockSide, gridBlocks) }

// block is where the block with a number begins and ends on an axis.
func block(i, of, n int) (from, to int) {
	if n <= of*blockSide {
		return i * blockSide, min((i+1)*blockSide, n)
	}
	if of > 1 {
		from = i * (n - blockSide) / (of - 1)
	}
	return from, from + blockSide
}

func (s *sample) block(p *Picture, r [4]int) {
	var above [blockSide]uint32
	for y := r[1]; y < r[3]; y++ {
		left := uint32(0)
		for x := r[0]; x < r[2]; x++ {
			c := p.colour(x, y)
			h := c * 0x9e3779b1 >> 16 // Knuth's multiplicative hash
			s.seen[h>>6] |= 1 << (h & 63)
			up := above[x-r[0]]
			above[x-r[0]] = c
			s.pixels++
			same := true
			if x > r[0] && c != left {
				same = false
				s.step(c, left)
			}
			if y > r[1] && c != up {
				same = false
				s.step(c, up)
			}
			if same {
				s.flat++
			}
			left = c
		}
	}
}

func (s *sample) step(a, b uint32) {
	s.steps++
	for i := 0; i < 32; i += 8 {
		if d := int32(a>>i&255) - int32(b>>i&255); d > softStep || d < -softStep {
			return
		}
	}
	s.soft++
}

// colour is a pixel of Gray or NRGBA; all that does not show is the same.
func (p *Picture) colour(x, y int) uint32 {
	if p.Model == Gray {
		c := uint32(p.Y.Pix[y*p.Y.Stride+x]) << 8
		if len(p.A.Pix) == 0 {
			return c | 255
		}
		a := uint32(p.A.Pix[y*p.A.Stride+x])
		if a == 0 {
			return 0
		}
		return c | a
	}
	px := p.Pix[y*p.Stride+4*x:][:4]
	if px[3] == 0 {
		return 0
	}
	return uint32(px[0])<<24 | uint32(px[1])<<16 | uint32(px[2])<<8 | uint32(px[3])
}
