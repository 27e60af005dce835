package icc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// lut is a table profile's way from device values to the connection space:
// curves a, a table, curves m with a matrix, curves b. What is missing is nil.
type lut struct {
	inputs int
	a      []curve
	grid   *clut
	m      []curve
	matrix []float64 // 9 coefficients, then 3 that are added
	b      []curve
	pcs    encoding
}

// encoding is how 0…1 stands for a colour of the connection space (ICC.1:2022,
// 6.3.4.2 and 10.10).
type encoding uint8

const (
	encodedXYZ encoding = iota
	encodedLab
	// encodedLab16 is what lut16Type has in all versions: white is 0xFF00.
	encodedLab16
)

// clut is a table of colours over a grid; a part of the profile's bytes.
type clut struct {
	points [maxInputs]int // along each input, at least 2
	stride [maxInputs]int // samples from one point to the next
	data   []byte
	width  int // bytes of a sample, 1 or 2
}

// parseLUT reads a table of the three types that there are.
func parseLUT(tag []byte, inputs int, lab bool) (*lut, error) {
	if len(tag) < 32 {
		return nil, errors.New("a table is cut off")
	}
	l := &lut{inputs: inputs}
	if lab {
		l.pcs = encodedLab
	}
	kind := string(tag[:4])
	if kind != "mft1" && kind != "mft2" && kind != "mAB " {
		return nil, fmt.Errorf("%q is not a table", kind)
	}
	if int(tag[8]) != inputs || tag[9] != 3 {
		return nil, fmt.Errorf("a table leads from %d to %d samples, must be from %d to 3", tag[8], tag[9], inputs)
	}
	switch kind {
	case "mft1":
		return l, l.parseTables(tag, 48, 1, [2]int{256, 256})
	case "mft2":
		if len(tag) < 52 {
			return nil, errors.New("a table is cut off")
		}
		if lab {
			l.pcs = encodedLab16
		}
		entries := [2]int{int(binary.BigEndian.Uint16(tag[48:])), int(binary.BigEndian.Uint16(tag[50:]))}
		return l, l.parseTables(tag, 52, 2, entries)
	default:
		return l, l.parseElements(tag)
	}
}

// parseTables reads what lut8Type and lut16Type have from a place on: input
// tables, grid, output tables (ICC.1:2022, 10.10 and 10.11). The matrix before it is for
// profiles whose input is XYZ.
func (l *lut) parseTables(tag []byte, start, width int, entries [2]int) error {
	if entries[0] < 2 || entries[1] < 2 {
		return errors.New("a table has curves of fewer than two samples")
	}
	rest := tag[start:]
	var err error
	if l.a, rest, err = cutCurves(rest, l.inputs, entries[0], width); err != nil {
		return err
	}
	var points [maxInputs]int
	for i := range l.inputs {
		points[i] = int(tag[10])
	}
	if l.grid, rest, err = parseGrid(rest, points, l.inputs, width); err != nil {
		return err
	}
	l.b, _, err = cutCurves(rest, 3, entries[1], width)
	return err
}

func cutCurves(data []byte, n, entries, width int) ([]curve, []byte, error) {
	size := entries * width
	if len(data) < n*size {
		return nil, nil, errors.New("the curves of a table are cut off")
	}
	curves := make([]curve, n)
	for i := range curves {
		curves[i] = curve{samples: data[:size], width: width}
		data = data[size:]
	}
	return curves, data, nil
}

// parseGrid takes a grid off the front. It is no larger than what is there.
func parseGrid(data []byte, points [maxInputs]int, inputs, width int) (*clut, []byte, error) {
	g := &clut{points: points, width: width}
	samples := uint64(3) // of output
	for i := inputs - 1; i >= 0; i-- {
		if points[i] < 2 {
			return nil, nil, errors.New("the grid of a table has fewer than two points")
		}
		g.stride[i] = int(samples)
		samples *= uint64(points[i])
		if samples > uint64(len(data)/width) { // before it grows too large for an int
			return nil, nil, errors.New("the grid of a table is cut off")
		}
	}
	size := int(samples) * width
	g.data = data[:size]
	return g, data[size:], nil
}

