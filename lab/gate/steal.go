package gate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"millrace/lab/record"
)

// Disturbed is the share of CPU time that other programs had in some slots together;
// ok is false where that is not known.
func Disturbed(slots []Slot) (share float64, ok bool) {
	share, found := othersShare(slots)
	return share, found == looked && len(slots) > 0
}

// Stolen is the share of CPU time that the hypervisor took from some slots
// together; ok is false where that is not known.
func Stolen(slots []Slot) (share float64, ok bool) {
	share, found := stealShare(slots)
	return share, found == looked && len(slots) > 0
}

// DefaultSteal is the share that a block may lose before it is measured again.
const DefaultSteal = 0.05

// DefaultOthers is the share that other programs may have of a block before it is
// measured again.
const DefaultOthers = 0.05

// milder looks again at what was beyond a limit, and says whether it makes the
// result void, or doubtful only.
func (l Limits) milder(g gauge, judged record.Gate, groups [][]Slot) record.Gate {
	most := 0.0
	for _, slots := range groups {
		if share, found := g.measure(slots); found == looked {
			most = max(most, share)
		}
	}
	switch g.name {
	case nameErrors:
		if l.Single && most < 1 {
			judged.Status = record.Doubtful
		}
	case nameGenerator:
		if l.Single {
			judged.Status = record.Doubtful
			judged.Detail += "; the target could answer more than it was asked: more threads ask for more (--threads)"
		}
	case nameLate:
		if most <= 0.5 {
			judged.Status = record.Doubtful
			judged.Detail += fmt.Sprintf("; the %.3g %% of latencies that are longest are the generator's", 100*most)
		}
	case nameOthers: // who disturbs one arm disturbs those of the same block: the worst is told
		judged.Status = record.Doubtful
		all := slices.Concat(groups...)
		worst := slices.MaxFunc(all, func(a, b Slot) int { return cmp.Compare(a.Others, b.Others) })
		judged.Detail = percent(worst.Others) + " used by other programs"
		if len(all) > 1 {
			judged.Detail += fmt.Sprintf(" in block %d, the worst", worst.Block)
		}
		if worst.Takers != "" {
			judged.Detail += "; " + worst.Takers
		}
	case nameSteal:
		return l.stolen(judged, groups, most)
	}
	return judged
}

// stolen judges time stolen beyond the limit. A rented machine loses some all
// the time: that makes everything slower, and every arm alike, which the
// intervals show as noise. Only where one arm lost more than another, or where
// little was left to measure with, does it make the result void.
func (l Limits) stolen(g record.Gate, groups [][]Slot, most float64) record.Gate {
	apart := 0.0
	for _, slots := range groups {
		share, _ := stealShare(slots)
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
