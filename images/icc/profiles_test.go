package icc

import (
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf16"
)

// The tests make their profiles from published numbers.

// primaries are the chromaticities of red, green, blue and white.
type primaries [4][2]float64

var (
	d65 = [2]float64{0.3127, 0.3290}
	d50 = [2]float64{0.3457, 0.3585}
	// ITU-R BT.709 and IEC 61966-2-1.
	primSRGB = primaries{{0.64, 0.33}, {0.30, 0.60}, {0.15, 0.06}, d65}
	// SMPTE EG 432-1 with D65.
	primP3 = primaries{{0.680, 0.320}, {0.265, 0.690}, {0.150, 0.060}, d65}
	// Adobe RGB (1998) Color Image Encoding, 2005-05.
	primAdobe = primaries{{0.64, 0.33}, {0.21, 0.71}, {0.15, 0.06}, d65}
	// ISO 22028-2 (ROMM RGB).
	primProPhoto = primaries{{0.734699, 0.265301}, {0.159597, 0.840403}, {0.036598, 0.000105}, d50}
	// ITU-R BT.2020.
	prim2020 = primaries{{0.708, 0.292}, {0.170, 0.797}, {0.131, 0.046}, d65}
)

// Curves from signal to light.

func lightSRGB(x float64) float64 {
	if x <= 0.04045 {
		return x / 12.92
	}
	return math.Pow((x+0.055)/1.055, 2.4)
}

func signalSRGB(x float64) float64 {
	if x <= 0.0031308 {
		return 12.92 * x
	}
	return 1.055*math.Pow(x, 1/2.4) - 0.055
}

func light2020(x float64) float64 {
	if x < 0.08145 {
		return x / 4.5
	}
	return math.Pow((x+0.0993)/1.0993, 1/0.45)
}

func lightROMM(x float64) float64 {
	if x < 16*0.001953125 {
		return x / 16
	}
	return math.Pow(x, 1.8)
}

func lightPower(g float64) func(float64) float64 {
	return func(x float64) float64 { return math.Pow(x, g) }
}

// Matrices, computed apart from the package's own.

type mat [3][3]float64

func (m mat) mul(v [3]float64) (out [3]float64) {
	for r := range 3 {
		for c := range 3 {
			out[r] += m[r][c] * v[c]
		}
	}
	return out
}

func (m mat) times(n mat) (out mat) {
	for r := range 3 {
		for c := range 3 {
			for k := range 3 {
				out[r][c] += m[r][k] * n[k][c]
			}
		}
	}
	return out
}

// inverse is by cofactors.
func (m mat) inverse() (out mat) {
	cofactor := func(r, c int) float64 {
		a, b, d, e := (r+1)%3, (r+2)%3, (c+1)%3, (c+2)%3
		return m[a][d]*m[b][e] - m[a][e]*m[b][d]
	}
	det := m[0][0]*cofactor(0, 0) + m[0][1]*cofactor(0, 1) + m[0][2]*cofactor(0, 2)
	for r := range 3 {
		for c := range 3 {
			out[c][r] = cofactor(r, c) / det
		}
	}
	return out
}

func xyzOf(xy [2]float64) [3]float64 {
	return [3]float64{xy[0] / xy[1], 1, (1 - xy[0] - xy[1]) / xy[1]}
}

// toXYZ leads from linear RGB to XYZ under the primaries' own white.
func (p primaries) toXYZ() mat {
	var m mat
	for c := range 3 {
		v := xyzOf(p[c])
		for r := range 3 {
			m[r][c] = v[r]
		}
	}
	scale := m.inverse().mul(xyzOf(p[3]))
	for r := range 3 {
		for c := range 3 {
			m[r][c] *= scale[c]
		}
	}
	return m
}

// chad is Bradford's adaptation (ICC.1:2022, annex E).
func chad(from, to [3]float64) mat {
	b := mat{{0.8951, 0.2664, -0.1614}, {-0.7502, 1.7135, 0.0367}, {0.0389, -0.0685, 1.0296}}
	f, t := b.mul(from), b.mul(to)
	return b.inverse().times(mat{{t[0] / f[0]}, {0, t[1] / f[1]}, {0, 0, t[2] / f[2]}}).times(b)
}

var pcsWhite = [3]float64{0.9642, 1, 0.8249}

