package chart

import "math"

// A scale maps figures onto pixels.
type scale struct {
	min, max float64 // figures
	from, to float64 // pixels
	log      bool
}

// extent is the least and the greatest of what can be drawn; ok is false when
// there is nothing.
type extent struct {
	min, max float64
	ok       bool
}

func (e *extent) add(v float64, log bool) {
	if !finite(v) || log && v <= 0 {
		return
	}
	if !e.ok {
		*e = extent{v, v, true}
		return
	}
	e.min, e.max = math.Min(e.min, v), math.Max(e.max, v)
}

// tight is a scale over exactly the figures there are; of one figure alone, it
// is some room around it.
func tight(e extent, log bool) scale {
	s := scale{min: e.min, max: e.max, log: log}
	switch {
	case !e.ok && log:
		s.min, s.max = 1, 10
	case !e.ok:
		s.min, s.max = 0, 1
	case e.min < e.max:
	case log:
		s.min, s.max = e.min/2, e.max*2
	default:
		room := math.Max(math.Abs(e.min)/2, 0.5)
		s.min, s.max = e.min-room, e.max+room
	}
	return s
}

// round is a scale that ends on ticks. A linear one always holds zero: an axis
// that is cut off makes small differences look large.
func round(e extent, log bool, ticks int) scale {
	if log {
		s := tight(e, true)
		lo, hi := floor125(s.min), ceil125(s.max)
		if lo > 0 && hi <= hugest {
			s.min, s.max = lo, hi
		}
		return s
	}
	if !e.ok {
		return tight(e, false)
	}
	s := scale{min: math.Min(e.min, 0), max: math.Max(e.max, 0)}
	if s.min == s.max {
		s.max = 1
	}
	step := step125((s.max - s.min) / float64(max(ticks, 1)))
	s.min = math.Floor(s.min/step+1e-9) * step
	s.max = math.Ceil(s.max/step-1e-9) * step
	return s
}

// at is where a figure is.
func (s scale) at(v float64) float64 {
	lo, hi := s.min, s.max
	if s.log {
		if v <= 0 {
			return s.from
		}
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	share := (v - lo) / (hi - lo)
	if math.IsNaN(share) {
		share = 0
	}
	return s.from + share*(s.to-s.from)
}

// maxTicks bounds the ticks of an axis, whatever its figures are.
const maxTicks = 40

// ticks are figures at multiples of 1, 2 or 5 times a power of ten, about n of
// them, within the scale.
func (s scale) ticks(n int) []float64 {
	n = min(max(n, 1), maxTicks/2)
	if s.log {
		if t := s.decades(n); len(t) >= 2 {
			return t
		}
	}
	step := step125((s.max - s.min) / float64(n))
	if step <= 0 || !finite(step) {
		return []float64{s.min}
	}
	var ticks []float64
	first := math.Ceil(s.min/step - 1e-9)
	for i := range maxTicks {
		v := (first + float64(i)) * step
		if v > s.max+step*1e-9 {
			break
		}
		if s.log && v <= 0 {
			continue
		}
		ticks = append(ticks, roundTick(v))
	}
	return ticks
}

// decades are the ticks of a logarithmic scale: 1, 2 and 5 of each decade, or
// only the 1, or only those of every few decades, as many as fit.
func (s scale) decades(n int) []float64 {
	lo := int(math.Floor(math.Log10(s.min) + 1e-9))
	hi := int(math.Ceil(math.Log10(s.max) - 1e-9))
	if ticks := s.multiples(lo, hi, 1, []float64{1, 2, 5}); len(ticks) <= n+n/2 {
		return ticks
	}
	for every := 1; ; every++ {
		from := int(math.Floor(float64(lo)/float64(every))) * every // 1 is a tick wherever it is within
		if ticks := s.multiples(from, hi, every, []float64{1}); len(ticks) <= n+1 {
			return ticks
		}
	}
}

// multiples are digits times every few powers of ten, as far as they are within
// the scale.
func (s scale) multiples(lo, hi, every int, digits []float64) []float64 {
	var ticks []float64
	for e := lo; e <= hi && len(ticks) < maxTicks; e += every {
		for _, d := range digits {
			v := d * math.Pow(10, float64(e))
			if v >= s.min*(1-1e-9) && v <= s.max*(1+1e-9) {
				ticks = append(ticks, roundTick(v))
			}
		}
	}
	return ticks
}

// step125 is the least step of 1, 2 or 5 times a power of ten that is not
// below v.
func step125(v float64) float64 {
	if v <= 0 || !finite(v) {
		return 1
	}
	return ceil125(v)
}

func ceil125(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, d := range []float64{1, 2, 5} {
		if v <= d*p*(1+1e-9) {
			return d * p
		}
	}
	return 10 * p
}

func floor125(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)+1e-9))
	for _, d := range []float64{5, 2} {
		if v >= d*p*(1-1e-9) {
			return d * p
		}
	}
	return p
}
