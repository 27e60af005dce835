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
type peerRatio struct {
	mine, theirs, ratio, least, most float64
	rounds                           int
}

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
		ratio: Median(ratios), least: slices.Min(ratios), most: slices.Max(ratios), rounds: len(ratios),
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

// A Sentence is a part of the answer: a question, and what verdicts say to it. It says
// no more than they do: yes, no, or that it is not decided, each with the interval.
type Sentence struct {
	Ask          string // "does millrace spend less CPU time than nginx?"
	Arm, Against string
	Metric       string
	Workloads    []string       // patterns; none: all
	Yes          record.Outcome // what means yes; empty: better

	Rows bool // instead, of the workloads that are headlines, or of all: by their rounds
}

// The replies to a question, in the order in which they are told.
const (
	yes     = "yes"
	no      = "no"
	unknown = "not decided here"
)

// replies are what the workloads say to a question.
type replies map[string][]string

// say is the question with its replies; empty where there is none.
func (r *Run) say(question string, said replies) string {
	var parts []string
	for _, reply := range []string{yes, no, unknown} {
		if len(said[reply]) > 0 {
			parts = append(parts, reply+" "+List(said[reply]))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	if len(said[unknown]) > 0 && r.Quick {
		parts[len(parts)-1] += fmt.Sprintf(", run --full for %d minutes", cmp.Or(r.Spec.Minutes, fullMinutes))
	}
	return question + " " + strings.Join(parts, "; ")
}

// answer are the replies to all questions.
func (r *Run) answer() string {
	var all []string
	for _, s := range r.Spec.Answer {
		question, said := s.Ask, replies{}
		if s.Rows {
			question, said = r.rows()
		} else {
			r.verdicts(s, said)
		}
		if text := r.say(question, said); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, ". ")
}

// verdicts fills in what verdicts say to a question.
func (r *Run) verdicts(s Sentence, said replies) {
	for _, w := range r.Res.Workloads {
		if chosen, err := named(w.Name, s.Workloads); err != nil || !chosen && len(s.Workloads) > 0 {
			continue
		}
		v, ok := VerdictOn(r.Res, s.Arm, s.Against, w.Name, s.Metric)
		if !ok {
			continue
		}
		reply := no
		switch v.Outcome {
		case record.Undecided:
			reply = unknown
		case cmp.Or(s.Yes, record.Better):
			reply = yes
		}
		published := ""
		if p := r.Spec.Published[w.Name]; p[s.Against] > 0 {
			published = ", published " + Change(p[s.Arm]/p[s.Against])
		}
		said[reply] = append(said[reply], fmt.Sprintf("on “%s” (%s%s)", w.Name, Difference(v), published))
	}
}

// fullMinutes is what a full run takes.
const fullMinutes = 15

// fewestRounds is from how many rounds on their extremes say something: of five, they
// hold the true median with a chance of 94 %.
const fewestRounds = 5

// rows are about the workloads that count most, or about all where none of these was
// measured: less in each round is a yes, more in each a no.
func (r *Run) rows() (question string, said replies) {
	for _, all := range []bool{false, true} {
		said = replies{}
		for _, w := range r.ranked() {
			s, ok := compareWith(r.Res, w, w.Arms[0])
			if !ok || !w.Headline && !all {
				continue
			}
			question = "does Millrace spend less than " + w.Arms[0] + "?"
			reply := unknown
			switch {
			case s.rounds < fewestRounds:
			case s.most < 1:
				reply = yes
			case s.least > 1:
				reply = no
			}
			said[reply] = append(said[reply], fmt.Sprintf("on “%s” (%s in %d rounds)", w.Name, s.text(), s.rounds))
		}
		if len(said) > 0 {
			break
		}
	}
	return question, said
}
