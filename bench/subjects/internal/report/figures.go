package report

import (
	"fmt"
	"math"

	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stats"
)

// byRound maps a round's number to a figure of one arm.
type byRound map[int]float64

// summary of a figure over all rounds.
func (b byRound) summary() stats.Summary {
	values := make([]float64, 0, len(b))
	for _, v := range b {
		values = append(values, v)
	}
	return stats.Summarise(values)
}

// figure is something that is measured in each slot, and that arms are
// compared by.
type figure struct {
	name   string
	better int // -1: less is better, +1: more is
	format func(float64) string

	// One of them gives the figure of a slot, in the unit of format.
	small func(record.Small) float64
	large func(record.Large) float64
}

// The figures of slots with small files.
var (
	cpuPerRequest = figure{
		name: "CPU per request", better: -1,
		format: func(v float64) string { return fmt.Sprintf("%.2f µs", v) },
		small:  func(s record.Small) float64 { return s.Server.Total.Seconds() * 1e6 / float64(s.Wrk.Requests) },
	}
	rate = figure{
		name: "requests/s", better: +1,
		format: thousands,
		small:  func(s record.Small) float64 { return s.Wrk.Rate() },
	}
	p50 = figure{
		name: "median latency", better: -1, format: milliseconds,
		small: func(s record.Small) float64 { return s.Wrk.P50.Seconds() * 1e3 },
	}
	p99 = figure{
		name: "99th percentile of latency", better: -1, format: milliseconds,
		small: func(s record.Small) float64 { return s.Wrk.P99.Seconds() * 1e3 },
	}
)

// The figures of downloads, and of memory.
var (
	cpuPerByte = figure{
		name: "CPU per byte", better: -1,
		format: func(v float64) string { return fmt.Sprintf("%.3f ns", v) },
		large:  record.Large.CPUPerByte,
	}
	throughput = figure{
		name: "GB/s", better: +1,
		format: func(v float64) string { return fmt.Sprintf("%.2f", v) },
		large:  func(l record.Large) float64 { return float64(l.Bytes) / float64(l.Duration) },
	}
	heldMemory = figure{
		name: "memory under load (PSS)", better: -1,
		format: func(v float64) string { return fmt.Sprintf("%.1f MB", v) },
	}
)

// smallSlots are the slots of one arm and cell, one a round.
func smallSlots(r *record.Run, arm string, cell record.Cell) []record.Small {
	var slots []record.Small
	for _, s := range r.Small {
		if s.Arm == arm && s.Cell == cell {
			slots = append(slots, s)
		}
	}
	return slots
}

// smallFigure is a figure of an arm in a cell, by round.
func smallFigure(r *record.Run, arm string, cell record.Cell, f func(record.Small) float64) byRound {
	b := byRound{}
	for _, s := range smallSlots(r, arm, cell) {
		b[s.Round] = f(s)
	}
	return b
}

// cells are those of the run, in the order of the plan's rows: by workload as
// they are met first, then by connections.
func cells(r *record.Run, order []string) []record.Cell {
	var found []record.Cell
	seen := map[record.Cell]bool{}
	for _, s := range r.Small {
		if !seen[s.Cell] {
			seen[s.Cell] = true
			found = append(found, s.Cell)
		}
	}
	rank := map[string]int{}
	for i, name := range order {
		rank[name] = i
	}
	sortCells(found, rank)
	return found
}

// arm finds an arm of the run by its name.
func arm(r *record.Run, name string) (record.Arm, bool) {
	for _, a := range r.Arms {
		if a.Name == name {
			return a, true
		}
	}
	return record.Arm{}, false
}

// base is the name of the arm that a is compared with: nginx, with a log if a
// writes one.
func base(logs bool) string {
	if logs {
		return "nginx-log"
	}
	return "nginx"
}

// own is the name of our arm, with a log or without.
func own(logs bool) string {
	if logs {
		return "millrace-log"
	}
	return "millrace"
}

// thousands writes a whole number with commas.
func thousands(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// span is "median (min–max)" of s; a dash if there is nothing.
func span(s stats.Summary, format func(float64) string) string {
	if !s.Valid() {
		return "–"
	}
	if s.N == 1 {
		return format(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", format(s.Median), format(s.Min), format(s.Max))
}

func milliseconds(v float64) string { return fmt.Sprintf("%.2f ms", v) }

// ratio writes a quotient.
func ratio(v float64) string { return fmt.Sprintf("%.2f", v) }
