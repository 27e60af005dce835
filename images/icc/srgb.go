package icc

import "math"

// vector is a colour: X, Y, Z with 1 for the Y of white; or R, G, B.
type vector [3]float64

// matrix33 is a linear map of colours, by rows.
type matrix33 [3]vector

// D50, the white of the connection space (ICC.1:2022, 7.2.16). Its Y is 1.
const (
	whiteX = 0.9642
	whiteZ = 0.8249
)

// srgbD50 leads from linear sRGB to XYZ under D50: the primaries and the white
// of IEC 61966-2-1 (ITU-R BT.709, D65 at x 0.3127, y 0.3290), adapted with the
// Bradford matrix of ICC.1:2022, annex E. fromD50 leads back. A test computes both.
var (
	srgbD50 = matrix33{
		{0.4360412516, 0.3851129108, 0.1430458376},
		{0.2224845402, 0.7169050786, 0.0606103812},
		{0.0139201875, 0.0970672387, 0.7139125738},
	}
	fromD50 = matrix33{
		{3.1341863642, -1.6172089590, -0.4906940640},
		{-0.9787485042, 1.9161300968, 0.0334333992},
		{0.0719639278, -0.2289938735, 1.4057537329},
	}
)

// bradford leads from XYZ to the responses of the eye's cones, as sharpened by
// Bradford (ICC.1:2022, annex E); unBradford leads back.
var (
	bradford = matrix33{
		{0.8951, 0.2664, -0.1614},
		{-0.7502, 1.7135, 0.0367},
		{0.0389, -0.0685, 1.0296},
	}
	unBradford = matrix33{
		{0.9869929055, -0.1470542564, 0.1599626517},
		{0.4323052697, 0.5183602715, 0.0492912282},
		{-0.0085286646, 0.0400428217, 0.9684866958},
	}
)

func (m *matrix33) mul(v vector) vector {
	return vector{
		m[0][0]*v[0] + m[0][1]*v[1] + m[0][2]*v[2],
		m[1][0]*v[0] + m[1][1]*v[1] + m[1][2]*v[2],
		m[2][0]*v[0] + m[2][1]*v[1] + m[2][2]*v[2],
	}
}

// times is the map that does first n, then m.
func (m *matrix33) times(n matrix33) matrix33 {
	var out matrix33
	for col := range 3 {
		v := m.mul(vector{n[0][col], n[1][col], n[2][col]})
		for row := range 3 {
			out[row][col] = v[row]
		}
	}
	return out
}

// adaptWhite makes D50 of the white of a matrix of primaries. Sound profiles
// need it for their rounding only; some old ones hold primaries under D65. It
// reports false where the white is none.
func adaptWhite(m matrix33) (matrix33, bool) {
	var white vector
	for row := range 3 {
		white[row] = m[row][0] + m[row][1] + m[row][2]
	}
	from, to := bradford.mul(white), bradford.mul(vector{whiteX, 1, whiteZ})
	var scale matrix33
	for i := range 3 {
		// A tenth and ten times of D50 are far beyond any light.
		if !(from[i] > to[i]/10 && from[i] < to[i]*10) {
			return m, false
		}
		scale[i][i] = to[i] / from[i]
	}
	adapt := unBradford.times(scale)
	adapt = adapt.times(bradford)
	return adapt.times(m), true
}

// labToXYZ is the inverse of CIELAB's definition (CIE 15, 8.2.1.1), under D50.
func labToXYZ(lab vector) vector {
	y := (lab[0] + 16) / 116
	return vector{
		whiteX * unLightness(y+lab[1]/500),
		unLightness(y),
		whiteZ * unLightness(y-lab[2]/200),
	}
}

func unLightness(f float64) float64 {
	if f > 6./29 {
		return f * f * f
	}
	return (f - 4./29) * (108. / 841)
}

// encode is the curve of IEC 61966-2-1 from light to signal, mirrored for what
// is below black.
func encode(x float64) float64 {
	switch {
	case x < 0:
		return -encode(-x)
	case x <= 0.0031308:
		return 12.92 * x
	default:
		return 1.055*math.Pow(x, 1/2.4) - 0.055
	}
}

// decode is the curve of IEC 61966-2-1 from signal to light, from 0 to 1.
func decode(x float64) float64 {
	if x <= 0.04045 {
		return x / 12.92
	}
	return math.Pow((x+0.055)/1.055, 2.4)
}

// Tolerances of IsSRGB.
const (
	// primaryTolerance is for X, Y and Z of primaries. The rounding of
	// different programs, and D65 by its coordinates or by its spectrum, make
	// up to 0.001; the nearest other primaries in use (SMPTE C, EBU) are 0.01
	// and more away.
	primaryTolerance = 0.003
	// curveTolerance is for the signal, in 255ths: short tables are up to 2 off
	// in the deep shadows, a power of 2.2 is 7.
	curveTolerance = 3
)

// IsSRGB reports whether the profile describes sRGB (for Gray: its curve)
// closely enough that no eye tells the difference: primaries and curve are
// compared, not names. Profiles with tables are never.
func (p *Profile) IsSRGB() bool {
	if p.unsupported != "" || p.table != nil || p.lab {
		return false
	}
	if p.Space == RGB {
		for row := range 3 {
			for col := range 3 {
				if math.Abs(p.matrix[row][col]-srgbD50[row][col]) > primaryTolerance {
					return false
				}
			}
		}
	}
	for _, c := range p.curves {
		for i := range 256 {
			signal := encode(c.at(float64(i) / 255))
			if math.Abs(255*signal-float64(i)) > curveTolerance {
				return false
			}
		}
	}
	return true
}
