// Package report writes RESULTS.md, CACHE.md, WEBSOCKET.md and IMAGES.md: tables of medians and ratios,
// the bars and whether they are met, and where peers are better. Every figure in
// them is computed from the run it is given.
package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stats"
	"millrace/bench/subjects/internal/wrk"
)

// Missed counts the bars that were measured and not met.
func Missed(r *record.Run, workloads []string) (missed, measured int) {
	for _, b := range barsOf(r, cells(r, workloads)) {
		if b.got.Valid() {
			measured++
			if !b.met() {
				missed++
			}
		}
	}
	return missed, measured
}

// writer is a text that grows by lines.
type writer struct{ strings.Builder }

func (w *writer) line(format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...) // a strings.Builder never fails
	w.WriteByte('\n')
}

func (w *writer) head(r *record.Run) {
	w.line("# Results of `bench/run %s`", r.Scenario)
	w.line("")
	w.line("Written by the program; nothing in it is typed by hand. How to read it: [README.md](README.md).")
	if r.Quick {
		w.line("")
		w.line("**A quick run: slots of %v, %d rounds. Good for a look, too short for a claim.**", r.Slot, r.Rounds)
	}
	w.line("")
	w.line("| | |")
	w.line("|---|---|")
	w.line("| date | %s |", r.Started.UTC().Format("2006-01-02 15:04 UTC"))
	w.line("| processor | %s, %d cores |", r.Machine.CPU, r.Machine.Cores)
	w.line("| memory | %.1f GB |", float64(r.Machine.Memory)/1e9)
	w.line("| kernel | %s |", r.Machine.Kernel)
	for _, v := range r.Versions {
		w.line("| %s | %s |", v.Program, v.Version)
	}
	w.line("| run | %d rounds of %v slots, order from seed %d, %v in all |", r.Rounds, r.Slot, r.Seed, r.Took.Round(time.Second))
	w.line("| the machine beside it | %s |", disturbance(r))
}

// quiet is the share of the processors that others may use in the median slot
// before RESULTS.md says that its figures are not to be trusted.
const quiet = 0.10

// beside is what used the processors beside server and generator, as shares
// of all of them in each slot: other processes, and the host.
func beside(r *record.Run) (other, steal stats.Summary) {
	var others, stolen []float64
	for _, s := range r.Small {
		all := float64(r.Machine.Cores) * s.Wall.Seconds()
		others = append(others, s.Other.Seconds()/all)
		stolen = append(stolen, s.Steal.Seconds()/all)
	}
	more, taken := imageUses(r)
	return stats.Summarise(append(others, more...)), stats.Summarise(append(stolen, taken...))
}

// disturbance describes what beside found.
func disturbance(r *record.Run) string {
	other, steal := beside(r)
	if !other.Valid() {
		return "–"
	}
	text := fmt.Sprintf("other processes used %s of the processors in the median slot, %s in the worst; the host took %s, %s",
		percent(other.Median), percent(other.Max), percent(steal.Median), percent(steal.Max))
	if other.Median > quiet || steal.Median > quiet {
		text += ". **The machine was not quiet: trust no figure**"
	}
	return text
}

func (w *writer) bars(r *record.Run, rows []record.Cell) {
	w.line("")
	w.line("## The bars")
	w.line("")
	w.line("Median of the rounds (least–greatest); a ratio is taken within each round.")
	w.line("")
	w.line("| what | bar | measured | |")
	w.line("|---|---:|---:|---|")
	for _, b := range barsOf(r, rows) {
		w.line("| %s | %s | %s | %s |", b.what, b.bound(), span(b.got, b.show), b.verdict())
	}
}

func (w *writer) losses(r *record.Run, rows []record.Cell) {
	w.line("")
	w.line("## Where we lose")
	w.line("")
	list := losses(r, rows)
	if len(comparisons(r, rows)) == 0 {
		w.line("Not known: millrace or its peers were not measured.")
		return
	}
	if len(list) == 0 {
		w.line("No peer was better than millrace in any figure of this run.")
		return
	}
	w.line("Every figure in which a peer is better than millrace in the median of the rounds.")
	w.line("")
	w.line("| where | figure | peer | millrace | peer | ratio | |")
	w.line("|---|---|---|---:|---:|---:|---|")
	for _, l := range list {
		w.line("%s", l)
	}
}

// small are the tables of what was measured under wrk.
func (w *writer) small(title string, r *record.Run, rows []record.Cell) {
	w.line("")
	w.line("## %s", title)
	for _, c := range rows {
		w.line("")
		w.line("### %s, %d connections", c.Title, c.Connections)
		for _, logs := range []bool{false, true} {
			w.cell(r, c, logs)
		}
	}
}

