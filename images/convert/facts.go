package convert

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"math"

	"millrace/images/codec"
	"millrace/images/header"
	"millrace/images/picture"
)

// Formats of what is told about an image instead of sent.
const (
	Info      codec.Format = "info"      // Facts as JSON
	BlurHash  codec.Format = "blurhash"  // github.com/woltapp/blurhash, of 4 × 3 components or 3 × 4
	ThumbHash codec.Format = "thumbhash" // evanw.github.io/thumbhash, in base64
	Colour    codec.Format = "color"     // the one that most of it has, #rrggbb
)

// Stripped is no format but the source as it is without the places that it was made at
// (container.WithoutLocation), whatever it is; ErrNoGain if there are none.
const Stripped codec.Format = "stripped"

// IsFact reports whether a format tells about an image.
func IsFact(f codec.Format) bool {
	return f == Info || f == BlurHash || f == ThumbHash || f == Colour
}

// Facts are what Info tells.
type Facts struct {
	Format      string `json:"format"`
	Width       int    `json:"width"` // upright
	Height      int    `json:"height"`
	Bytes       int    `json:"bytes"`
	Orientation int    `json:"orientation"` // EXIF's, which Width and Height obey
	Frames      int    `json:"frames"`
	Alpha       bool   `json:"alpha"` // it may have transparent parts
	Depth       int    `json:"depth"` // bits a sample
	Progressive bool   `json:"progressive"`
	// Profile describes the colours: "sRGB" where nothing else is said.
	Profile string `json:"profile"`
	// Color is the one that most of the image has; left out where its pixels are not read.
	Color string `json:"color,omitempty"`
}

// factSide is the longer side of the picture that facts are found in: more than what
// ThumbHash takes makes no difference.
const factSide = 100

// fact makes one of the formats above.
func (j *job) fact() (*Result, error) {
	j.upright = upright(j.info)
	asked := j.spec
	j.spec.Width, j.spec.Height, j.spec.Fit = factSide, factSide, Contain
	p, err := j.small()
	j.spec = asked
	if asked.Format == Info && (err == nil || errors.Is(err, ErrUnsupported) || errors.Is(err, header.ErrUnsupported)) {
		return j.facts(p)
	}
	if err != nil {
		return nil, err
	}
	var text string
	switch asked.Format {
	case BlurHash:
		text = blurHash(p)
	case ThumbHash:
		text = base64.StdEncoding.EncodeToString(thumbHash(p))
	default:
		text = dominant(p)
	}
	return &Result{Data: []byte(text), Width: p.Width, Height: p.Height}, nil
}

// small decodes the image for facts: of an animation its first frame.
func (j *job) small() (*picture.Picture, error) {
	p, err := j.fitted()
	if err != nil {
		return nil, err
	}
	p, profile, err := j.colours(p)
	if err != nil {
		return nil, err
	}
	if profile != nil {
		p, _ = toSRGB(p, profile)
	}
	return p.NRGBA(), nil
}

// facts are those of Info; p is nil where the image is not decoded.
func (j *job) facts(p *picture.Picture) (*Result, error) {
	f := Facts{
		Format: string(j.info.Format), Width: j.upright.X, Height: j.upright.Y, Bytes: len(j.source),
		Orientation: j.info.Orientation, Frames: j.info.Frames, Alpha: j.info.Alpha, Depth: j.info.Depth,
		Progressive: j.info.Progressive, Profile: "sRGB",
	}
	if profile := j.profile(); profile != nil && !profile.IsSRGB() {
		f.Profile = profile.Description
	}
	if p != nil {
		f.Color = dominant(p)
	}
	text, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("writing facts: %w", err)
	}
	return &Result{Data: append(text, '\n'), Width: f.Width, Height: f.Height}, nil
}

