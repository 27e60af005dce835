package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millrace/internal/ops/chart"
	"millrace/lab/record"
)

// A Table of a report. Its kind says what it shows:
//
//   - beside: each verdict about Arms, with both medians
//   - standings: each workload against its first arm, and the medians of all
//   - losses: every workload and peer where millrace spends more
//   - side: other figures of the same workloads, of the peers
//   - none: medians, a row for each of Arms (and each of Workloads, if there are any)
type Table struct {
	Kind, Title, About string
	Lead               bool
	Arms               []string // none: all
	Workloads          []string // patterns
	Against            string   // the arm that figures in brackets are ratios to
	Columns            []Column
	Rows               [][]string // what was published, instead of what was measured
}

// A Column of a table of medians.
type Column struct {
	Name, Metric, Workload string   // of which workload, where rows are of none
	Published              bool     // what was published, instead of what was measured
	Arms                   []string // of a table of the kind side: only these
	Scale                  float64  // 0: 1
	Digits                 int      // after the point; with a scale only, else with the unit
}

// A Peer is an arm, and what its column is called.
type Peer struct{ Arm, Name string }

// table makes a table of what was measured.
func (r *Run) table(t Table) record.Table {
	made := record.Table{Title: t.Title, About: t.About, Lead: t.Lead}
	if len(t.Rows) > 0 {
		for _, c := range t.Columns {
			made.Columns = append(made.Columns, c.Name)
		}
		made.Rows = t.Rows
		return made
	}
	switch t.Kind {
	case "beside":
		r.beside(&made, t.Arms)
	case "standings":
		r.standings(&made)
	case "losses":
		r.losses(&made)
	case "side":
		r.side(&made, t)
	default:
		r.medians(&made, t)
	}
	return made
}

// beside holds arms beside others: losses as well as gains.
func (r *Run) beside(t *record.Table, arms []string) {
	t.Title, t.Lead = cmp.Or(t.Title, Capital(arms[0])+" beside the others"), true
	t.About = cmp.Or(t.About, "Medians over all blocks; change and interval are those of the verdict, block by block. What is lost is in it like what is gained.")
	t.Columns = []string{"workload", "figure", "arm", "", "against", "", "change", "interval", "verdict"}
	for _, w := range r.Res.Workloads {
		for _, v := range r.Res.Verdicts {
			if v.Workload != w.Name || !slices.Contains(arms, v.Arm) || r.placebo(v.Baseline) {
				continue
			}
			m := r.metric(v.Metric)
			change, interval := chart.Effect(v.Ratio, v.Low, v.High)
			t.Rows = append(t.Rows, []string{
				w.Name, m.Name, v.Arm, r.shown(v.Arm, w.Name, m.Key), v.Baseline, r.shown(v.Baseline, w.Name, m.Key), change, interval, string(v.Outcome),
			})
		}
	}
}

func (r *Run) placebo(name string) bool {
	return slices.ContainsFunc(r.Res.Arms, func(a record.Arm) bool { return a.Name == name && a.Placebo != "" })
}

func (r *Run) metric(key string) record.Metric {
	i := slices.IndexFunc(r.Res.Metrics, func(m record.Metric) bool { return m.Key == key })
	if i < 0 {
		return record.Metric{Key: key, Name: key}
	}
	return r.Res.Metrics[i]
}

// shown is a median with its unit.
func (r *Run) shown(arm, workload, metric string) string {
	return Known(MedianOf(r.Res, arm, workload, metric), func(v float64) string { return chart.Figure(v, r.metric(metric).Unit) })
}

// A peerRatio is millrace's figure beside a peer's: the ratios of the rounds.
type peerRatio struct{ mine, theirs, ratio, least, most float64 }

func (p peerRatio) text() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", p.ratio, p.least, p.most) }

// compareWith sets millrace with another arm on a workload, round by round; false
// where there is no round with both.
func compareWith(res *record.Result, w Workload, other string) (peerRatio, bool) {
	theirs := map[int]float64{}
	for _, s := range res.Samples {
		if s.Workload == w.Name && s.Arm == other && s.Values[w.Metric] > 0 {
			theirs[s.Block] = s.Values[w.Metric]
		}
	}
	var ratios []float64
	for _, s := range res.Samples {
		if v := s.Values[w.Metric]; s.Workload == w.Name && s.Arm == w.Ours && v > 0 && theirs[s.Block] > 0 {
			ratios = append(ratios, v/theirs[s.Block])
		}
	}
	if len(ratios) == 0 {
		return peerRatio{}, false
	}
	return peerRatio{
		mine: MedianOf(res, w.Ours, w.Name, w.Metric), theirs: MedianOf(res, other, w.Name, w.Metric),
		ratio: Median(ratios), least: slices.Min(ratios), most: slices.Max(ratios),
	}, true
}

