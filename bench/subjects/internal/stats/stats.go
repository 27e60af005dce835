// Package stats reduces the figures of several rounds to one row.
package stats

import (
	"math"
	"slices"
)

// Summary is what one row shows of a figure that was taken once per round.
type Summary struct {
	N                int // rounds that had a figure; with 0 the others are NaN
	Median, Min, Max float64
}

// Valid tells whether there was any figure.
func (s Summary) Valid() bool { return s.N > 0 }

// Summarise takes the median, the least and the greatest of values, leaving
// out those that are NaN or infinite (a round without that figure).
func Summarise(values []float64) Summary {
	finite := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			finite = append(finite, v)
		}
	}
	if len(finite) == 0 {
		return Summary{Median: math.NaN(), Min: math.NaN(), Max: math.NaN()}
	}
	slices.Sort(finite)
	return Summary{
		N:      len(finite),
		Median: middle(finite),
		Min:    finite[0],
		Max:    finite[len(finite)-1],
	}
}

// Median of values; NaN if there is none.
func Median(values []float64) float64 { return Summarise(values).Median }

// middle is the median of sorted values, at least one.
func middle(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return sorted[n/2-1]/2 + sorted[n/2]/2
}

// Ratios divides ours by theirs within each round and summarises the
// quotients. Both map a round's number to its figure; a round that only one
// of them has, or in which theirs is zero, is left out. Dividing within the
// round, and not one median by another, cancels what drifts between rounds.
func Ratios(ours, theirs map[int]float64) Summary {
	quotients := make([]float64, 0, len(ours))
	for round, mine := range ours {
		if base, ok := theirs[round]; ok && base != 0 {
			quotients = append(quotients, mine/base)
		}
	}
	return Summarise(quotients)
}
