package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sort"

	"millrace/lab/record"
)

// maxFile is the largest result file that is read: an hour of readings of
// twenty arms is some 10 MB.
const maxFile = 64 << 20

// errInconsistent marks a result whose parts contradict each other.
var errInconsistent = errors.New("the result contradicts itself")

// Read reads a result file, at most 64 MB. It refuses one of another format, one
// that is cut off, one with fields it does not know and one whose parts do not
// fit each other, each in one line: a report drawn from it would look valid.
func Read(r io.Reader) (*record.Result, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the result: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("this file is larger than %d MB: it is not a result of this program", maxFile>>20)
	}
	if err := checkFormat(data); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	res := new(record.Result)
	if err := d.Decode(res); err != nil {
		return nil, fmt.Errorf("this result file is damaged: %w", jsonError(err))
	}
	if err := Check(res); err != nil {
		return nil, fmt.Errorf("this result file was changed or is damaged: %w", err)
	}
	return res, nil
}

// checkFormat looks at the format alone, before anything is read by its rules.
func checkFormat(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("this file is empty")
	}
	var head struct {
		Format *string `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset >= int64(len(data)) {
			return fmt.Errorf("this result file is cut off after %d bytes", len(data))
		}
		return fmt.Errorf("this is not a result file: %w", jsonError(err))
	}
	switch {
	case head.Format == nil:
		return errors.New(`this is not a result file: it does not say its "format"`)
	case *head.Format != record.Format:
		return fmt.Errorf("this file is %q; this millrace reads %q: measure again, or draw it with the version that wrote it", shorten(*head.Format, 40), record.Format)
	}
	return nil
}

// jsonError adds the place to an error of the JSON reader.
func jsonError(err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%w (at byte %d)", err, e.Offset)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is a %s, not a %s (at byte %d)", shorten(e.Field, 60), e.Value, e.Type, e.Offset)
	}
	return err
}

// Write writes a result file. Figures that are not numbers (NaN, infinities)
// have no place in one: they are left out, and a note says how many. A result
// that Read would refuse is written, and then an error: what was measured is
// not lost.
func Write(w io.Writer, res *record.Result) error {
	res = cleaned(res)
	data, err := json.MarshalIndent(res, "", " ")
	if err != nil {
		return fmt.Errorf("writing the result as JSON: %w", err)
	}
	if _, err := w.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return Check(res)
}

// cleaned is a copy of a result that JSON can hold. A result without a fault is
// returned as it is.
func cleaned(res *record.Result) *record.Result {
	c := *res
	c.Format = cmp.Or(c.Format, record.Format)
	lost := 0
	c.Samples = slices.Clone(c.Samples)
	for i := range c.Samples {
		s := &c.Samples[i]
		lost += mend(&s.Seconds) + mend(&s.At)
		s.Values = maps.Clone(s.Values)
		for key, v := range s.Values {
			if !number(v) {
				delete(s.Values, key)
				lost++
			}
		}
	}
	c.Verdicts = slices.Clone(c.Verdicts)
	for i := range c.Verdicts {
		v := &c.Verdicts[i]
		if !number(v.P) {
			v.P = 1
			lost++
		}
		lost += mend(&v.Ratio) + mend(&v.Low) + mend(&v.High) + mend(&v.Level) + mend(&v.Delta) + mend(&v.Minutes)
		if v.Low == 0 || v.High == 0 { // half an interval is none
			v.Low, v.High = 0, 0
		}
	}
	c.Charts = slices.Clone(c.Charts)
	for i := range c.Charts {
		c.Charts[i].Series = slices.Clone(c.Charts[i].Series)
		for j := range c.Charts[i].Series {
			s := &c.Charts[i].Series[j]
			before := len(s.Points)
			s.Points = cleanPoints(s.Points)
			lost += before - len(s.Points)
		}
	}
	if lost > 0 {
		c.Notes = append(slices.Clone(c.Notes), fmt.Sprintf("%s not numbers and left out", count(lost, "figure was", "figures were")))
	}
	return &c
}

// mend makes zero, which means unknown, of a figure that is not a number.
func mend(v *float64) int {
	if number(*v) {
		return 0
	}
	*v = 0
	return 1
}

// cleanPoints are the points that are numbers, x rising.
func cleanPoints(points [][2]float64) [][2]float64 {
	points = slices.DeleteFunc(slices.Clone(points), func(p [2]float64) bool { return !number(p[0]) || !number(p[1]) })
	sort.SliceStable(points, func(i, j int) bool { return points[i][0] < points[j][0] })
	return points
}

func number(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
