// Package stats decides what paired measurements prove.
//
// A comparison is a set of blocks. In each block every arm was measured once,
// in random order; blocks between two restarts of the servers form a group.
// What is compared is the logarithm of the ratio arm ÷ baseline within a block,
// so that whatever slows the whole machine for a while cancels.
//
// The procedure, all of it fixed before anything is measured:
//
//   - The centre is the Hodges–Lehmann estimate, the median of all pairwise means
//     (Hodges and Lehmann, "Estimates of Location Based on Rank Tests", Annals of
//     Mathematical Statistics 34, 1963): a few wild blocks do not move it.
//   - The unit is the restart: two processes of one program differ (memory
//     layout, hashing), and the blocks of one process share that difference, so
//     they are not so many independent findings. Only where nothing was
//     restarted are the blocks the units, and then the verdict is about these
//     very processes.
//   - The interval is a bootstrap over units, stretched for few of them; see
//     interval.go for why and for its simulated coverage.
//   - The p-value is that of the sign-flip permutation test on signed ranks,
//     exact; see permute.go.
//   - Holm's adjustment over the family and an equal share of Alpha for each look
//     hold the chance of any false Below or Above in a whole result to Alpha.
package stats

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// A Pair is one block: the log-ratio ln(arm ÷ baseline) of one metric. Pairs
// whose log-ratio is not finite, or beyond what a float64 ratio can hold, are
// left out of everything and counted in [Estimate.Dropped].
type Pair struct {
	Restart  int
	Block    int
	LogRatio float64
}

// Rule is when a verdict is given. Fields that are zero, or make no sense (an
// Alpha of 2), have the defaults named.
type Rule struct {
	// Delta is what counts as equal: ratios from 1 ÷ (1 + Delta) to 1 + Delta.
	// Default 0.01 (1 %).
	Delta float64
	// Alpha is the chance of any Below or Above in the whole result, over all
	// looks and the whole family, where nothing differs. Default 0.01. The
	// chance that an arm beyond Delta is called Equal is that of the interval:
	// at most (1 − Level) ÷ 2 for each metric and look.
	Alpha     float64
	Level     float64 // of the interval; default 0.95
	Looks     int     // how many looks are planned, 1 to MaxLooks; default 1
	Look      int     // which one this is, from 1; default 1
	Resamples int     // bootstrap resamples; default 2000, at most 100,000
	Seed      uint64
	// PerRestart is how many blocks are planned between restarts, for
	// FewestBlocks: default 1, which is also right where nothing is restarted.
	PerRestart int
}

// MaxLooks is how often data may be judged while more is collected.
const MaxLooks = 3

const (
	defaultDelta     = 0.01
	defaultAlpha     = 0.01
	defaultLevel     = 0.95
	defaultResamples = 2000
	// maxResamples bounds the time of one estimate: a hundred thousand resamples
	// of 24 blocks take 0.3 s, and no interval gets better by more.
	maxResamples = 100_000
	// maxLog bounds log-ratios: beyond it their exponential does not fit a float64.
	maxLog = 700
	// fewestUnits is how many units a verdict takes. The interval holds its level
	// from four units on in simulations; two more are for noise unlike theirs.
	fewestUnits = 6
)

// Estimate is what the pairs of one metric say.
type Estimate struct {
	// Ratio is the Hodges–Lehmann centre, Low and High its bootstrap interval.
	// All three are 0 without blocks; with a single unit there is no interval,
	// and Low and High are 0.
	Ratio, Low, High float64
	P                float64 // sign-flip permutation, two-sided, not adjusted; 1 without blocks
	Blocks, Restarts int     // that were used
	Units            int     // what was resampled and flipped: restarts, or the blocks of a single one
	Dropped          int     // pairs left out because their log-ratio is not a finite number
}

// Outcome is what an estimate means under a rule.
type Outcome int

// The outcomes. Below means that the arm's figure is smaller than the baseline's.
const (
	Undecided Outcome = iota
	Below
	Above
	Equal
)

// String is the outcome in a word.
func (o Outcome) String() string {
	switch o {
	case Below:
		return "below"
	case Above:
		return "above"
	case Equal:
		return "equal"
	default:
		return "undecided"
	}
}

// A Decision is an estimate with its verdict.
type Decision struct {
	Estimate
	Outcome  Outcome
	Adjusted float64 // P after Holm's adjustment over the family
	// More is how many further blocks would probably decide it, when Undecided:
	// from the spread seen, for the centre seen. 0 where that cannot be said, or
	// would be more than MaxMore.
	More int
	// Why says, when Undecided, what is missing although the interval is without
	// 1: "p 0.012 is above 0.0033". Empty where the interval itself says it.
	Why string
}