// dominant is the colour that most pixels have, all that are alike taken for one: the
// mean of the fullest of 4096 equal parts of the cube of colours.
func dominant(p *picture.Picture) string {
	type part struct{ n, r, g, b int }
	parts := map[[3]byte]part{}
	var most part
	for y := range p.Height {
		for row := p.Pix[y*p.Stride:][:4*p.Width]; len(row) > 0; row = row[4:] {
			if row[3] < 128 {
				continue
			}
			key := [3]byte{row[0] >> 4, row[1] >> 4, row[2] >> 4}
			one := parts[key]
			one = part{one.n + 1, one.r + int(row[0]), one.g + int(row[1]), one.b + int(row[2])}
			parts[key] = one
			if one.n > most.n {
				most = one
			}
		}
	}
	n := max(most.n, 1)
	return fmt.Sprintf("#%02x%02x%02x", (most.r+n/2)/n, (most.g+n/2)/n, (most.b+n/2)/n)
}

// cosines are cos(π·k·(x + shift)/n) for k below count and x below n.
func cosines(count, n int, shift float64) [][]float64 {
	all := make([][]float64, count)
	for k := range all {
		all[k] = make([]float64, n)
		for x := range all[k] {
			all[k][x] = math.Cos(math.Pi * float64(k) * (float64(x) + shift) / float64(n))
		}
	}
	return all
}

