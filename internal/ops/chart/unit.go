package chart

import (
	"math"
	"strconv"
	"strings"
)

// A prefix is one size of a unit: figures are divided by per and then are in
// name.
type prefix struct {
	per  float64
	name string
}

// prefixes are the units that have sizes, smallest first.
var prefixes = map[string][]prefix{
	"ns":      {{1, "ns"}, {1e3, "µs"}, {1e6, "ms"}, {1e9, "s"}},
	"s":       {{1e-9, "ns"}, {1e-6, "µs"}, {1e-3, "ms"}, {1, "s"}},
	"bytes":   {{1, "B"}, {1e3, "KB"}, {1e6, "MB"}, {1e9, "GB"}, {1e12, "TB"}},
	"bytes/s": {{1, "B/s"}, {1e3, "KB/s"}, {1e6, "MB/s"}, {1e9, "GB/s"}, {1e12, "TB/s"}},
	"KiB":     {{1, "KiB"}, {1 << 10, "MiB"}, {1 << 20, "GiB"}, {1 << 30, "TiB"}},
	"1/s":     {{1, "/s"}, {1e3, "k/s"}, {1e6, "M/s"}, {1e9, "G/s"}},
	"":        {{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}},
}

// prefixFor is the size of a unit that suits a figure: the largest that leaves
// at least 1 before the point.
func prefixFor(unit string, v float64) prefix {
	known, ok := prefixes[unit]
	if !ok {
		return prefix{1, unit}
	}
	v = math.Abs(v)
	if v == 0 || !finite(v) {
		return base(known)
	}
	best := known[0]
	for _, p := range known[1:] {
		if v >= p.per*(1-1e-9) {
			best = p
		}
	}
	return best
}

// base is the size in which the figures are given.
func base(known []prefix) prefix {
	for _, p := range known {
		if p.per == 1 {
			return p
		}
	}
	return known[0]
}

// Figure writes a figure of a unit with three significant digits and the prefix
// that suits it: "98.2 µs" for 98214 "ns", "83.5 k/s" for 83519 "1/s". Bytes are
// decimal (KB is 1000), "KiB" is binary and its figures are in KiB. A unit that
// is not known follows the figure as it is. What is not a number is "–".
func Figure(v float64, unit string) string {
	if !finite(v) {
		return "–"
	}
	p := prefixFor(unit, v)
	// 999.96 is written 1000, which the next size up writes better.
	if bigger := prefixFor(unit, roundTo3(v/p.per)*p.per); bigger != p {
		p = bigger
	}
	number := digits3(v / p.per)
	switch {
	case p.name == "":
		return number
	case strings.HasPrefix(p.name, "/"):
		return number + p.name
	}
	return number + " " + p.name
}

// roundTo3 rounds to three significant digits.
func roundTo3(v float64) float64 {
	if v == 0 {
		return 0
	}
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 2, 64), 64)
	if err != nil {
		return v
	}
	return r
}

// digits3 writes three significant digits, whole numbers below 1000 as they
// are, and never an exponent where it would be shorter without.
func digits3(v float64) string {
	a := math.Abs(roundTo3(v))
	var s string
	switch {
	case v == math.Trunc(v) && math.Abs(v) < 1000, a >= 100:
		s = strconv.FormatFloat(v, 'f', 0, 64)
		if a >= 1e7 {
			s = strconv.FormatFloat(v, 'g', 3, 64)
		}
	case a >= 10:
		s = strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		s = strconv.FormatFloat(v, 'f', 2, 64)
	default:
		s = strconv.FormatFloat(roundTo3(v), 'g', 3, 64)
	}
	return minus(s)
}

// minus writes negative numbers with a real minus sign, and no negative zero.
func minus(s string) string {
	if s == "-0" {
		return "0"
	}
	return strings.ReplaceAll(s, "-", "−")
}

// tickText writes the figure of a tick as short as it is exact.
func tickText(v float64) string {
	return minus(strconv.FormatFloat(roundTick(v), 'f', -1, 64))
}

// roundTick takes away the dust of adding steps up: 0.30000000000000004.
func roundTick(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 10, 64), 64)
	if err != nil {
		return v
	}
	return r
}