// parseElements reads lutAToBType (ICC.1:2022, 10.12).
func (l *lut) parseElements(tag []byte) (err error) {
	offset := func(at int) int { // what is too far is past the end, on 32 bits, too
		return int(min(uint64(binary.BigEndian.Uint32(tag[at:])), uint64(len(tag))))
	}
	if l.b, err = curvesAt(tag, offset(12), 3); err != nil {
		return err
	}
	if l.b == nil {
		return errors.New("a table without B curves")
	}
	if at := offset(16); at != 0 {
		if at > len(tag)-48 {
			return errors.New("the matrix of a table is cut off")
		}
		l.matrix = make([]float64, 12)
		for i := range l.matrix {
			l.matrix[i] = fixed(tag[at+4*i:])
		}
	}
	if l.m, err = curvesAt(tag, offset(20), 3); err != nil {
		return err
	}
	if l.a, err = curvesAt(tag, offset(28), l.inputs); err != nil {
		return err
	}
	at := offset(24)
	if at == 0 {
		if l.inputs != 3 {
			return fmt.Errorf("a table for %d samples has no grid", l.inputs)
		}
		return nil
	}
	if at > len(tag)-20 {
		return errors.New("the grid of a table is cut off")
	}
	var points [maxInputs]int
	for i := range l.inputs {
		points[i] = int(tag[at+i])
	}
	width := int(tag[at+16])
	if width != 1 && width != 2 {
		return fmt.Errorf("the grid of a table has samples of %d bytes", width)
	}
	l.grid, _, err = parseGrid(tag[at+20:], points, l.inputs, width)
	return err
}

// curvesAt reads n curves that lie one after the other, each padded to four bytes.
func curvesAt(tag []byte, at, n int) ([]curve, error) {
	if at == 0 {
		return nil, nil
	}
	curves := make([]curve, n)
	for i := range curves {
		if at > len(tag) {
			return nil, errors.New("the curves of a table are cut off")
		}
		c, size, err := parseCurve(tag[at:])
		if err != nil {
			return nil, err
		}
		curves[i] = c
		at += (size + 3) &^ 3
	}
	return curves, nil
}

// shape is the first step, from device values to places in the grid.
func (l *lut) shape(device [maxInputs]float64) [maxInputs]float64 {
	for i := range l.a {
		device[i] = l.a[i].at(device[i])
	}
	return device
}

// xyz is the rest of the way to the colour of a pixel.
func (l *lut) xyz(shaped [maxInputs]float64) vector {
	v := vector(shaped[:3])
	if l.grid != nil {
		v = l.grid.at(shaped, l.inputs)
	}
	for i := range l.m {
		v[i] = l.m[i].at(v[i])
	}
	if k := l.matrix; k != nil {
		v = vector{
			k[0]*v[0] + k[1]*v[1] + k[2]*v[2] + k[9],
			k[3]*v[0] + k[4]*v[1] + k[5]*v[2] + k[10],
			k[6]*v[0] + k[7]*v[1] + k[8]*v[2] + k[11],
		}
	}
	for i := range v {
		v[i] = l.b[i].at(v[i])
	}
	switch l.pcs {
	case encodedLab:
		return labToXYZ(vector{100 * v[0], 255*v[1] - 128, 255*v[2] - 128})
	case encodedLab16:
		return labToXYZ(vector{100 * 65535. / 65280 * v[0], 65535./256*v[1] - 128, 65535./256*v[2] - 128})
	default:
		const one = 1 + 32767./32768 // u1Fixed15Number
		return vector{one * v[0], one * v[1], one * v[2]}
	}
}

// at interpolates between the up to 2^inputs points around a place, linearly
// along each side.
func (g *clut) at(device [maxInputs]float64, inputs int) vector {
	var corners [1 << maxInputs]struct {
		at     int
		weight float64
	}
	corners[0].weight = 1
	n := 1 // doubled by each input whose value is not right on a point
	for i := range inputs {
		pos := clip(device[i]) * float64(g.points[i]-1)
		cell := min(int(pos), g.points[i]-2)
		part := pos - float64(cell)
		step := cell * g.stride[i]
		if part == 1 { // the last point
			part, step = 0, step+g.stride[i]
		}
		for k := range n {
			corners[k].at += step
		}
		if part == 0 {
			continue
		}
		for k := range n {
			corners[n+k].at = corners[k].at + g.stride[i]
			corners[n+k].weight = corners[k].weight * part
			corners[k].weight *= 1 - part
		}
		n *= 2
	}
	var sum vector
	for _, c := range corners[:n] {
		for i := range sum {
			sum[i] += c.weight * g.sample(c.at+i)
		}
	}
	return sum
}

func (g *clut) sample(i int) float64 {
	if g.width == 1 {
		return float64(g.data[i]) / 255
	}
	return float64(binary.BigEndian.Uint16(g.data[2*i:])) / 65535
}