// blurHash writes a BlurHash: a size, a scale, a mean colour, and components of a cosine
// transform in linear light, in digits of base 83. What is transparent counts as white.
func blurHash(p *picture.Picture) string {
	nx, ny := 4, 3
	if p.Height > p.Width {
		nx, ny = 3, 4
	}
	p = p.Over(color.NRGBA{255, 255, 255, 255})
	var linear [256]float64
	for i := range linear {
		v := float64(i) / 255
		if linear[i] = v / 12.92; v > 0.04045 {
			linear[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	cosX, cosY := cosines(nx, p.Width, 0), cosines(ny, p.Height, 0)
	parts := make([][3]float64, nx*ny)
	for k := range parts {
		scale := 2 / float64(p.Width*p.Height)
		if k == 0 {
			scale /= 2
		}
		for y := range p.Height {
			row := p.Pix[y*p.Stride:]
			for x := range p.Width {
				basis := scale * cosX[k%nx][x] * cosY[k/nx][y]
				for c := range 3 {
					parts[k][c] += basis * linear[row[4*x+c]]
				}
			}
		}
	}
	largest := 0.0
	for _, part := range parts[1:] {
		for _, v := range part {
			largest = max(largest, math.Abs(v))
		}
	}
	quantised := min(max(int(largest*166-0.5), 0), 82)
	text := base83(nil, nx-1+(ny-1)*9, 1)
	text = base83(text, quantised, 1)
	mean := 0
	for _, v := range parts[0] {
		mean = mean<<8 | gamma(v)
	}
	text = base83(text, mean, 4)
	scale := float64(quantised+1) / 166
	for _, part := range parts[1:] {
		n := 0
		for _, v := range part {
			root := math.Copysign(math.Sqrt(math.Abs(v/scale)), v)
			n = n*19 + min(max(int(math.Floor(root*9+9.5)), 0), 18)
		}
		text = base83(text, n, 2)
	}
	return string(text)
}

// gamma is linear light in sRGB's curve, 0 to 255.
func gamma(v float64) int {
	v = min(max(v, 0), 1)
	if v <= 0.0031308 {
		return int(v*12.92*255 + 0.5)
	}
	return int((1.055*math.Pow(v, 1/2.4)-0.055)*255 + 0.5)
}

func base83(to []byte, n, digits int) []byte {
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#$%*+,-.:;=?@[]^_{|}~"
	from := len(to)
	to = append(to, make([]byte, digits)...)
	for i := len(to) - 1; i >= from; i-- {
		to[i] = alphabet[n%83]
		n /= 83
	}
	return to
}

// transformed is a channel of a ThumbHash: its mean, the other components, and the largest
// of them, by which they are divided.
type transformed struct {
	mean, scale float64
	ac          []float64
}

// transform takes the components of a channel that lie in a triangle of nx × ny.
func transform(channel []float64, width, height, nx, ny int) (t transformed) {
	cosX, cosY := cosines(nx, width, 0.5), cosines(ny, height, 0.5)
	for cy := range ny {
		for cx := 0; cx*ny < nx*(ny-cy); cx++ {
			sum := 0.0
			for y := range height {
				for x, v := range channel[y*width:][:width] {
					sum += v * cosX[cx][x] * cosY[cy][y]
				}
			}
			sum /= float64(width * height)
			if cx == 0 && cy == 0 {
				t.mean = sum
				continue
			}
			t.ac = append(t.ac, sum)
			t.scale = max(t.scale, math.Abs(sum))
		}
	}
	for i, v := range t.ac {
		if t.scale > 0 {
			t.ac[i] = 0.5 + 0.5*v/t.scale
		}
	}
	return t
}

// thumbHash writes a ThumbHash: lightness, yellow against blue, red against green and, where
// something is transparent, alpha.
func thumbHash(p *picture.Picture) []byte {
	w, h := p.Width, p.Height
	n := w * h
	var mean [3]float64
	alphas := 0.0
	for y := range h {
		for row := p.Pix[y*p.Stride:][:4*w]; len(row) > 0; row = row[4:] {
			a := float64(row[3]) / 255
			alphas += a
			for c := range mean {
				mean[c] += a * float64(row[c]) / 255
			}
		}
	}
	for c := range mean {
		mean[c] /= max(alphas, 1e-9)
	}
	channels := make([]float64, 4*n)
	l, yb, rg, alpha := channels[:n], channels[n:2*n], channels[2*n:3*n], channels[3*n:]
	for y := range h {
		row := p.Pix[y*p.Stride:]
		for x := range w {
			a := float64(row[4*x+3]) / 255
			var c [3]float64
			for k := range c {
				c[k] = mean[k]*(1-a) + a*float64(row[4*x+k])/255
			}
			i := y*w + x
			l[i], yb[i], rg[i], alpha[i] = (c[0]+c[1]+c[2])/3, (c[0]+c[1])/2-c[2], c[0]-c[1], a
		}
	}
	transparent, most := alphas < float64(n), 7.0
	if transparent {
		most = 5
	}
	longest := float64(max(w, h))
	lx := max(1, int(math.Round(most*float64(w)/longest)))
	ly := max(1, int(math.Round(most*float64(h)/longest)))
	parts := []transformed{
		transform(l, w, h, max(3, lx), max(3, ly)), transform(yb, w, h, 3, 3), transform(rg, w, h, 3, 3),
	}
	steps := func(v float64, most int) int { return int(math.Round(v * float64(most))) }
	head := steps(parts[0].mean, 63) | int(math.Round(31.5+31.5*parts[1].mean))<<6 | int(math.Round(31.5+31.5*parts[2].mean))<<12 | steps(parts[0].scale, 31)<<18
	second := lx | steps(parts[1].scale, 63)<<3 | steps(parts[2].scale, 63)<<9
	if w > h {
		second = second&^7 | ly | 1<<15
	}
	if transparent {
		head |= 1 << 23
		parts = append(parts, transform(alpha, w, h, 5, 5))
	}
	hash := []byte{byte(head), byte(head >> 8), byte(head >> 16), byte(second), byte(second >> 8)}
	if transparent {
		hash = append(hash, byte(steps(parts[3].mean, 15)|steps(parts[3].scale, 15)<<4))
	}
	odd := false
	for _, part := range parts {
		for _, v := range part.ac {
			if four := byte(steps(v, 15)); odd {
				hash[len(hash)-1] |= four << 4
			} else {
				hash = append(hash, four)
			}
			odd = !odd
		}
	}
	return hash
}
