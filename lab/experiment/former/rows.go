package former

// This file is what experiments share whose workloads are rows of one table:
// chosen by name, measured in a few rounds, and held against a peer within each
// round.

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// A Row is one workload, and what of it counts.
type Row struct {
	Name, About string
	Figure      string   // what the metric is here: "CPU per page"
	Metric      string   // its key
	Ours        string   // millrace's arm
	Arms        []string // those that do it; the first is what millrace is held against

	// Task is the work, or Load where that is nil. Slot replaces the plan's for a
	// load; 0: the plan's.
	Task trial.Task
	Load load.Config
	Slot time.Duration
	// Differ says why the answers to a load need not be equal.
	Differ string

	// Goal is the ratio to the first arm that must not be passed, and Most the
	// figure itself; 0: there is none.
	Goal, Most float64

	// Connections is how many ask at once all the time: rows with many come last
	// in a round, since a server holds on to what it needed for them.
	Connections int

	Missing  error // why it cannot be measured here; nil: it can
	Quick    bool  // in quick runs, too
	Headline bool  // in the answer
}

// CPU is the metric that every trial has: of the server's processes, for each
// request, or what stands for one.
const CPU = "cpu_ns"

// errNone is why nothing is measured.
var errNone = errors.New("there is no workload")

// ChooseRows are the rows to measure: those that patterns (as of path.Match) name, or
// all, but in a quick run only some. Rows that cannot be measured here are left
// out with a note.
func ChooseRows(all []Row, only []string, quick bool, note func(format string, args ...any)) ([]Row, error) {
	var chosen []Row
	var names []string
	left := map[string][]string{} // by reason
	var missing error
	for _, r := range all {
		names = append(names, r.Name)
		wanted, err := named(r.Name, only)
		if err != nil {
			return nil, err
		}
		switch {
		case len(only) > 0 && !wanted, len(only) == 0 && quick && !r.Quick:
		case r.Missing != nil:
			missing = r.Missing
			left[missing.Error()] = append(left[missing.Error()], r.Name)
		default:
			chosen = append(chosen, r)
		}
	}
	for why, names := range left {
		note("left out: %s: %s", strings.Join(names, ", "), why)
	}
	if len(chosen) == 0 && missing != nil {
		return nil, missing
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w %q, only %s", errNone, strings.Join(only, " "), strings.Join(names, ", "))
	}
	return chosen, nil
}

// named reports whether one of the patterns is for a name.
func named(name string, patterns []string) (bool, error) {
	for _, p := range patterns {
		ok, err := path.Match(p, name)
		if err != nil {
			return false, fmt.Errorf("reading the pattern %q: %w", p, err)
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}

// A Schedule says how long rows are measured.
type Schedule struct {
	Rounds, QuickRounds int
	Slot, QuickSlot     time.Duration // of loads, and of tasks that can be cut
	Warmup              time.Duration // of loads
	Slow                []string      // arms that a quick run has no time for
}

// Plan is what is measured. There is no budget: rows that were asked for are
// measured, however long that takes. Arms that no row needs are left out.
func (s Schedule) Plan(arms []trial.Arm, rows []Row, metrics []record.Metric, env Env) trial.Plan {
	p := trial.Plan{
		Arms: arms, Metrics: metrics, Blocks: []int{s.Rounds}, PerRestart: 1, Seed: env.Seed,
		Placebo: "-", // the least and the greatest of the rounds say how far apart two of the same are
		Slot:    s.Slot, Warmup: s.Warmup,
	}
	if env.Mode != record.Full {
		p.Blocks, p.Slot = []int{s.QuickRounds}, s.QuickSlot
		p.Arms = slices.DeleteFunc(slices.Clone(arms), func(a trial.Arm) bool { return slices.Contains(s.Slow, a.Name) })
	}
	needed := map[string]bool{}
	inTurn := slices.Clone(rows)
	slices.SortStableFunc(inTurn, func(a, b Row) int { return a.Connections - b.Connections })
	for _, r := range inTurn {
		w := trial.Workload{Name: r.Name, About: r.About, Task: r.Task, Load: r.Load, Slot: r.Slot, Differ: r.Differ}
		w.Arms = slices.DeleteFunc(slices.Clone(r.Arms), func(name string) bool {
			return !slices.ContainsFunc(p.Arms, func(a trial.Arm) bool { return a.Name == name })
		})
		for _, name := range w.Arms {
			needed[name] = true
		}
		p.Workloads = append(p.Workloads, w)
	}
	p.Arms = slices.DeleteFunc(slices.Clone(p.Arms), func(a trial.Arm) bool { return !needed[a.Name] })
	return p
}

// Answer is about the rows that count most, or about all where none of these was
// measured.
func Answer(res *record.Result, rows []Row) string {
	for _, all := range []bool{false, true} {
		var parts []string
		for _, r := range rows {
			if s, ok := compareWith(res, r, r.Arms[0]); ok && (r.Headline || all) {
				parts = append(parts, fmt.Sprintf("%s of %s's on %q", s.text(), r.Arms[0], r.Name))
			}
		}
		if len(parts) > 0 {
			return "Millrace spends " + List(parts)
		}
	}
	return ""
}
