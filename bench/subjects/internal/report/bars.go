package report

import (
	"fmt"
	"math"

	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stats"
)

// bar is one row of the table of bars.
type bar struct {
	what  string
	got   stats.Summary
	limit float64
	least bool // got must be at least limit; else at most
	show  func(float64) string
}

// met compares the median of the rounds with the limit. Nothing measured is
// not met.
func (b bar) met() bool {
	if b.least {
		return b.got.Median >= b.limit
	}
	return b.got.Median <= b.limit
}

func (b bar) verdict() string {
	switch {
	case !b.got.Valid():
		return "not measured"
	case b.met():
		return "pass"
	default:
		return "**fail**"
	}
}

func (b bar) bound() string {
	if b.least {
		return "≥ " + b.show(b.limit)
	}
	return "≤ " + b.show(b.limit)
}

// barsOf are those of the run's scenario.
func barsOf(r *record.Run, rows []record.Cell) []bar {
	switch {
	case r.Images != nil:
		return imageBars(r, rows)
	}
	return nil
}

// one is a figure that was measured once.
func one(v float64) stats.Summary { return stats.Summarise([]float64{v}) }

// against is an arm's figure in a cell as a ratio to a peer's.
func against(r *record.Run, name, peer string, c record.Cell, f figure) stats.Summary {
	return stats.Ratios(smallFigure(r, name, c, f.small), smallFigure(r, peer, c, f.small))
}

// failures is the sum of millrace's failed requests in the whole run.
func failures(r *record.Run) stats.Summary {
	sum, slots := uint64(0), 0
	for _, s := range r.Small {
		if a, ok := arm(r, s.Arm); ok && a.Ours {
			sum += s.Wrk.Sum()
			slots++
		}
	}
	for _, m := range r.Memory {
		if a, ok := arm(r, m.Arm); ok && a.Ours {
			sum += m.Fail
		}
	}
	if slots == 0 {
		return stats.Summarise(nil)
	}
	return stats.Summarise([]float64{float64(sum)})
}

// memory is what millrace held under load, with a log or without, whichever is
// more.
func memory(r *record.Run) stats.Summary {
	most := math.NaN()
	for _, m := range r.Memory {
		if a, ok := arm(r, m.Arm); ok && a.Ours && !a.Variant && !(float64(m.Held.RSS) < most) {
			most = float64(m.Held.RSS)
		}
	}
	return stats.Summarise([]float64{most})
}

func percent(v float64) string   { return fmt.Sprintf("%.1f %%", v*100) }
func megabytes(v float64) string { return fmt.Sprintf("%.1f MB", v/1e6) }