// Decide judges a family of metrics together: keys are whatever the caller
// names them by. Holm's adjustment is over the whole family, so a family is
// everything that one result gives verdicts about; a metric without any usable
// pair counts too, since it was planned to.
//
// Below and Above take an adjusted p of at most this look's share of Alpha, an
// interval without 1 and a centre beyond Delta. Equal takes an interval that
// lies within Delta. All else is Undecided, and so is what has fewer than six
// units.
//
// The same family, rule and seed give the same decisions; what a metric's
// interval is does not depend on which others are in the family.
func Decide(family map[string][]Pair, rule Rule) map[string]Decision {
	rule = rule.filled()
	keys := slices.Sorted(maps.Keys(family))
	decisions := make(map[string]Decision, len(family))
	p := make([]float64, len(keys))
	groups := make([]grouped, len(keys))
	estimates := make([]Estimate, len(keys))
	for i, k := range keys {
		groups[i] = group(family[k])
		estimates[i] = groups[i].estimate(rule, k)
		p[i] = estimates[i].P
	}
	for i, adjusted := range holm(p) {
		d := Decision{Estimate: estimates[i], Adjusted: adjusted}
		d.Outcome = rule.outcome(d)
		if d.Outcome == Undecided {
			d.More, d.Why = rule.more(d, len(keys)), rule.why(d, len(keys))
		}
		decisions[keys[i]] = d
	}
	return decisions
}

// outcome is the rule of verdict itself.
func (r Rule) outcome(d Decision) Outcome {
	if d.Units < fewestUnits {
		return Undecided
	}
	centre, low, high, delta := math.Log(d.Ratio), math.Log(d.Low), math.Log(d.High), math.Log1p(r.Delta)
	significant := d.Adjusted <= r.lookAlpha()
	switch {
	case significant && high < 0 && centre < -delta:
		return Below
	case significant && low > 0 && centre > delta:
		return Above
	case low > -delta && high < delta:
		return Equal
	default:
		return Undecided
	}
}

// filled is the rule with its defaults.
func (r Rule) filled() Rule {
	if !(r.Delta > 0 && r.Delta <= 1) {
		r.Delta = defaultDelta
	}
	if !(r.Alpha > 0 && r.Alpha < 1) {
		r.Alpha = defaultAlpha
	}
	if !(r.Level > 0 && r.Level < 1) {
		r.Level = defaultLevel
	}
	r.Looks = min(max(r.Looks, 1), MaxLooks)
	r.Look = min(max(r.Look, 1), r.Looks)
	if r.Resamples <= 0 {
		r.Resamples = defaultResamples
	}
	r.Resamples = min(r.Resamples, maxResamples)
	r.PerRestart = max(r.PerRestart, 1)
	return r
}

// grouped is the usable pairs of one metric by restart.
type grouped struct {
	sorted  []float64 // all log-ratios, rising
	units   [][]int   // what is resampled together: indices into sorted
	centres []float64 // of each unit
	out     Estimate  // its counts
}

// group sorts pairs into units. The order in which pairs are given changes
// nothing.
func group(pairs []Pair) grouped {
	usable := make([]Pair, 0, len(pairs))
	for _, p := range pairs {
		if math.Abs(p.LogRatio) <= maxLog { // false for NaN
			usable = append(usable, p)
		}
	}
	slices.SortStableFunc(usable, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.LogRatio, b.LogRatio), cmp.Compare(a.Restart, b.Restart), cmp.Compare(a.Block, b.Block))
	})
	g := grouped{sorted: make([]float64, len(usable))}
	restarts := map[int][]int{}
	for i, p := range usable {
		g.sorted[i] = p.LogRatio
		restarts[p.Restart] = append(restarts[p.Restart], i)
	}
	ids := slices.Sorted(maps.Keys(restarts))
	if len(ids) == 1 {
		for i := range g.sorted {
			g.units = append(g.units, []int{i})
		}
	} else {
		for _, id := range ids {
			g.units = append(g.units, restarts[id])
		}
	}
	for _, u := range g.units {
		values := make([]float64, len(u))
		for i, at := range u {
			values[i] = g.sorted[at]
		}
		g.centres = append(g.centres, HodgesLehmann(values))
	}
	g.out = Estimate{Blocks: len(usable), Restarts: len(ids), Units: len(g.units), Dropped: len(pairs) - len(usable)}
	return g
}

// estimate is centre, interval and p of one metric. The name goes into the seed,
// so that metrics do not share their resamples.
func (g grouped) estimate(rule Rule, name string) Estimate {
	e := g.out
	e.P = signFlip(g.centres)
	if e.Units == 0 {
		return e
	}
	centre := HodgesLehmann(g.sorted)
	e.Ratio = math.Exp(centre)
	if e.Units > 1 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name)) // never fails
		low, high := g.interval(centre, rule, rand.New(rand.NewPCG(rule.Seed, h.Sum64())))
		e.Low, e.High = math.Exp(max(low, -maxLog)), math.Exp(min(high, maxLog))
	}
	return e
}
