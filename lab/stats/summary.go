package stats

import (
	"fmt"
	"math"
	"slices"
)

// A Summary is one sample in a few figures, for tables.
type Summary struct {
	N                      int
	Min, Median, Mean, Max float64
	// Low and High are values of the sample that the median of what it was drawn
	// from lies between with at least the level asked for, whatever its
	// distribution. Where the sample is too small for that level they are the
	// smallest and the largest value, and Short is set.
	Low, High float64
	Short     bool
}

// Summarize describes a sample; level is that of the median's interval, 0.95
// for instance. Values that are no finite number are left out. Without any other
// all figures are 0.
func Summarize(values []float64, level float64) Summary {
	sorted := finite(values)
	n := len(sorted)
	if n == 0 {
		return Summary{Short: true}
	}
	s := Summary{N: n, Min: sorted[0], Median: quantile(sorted, 0.5), Max: sorted[n-1]}
	for i, v := range sorted {
		s.Mean += (v - s.Mean) / float64(i+1)
	}
	// How many of n lie below the median is a binomial count. The k-th smallest
	// and k-th largest hold the median between them unless fewer than k lie on
	// one side of it.
	k, below := 0, 0.0
	for k < n/2 {
		below += binomialHalf(n, k)
		if 2*below > 1-level {
			break
		}
		k++
	}
	s.Short = k == 0
	k = max(k, 1)
	s.Low, s.High = sorted[k-1], sorted[n-k]
	return s
}

// binomialHalf is the chance of k heads in n throws of a coin.
func binomialHalf(n, k int) float64 {
	all, _ := math.Lgamma(float64(n + 1))
	in, _ := math.Lgamma(float64(k + 1))
	out, _ := math.Lgamma(float64(n - k + 1))
	return math.Exp(all - in - out - float64(n)*math.Ln2)
}

// Median of values; those that are no finite number are left out. NaN without
// any.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile is the value that the share q, from 0 to 1, of values lies below,
// with straight lines between them (type 7 of Hyndman and Fan, "Sample Quantiles
// in Statistical Packages", The American Statistician 50, 1996). Values that are
// no finite number are left out. NaN without any.
func Quantile(values []float64, q float64) float64 { return quantile(finite(values), q) }

// GeometricMean of values, for ratios and factors. Values that are not finite
// or not positive are left out. NaN without any.
func GeometricMean(values []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range values {
		if v > 0 && !math.IsInf(v, 0) {
			sum += math.Log(v)
			n++
		}
	}
	return math.Exp(sum / float64(n))
}

// Percent writes a ratio as a change: 1.031 is "+3.1 %", 0.5 is "−50 %". Ratios
// from 10 up are written as factors, "×12.5", since nobody thinks in thousands of
// percent.
func Percent(ratio float64) string {
	switch change := (ratio - 1) * 100; {
	case math.IsNaN(ratio) || math.IsInf(ratio, 0) || ratio < 0:
		return "?"
	case ratio >= 9.95:
		return fmt.Sprintf("×%.3g", ratio)
	case math.Abs(change) < 0.05:
		return "±0.0 %"
	case change < 0:
		return fmt.Sprintf("−%.*f %%", decimals(change), -change)
	default:
		return fmt.Sprintf("+%.*f %%", decimals(change), change)
	}
}

// decimals keeps a percentage at two or three figures.
func decimals(change float64) int {
	if math.Abs(change) < 9.95 {
		return 1
	}
	return 0
}

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
