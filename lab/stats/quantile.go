package stats

import (
	"math"
	"slices"
)

// Median of values; those that are not finite numbers are left out. NaN without
// any.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile is the value that the share q, from 0 to 1, of values lies below,
// with straight lines between them (type 7 of Hyndman and Fan, "Sample Quantiles
// in Statistical Packages", The American Statistician 50, 1996). Values that are
// no finite number are left out. NaN without any.
func Quantile(values []float64, q float64) float64 { return quantile(finite(values), q) }

// finite is a sorted copy of the finite values.
func finite(values []float64) []float64 {
	kept := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			kept = append(kept, v)
		}
	}
	slices.Sort(kept)
	return kept
}

// quantile of rising values, NaN without any.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	if math.IsNaN(q) {
		return math.NaN()
	}
	at := min(max(q, 0), 1) * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	part := at - float64(i)
	return (1-part)*sorted[i] + part*sorted[i+1] // in this form nothing overflows
}
