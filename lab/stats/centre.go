package stats

import (
	"math"
	"slices"
)

const (
	// exact is the tolerance for centreOfHalves to find the very float64.
	exact = 0
	// resampled is the tolerance for the centres of resamples, as a share of the
	// range that they are searched in, which is about a standard deviation: far
	// below the error of a bootstrap quantile.
	resampled = 1e-4
	// maxHalvings ends the search in any case: 2^-100 of the range is nothing.
	maxHalvings = 100
)

// HodgesLehmann is the median of the means of all pairs of values, each value
// paired with itself too. It is NaN without values, or with values that are not
// finite.
func HodgesLehmann(values []float64) float64 {
	halves := make([]float64, len(values))
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return math.NaN()
		}
		halves[i] = v / 2
	}
	slices.Sort(halves)
	return centreOfHalves(halves, exact)
}

// centreOfHalves is HodgesLehmann of finite values, given as their halves (so
// that a mean is a sum, and none overflows), rising. It never writes the n(n+1)/2
// means down: it halves the range in which their median is, and counts with two
// fingers how many are below, in O(n) a step.
func centreOfHalves(halves []float64, tolerance float64) float64 {
	n := len(halves)
	if n == 0 {
		return math.NaN()
	}
	means := n * (n + 1) / 2
	k := (means + 1) / 2
	// The m smallest values have m(m+1)/2 means among them. Where that is more
	// than half of all, the median is at most the m-th value; likewise from above.
	m := min(n, int(math.Ceil(math.Sqrt(float64(means)+2.25)))) // m(m+1)/2 > means/2
	low, high := 2*halves[n-m], 2*halves[m-1]
	tolerance *= high - low
	if count, _ := meansUpTo(halves, low); count >= k {
		high = low
	}
	for range maxHalvings {
		// Fewer than k means are at most low, k or more at most high.
		middle := low + (high-low)/2
		if high-low <= tolerance || middle <= low || middle >= high {
			break
		}
		if count, _ := meansUpTo(halves, middle); count >= k {
			high = middle
		} else {
			low = middle
		}
	}
	if means%2 == 0 {
		if count, next := meansUpTo(halves, high); count == k {
			return high + (next-high)/2
		}
	}
	return high
}

// meansUpTo counts the means of pairs that are at most limit, and finds the
// smallest above it.
func meansUpTo(halves []float64, limit float64) (count int, next float64) {
	next = math.Inf(1)
	j := len(halves) - 1
	for i, half := range halves {
		for j >= i {
			mean := half + halves[j]
			if mean <= limit {
				break
			}
			if mean < next {
				next = mean
			}
			j--
		}
		if j < i {
			break
		}
		count += j - i + 1
	}
	return count, next
}
