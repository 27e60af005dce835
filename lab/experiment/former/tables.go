package former

import (
	"fmt"
	"slices"
	"strings"

	"millrace/internal/ops/chart"
	"millrace/lab/record"
)

// A peerRatio is millrace's figure beside a peer's: the ratios of the rounds.
type peerRatio struct {
	mine, theirs       float64 // medians
	ratio, least, most float64
	rounds             int
}

func (s peerRatio) text() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", s.ratio, s.least, s.most) }

// compareWith sets millrace with another arm on a row, round by round; false where
// there is no round with both.
func compareWith(res *record.Result, r Row, other string) (peerRatio, bool) {
	theirs := map[int]float64{}
	for _, s := range res.Samples {
		if s.Workload == r.Name && s.Arm == other && s.Values[r.Metric] > 0 {
			theirs[s.Block] = s.Values[r.Metric]
		}
	}
	var ratios []float64
	for _, s := range res.Samples {
		if v := s.Values[r.Metric]; s.Workload == r.Name && s.Arm == r.Ours && v > 0 && theirs[s.Block] > 0 {
			ratios = append(ratios, v/theirs[s.Block])
		}
	}
	if len(ratios) == 0 {
		return peerRatio{}, false
	}
	return peerRatio{
		mine: MedianOf(res, r.Ours, r.Name, r.Metric), theirs: MedianOf(res, other, r.Name, r.Metric),
		ratio: Median(ratios), least: slices.Min(ratios), most: slices.Max(ratios), rounds: len(ratios),
	}, true
}

// A Peer is an arm, and what its column is called.
type Peer struct{ Arm, Name string }

// Tables are where millrace stands, and what it loses. The usual peer is the first.
func Tables(res *record.Result, rows []Row, peers []Peer) []record.Table {
	return []record.Table{standings(res, rows, peers), losses(res, rows)}
}

// standings holds each row against its first arm, and the medians of all.
func standings(res *record.Result, rows []Row, peers []Peer) record.Table {
	t := record.Table{
		Title: "Where millrace stands", Lead: true,
		About: "Medians of the rounds. The ratio is millrace's figure divided by that of another arm, taken within each round: the median with the least " +
			"and the greatest. That arm is " + peers[0].Name + others(rows, peers) + ".",
		Columns: []string{"row", "figure", "millrace", peers[0].Name, "ratio", "must be", ""},
	}
	for _, p := range peers[1:] {
		t.Columns = append(t.Columns, p.Name)
	}
	for _, r := range rows {
		s, ok := compareWith(res, r, r.Arms[0])
		if !ok {
			continue
		}
		unit := unitOf(res, r.Metric)
		cells := []string{r.Name, r.Figure, chart.Figure(s.mine, unit), shown(res, r, peers[0], unit), s.text(), r.must(unit), r.reached(s)}
		for _, p := range peers[1:] {
			cells = append(cells, shown(res, r, p, unit))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// others names the rows that are held against another arm than the usual one.
func others(rows []Row, peers []Peer) string {
	var text string
	for _, p := range peers[1:] {
		var names []string
		for _, r := range rows {
			if r.Arms[0] == p.Arm {
				names = append(names, "“"+r.Name+"”")
			}
		}
		switch len(names) {
		case 0:
		case 1:
			text += ", but in the row " + names[0] + " " + p.Name
		default:
			text += ", but in the rows " + List(names) + " " + p.Name
		}
	}
	return text
}

func unitOf(res *record.Result, key string) string {
	for _, m := range res.Metrics {
		if m.Key == key {
			return m.Unit
		}
	}
	return ""
}

func shown(res *record.Result, r Row, p Peer, unit string) string {
	return Known(MedianOf(res, p.Arm, r.Name, r.Metric), func(v float64) string { return chart.Figure(v, unit) })
}

// must is what a row has to reach.
func (r Row) must(unit string) string {
	switch {
	case r.Most > 0:
		return "≤ " + chart.Figure(r.Most, unit)
	case r.Goal > 0:
		return fmt.Sprintf("≤ %.2f", r.Goal)
	}
	return ""
}

func (r Row) reached(s peerRatio) string {
	switch {
	case r.Most == 0 && r.Goal == 0:
		return ""
	case r.Most > 0 && s.mine <= r.Most, r.Most == 0 && s.ratio <= r.Goal:
		return "reached"
	}
	return "not reached"
}

// losses are every row and peer where millrace spends more in the median.
func losses(res *record.Result, rows []Row) record.Table {
	t := record.Table{
		Title: "Where we lose", Lead: true,
		About:   "Every row in which a peer spends less than millrace in the median of the rounds. The program writes it, so nothing is left out.",
		Columns: []string{"row", "figure", "peer", "millrace", "peer's", "ratio", ""},
	}
	for _, r := range rows {
		for _, peer := range r.Arms {
			s, ok := compareWith(res, r, peer)
			if !ok || peer == r.Ours || s.ratio <= 1 {
				continue
			}
			when := "in some rounds"
			if s.least > 1 {
				when = "in each round"
			}
			unit := unitOf(res, r.Metric)
			t.Rows = append(t.Rows, []string{r.Name, r.Figure, peer, chart.Figure(s.mine, unit), chart.Figure(s.theirs, unit), s.text(), when})
		}
	}
	if len(t.Rows) == 0 {
		t.Rows = [][]string{{"none"}}
	}
	return t
}

// A Figure is a metric, and what a table calls it.
type Figure struct{ Metric, Name string }

// Side fills a table with other figures of the same rows, of each arm: the medians
// of the rounds.
func Side(t record.Table, res *record.Result, rows []Row, figures []Figure, arms []Peer) record.Table {
	t.Columns = []string{"row", "figure"}
	for _, p := range arms {
		t.Columns = append(t.Columns, p.Name)
	}
	for _, r := range rows {
		for _, f := range figures {
			cells, unit := []string{r.Name, f.Name}, unitOf(res, f.Metric)
			for _, p := range arms {
				cells = append(cells, shown(res, Row{Name: r.Name, Metric: f.Metric}, p, unit))
			}
			if strings.Trim(strings.Join(cells[2:], ""), "–") != "" {
				t.Rows = append(t.Rows, cells)
			}
		}
	}
	return t
}
