package report

import (
	"fmt"

	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stats"
)

// loss is a figure in which a peer is better than millrace.
type loss struct {
	where, what, peer string
	ours, theirs      stats.Summary
	ratio             stats.Summary // ours to theirs, within each round
	format            func(float64) string
}

// certain tells that the peer was better in each round.
func (l loss) certain(f figure) bool {
	if f.better < 0 {
		return l.ratio.Min > 1
	}
	return l.ratio.Max < 1
}

// worse tells whether a ratio of ours to theirs is to our disadvantage.
func (f figure) worse(s stats.Summary) bool {
	if !s.Valid() {
		return false
	}
	if f.better < 0 {
		return s.Median > 1
	}
	return s.Median < 1
}

// compared are a figure of ours and of a peer, at a place.
type compared struct {
	figure
	where        string
	peer         record.Arm
	ours, theirs byRound
}

// losses are the rows of "Where we lose": every figure of every peer that is
// better than ours in the median of the rounds.
func losses(r *record.Run, rows []record.Cell) []string {
	var list []string
	for _, c := range comparisons(r, rows) {
		l := loss{c.where, c.name, c.peer.Title, c.ours.summary(), c.theirs.summary(), stats.Ratios(c.ours, c.theirs), c.format}
		if !c.worse(l.ratio) {
			continue
		}
		how := "in some rounds"
		if l.certain(c.figure) {
			how = "in each round"
		}
		if l.ratio.N == 1 {
			how = "measured once"
		}
		list = append(list, fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |", l.where, l.what, l.peer,
			l.format(l.ours.Median), l.format(l.theirs.Median), span(l.ratio, ratio), how))
	}
	return list
}

// comparisons are all figures of ours with a peer's beside them.
func comparisons(r *record.Run, rows []record.Cell) []compared {
	if r.Images != nil {
		return imageComparisons(r, rows)
	}
	return nil
}

// held is an arm's memory under load in MB, as a figure of one round.
func held(r *record.Run, name string) byRound {
	for _, m := range r.Memory {
		if m.Arm == name {
			return byRound{1: float64(m.Held.PSS) / 1e6}
		}
	}
	return nil
}