// toD50 leads from linear RGB to the connection space.
func (p primaries) toD50() mat { return chad(xyzOf(p[3]), pcsWhite).times(p.toXYZ()) }

// reference makes the conversion of pixels to sRGB without any profile.
func (p primaries) reference(light func(float64) float64) func([3]byte) [3]float64 {
	m := primSRGB.toXYZ().inverse().times(chad(xyzOf(p[3]), xyzOf(d65))).times(p.toXYZ())
	var lights [256]float64
	for i := range lights {
		lights[i] = light(float64(i) / 255)
	}
	return func(pixel [3]byte) (out [3]float64) {
		lin := m.mul([3]float64{lights[pixel[0]], lights[pixel[1]], lights[pixel[2]]})
		for i := range out {
			out[i] = 255 * signalSRGB(max(0, min(lin[i], 1)))
		}
		return out
	}
}

// Tags.

type tag struct {
	name string
	data []byte
}

func u16(b []byte, v ...int) []byte {
	for _, x := range v {
		b = binary.BigEndian.AppendUint16(b, uint16(x))
	}
	return b
}

func u32(b []byte, v ...int) []byte {
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, uint32(x))
	}
	return b
}

// s15 appends s15Fixed16Numbers.
func s15(b []byte, v ...float64) []byte {
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, uint32(int32(math.Round(x*65536))))
	}
	return b
}

func typed(sig string) []byte { return append([]byte(sig), 0, 0, 0, 0) }

func tagXYZ(v [3]float64) []byte { return s15(typed("XYZ "), v[:]...) }

func tagGamma(g float64) []byte {
	return u16(u32(typed("curv"), 1), int(math.Round(g*256)))
}

func tagTable(n int, f func(float64) float64) []byte {
	b := u32(typed("curv"), n)
	for i := range n {
		b = u16(b, int(math.Round(65535*f(float64(i)/float64(n-1)))))
	}
	return b
}

func tagPara(kind int, v ...float64) []byte { return s15(u16(typed("para"), kind, 0), v...) }

func tagDesc2(s string) []byte {
	b := u32(typed("desc"), len(s)+1)
	return append(append(b, s...), make([]byte, 1+8+3+67)...)
}

func tagDesc4(texts ...string) []byte { // language, text, language, text …
	n := len(texts) / 2
	b := u32(typed("mluc"), n, 12)
	var tail []byte
	for i := range n {
		units := utf16.Encode([]rune(texts[2*i+1]))
		b = append(b, texts[2*i]...)
		b = u32(b, 2*len(units), 16+12*n+len(tail))
		for _, u := range units {
			tail = binary.BigEndian.AppendUint16(tail, u)
		}
	}
	return append(b, tail...)
}

// build writes a profile: what says version, class, space and connection space
// as in "4 mntr RGB XYZ " with four letters each.
func build(what string, tags ...tag) []byte {
	var head [128]byte
	head[8] = what[0] - '0'
	copy(head[12:], what[2:6])
	copy(head[16:], what[7:11])
	copy(head[20:], what[11:15])
	copy(head[36:], "acsp")
	s15(head[68:68], pcsWhite[:]...)
	table, body := u32(nil, len(tags)), []byte(nil)
	for _, t := range tags {
		table = append(table, t.name...)
		table = u32(table, 128+4+12*len(tags)+len(body), len(t.data))
		body = append(body, t.data...)
		for len(body)%4 != 0 {
			body = append(body, 0)
		}
	}
	out := slices.Concat(head[:], table, body)
	binary.BigEndian.PutUint32(out, uint32(len(out)))
	return out
}

// matrixProfile has one curve for all channels.
func matrixProfile(version int, m mat, trc []byte) []byte {
	desc := tagDesc2("test")
	if version == 4 {
		desc = tagDesc4("enUS", "test")
	}
	column := func(c int) []byte { return tagXYZ([3]float64{m[0][c], m[1][c], m[2][c]}) }
	return build(string(rune('0'+version))+" mntr RGB XYZ ",
		tag{"desc", desc}, tag{"wtpt", tagXYZ(pcsWhite)},
		tag{"rXYZ", column(0)}, tag{"gXYZ", column(1)}, tag{"bXYZ", column(2)},
		tag{"rTRC", trc}, tag{"gTRC", trc}, tag{"bTRC", trc})
}

