package icc

import (
	"fmt"
	"math"

	"millrace/images/picture"
)

// ToSRGB converts an image whose samples are in this profile to sRGB, relative
// colorimetric with the black point as the profile has it; channels that are
// out of sRGB's gamut are clipped.
//
//   - YCbCr and NRGBA need an RGB profile, CMYK needs a CMYK one; the result is
//     NRGBA.
//   - Gray needs a Gray or an RGB profile (its grays are then those with equal
//     samples) and stays Gray, unless the profile gives grays a tint, then it
//     becomes NRGBA. NRGBA without colours may have a Gray profile, too: that is how
//     Go decodes a PNG of gray with alpha.
//
// Alpha is kept, and may be shared with the source. The result has no ICC. The
// error wraps ErrUnsupported for kinds of profiles that are not implemented and for
// images that the profile does not fit; in time it is bounded by a pass over
// the pixels and 227,000 evaluations of the profile (some 0.1 s).
func (p *Profile) ToSRGB(pic *picture.Picture) (*picture.Picture, error) {
	out, err := p.convert(pic)
	if err != nil {
		return nil, fmt.Errorf("converting from the colour profile %q to sRGB: %w: %w", p.Description, ErrUnsupported, err)
	}
	return out, nil
}

func (p *Profile) convert(pic *picture.Picture) (*picture.Picture, error) {
	if p.unsupported != "" {
		return nil, fmt.Errorf("it is for %s", p.unsupported)
	}
	switch {
	case pic.Model == picture.CMYK && p.Space == CMYK:
		out := newNRGBA(pic)
		p.newSimplex(pic).rows(out, pic)
		return out, nil
	case (pic.Model == picture.CMYK) != (p.Space == CMYK):
		return nil, fmt.Errorf("it is for %s, the picture is not", p.Space.name())
	case pic.Model == picture.Gray:
		return p.grayPicture(pic), nil
	}
	var from, out *picture.Picture
	if pic.Model == picture.NRGBA {
		from, out = pic, newNRGBA(pic)
	} else {
		from = pic.NRGBA()
		out = from // which is ours alone: converted in place
		out.ICC = nil
	}
	switch {
	case p.Space == Gray:
		if !colourless(from) {
			return nil, fmt.Errorf("it is for %s, the picture has colours", p.Space.name())
		}
		p.tones().rows(out, from)
	case p.table != nil:
		p.newSimplex(from).rows(out, from)
	default:
		p.newShaper().rows(out, from)
	}
	return out, nil
}

// name is what a person calls the space.
func (s Space) name() string {
	switch s {
	case Gray:
		return "gray"
	case RGB:
		return "RGB"
	default:
		return string(s)
	}
}

// newNRGBA allocates an image of another's size.
func newNRGBA(like *picture.Picture) *picture.Picture {
	return &picture.Picture{
		Width: like.Width, Height: like.Height, Model: picture.NRGBA,
		Pix: make([]byte, 4*like.Width*like.Height), Stride: 4 * like.Width,
	}
}

// row returns the bytes of one row of four samples a pixel.
func row(p *picture.Picture, y int) []byte { return p.Pix[y*p.Stride:][:4*p.Width] }

// A gray level whose channels differ by no more than this is written as gray:
// the rounding of profiles must not make colour images of gray ones.
const neutralTolerance = 2

// colourless reports whether all pixels of an NRGBA image are gray.
func colourless(p *picture.Picture) bool {
	for y := range p.Height {
		for r := row(p, y); len(r) >= 4; r = r[4:] {
			if max(r[0], r[1], r[2])-min(r[0], r[1], r[2]) > neutralTolerance {
				return false
			}
		}
	}
	return true
}

// toneTable is the sRGB of each level of gray.
type toneTable [256][3]byte

func (p *Profile) tones() *toneTable {
	t := &toneTable{}
	for i := range t {
		x := float64(i) / 255
		v := p.srgb([maxInputs]float64{x, x, x})
		for j := range v {
			t[i][j] = byte(255*clip(v[j]) + 0.5)
		}
	}
	return t
}

func (t *toneTable) neutral() bool {
	for _, v := range t {
		if max(v[0], v[1], v[2])-min(v[0], v[1], v[2]) > neutralTolerance {
			return false
		}
	}
	return true
}

// rows converts pixels without colours, by their green.
func (t *toneTable) rows(out, from *picture.Picture) {
	for y := range from.Height {
		dst := row(out, y)
		for src := row(from, y); len(src) >= 4; src = src[4:] {
			v := &t[src[1]]
			dst[0], dst[1], dst[2], dst[3] = v[0], v[1], v[2], src[3]
			dst = dst[4:]
		}
	}
}

