package experiment

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/lab/record"
	"millrace/lab/trial"
)

func testRows() []Row {
	arms := []string{"nginx", "caddy", "millrace"}
	return []Row{
		{Name: "many", Arms: arms, Connections: 1000},
		{Name: "h2-1", Arms: arms, Connections: 50, Quick: true, Slot: time.Second},
		{Name: "h2-10", Arms: []string{"nginx", "millrace"}, Connections: 50},
		{Name: "missing", Arms: arms, Missing: errMissing, Quick: true},
	}
}

var errMissing = errors.New("install it")

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		only  []string
		quick bool
		want  string
		notes int
	}{
		{[]string{"h2-10"}, true, "h2-10", 0},
		{[]string{"h2-*", "many"}, false, "many h2-1 h2-10", 0},
		{nil, false, "many h2-1 h2-10", 1},
		{nil, true, "h2-1", 1},
		{[]string{"missing"}, false, "", 1},
		{[]string{"nothing"}, false, "", 0},
		{[]string{"["}, false, "", 0},
	} {
		notes := 0
		rows, err := ChooseRows(testRows(), c.only, c.quick, func(string, ...any) { notes++ })
		var names []string
		for _, r := range rows {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); got != c.want || (err != nil) != (c.want == "") || notes != c.notes {
			t.Errorf("%q: %q, %v, %d notes", c.only, got, err, notes)
		}
	}
}

// TestPlan: rows with many connections come last, and arms that no row asks for
// are not started.
func TestPlan(t *testing.T) {
	arms := []trial.Arm{{Name: "nginx"}, {Name: "caddy"}, {Name: "millrace"}}
	s := Schedule{Rounds: 5, QuickRounds: 2, Slot: time.Second, QuickSlot: 100 * time.Millisecond, Slow: []string{"caddy"}}
	p := s.Plan(arms, testRows()[:3], nil, Env{Mode: record.Full})
	if err := p.Check(); err != nil || len(p.Arms) != 3 || p.Blocks[0] != 5 || p.Workloads[2].Name != "many" || p.Workloads[0].Slot != time.Second {
		t.Errorf("%+v, %v", p, err)
	}
	p = s.Plan(arms, testRows()[:3], nil, Env{Mode: record.Quick})
	if err := p.Check(); err != nil || len(p.Arms) != 2 || p.Blocks[0] != 2 || slices.Contains(p.Workloads[0].Arms, "caddy") {
		t.Errorf("%+v, %v", p, err)
	}
	if p := s.Plan(arms, testRows()[2:3], nil, Env{Mode: record.Full}); len(p.Arms) != 2 {
		t.Errorf("%d arms", len(p.Arms))
	}
}

// TestStand: ratios are taken within rounds, and what is lost is listed.
func TestStand(t *testing.T) {
	r := Row{Name: "r", Figure: "CPU per request", Metric: CPU, Ours: "millrace", Arms: []string{"nginx", "h2o", "millrace"}, Goal: 0.5}
	res := &record.Result{Metrics: []record.Metric{{Key: CPU, Unit: "ns"}}}
	for block, ns := range []float64{100, 200, 400} {
		for arm, factor := range map[string]float64{"nginx": 1, "millrace": 2, "h2o": 4} {
			res.Samples = append(res.Samples, record.Sample{Arm: arm, Workload: "r", Block: block, Values: map[string]float64{CPU: ns * factor}})
		}
	}
	s, ok := compareWith(res, r, "nginx")
	if !ok || s.ratio != 2 || s.least != 2 || s.most != 2 || s.rounds != 3 || s.mine != 400 {
		t.Errorf("%+v", s)
	}
	all := Tables(res, []Row{r}, []Peer{{"nginx", "nginx"}, {"h2o", "h2o"}})
	if rows := all[0].Rows; len(rows) != 1 || rows[0][6] != "not reached" {
		t.Errorf("standings: %v", rows)
	}
	if rows := all[1].Rows; len(rows) != 1 || rows[0][2] != "nginx" || rows[0][6] != "in each round" {
		t.Errorf("losses: %v", rows)
	}
	headline := r
	headline.Headline, headline.Goal = true, 0
	for _, rows := range [][]Row{{r}, {headline}, {r, headline}} {
		if got, want := Answer(res, rows), `Millrace spends 2.00 (2.00–2.00) of nginx's on "r"`; got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	if got := Answer(&record.Result{}, []Row{r}); got != "" {
		t.Errorf("an answer to nothing: %s", got)
	}
}