func paraSRGB() []byte {
	return tagPara(3, 2.4, 1/1.055, 0.055/1.055, 1/12.92, 0.04045)
}

func grayProfile(pcs string, trc []byte) []byte {
	return build("2 mntr GRAY"+pcs, tag{"desc", tagDesc2("gray")}, tag{"kTRC", trc})
}

// Tables. A colour is given as a function from device values to 0…1 of the
// encoded connection space.
type colour func(device []float64) [3]float64

// gridOf lists a colour over a grid, first input slowest.
func gridOf(inputs, points int, f colour) (out []float64) {
	device := make([]float64, inputs)
	count := 1
	for range inputs {
		count *= points
	}
	for i := range count {
		for rest, j := i, inputs-1; j >= 0; j-- {
			device[j] = float64(rest%points) / float64(points-1)
			rest /= points
		}
		v := f(device)
		out = append(out, v[:]...)
	}
	return out
}

// samples appends 0…1 in one or two bytes.
func samples(b []byte, width int, v ...float64) []byte {
	for _, x := range v {
		x = max(0, min(x, 1))
		if width == 1 {
			b = append(b, byte(math.Round(255*x)))
		} else {
			b = u16(b, int(math.Round(65535*x)))
		}
	}
	return b
}

// tagMFT makes an mft1 (width 1) or mft2 with curves on both sides.
func tagMFT(width, inputs, points int, f colour, in, out func(float64) float64) []byte {
	entries := 256
	b := append(typed("mft"+string(rune('0'+width))), byte(inputs), 3, byte(points), 0)
	b = s15(b, 1, 0, 0, 0, 1, 0, 0, 0, 1)
	if width == 2 {
		entries = 1024
		b = u16(b, entries, entries)
	}
	table := func(n int, f func(float64) float64) {
		for range n {
			for i := range entries {
				b = samples(b, width, f(float64(i)/float64(entries-1)))
			}
		}
	}
	table(inputs, in)
	b = samples(b, width, gridOf(inputs, points, f)...)
	table(3, out)
	return b
}

// elements are the parts of an mAB, any of which but b may be nil.
type elements struct {
	a, m, b [][]byte
	matrix  []float64
	points  int
	width   int
	grid    colour
}

func tagMAB(inputs int, e elements) []byte {
	out := append(typed("mAB "), byte(inputs), 3, 0, 0)
	out = append(out, make([]byte, 20)...)
	place := func(at int) {
		for len(out)%4 != 0 {
			out = append(out, 0)
		}
		binary.BigEndian.PutUint32(out[at:], uint32(len(out)))
	}
	curves := func(at int, c [][]byte) {
		if c == nil {
			return
		}
		place(at)
		for _, x := range c {
			for len(out)%4 != 0 {
				out = append(out, 0)
			}
			out = append(out, x...)
		}
	}
	curves(28, e.a)
	if e.grid != nil {
		place(24)
		dims := make([]byte, 20)
		for i := range inputs {
			dims[i] = byte(e.points)
		}
		dims[16] = byte(e.width)
		out = samples(append(out, dims...), e.width, gridOf(inputs, e.points, e.grid)...)
	}
	curves(20, e.m)
	if e.matrix != nil {
		place(16)
		out = s15(out, e.matrix...)
	}
	curves(12, e.b)
	return out
}

func repeat(b []byte, n int) (out [][]byte) {
	for range n {
		out = append(out, b)
	}
	return out
}

func same(x float64) float64 { return x }

// labOf is CIELAB of XYZ under D50.
func labOf(xyz [3]float64) [3]float64 {
	var f [3]float64
	for i := range f {
		t := xyz[i] / pcsWhite[i]
		if t > 216./24389 {
			f[i] = math.Cbrt(t)
		} else {
			f[i] = (24389./27*t + 16) / 116
		}
	}
	return [3]float64{116*f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])}
}

// Encodings of Lab in 0…1.

func lab8(lab [3]float64) [3]float64 {
	return [3]float64{lab[0] / 100, (lab[1] + 128) / 255, (lab[2] + 128) / 255}
}

func lab16(lab [3]float64) [3]float64 {
	return [3]float64{lab[0] * 652.8 / 65535, (lab[1] + 128) * 256 / 65535, (lab[2] + 128) * 256 / 65535}
}
