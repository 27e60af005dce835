// Package stats decides what paired measurements prove.
//
// A comparison is a set of blocks. In each block every arm was measured once,
// in random order; blocks between two restarts of the servers form a group.
// What is compared is the logarithm of the ratio arm ÷ baseline within a block,
// so that whatever slows the whole machine for a while cancels.
package stats

// A Pair is one block: the log-ratio ln(arm ÷ baseline) of one metric.
type Pair struct {
	Restart  int
	Block    int
	LogRatio float64
}

// Rule is when a verdict is given. Zero fields have the defaults named.
type Rule struct {
	Delta     float64 // what counts as equal, as a ratio: 0; default 0.01 (1 %)
	Alpha     float64 // chance of any wrong verdict in the whole result; default 0.01
	Level     float64 // of the interval; default 0.95
	Looks     int     // how many looks are planned, 1 to MaxLooks; default 1
	Look      int     // which one this is, from 1; default 1
	Resamples int     // bootstrap resamples; default 2000
	Seed      uint64
}

// MaxLooks is how often data may be judged while more is collected.
const MaxLooks = 3

// Estimate is what the pairs of one metric say.
type Estimate struct {
	Ratio, Low, High float64 // Hodges–Lehmann centre and bootstrap interval
	P                float64 // sign-flip permutation, two-sided, not adjusted
	Blocks, Restarts int
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

// A Decision is an estimate with its verdict.
type Decision struct {
	Estimate
	Outcome  Outcome
	Adjusted float64 // P after Holm's adjustment over the family
	More     int     // blocks that would probably decide it, when Undecided
}

// Decide judges a family of metrics together: keys are whatever the caller
// names them by. Holm's adjustment is over the whole family, so a family is
// everything that one result gives verdicts about.
func Decide(family map[string][]Pair, rule Rule) map[string]Decision { panic("not built") }

// FewestBlocks is how many blocks a family of n metrics needs before a rule can
// give any verdict at all.
func FewestBlocks(n int, rule Rule) int { panic("not built") }
