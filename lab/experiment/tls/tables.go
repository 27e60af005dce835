package tls

import (
	"fmt"
	"slices"

	"millrace/internal/chart"
	"millrace/lab/experiment"
	"millrace/lab/result"
)

// A standing is an arm's figure beside another's: the ratios of the rounds.
type standing struct {
	mine, theirs       float64 // medians
	ratio, least, most float64
	rounds             int
}

func (s standing) text() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", s.ratio, s.least, s.most) }

// millraceOf is which of millrace's arms is in a row.
func millraceOf(r row) string {
	if slices.Contains(r.arms, noLane) {
		return noLane
	}
	return millrace
}

// stand compares two arms on a row, round by round; false where there is no round
// with both.
func stand(res *result.Result, r row, arm, other string) (standing, bool) {
	theirs := map[int]float64{}
	for _, s := range res.Samples {
		if s.Workload == r.name && s.Arm == other && s.Values[r.metric] > 0 {
			theirs[s.Block] = s.Values[r.metric]
		}
	}
	var ratios []float64
	for _, s := range res.Samples {
		if v := s.Values[r.metric]; s.Workload == r.name && s.Arm == arm && v > 0 && theirs[s.Block] > 0 {
			ratios = append(ratios, v/theirs[s.Block])
		}
	}
	if len(ratios) == 0 {
		return standing{}, false
	}
	return standing{
		mine: experiment.MedianOf(res, arm, r.name, r.metric), theirs: experiment.MedianOf(res, other, r.name, r.metric),
		ratio: experiment.Median(ratios), least: slices.Min(ratios), most: slices.Max(ratios), rounds: len(ratios),
	}, true
}

// tables are where millrace stands, and what it loses.
func tables(res *result.Result, rows []row) []result.Table {
	return []result.Table{standings(res, rows), losses(res, rows)}
}

// standings holds each row against its first arm, and the medians of all.
func standings(res *result.Result, rows []row) result.Table {
	t := result.Table{
		Title: "Where millrace stands", Lead: true,
		About: "Medians of the rounds. The ratio is millrace's figure divided by that of the arm before it, taken within each round: the median with the least " +
			"and the greatest. In the row “cold” that arm is net/http, elsewhere nginx.",
		Columns: []string{"row", "figure", "millrace", "nginx", "ratio", "must be", "", "h2o", "Caddy", "net/http"},
	}
	for _, r := range rows {
		s, ok := stand(res, r, millraceOf(r), r.arms[0])
		if !ok {
			continue
		}
		unit := unitOf(res, r.metric)
		cells := []string{r.name, r.figure, chart.Figure(s.mine, unit), shown(res, r, nginx, unit), s.text(), r.must(unit), r.reached(s)}
		for _, peer := range []string{h2o, caddy, bareNet} {
			cells = append(cells, shown(res, r, peer, unit))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

func unitOf(res *result.Result, key string) string {
	for _, m := range res.Metrics {
		if m.Key == key {
			return m.Unit
		}
	}
	return ""
}

func shown(res *result.Result, r row, arm, unit string) string {
	return experiment.Known(experiment.MedianOf(res, arm, r.name, r.metric), func(v float64) string { return chart.Figure(v, unit) })
}

// must is what a row has to reach.
func (r row) must(unit string) string {
	switch {
	case r.most > 0:
		return "≤ " + chart.Figure(r.most, unit)
	case r.goal > 0:
		return fmt.Sprintf("≤ %.2f", r.goal)
	}
	return ""
}

func (r row) reached(s standing) string {
	switch {
	case r.most == 0 && r.goal == 0:
		return ""
	case r.most > 0 && s.mine <= r.most, r.most == 0 && s.ratio <= r.goal:
		return "reached"
	}
	return "not reached"
}

// losses are every row and peer where millrace spends more in the median.
func losses(res *result.Result, rows []row) result.Table {
	t := result.Table{
		Title: "Where we lose", Lead: true,
		About:   "Every row in which a peer spends less than millrace in the median of the rounds. The program writes it, so nothing is left out.",
		Columns: []string{"row", "figure", "peer", "millrace", "peer's", "ratio", ""},
	}
	for _, r := range rows {
		for _, peer := range r.arms {
			s, ok := stand(res, r, millraceOf(r), peer)
			if !ok || peer == millraceOf(r) || s.ratio <= 1 {
				continue
			}
			when := "in some rounds"
			if s.least > 1 {
				when = "in each round"
			}
			unit := unitOf(res, r.metric)
			t.Rows = append(t.Rows, []string{r.name, r.figure, peer, chart.Figure(s.mine, unit), chart.Figure(s.theirs, unit), s.text(), when})
		}
	}
	if len(t.Rows) == 0 {
		t.Rows = [][]string{{"none"}}
	}
	return t
}
