package proxy

import (
	"fmt"
	"strings"

	"millrace/lab/experiment"
	"millrace/lab/record"
)

// split tells rows that are held against a peer from attacks, which have a bar of
// their own.
func split(all []experiment.Row) (timed, attacks []experiment.Row) {
	for _, r := range all {
		if r.Metric == goodP99 {
			attacks = append(attacks, r)
		} else {
			timed = append(timed, r)
		}
	}
	return timed, attacks
}

// sideTable has what comes after CPU time.
func sideTable(res *record.Result, timed []experiment.Row) record.Table {
	return experiment.Side(record.Table{
		Title: "Requests per second and latency", Lead: true,
		About: "Medians of the rounds, with the load, the proxy and the application on the same cores.",
	}, res, timed, []experiment.Figure{
		{Metric: "requests_per_second", Name: "requests/s"}, {Metric: "latency_p99_ns", Name: "99th percentile"},
	}, append([]experiment.Peer{{Arm: millrace, Name: "millrace"}, {Arm: sockets, Name: "millrace ws"}}, peers()...))
}

// goodClient is what became of a good client of one server under attack.
type goodClient struct {
	failed    float64 // in all rounds
	idle, p99 float64 // medians, ns
	rounds    int
}

// goodClientOf is false where the server was not attacked.
func goodClientOf(res *record.Result, row, arm string) (goodClient, bool) {
	s := goodClient{idle: experiment.MedianOf(res, arm, row, goodIdle), p99: experiment.MedianOf(res, arm, row, goodP99)}
	for _, sample := range res.Samples {
		if sample.Arm == arm && sample.Workload == row {
			s.failed += sample.Values[goodFailed]
			s.rounds++
		}
	}
	return s, s.rounds > 0
}

func (s goodClient) most() float64 { return 2*s.idle + float64(allowance) }

func (s goodClient) reached() bool { return s.failed == 0 && s.p99 <= s.most() }

func (s goodClient) verdict() string {
	var why []string
	if s.failed > 0 {
		why = append(why, fmt.Sprintf("%.0f failed", s.failed))
	}
	if s.p99 > s.most() {
		why = append(why, "too slow")
	}
	if len(why) == 0 {
		return "reached"
	}
	return "not reached: " + strings.Join(why, ", ")
}

// attackTable is what becomes of a good client under each attack, of every server.
func attackTable(res *record.Result, attacks []experiment.Row) record.Table {
	t := record.Table{
		Title: "A good client under attack", Lead: true,
		About: fmt.Sprintf("No failure in any round, and a 99th percentile of at most twice that of the idle server and %s, is what millrace must reach. "+
			"Medians of the rounds, failures of all of them together, memory as resident.", experiment.Duration(float64(allowance))),
		Columns: []string{"attack", "server", "failures", "idle", "under attack", "must be", "", "memory idle", "at most", "attackers held", "ended"},
	}
	for _, r := range attacks {
		for _, arm := range r.Arms {
			s, ok := goodClientOf(res, r.Name, arm)
			if !ok {
				continue
			}
			median := func(key string) float64 { return experiment.MedianOf(res, arm, r.Name, key) }
			t.Rows = append(t.Rows, []string{
				r.Name, arm, fmt.Sprintf("%.0f", s.failed), experiment.Duration(s.idle), experiment.Duration(s.p99),
				"0 failures, ≤ " + experiment.Duration(s.most()), s.verdict(),
				experiment.Bytes(median(idleRSS)), experiment.Bytes(median(mostRSS)), fmt.Sprintf("%.0f", median(held)), fmt.Sprintf("%.0f", median(ended)),
			})
		}
	}
	if len(t.Rows) == 0 {
		t.Rows = [][]string{{"none"}}
	}
	return t
}

// attacksHeld says under which attacks millrace's good client is well.
func attacksHeld(res *record.Result, attacks []experiment.Row) string {
	var held, lost []string
	for _, r := range attacks {
		s, ok := goodClientOf(res, r.Name, r.Ours)
		switch {
		case ok && s.reached():
			held = append(held, fmt.Sprintf("%q", r.Name))
		case ok:
			lost = append(lost, fmt.Sprintf("%q (%s)", r.Name, strings.TrimPrefix(s.verdict(), "not reached: ")))
		}
	}
	var parts []string
	if len(held) > 0 {
		parts = append(parts, "a good client is well under "+experiment.List(held))
	}
	if len(lost) > 0 {
		parts = append(parts, "a good client suffers under "+experiment.List(lost))
	}
	return strings.Join(parts, "; ")
}
