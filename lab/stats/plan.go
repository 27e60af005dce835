package stats

import (
	"fmt"
	"math"
)

// MaxMore is the most blocks that [Decision.More] says: who would have to
// measure longer than that does better to quieten the machine.
const MaxMore = 500

// lookAlpha is the share of Alpha that each look has: the same for all, as in
// Pocock's design ("Group Sequential Methods in the Design and Analysis of
// Clinical Trials", Biometrika 64, 1977), by Bonferroni's bound instead of his
// constants. Those are 0.0056 for two and 0.0041 for three looks at Alpha 0.01
// (z of 2.772 and 2.873; Jennison and Turnbull, "Group Sequential Methods", 2000,
// table 2.1); the bound has 0.0050 and 0.0033. The little it gives away, 2 % less
// deviation found, buys that nothing need be known: not that p is continuous, nor
// how much the looks depend on each other, which the constants say for equal
// steps only, nor how Holm's adjustment works on them, which pushes single
// metrics so far out that the looks hardly overlap.
func (r Rule) lookAlpha() float64 { return r.Alpha / float64(r.Looks) }

// FewestBlocks is how many blocks a family of n metrics needs before a rule can
// give any verdict at all: with k units there are 2^k patterns of signs, and the
// most extreme two of them must be rare enough after Holm's adjustment. Units are
// restarts, so Rule.PerRestart blocks each.
func FewestBlocks(n int, rule Rule) int {
	rule = rule.filled()
	return rule.fewestUnits(n) * rule.PerRestart
}

func (r Rule) fewestUnits(n int) int {
	// n × 2 ÷ 2^k ≤ alpha; a hair below a whole number is that number.
	k := math.Ceil(math.Log2(2*float64(max(n, 1))/r.lookAlpha()) - 1e-9)
	return max(int(k), fewestUnits)
}

// power is the quantile of how surely More blocks should find what was seen.
const power = 0.8

// efficiency of ranks against the mean in normal noise is 3/π (Hodges and
// Lehmann, "The Efficiency of Some Nonparametric Competitors of the t-Test",
// Annals of Mathematical Statistics 27, 1956).
const efficiency = 3 / math.Pi

// more is how many blocks would probably decide what n metrics' worth of Holm's
// adjustment left open.
func (r Rule) more(d Decision, n int) int {
	if d.Units < 2 {
		return 0 // no spread was seen
	}
	centre, delta := math.Abs(math.Log(d.Ratio)), math.Log1p(r.Delta)
	half := math.Log(d.High/d.Low) / 2
	units := float64(d.Units)
	var need float64
	if centre > delta {
		deviation := half / studentQuantile((1+r.Level)/2, d.Units-1) * math.Sqrt(units) // of one unit
		sure := normalQuantile(power)
		significant := deviation * (normalQuantile(1-r.lookAlpha()/2/float64(n)) + sure) / centre
		beyond := deviation * sure / (centre - delta) // that the next centre is beyond Delta, too
		need = max(significant*significant/efficiency, beyond*beyond, float64(r.fewestUnits(n)))
	} else {
		reach := half / (delta - centre) // at the very edge: never
		need = max(units*reach*reach, fewestUnits)
	}
	blocks := math.Ceil(max(need-units, 1)) * math.Ceil(float64(d.Blocks)/units)
	if !(blocks <= MaxMore) {
		return 0
	}
	return int(blocks)
}

// why is what an undecided one of n metrics lacks although its interval is
// without 1.
func (r Rule) why(d Decision, n int) string {
	if !(d.Low > 1) && !(d.High < 1 && d.High > 0) {
		return ""
	}
	unit := "restarts"
	if d.Restarts <= 1 {
		unit = "blocks"
	}
	switch fewest := r.fewestUnits(n); {
	case d.Units < fewest:
		return fmt.Sprintf("%d %s are too few for any verdict, it takes %d", d.Units, unit, fewest)
	case !(d.Adjusted <= r.lookAlpha()):
		return fmt.Sprintf("p %.2g is above %.2g, what this look allows", d.Adjusted, r.lookAlpha())
	}
	return fmt.Sprintf("the centre is within ±%.3g %%, which counts as no difference", r.Delta*100)
}
