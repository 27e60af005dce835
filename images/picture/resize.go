package picture

import (
	"encoding/binary"
	"math"
)

// The filter's numbers are of fixed point. A weight has 14 bits after the
// point; of a column's sum 7 are kept, so that the second sum, with an
// overshoot of a third in each direction, stays below 2^31.
const (
	weightBits = 14
	keptBits   = 7
	weightOne  = 1 << weightBits
)

// Resize scales to width × height, at least 1 each; the same size returns p
// itself. The filter is Catmull and Rom's cubic (A class of local interpolating
// splines, 1974), as wide as the distance of the result's pixels where it gets
// smaller, so that there is no aliasing. Samples are filtered as they are
// stored, not in linear light, as browsers do it.
//
// Every plane is scaled on its own, chroma straight to the size that the
// result's subsampling asks for, with its samples in the middle of their
// pixels. A picture with transparent pixels becomes NRGBA, and their colour
// counts in proportion to alpha, so that none bleeds from where nothing shows.
func (p *Picture) Resize(width, height int) *Picture {
	width, height = max(width, 1), max(height, 1)
	if width == p.Width && height == p.Height {
		return p
	}
	opaque := p.Opaque()
	if !opaque {
		p = p.NRGBA()
	} else if len(p.A.Pix) > 0 {
		q := *p
		q.A = Plane{}
		p = &q
	}
	q := p.like(width, height, p.Sub)
	stepX, stepY := float64(p.Width)/float64(width), float64(p.Height)/float64(height)
	fx, fy := newFilter(p.Width, width, stepX), newFilter(p.Height, height, stepY)
	switch {
	case !p.planar() && opaque:
		scale(q.pixels(), p.pixels(), fx, fy, 4)
		return q
	case !p.planar():
		scaleAlpha(q.pixels(), p.pixels(), fx, fy)
		return q
	}
	scale(q.Y, p.Y, fx, fy, 1)
	if p.Model == YCbCr {
		sw, sh := p.Sub.size(p.Width, p.Height)
		dw, dh := q.Sub.size(width, height)
		// The step is that of the pixels: planes of odd sizes cover half a
		// sample more than the picture.
		fx, fy = newFilter(sw, dw, stepX), newFilter(sh, dh, stepY)
		scale(q.Cb, p.Cb, fx, fy, 1)
		scale(q.Cr, p.Cr, fx, fy, 1)
	}
	return q
}

// filter says for each sample of the result which of the source it is made of:
// taps of them from start on, with these weights, whose sum is weightOne.
type filter struct {
	from, to int
	taps     int
	start    []int32
	weights  []int32 // taps for each
}

// newFilter is for an axis of from samples that becomes to; step is how many of
// the source lie between two of the result. At the edges the weights of what is
// outside are given to the rest.
func newFilter(from, to int, step float64) *filter {
	width := max(step, 1)
	f := &filter{from: from, to: to, taps: min(int(math.Ceil(4*width)), from)}
	f.start = make([]int32, to)
	f.weights = make([]int32, to*f.taps)
	exact := make([]float64, f.taps)
	for i := range to {
		centre := (float64(i)+0.5)*step - 0.5
		first := int(math.Floor(centre-2*width)) + 1
		first = max(min(first, from-f.taps), 0)
		sum := 0.0
		for k := range exact {
			exact[k] = catmullRom((float64(first+k) - centre) / width)
			sum += exact[k]
		}
		f.start[i] = int32(first)
		quantize(f.of(i), exact, sum)
	}
	return f
}

// quantize makes integers of weights, with what rounding left over given to the
// largest. A sum of almost nothing cannot be divided by: then the sample is the
// nearest one.
func quantize(dst []int32, exact []float64, sum float64) {
	left, largest := int32(weightOne), 0
	for k, v := range exact {
		if math.Abs(v) > math.Abs(exact[largest]) {
			largest = k
		}
		if sum > 1e-3 {
			dst[k] = int32(math.Round(v / sum * weightOne))
			left -= dst[k]
		}
	}
	dst[largest] += left
}

// catmullRom is the cubic with B = 0, C = 1/2 of Mitchell and Netravali's
// family (Reconstruction filters in computer graphics, 1988).
func catmullRom(x float64) float64 {
	x = math.Abs(x)
	switch {
	case x < 1:
		return (1.5*x-2.5)*x*x + 1
	case x < 2:
		return ((-0.5*x+2.5)*x-4)*x + 2
	}
	return 0
}

// scale filters the columns into one row of the source's width, then that row
// into the result's: so a row is all the memory it takes, and most of the work
// is in the columns, where samples lie side by side. samples is how many of
// them a pixel of the planes has.
func scale(dst, src Plane, fx, fy *filter, samples int) {
	line := make([]int32, samples*fx.from)
	for y := range fy.to {
		columns(line, src, int(fy.start[y]), fy.of(y))
		if d := dst.row(y, samples*fx.to); samples == 1 {
			fx.plane(d, line)
		} else {
			fx.packed(d, line)
		}
	}
}

// of returns the weights for one sample of the result.
func (f *filter) of(i int) []int32 { return f.weights[i*f.taps:][:f.taps] }