// ranked are the workloads that are held against a peer.
func (r *Run) ranked() []Workload {
	return slices.DeleteFunc(slices.Clone(r.Chosen), func(w Workload) bool { return !slices.Contains(w.Arms, w.Ours) })
}

func (r *Run) standings(t *record.Table) {
	peers := r.Spec.Peers
	t.Title, t.Lead = cmp.Or(t.Title, "Where millrace stands"), true
	t.About = "Medians of the rounds. The ratio is millrace's figure divided by that of another arm, taken within each round: the median with the least " +
		"and the greatest. That arm is " + peers[0].Name + r.others() + "."
	t.Columns = []string{"row", "figure", "millrace", peers[0].Name, "ratio", "must be", ""}
	for _, p := range peers[1:] {
		t.Columns = append(t.Columns, p.Name)
	}
	for _, w := range r.ranked() {
		s, ok := compareWith(r.Res, w, w.Arms[0])
		if !ok {
			continue
		}
		unit := r.metric(w.Metric).Unit
		cells := []string{w.Name, w.Figure, chart.Figure(s.mine, unit), r.shown(peers[0].Arm, w.Name, w.Metric), s.text(), w.must(unit), w.reached(s)}
		for _, p := range peers[1:] {
			cells = append(cells, r.shown(p.Arm, w.Name, w.Metric))
		}
		t.Rows = append(t.Rows, cells)
	}
}

