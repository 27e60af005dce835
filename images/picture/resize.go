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

// of returns the weights for one sample of the result.
func (f *filter) of(i int) []int32 { return f.weights[i*f.taps:][:f.taps] }

// Two samples share a word, 32 bits apart, and one multiplication does both.
// What a negative sum borrows from its upper neighbour is 2^-21 of a step, once
// bias is subtracted again; of the columns' sums, which a quarter of a sample's
// range may be added to or taken from, it makes positive ones of 16 bits.
const (
	pair    = 0x00000001_00000001
	shift   = weightBits - keptBits
	bias    = 1 << 21
	sumBits = weightBits + keptBits
	// start makes up for the bias, as the weights' sum is known, and rounds.
	start = (1<<(sumBits-1) - bias>>shift*weightOne) & (1<<32 - 1) * pair
)

// scale filters the columns into a row of the source's width, then that row into
// the result's, two rows at once: so a row of words is all the memory it takes,
// and most of the work is in the columns, where samples lie side by side.
// samples is how many of them a pixel of the planes has.
func scale(dst, src Plane, fx, fy *filter, samples int) {
	line := make([]uint64, samples*fx.from)
	for y := 0; y < fy.to; y += 2 {
		next := min(y+1, fy.to-1)
		columns(line, src, fy, y, next)
		d, e := dst.row(y, samples*fx.to), dst.row(next, samples*fx.to)
		if samples == 1 {
			fx.plane(d, e, line)
		} else {
			fx.packed(d, e, line)
		}
	}
}

// columns makes the rows y, in the lower halves of words, and z of the result.
func columns(line []uint64, src Plane, f *filter, y, z int) {
	n := len(line)
	top, bottom := src.Pix[int(f.start[y])*src.Stride:], src.Pix[int(f.start[z])*src.Stride:]
	if n < 8 {
		for x := range line {
			line[x] = column(top[x:], src.Stride, f.of(y)) | column(bottom[x:], src.Stride, f.of(z))<<32
		}
		return
	}
	v, w := f.of(y), f.of(z)
	for x := 0; x < n; x += 8 {
		x = min(x, n-8) // the last ones are done again if there are fewer
		l := (*[8]uint64)(line[x:])
		a, b, c, d := eight(top[x:], src.Stride, v)
		i, j, k, m := eight(bottom[x:], src.Stride, w)
		l[0], l[4] = join(a, i)
		l[1], l[5] = join(b, j)
		l[2], l[6] = join(c, k)
		l[3], l[7] = join(d, m)
	}
}

func column(src []byte, stride int, weights []int32) uint64 {
	sum := int32(bias + 1<<(shift-1))
	for k, w := range weights {
		sum += w * int32(src[k*stride])
	}
	return uint64(sum >> shift)
}

// eight sums eight columns, of which those four apart share a word.
func eight(src []byte, stride int, weights []int32) (a, b, c, d uint64) {
	const bytes = 0xff * pair
	a = (bias + 1<<(shift-1)) * pair
	b, c, d = a, a, a
	o := 0
	for _, weight := range weights {
		v, w := binary.LittleEndian.Uint64(src[o:]), uint64(weight)
		a += v & bytes * w
		b += v >> 8 & bytes * w
		c += v >> 16 & bytes * w
		d += v >> 24 & bytes * w
		o += stride
	}
	const kept = (1<<(32-shift) - 1) * pair
	return a >> shift & kept, b >> shift & kept, c >> shift & kept, d >> shift & kept
}

// join puts the sums for one column from two rows side by side.
func join(y, z uint64) (lower, upper uint64) {
	const half = 1<<32 - 1
	return y&half | z<<32, y>>32 | z&^half
}

// plane filters two rows of one sample a pixel.
func (f *filter) plane(d, e []byte, line []uint64) {
	weights, taps := f.weights, f.taps
	from, e := f.start[:len(d)], e[:len(d)]
	for i := range d {
		w := weights[:taps]
		in := line[from[i]:][:len(w)]
		sum := uint64(start)
		for k, v := range w {
			sum += uint64(v) * in[k]
		}
		d[i] = clamp8(int32(uint32(sum)) >> sumBits)
		e[i] = clamp8(int32(sum>>32) >> sumBits)
		weights = weights[taps:]
	}
}

// packed filters two rows of four samples a pixel.
func (f *filter) packed(d, e []byte, line []uint64) {
	weights, taps := f.weights, f.taps
	for _, from := range f.start {
		if len(d) < 4 || len(e) < 4 {
			return
		}
		in := line[4*from:][:4*taps]
		r, g, b, a := uint64(start), uint64(start), uint64(start), uint64(start)
		for k, v := range weights[:taps] {
			px, w := (*[4]uint64)(in[4*k:]), uint64(v)
			r += w * px[0]
			g += w * px[1]
			b += w * px[2]
			a += w * px[3]
		}
		for i, s := range [4]uint64{r, g, b, a} {
			d[i] = clamp8(int32(uint32(s)) >> sumBits)
			e[i] = clamp8(int32(s>>32) >> sumBits)
		}
		d, e, weights = d[4:], e[4:], weights[taps:]
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