// columns sums rows of src from the one with number first on.
func columns(line []int32, src Plane, first int, weights []int32) {
	n := len(line)
	if n < 8 {
		for x := range line {
			sum := int32(0)
			for k, w := range weights {
				sum += w * int32(src.Pix[(first+k)*src.Stride+x])
			}
			line[x] = (sum + 1<<(weightBits-keptBits-1)) >> (weightBits - keptBits)
		}
		return
	}
	for x := 0; x < n-8; x += 8 {
		eight((*[8]int32)(line[x:]), src.Pix[first*src.Stride+x:], src.Stride, weights)
	}
	eight((*[8]int32)(line[n-8:]), src.Pix[first*src.Stride+n-8:], src.Stride, weights)
}

// eight sums eight columns, two in each multiplication: samples lie 32 bits
// apart in a word, and so do their products and sums. A negative sum takes one
// from its upper neighbour; bias keeps both positive.
func eight(line *[8]int32, src []byte, stride int, weights []int32) {
	const (
		apart = 0x000000ff_000000ff
		shift = weightBits - keptBits
		bias  = 1 << 26
		start = (bias + 1<<(shift-1)) * 0x00000001_00000001
	)
	a, b, c, d := uint64(start), uint64(start), uint64(start), uint64(start)
	o := 0
	for _, weight := range weights {
		v, w := binary.LittleEndian.Uint64(src[o:]), uint64(weight)
		a += v & apart * w
		b += v >> 8 & apart * w
		c += v >> 16 & apart * w
		d += v >> 24 & apart * w
		o += stride
	}
	line[0], line[4] = (int32(uint32(a))-bias)>>shift, (int32(a>>32)-bias)>>shift
	line[1], line[5] = (int32(uint32(b))-bias)>>shift, (int32(b>>32)-bias)>>shift
	line[2], line[6] = (int32(uint32(c))-bias)>>shift, (int32(c>>32)-bias)>>shift
	line[3], line[7] = (int32(uint32(d))-bias)>>shift, (int32(d>>32)-bias)>>shift
}

const (
	sumBits = weightBits + keptBits
	half    = 1 << (sumBits - 1)
)

// plane filters a row of one sample a pixel.
func (f *filter) plane(dst []byte, line []int32) {
	weights, taps := f.weights, f.taps
	start := f.start[:len(dst)]
	for i := range dst {
		w := weights[:taps]
		in := line[start[i]:][:len(w)]
		sum := int32(half)
		for k, v := range w {
			sum += v * in[k]
		}
		dst[i] = clamp8(sum >> sumBits)
		weights = weights[taps:]
	}
}

// packed filters a row of four samples a pixel.
func (f *filter) packed(dst []byte, line []int32) {
	weights, taps := f.weights, f.taps
	for _, s := range f.start {
		if len(dst) < 4 {
			return
		}
		in := line[4*s:][:4*taps]
		r, g, b, a := int32(half), int32(half), int32(half), int32(half)
		for k, w := range weights[:taps] {
			px := (*[4]int32)(in[4*k:])
			r += w * px[0]
			g += w * px[1]
			b += w * px[2]
			a += w * px[3]
		}
		dst[0], dst[1] = clamp8(r>>sumBits), clamp8(g>>sumBits)
		dst[2], dst[3] = clamp8(b>>sumBits), clamp8(a>>sumBits)
		dst, weights = dst[4:], weights[taps:]
	}
}

// scaleAlpha is scale for pixels that are transparent in part: colours are
// summed times alpha, and divided by the sum of alpha at the end. A colour times
// alpha has 16 bits, so that the second sums need 64.
func scaleAlpha(dst, src Plane, fx, fy *filter) {
	line := make([]int32, 4*fx.from)
	for y := range fy.to {
		alphaColumns(line, src, int(fy.start[y]), fy.of(y))
		out := dst.row(y, 4*fx.to)
		for i, s := range fx.start {
			fx.alphaPixel((*[4]byte)(out[4*i:]), line[4*s:], fx.of(i))
		}
	}
}

func alphaColumns(line []int32, src Plane, first int, weights []int32) {
	for x := 0; x+4 <= len(line); x += 4 {
		in := src.Pix[first*src.Stride+x:]
		var r, g, b, a int32
		o := 0
		for _, w := range weights {
			v := binary.LittleEndian.Uint32(in[o:])
			wa := w * int32(v>>24)
			r += wa * int32(v&255)
			g += wa * int32(v>>8&255)
			b += wa * int32(v>>16&255)
			a += wa * 255
			o += src.Stride
		}
		const shift = weightBits - keptBits
		line[x], line[x+1], line[x+2], line[x+3] = r>>shift, g>>shift, b>>shift, a>>shift
	}
}

func (f *filter) alphaPixel(dst *[4]byte, in, weights []int32) {
	var r, g, b, a int64
	for _, w := range weights {
		if len(in) < 4 {
			break
		}
		r += int64(w) * int64(in[0])
		g += int64(w) * int64(in[1])
		b += int64(w) * int64(in[2])
		a += int64(w) * int64(in[3])
		in = in[4:]
	}
	const one = 255 << sumBits // alpha of 1, as it is summed
	alpha := clamp8(int32((a + one/2) / one))
	if a <= 0 || alpha == 0 {
		return // nothing shows: transparent black
	}
	dst[0] = clamp8(int32((r*255 + a/2) / a))
	dst[1] = clamp8(int32((g*255 + a/2) / a))
	dst[2] = clamp8(int32((b*255 + a/2) / a))
	dst[3] = alpha
}