// grayPicture converts an image of the Gray model.
func (p *Profile) grayPicture(pic *picture.Picture) *picture.Picture {
	tones := p.tones()
	if pic.Limited {
		tones = tones.limited()
	}
	if !tones.neutral() {
		return tones.tinted(pic)
	}
	out := &picture.Picture{
		Width: pic.Width, Height: pic.Height, Model: picture.Gray, A: pic.A,
		Y: picture.Plane{Pix: make([]byte, pic.Width*pic.Height), Stride: pic.Width},
	}
	for y := range pic.Height {
		dst := out.Y.Pix[y*pic.Width:][:pic.Width]
		for x, v := range pic.Y.Pix[y*pic.Y.Stride:][:pic.Width] {
			dst[x] = tones[v][1]
		}
	}
	return out
}

// limited is the table for luma from 16 to 235; the result has the full range.
func (t *toneTable) limited() *toneTable {
	out := &toneTable{}
	for i := range out {
		out[i] = t[min(max(i-16, 0)*255+109, 219*255)/219]
	}
	return out
}

func (t *toneTable) tinted(pic *picture.Picture) *picture.Picture {
	out := newNRGBA(pic)
	for y := range pic.Height {
		dst := row(out, y)
		for x, v := range pic.Y.Pix[y*pic.Y.Stride:][:pic.Width] {
			c, alpha := &t[v], byte(255)
			if len(pic.A.Pix) != 0 {
				alpha = pic.A.Pix[y*pic.A.Stride+x]
			}
			dst[4*x], dst[4*x+1], dst[4*x+2], dst[4*x+3] = c[0], c[1], c[2], alpha
		}
	}
	return out
}

// A shaper converts by curves and a matrix: the sum of three table entries is
// linear sRGB, which leads through a fourth table to the result. The three
// channels lie in one word, so that two additions do the work of a
// matrix multiplication, and the fourth table is so wide that nothing has to be clipped.
type shaper struct {
	terms [3][256]uint64
	out   [1 << linearBits]byte
}

const (
	// linearOne is light of 1 in the output table: fine enough that the
	// darkest levels, which are 1/3295 apart, hit theirs.
	linearOne = 8192
	// linearBits makes room for light from -8 to 8. sRGB of any real primaries
	// is within -1 and 3.
	linearBits = 17
	// linearFraction are the bits by which sums are finer than the table, so
	// that the rounding of three terms does not add up.
	linearFraction = 4
	linearField    = linearBits + linearFraction // three of them fit a word
	linearMask     = 1<<linearBits - 1
	// termLimit keeps sums of three within the table whatever the profile says.
	termLimit = 2.66
)

func linearTerm(x float64) int64 {
	return int64(math.Round(max(-termLimit, min(x, termLimit)) * (linearOne << linearFraction)))
}

func (p *Profile) newShaper() *shaper {
	s := &shaper{}
	m := fromD50.times(p.matrix)
	for i := range 256 {
		var light vector
		for channel := range light {
			light[channel] = p.curves[channel].at(float64(i) / 255)
		}
		whole := m.mul(light)
		for j := range 3 {
			var terms [3]int64
			for channel := range terms {
				terms[channel] = linearTerm(m[j][channel] * light[channel])
			}
			// Grays stay gray: their three channels must not be rounded apart.
			limit := linearTerm(math.Inf(1))
			terms[2] = max(-limit, min(linearTerm(whole[j])-terms[0]-terms[1], limit))
			// The table's zero, and a half, since the sum is cut at its fraction.
			terms[0] += 8*linearOne<<linearFraction + 1<<(linearFraction-1)
			for channel, term := range terms {
				s.terms[channel][i] += uint64(term) << (j * linearField)
			}
		}
	}
	const zero = 8 * linearOne
	at := zero
	for level := range 255 { // up to halfway to the next level
		end := zero + int(math.Round(decode((float64(level)+0.5)/255)*linearOne))
		for ; at < end; at++ {
			s.out[at] = byte(level)
		}
	}
	for ; at < len(s.out); at++ {
		s.out[at] = 255
	}
	return s
}

func (s *shaper) rows(out, from *picture.Picture) {
	r, g, b := &s.terms[0], &s.terms[1], &s.terms[2]
	for y := range from.Height {
		src, dst := row(from, y), row(out, y)
		for i := 0; i+4 <= len(src) && i+4 <= len(dst); i += 4 {
			in, to := src[i:i+4:i+4], dst[i:i+4:i+4]
			sum := r[in[0]] + g[in[1]] + b[in[2]]
			to[3] = in[3]
			to[0] = s.out[sum>>linearFraction&linearMask]
			to[1] = s.out[sum>>(linearField+linearFraction)&linearMask]
			to[2] = s.out[sum>>(2*linearField+linearFraction)&linearMask]
		}
	}
}