// others names the workloads that are held against another arm than the usual one.
func (r *Run) others() (text string) {
	for _, p := range r.Spec.Peers[1:] {
		var names []string
		for _, w := range r.ranked() {
			if w.Arms[0] == p.Arm {
				names = append(names, "“"+w.Name+"”")
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

// must is what a workload has to reach.
func (w Workload) must(unit string) string {
	switch {
	case w.Most > 0:
		return "≤ " + chart.Figure(w.Most, unit)
	case w.Goal > 0:
		return fmt.Sprintf("≤ %.2f", w.Goal)
	}
	return ""
}

func (w Workload) reached(s peerRatio) string {
	switch {
	case w.Most == 0 && w.Goal == 0:
		return ""
	case w.Most > 0 && s.mine <= w.Most, w.Most == 0 && s.ratio <= w.Goal:
		return "reached"
	}
	return "not reached"
}

func (r *Run) losses(t *record.Table) {
	t.Title, t.Lead = cmp.Or(t.Title, "Where we lose"), true
	t.About = "Every row in which a peer spends less than millrace in the median of the rounds. The program writes it, so nothing is left out."
	t.Columns = []string{"row", "figure", "peer", "millrace", "peer's", "ratio", ""}
	for _, w := range r.ranked() {
		for _, peer := range w.Arms {
			s, ok := compareWith(r.Res, w, peer)
			if !ok || peer == w.Ours || s.ratio <= 1 {
				continue
			}
			when := "in some rounds"
			if s.least > 1 {
				when = "in each round"
			}
			unit := r.metric(w.Metric).Unit
			t.Rows = append(t.Rows, []string{w.Name, w.Figure, peer, chart.Figure(s.mine, unit), chart.Figure(s.theirs, unit), s.text(), when})
		}
	}
	if len(t.Rows) == 0 {
		t.Rows = [][]string{{"none"}}
	}
}

// side has a row for each workload and each of the table's columns.
func (r *Run) side(t *record.Table, spec Table) {
	t.Columns = []string{"row", "figure"}
	peers := r.Spec.Peers
	for i, arm := range spec.Arms {
		if i == 0 {
			peers = nil
		}
		peers = append(peers, Peer{arm, arm})
	}
	for _, p := range peers {
		t.Columns = append(t.Columns, p.Name)
	}
	for _, w := range r.Chosen {
		for _, c := range spec.Columns {
			cells, known := []string{w.Name, c.Name}, false
			for _, p := range peers {
				cell := r.shown(p.Arm, w.Name, c.Metric)
				known = known || cell != "–"
				cells = append(cells, cell)
			}
			if known {
				t.Rows = append(t.Rows, cells)
			}
		}
	}
}

// medians has a row for each arm, of each workload where rows have one.
func (r *Run) medians(t *record.Table, spec Table) {
	rows, first := []string{""}, []string{"arm"}
	if len(spec.Workloads) > 0 {
		rows, first = nil, []string{"workload", "arm"}
	}
	for _, w := range r.Res.Workloads {
		if yes, err := named(w.Name, spec.Workloads); yes && err == nil {
			rows = append(rows, w.Name)
		}
	}
	t.Columns = first
	for _, c := range spec.Columns {
		t.Columns = append(t.Columns, c.Name)
	}
	for _, workload := range rows {
		for _, a := range r.Res.Arms {
			if a.Placebo != "" || len(spec.Arms) > 0 && !slices.Contains(spec.Arms, a.Name) {
				continue
			}
			cells, measured := []string{workload, a.Name}[2-len(first):], false
			for _, c := range spec.Columns {
				w := cmp.Or(workload, c.Workload)
				cell := r.cell(c, w, a.Name, spec.Against)
				measured = measured || !c.Published && cell != "–"
				cells = append(cells, cell)
			}
			if measured {
				t.Rows = append(t.Rows, cells)
			}
		}
	}
}

// cell is one median, or one published figure.
func (r *Run) cell(c Column, workload, arm, against string) string {
	of := func(arm string) float64 {
		if c.Published {
			return r.Spec.Published[workload][arm]
		}
		return MedianOf(r.Res, arm, workload, c.Metric)
	}
	v, base := of(arm), 0.0
	if against != "" {
		base = of(against)
	}
	if c.Scale != 0 {
		return Against(v, base, c.Scale, c.Digits)
	}
	unit := r.metric(c.Metric).Unit
	switch {
	case v == 0 && unit == "" && r.measured(arm, workload, c.Metric):
		return "0"
	case v <= 0:
		return "–"
	case base == 0 || v == base:
		return chart.Figure(v, unit)
	}
	return fmt.Sprintf("%s (%s)", chart.Figure(v, unit), Change(v/base))
}

func (r *Run) measured(arm, workload, metric string) bool {
	return slices.ContainsFunc(r.Res.Samples, func(s record.Sample) bool {
		_, ok := s.Values[metric]
		return ok && s.Arm == arm && s.Workload == workload
	})
}

// A Sentence is a part of the answer, which says no more than its figures do: of a
// verdict its outcome with the interval, of a median the figure. In its texts stand
// {difference} (a verdict in words), {workload}, {figure} and {other} (the medians of
// Arm and Against), and {published} (the change that was published).
type Sentence struct {
	Begin        string // before all of them
	Arm, Against string // whose verdict; without Against the median of Arm
	Metric       string
	Workloads    []string // patterns; none: all
	Format       string   // of each workload; they are joined to a list

	// Instead of Format, where the answer is a yes or no: by the outcome.
	Better, Worse, Equal, Undecided string

	Rows bool // the ratios of the workloads that are headlines, or of all
}

// answer are all sentences that there are figures for.
func (r *Run) answer() string {
	var parts []string
	for _, s := range r.Spec.Answer {
		if s.Rows {
			if text := r.rowsAnswer(); text != "" {
				parts = append(parts, text)
			}
			continue
		}
		var each []string
		for _, w := range r.Res.Workloads {
			if yes, err := named(w.Name, s.Workloads); err != nil || !yes && len(s.Workloads) > 0 {
				continue
			}
			if text := r.sentence(s, w.Name); text != "" {
				each = append(each, text)
			}
		}
		if len(each) > 0 {
			parts = append(parts, s.Begin+List(each))
		}
	}
	return strings.Join(parts, "; ")
}

// sentence is a sentence about one workload; empty where nothing is known.
func (r *Run) sentence(s Sentence, workload string) string {
	text, difference := s.Format, ""
	figure := MedianOf(r.Res, s.Arm, workload, s.Metric)
	if s.Against != "" {
		v, ok := VerdictOn(r.Res, s.Arm, s.Against, workload, s.Metric)
		if !ok {
			return ""
		}
		difference = Difference(v)
		by := map[record.Outcome]string{record.Better: s.Better, record.Worse: s.Worse, record.Equal: s.Equal, record.Undecided: s.Undecided}
		text = cmp.Or(by[v.Outcome], text, "{difference} on “{workload}”")
	} else if figure <= 0 {
		return ""
	}
	published := ""
	if p := r.Spec.Published[workload]; p[s.Against] > 0 {
		published = Change(p[s.Arm] / p[s.Against])
	}
	return strings.NewReplacer("{difference}", difference, "{workload}", workload, "{published}", published,
		"{figure}", r.shown(s.Arm, workload, s.Metric), "{other}", r.shown(s.Against, workload, s.Metric)).Replace(text)
}

// rowsAnswer is about the workloads that count most, or about all where none of
// these was measured.
func (r *Run) rowsAnswer() string {
	for _, all := range []bool{false, true} {
		var parts []string
		for _, w := range r.ranked() {
			if s, ok := compareWith(r.Res, w, w.Arms[0]); ok && (w.Headline || all) {
				parts = append(parts, fmt.Sprintf("%s of %s's on “%s”", s.text(), w.Arms[0], w.Name))
			}
		}
		if len(parts) > 0 {
			return "Millrace spends " + List(parts)
		}
	}
	return ""
}
