package icc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// curve is a function from 0…1 to 0…1: samples, or a formula.
type curve struct {
	// samples are evenly spaced, of width bytes each, big-endian, and at least
	// two. They are a part of the profile's bytes.
	samples []byte
	width   int
	// The formula, where there are no samples: (ax+b)^g + e from d on, below it cx + f.
	g, a, b, c, d, e, f float64
}

// parameters is the number of parameters of each parametric curve type.
var parameters = [5]int{1, 3, 4, 5, 7}

// parseCurve reads a curve, curveType or parametricCurveType (ICC.1:2022, 10.6
// and 10.18), and tells how many bytes it takes.
func parseCurve(data []byte) (curve, int, error) {
	if len(data) < 12 {
		return curve{}, 0, errors.New("a curve is missing or cut off")
	}
	switch string(data[:4]) {
	case "curv":
		return parseSampled(data)
	case "para":
		return parseParametric(data)
	}
	return curve{}, 0, fmt.Errorf("%q is not a curve", data[:4])
}

func parseSampled(data []byte) (curve, int, error) {
	count := binary.BigEndian.Uint32(data[8:])
	if uint64(len(data)-12) < 2*uint64(count) {
		return curve{}, 0, fmt.Errorf("a curve of %d samples is cut off", count)
	}
	switch count {
	case 0:
		return power(1), 12, nil
	case 1: // u8Fixed8Number
		return power(float64(binary.BigEndian.Uint16(data[12:])) / 256), 14, nil
	}
	end := 12 + 2*int(count)
	return curve{samples: data[12:end], width: 2}, end, nil
}

func power(g float64) curve { return curve{g: g, a: 1} }

func parseParametric(data []byte) (curve, int, error) {
	kind := int(binary.BigEndian.Uint16(data[8:]))
	if kind >= len(parameters) {
		return curve{}, 0, fmt.Errorf("a parametric curve of the unknown type %d", kind)
	}
	n := parameters[kind]
	end := 12 + 4*n
	if len(data) < end {
		return curve{}, 0, errors.New("a parametric curve is cut off")
	}
	var v [7]float64
	for i := range n {
		v[i] = fixed(data[12+4*i:])
	}
	c := curve{g: v[0], a: v[1], b: v[2]}
	switch kind {
	case 0:
		c = power(v[0])
	case 1, 2: // flat up to where the power's base gets positive
		if c.a == 0 {
			return curve{}, 0, errors.New("a parametric curve divides by zero")
		}
		c.d, c.e, c.f = -c.b/c.a, v[3], v[3]
	case 3:
		c.c, c.d = v[3], v[4]
	case 4:
		c.c, c.d, c.e, c.f = v[3], v[4], v[5], v[6]
	}
	return c, end, nil
}

// at evaluates the curve. What is outside 0…1, or no number, is taken to the
// nearest of it (ICC.1:2022, 10.18).
func (c *curve) at(x float64) float64 {
	x = clip(x)
	switch {
	case c.samples != nil:
		return c.sampled(x)
	case x >= c.d:
		return clip(math.Pow(c.a*x+c.b, c.g) + c.e)
	default:
		return clip(c.c*x + c.f)
	}
}

func (c *curve) sampled(x float64) float64 {
	last := len(c.samples)/c.width - 1
	pos := x * float64(last)
	i := min(int(pos), last-1)
	part := pos - float64(i)
	if c.width == 1 {
		return (float64(c.samples[i])*(1-part) + float64(c.samples[i+1])*part) / 255
	}
	low := float64(binary.BigEndian.Uint16(c.samples[2*i:]))
	high := float64(binary.BigEndian.Uint16(c.samples[2*i+2:]))
	return (low*(1-part) + high*part) / 65535
}

// clip also makes 0 of what is not a number: a negative base with a broken exponent.
func clip(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, 1)
}
