package gate

import (
	"fmt"
	"math"

	"millrace/lab/record"
)

// Stolen is the share of CPU time that the hypervisor took from some slots
// together; ok is false where that is not known.
func Stolen(slots []Slot) (share float64, ok bool) {
	share, found := stealShare(slots)
	return share, found == looked && len(slots) > 0
}

// DefaultSteal is the share that a block may lose before it is measured again.
const DefaultSteal = 0.05

// milder judges time stolen beyond the limit. A rented machine loses some all
// the time: that makes everything slower, and every arm alike, which the
// intervals show as noise. Only where one arm lost more than another, or where
// little was left to measure with, does it make the result void.
func (l Limits) milder(g record.Gate, groups [][]Slot) record.Gate {
	most, apart := 0.0, 0.0
	for _, slots := range groups {
		share, _ := stealShare(slots)
		most = math.Max(most, share)
		for _, others := range groups {
			if other, _ := stealShare(others); others[0].Workload == slots[0].Workload {
				apart = math.Max(apart, math.Abs(share-other))
			}
		}
	}
	if most > l.VoidSteal || apart > l.Steal {
		return g
	}
	g.Status = record.Doubtful
	g.Detail += "; requests per second and latencies are worse than this machine's own"
	if len(groups) > 1 {
		g.Detail += fmt.Sprintf(", but every arm lost as much (at most %.1f points apart), so that ratios within blocks hold", 100*apart)
	}
	return g
}