// cell is the table of one cell, for the arms with a log or without.
func (w *writer) cell(r *record.Run, c record.Cell, logs bool) {
	var arms []record.Arm
	for _, a := range r.Arms {
		if a.Logs == logs && len(smallSlots(r, a.Name, c)) > 0 {
			arms = append(arms, a)
		}
	}
	if len(arms) == 0 {
		return
	}
	w.line("")
	w.line("| server | requests/s | of %[1]s's | CPU per request | of %[1]s's | user + kernel | p50 | p99 | bytes each | wrk's cores | failed |", base(logs))
	w.line("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, a := range arms {
		get := func(f func(record.Small) float64) byRound { return smallFigure(r, a.Name, c, f) }
		against := func(f figure) string {
			return span(stats.Ratios(get(f.small), smallFigure(r, base(logs), c, f.small)), ratio)
		}
		user := get(func(s record.Small) float64 { return s.Server.User.Seconds() * 1e6 / float64(s.Wrk.Requests) }).summary()
		kernel := get(func(s record.Small) float64 { return s.Server.Kernel.Seconds() * 1e6 / float64(s.Wrk.Requests) }).summary()
		size := get(func(s record.Small) float64 { return float64(s.Wrk.Bytes) / float64(s.Wrk.Requests) }).summary()
		cores := get(func(s record.Small) float64 { return s.Wrk.CPU.Seconds() / s.Wrk.Duration.Seconds() }).summary()
		failed := uint64(0)
		for _, s := range smallSlots(r, a.Name, c) {
			failed += s.Wrk.Sum()
		}
		w.line("| %s | %s | %s | %s | %s | %.1f + %.1f µs | %s | %s | %.0f | %.2f | %d |", a.Title,
			rate.format(get(rate.small).summary().Median), against(rate),
			span(get(cpuPerRequest.small).summary(), cpuPerRequest.format), against(cpuPerRequest),
			user.Median, kernel.Median,
			p50.format(get(p50.small).summary().Median), p99.format(get(p99.small).summary().Median),
			size.Median, cores.Median, failed)
	}
}

// least of two, of which the first may be NaN.
func least(a, b float64) float64 {
	if a < b {
		return a
	}
	return b
}

func orDash(v float64, format func(float64) string) string {
	if math.IsNaN(v) {
		return "–"
	}
	return format(v)
}

// method says how what is in every scenario was measured, and with more what is
// in this one alone.
func (w *writer) method(more ...string) {
	w.line("")
	w.line("## How it was measured")
	w.line("")
	for _, item := range append([]string{
		"All servers run from the start to the end; only one is under load at any moment. A round visits each cell (workload and connections) once, in an order drawn anew; within a cell the servers follow each other, in an order drawn anew.",
		fmt.Sprintf("Load: wrk with %d threads on the same machine, so server and generator share its cores: requests/s measures both together, CPU per request the server alone. The column “wrk's cores” shows how much the generator took.", wrk.Threads),
		"CPU: the clock of each of the server's processes (`clock_gettime` with the clock made from the pid, nanoseconds as the scheduler counts them), summed, read before wrk starts and 0.2 s after it has ended; so opening and closing connections is included. User and kernel are split by the 10 ms ticks of `/proc/PID/stat`.",
		fmt.Sprintf("Failed: what wrk counts as errors of connecting, reading, writing, as status 400 and above, or as no answer within %v.", wrk.Timeout),
	}, more...) {
		w.line("- %s", item)
	}
}

// repeat says how to get the same: the packages that are needed, what the words
// in the commands stand for, and an example of a load.
func (w *writer) repeat(r *record.Run, packages, legend string, example wrk.Job) {
	mode := ""
	switch {
	case r.Quick:
		mode = " --quick"
	case r.Full:
		mode = " --full"
	}
	var names []string
	for _, a := range r.Arms {
		names = append(names, a.Name)
	}
	w.line("")
	w.line("## Repeat it")
	w.line("")
	w.line("With Go and Debian's packages %s, on a machine that does nothing else:", packages)
	w.line("")
	w.line("```")
	w.line("bench/run %s%s --seed %d --arms %s", r.Scenario, mode, r.Seed, strings.Join(names, ","))
	w.line("```")
	w.line("")
	w.line("What was started (%s):", legend)
	w.line("")
	w.line("```")
	for _, a := range r.Arms {
		if a.Command != "" {
			w.line("%-15s %s", a.Name, a.Command)
		}
	}
	if r.Images != nil {
		for _, c := range r.Images.Commands {
			w.line("%-15s %s", c.Name, c.Command)
		}
	}
	example.Script, example.Connections, example.Duration = "bench/wrk/requests.lua", 1000, r.Slot
	w.line("%-15s wrk %s", "load, e.g.", strings.Join(example.Args(), " "))
	w.line("```")
	w.line("")
	w.line("The raw figures of each slot are written to bench/out as JSON.")
}

// sortCells orders cells by their workload's rank, then by connections.
func sortCells(list []record.Cell, rank map[string]int) {
	slices.SortFunc(list, func(a, b record.Cell) int {
		return cmp.Or(cmp.Compare(rank[a.Workload], rank[b.Workload]), cmp.Compare(a.Connections, b.Connections))
	})
}
