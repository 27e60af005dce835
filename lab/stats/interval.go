package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// interval is the bootstrap interval of the centre, in log-ratios. It draws as
// many units as there are, with replacement, takes the centre of all their
// blocks, and so on, and reads the quantiles of those centres.
//
// Two choices differ from the textbook's percentile interval over restarts and
// blocks; both were made by simulation (3000 data sets each, level 0.95, normal
// noise unless said; TestIntervalCoverage repeats some of it):
//
//   - A restart is drawn whole. Drawing blocks within it once more counts their
//     noise twice (Davison and Hinkley, "Bootstrap Methods and their
//     Application", 1997, section 3.8): for 8 restarts of 3 blocks it covered
//     99.1 % with intervals 30 % wider, drawing whole restarts 94.6 %.
//   - Both ends are moved away from the centre by the factor t ÷ z × √(n ÷ (n−1)),
//     n units, t and z the quantiles of Student's distribution with n−1 degrees
//     of freedom and of the normal one. The plain interval is too short for few
//     units, for it takes their spread as known and divides it by n, not n−1.
//     Hesterberg ("What Teachers Should Know About the Bootstrap", The American
//     Statistician 69, 2015) corrects the quantiles by the same figures;
//     stretching covers better below six units and is shorter with outliers,
//     where far quantiles are those of resamples full of them.
//
// Coverage, plain and stretched: 4 restarts of 3 blocks 80.0 and 94.1 %, 6 units
// 86.4 and 94.1 %, 8 units 91.4 and 95.6 %, 12 units 93.0 and 95.7 %, 24 units
// 93.3 and 95.1 %; heavy tails (Student's t with 3 degrees) at 12 units 92.6 and
// 95.9 %; one slot in twenty three times as slow, at 12 units, 92.4 and 96.1 %.
func (g grouped) interval(centre float64, rule Rule, random *rand.Rand) (low, high float64) {
	centres := g.bootstrap(rule.Resamples, random)
	tail := (1 - rule.Level) / 2
	f := stretch(len(g.units), tail)
	// The centre lies in its interval, whatever the resamples were.
	low = centre - f*max(0, centre-quantile(centres, tail))
	high = centre + f*max(0, quantile(centres, 1-tail)-centre)
	return low, high
}

// bootstrap is the centres of resamples, rising.
func (g grouped) bootstrap(resamples int, random *rand.Rand) []float64 {
	centres := make([]float64, resamples)
	drawn := make([]int, len(g.sorted)) // how often, by place in g.sorted: so a resample needs no sorting
	halves := make([]float64, 0, 2*len(g.sorted))
	for i := range centres {
		clear(drawn)
		for range g.units {
			for _, at := range g.units[random.IntN(len(g.units))] {
				drawn[at]++
			}
		}
		halves = halves[:0]
		for at, times := range drawn {
			for range times {
				halves = append(halves, g.sorted[at]/2)
			}
		}
		centres[i] = centreOfHalves(halves, resampled)
	}
	slices.Sort(centres)
	return centres
}

// stretch is by how much a bootstrap interval over n units must be longer so
// that each tail holds what it should.
func stretch(n int, tail float64) float64 {
	return studentQuantile(1-tail, n-1) / normalQuantile(1-tail) * math.Sqrt(float64(n)/float64(n-1))
}

// normalQuantile is the quantile of the standard normal distribution.
func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// studentQuantile is the quantile p, from 0.5 up, of Student's distribution with
// n ≥ 1 degrees of freedom. Above a thousand degrees it is the normal one.
func studentQuantile(p float64, n int) float64 {
	if n > 1000 {
		return normalQuantile(p)
	}
	low, high := 0.0, math.Pi/2
	for range 60 { // halves the angle to less than a float64's grain
		if middle := low + (high-low)/2; studentAngle(middle, n) < p {
			low = middle
		} else {
			high = middle
		}
	}
	return math.Sqrt(float64(n)) * math.Tan(low)
}

// studentAngle is the distribution function of Student's t with n degrees of
// freedom at t = √n × tan(angle), angle ≥ 0 (Abramowitz and Stegun, "Handbook of
// Mathematical Functions", 26.7.3 and 26.7.4).
func studentAngle(angle float64, n int) float64 {
	sin, cos := math.Sincos(angle)
	var sum, within float64
	if n%2 == 1 {
		term := cos
		for k := 1; k <= n-2; k += 2 {
			sum += term
			term *= cos * cos * float64(k+1) / float64(k+2)
		}
		within = (angle + sin*sum) * 2 / math.Pi
	} else {
		term := 1.0
		for k := 0; k <= n-2; k += 2 {
			sum += term
			term *= cos * cos * float64(k+1) / float64(k+2)
		}
		within = sin * sum
	}
	return 0.5 + within/2
}
