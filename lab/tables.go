package lab

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
)

// percentiles are the rows of a latency table.
var percentiles = []float64{0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999}

// latencyTable is how long answers took.
func latencyTable(got *load.Result, cfg load.Config) record.Table {
	t := record.Table{Title: "Latency", Columns: []string{"", "latency"}}
	open := cfg.Arrival != load.Closed
	t.About = "From the write of a request to the end of its answer."
	if open {
		t.About = "Latency counts from when a request was due, so that a stalled target is charged for all that waited; service time from when it was written."
		t.Columns = append(t.Columns, "service time")
	}
	var corrected load.Histogram
	if len(got.Holes) > 0 {
		corrected = got.Latency.Corrected(got.Interval)
		t.About += " Corrected: as if each connection had gone on asking every " + round(got.Interval).String() + " while nothing was answered, as visitors who come by the clock do."
		t.Columns = append(t.Columns, "corrected")
	}
	t.Columns = append(t.Columns, "opening a connection")
	row := func(name string, of func(h *load.Histogram) time.Duration) {
		cells := []string{name, of(&got.Latency).String()}
		if open {
			cells = append(cells, of(&got.Service).String())
		}
		if len(got.Holes) > 0 {
			cells = append(cells, of(&corrected).String())
		}
		t.Rows = append(t.Rows, append(cells, of(&got.Connect).String()))
	}
	row("min", func(h *load.Histogram) time.Duration { return round(h.Min()) })
	row("mean", func(h *load.Histogram) time.Duration { return round(h.Mean()) })
	for _, q := range percentiles {
		row(strconv.FormatFloat(q*100, 'f', -1, 64)+" %", func(h *load.Histogram) time.Duration { return round(h.Quantile(q)) })
	}
	row("max", func(h *load.Histogram) time.Duration { return round(h.Max()) })
	return t
}

// answer is what a reader must know before any figure: that requests failed, were
// never sent, or were not asked for while the target stalled. Empty: nothing of that.
func answer(cfg load.Config, got *load.Result) string {
	var said []string
	if cfg.Arrival != load.Closed {
		said = append(said, missedAnswer(cfg, got))
	}
	said = append(said, failedAnswer(got))
	if len(got.Holes) > 0 {
		said = append(said, holesAnswer(got))
	}
	return strings.Join(slices.DeleteFunc(said, func(s string) bool { return s == "" }), ". ")
}

// missing is the share of an open loop's requests from which its rate counts as missed.
const missing = 0.01

// missedAnswer says that an open loop did not send what was due; empty: it did.
func missedAnswer(cfg load.Config, got *load.Result) string {
	asked := meanRate(cfg)
	if share := float64(got.Dropped) / (asked * got.Took.Seconds()); share > missing {
		return fmt.Sprintf("Asked %s/s, got %s/s; %.0f %% were never sent, since every connection was waiting for an answer",
			thousands(asked), thousands(float64(got.Requests)/got.Took.Seconds()), 100*min(share, 1))
	}
	return ""
}

// meanRate is what an open loop asks in its window, in requests/s.
func meanRate(cfg load.Config) float64 {
	rate, asked, length := cfg.Rate, 0.0, 0.0
	for _, s := range cfg.Stages {
		asked += (rate + s.Rate) / 2 * s.Length.Seconds()
		length += s.Length.Seconds()
		rate = s.Rate
	}
	if length == 0 {
		return rate
	}
	return asked / length
}

// failedAnswer says how many requests failed; empty: hardly any.
func failedAnswer(got *load.Result) string {
	failed, all := got.Failed()
	lost := all - got.Requests
	if all == 0 || float64(failed)/float64(all) < 0.001 {
		return ""
	}
	text := fmt.Sprintf("%.3g %% of %s requests failed", 100*float64(failed)/float64(all), thousands(float64(all)))
	for _, kind := range []struct {
		n    uint64
		name string
	}{{got.Non2xx, "had a status other than 2xx"}, {got.Errors.Unexpected, "were not answered as expected"}, {lost, "were not answered"}} {
		if kind.n == failed {
			return text + ": they " + kind.name
		}
	}
	return text
}

// thousands writes a count with commas.
func thousands(n float64) string {
	s := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// holesAnswer says what a closed loop hides, and how to see it.
func holesAnswer(got *load.Result) string {
	all, longest := got.Silent()
	times := "once"
	if n := len(got.Holes); n > 1 {
		times = fmt.Sprintf("%d times", n)
	}
	corrected := got.Latency.Corrected(got.Interval)
	return fmt.Sprintf("Nothing was answered for %v at a time, %s (%.0f %% of the time): a closed loop does not ask meanwhile, so that its 99th percentile of %v "+
		"hides what visitors would see, about %v; measure that with --rate %d, half of what was answered here",
		round(longest), times, 100*all.Seconds()/got.Took.Seconds(), round(got.Latency.Quantile(0.99)), round(corrected.Quantile(0.99)), openRate(got))
}

// openRate is a rate for a load by the clock: half of what a closed loop got, in
// two digits, so that a target which stalls can catch up.
func openRate(got *load.Result) int {
	rate, unit := float64(got.Requests)/got.Took.Seconds()/2, 1.0
	for rate/unit >= 100 {
		unit *= 10
	}
	return max(1, int(math.Floor(rate/unit)*unit))
}

// round cuts a duration to three digits or so.
func round(d time.Duration) time.Duration {
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// An errorKind is how many errors of one kind there were.
type errorKind struct {
	name string
	n    uint64
}

func errorKinds(e *load.Errors) []errorKind {
	return []errorKind{
		{"connection failed", e.Connect},
		{"closed in mid-answer", e.Closed},
		{"timed out", e.Timeout},
		{"not HTTP", e.Protocol},
		{"not as expected", e.Unexpected},
	}
}

// outcomeTable is what became of the requests.
func outcomeTable(got *load.Result) record.Table {
	t := record.Table{Title: "Requests", Columns: []string{"", "count"}}
	add := func(name string, n uint64) { t.Rows = append(t.Rows, []string{name, strconv.FormatUint(n, 10)}) }
	add("answered", got.Requests)
	for _, code := range slices.Sorted(maps.Keys(got.Status)) {
		add(fmt.Sprintf("%d %s", code, http.StatusText(code)), got.Status[code])
	}
	for _, e := range append(errorKinds(&got.Errors), errorKind{"sent late", got.Late}, errorKind{"due and never sent", got.Dropped}) {
		if e.n > 0 {
			add(e.name, e.n)
		}
	}
	if got.Errors.First != "" {
		t.About = "The first error: " + got.Errors.First
	}
	if got.InFlight > 0 {
		t.Rows = append(t.Rows, []string{"in flight, on average", strconv.FormatFloat(got.InFlight, 'f', 1, 64)})
	}
	if n := got.Connect.Count(); n > 0 {
		add("connections opened, before and in the window", n)
	}
	if got.Varied > 0 {
		add("with another length or status than the first", got.Varied)
	}
	return t
}

// stepsTable is how the steps of a scenario did.
func stepsTable(got *load.Result) record.Table {
	t := record.Table{
		Title: "Steps", About: "Latency is of right answers, from the write of a request to the end of its answer.",
		Columns: []string{"request", "answered", "not as expected", "50 %", "99 %", "max"},
	}
	for i := range got.Steps {
		s := &got.Steps[i]
		t.Rows = append(t.Rows, []string{
			s.Name, strconv.FormatUint(s.Requests, 10), strconv.FormatUint(s.Failed, 10),
			round(s.Latency.Quantile(0.5)).String(), round(s.Latency.Quantile(0.99)).String(), round(s.Latency.Max()).String(),
		})
	}
	return t
}

// shortest is the least time that a point of a chart may stand for.
const shortest = recordEvery / 2

// loadCharts are the load over time.
func loadCharts(got *load.Result) []record.Chart {
	seconds := record.Axis{Name: "time", Unit: "s"}
	rate := record.Series{Name: "answered"}
	failed := make([]record.Series, len(errorKinds(&got.Errors)))
	p50, p90, p99 := record.Series{Name: "50 %"}, record.Series{Name: "90 %"}, record.Series{Name: "99 %"}
	for _, k := range got.Ticks {
		if k.Length < shortest {
			continue // what is left of the window at its end says little and jumps a lot
		}
		at := k.At.Seconds()
		rate.Points = append(rate.Points, [2]float64{at, k.Rate})
		for i, e := range errorKinds(&k.Errors) {
			failed[i].Name = e.name
			failed[i].Points = append(failed[i].Points, [2]float64{at, float64(e.n) / k.Length.Seconds()})
		}
		if k.Requests == 0 {
			continue
		}
		p50.Points = append(p50.Points, [2]float64{at, float64(k.P50)})
		p90.Points = append(p90.Points, [2]float64{at, float64(k.P90)})
		p99.Points = append(p99.Points, [2]float64{at, float64(k.P99)})
	}
	distribution := record.Chart{
		Title: "Latency by percentile",
		X:     record.Axis{Name: "share of requests that took longer", Log: true},
		Y:     record.Axis{Name: "latency", Unit: "ns", Log: true},
	}
	line := record.Series{Name: "latency"}
	for share := 1.0; share > 1/float64(max(2, got.Requests)); share /= 1.3 {
		line.Points = append(line.Points, [2]float64{share, float64(got.Latency.Quantile(1 - share))})
	}
	slices.Reverse(line.Points)
	distribution.Series = []record.Series{line}
	var errors []record.Series // of the kinds that there were
	for i, e := range errorKinds(&got.Errors) {
		if e.n > 0 && len(failed[i].Points) > 0 {
			errors = append(errors, failed[i])
		}
	}
	charts := []record.Chart{
		{Title: "Requests per second", X: seconds, Y: record.Axis{Name: "rate", Unit: "1/s"}, Series: []record.Series{rate}},
		{Title: "Latency over time", X: seconds, Y: record.Axis{Name: "latency", Unit: "ns", Log: true}, Series: []record.Series{p50, p90, p99}},
		distribution,
	}
	if len(errors) > 0 {
		charts = append(charts, record.Chart{Title: "Errors per second", X: seconds, Y: record.Axis{Name: "rate", Unit: "1/s"}, Series: errors})
	}
	return charts
}

// targetCharts are what the target used over time, before the window (negative
// times), in it and after.
func targetCharts(readings []record.Reading, opened time.Time) []record.Chart {
	if len(readings) < 2 {
		return nil
	}
	seconds := record.Axis{Name: "time", Unit: "s"}
	cpu, rss, pss := record.Series{Name: "CPU"}, record.Series{Name: "RSS"}, record.Series{Name: "PSS"}
	threads, files := record.Series{Name: "threads"}, record.Series{Name: "open files"}
	calls, switches := record.Series{Name: "system calls"}, record.Series{Name: "context switches"}
	for i, r := range readings {
		if i > 0 && r.At.Sub(readings[i-1].At) < shortest {
			continue // the reading at the very end: of next to no time
		}
		at := r.At.Sub(opened).Seconds()
		rss.Points = append(rss.Points, [2]float64{at, float64(r.RSS)})
		if r.PSS > 0 {
			pss.Points = append(pss.Points, [2]float64{at, float64(r.PSS)})
		}
		threads.Points = append(threads.Points, [2]float64{at, float64(r.Threads)})
		files.Points = append(files.Points, [2]float64{at, float64(r.Files)})
		if i == 0 {
			continue
		}
		used := r.Sub(readings[i-1])
		length := r.At.Sub(readings[i-1].At).Seconds()
		cpu.Points = append(cpu.Points, [2]float64{at, used.CPU.Seconds() / length})
		calls.Points = append(calls.Points, [2]float64{at, float64(used.Syscalls) / length})
		switches.Points = append(switches.Points, [2]float64{at, float64(used.Voluntary+used.Involuntary) / length})
	}
	activity, title := []record.Series{switches}, "Context switches of the target"
	if readings[len(readings)-1].Syscalls > 0 {
		activity, title = append(activity, calls), "System calls and context switches of the target"
	}
	memory := []record.Series{rss}
	if len(pss.Points) > 0 {
		memory = append(memory, pss)
	}
	return []record.Chart{
		{Title: "CPU of the target", X: seconds, Y: record.Axis{Name: "cores"}, Series: []record.Series{cpu}},
		{Title: "Memory of the target", X: seconds, Y: record.Axis{Name: "memory", Unit: "bytes"}, Series: memory},
		{Title: title, X: seconds, Y: record.Axis{Name: "rate", Unit: "1/s"}, Series: activity},
		{Title: "Threads and open files of the target", X: seconds, Y: record.Axis{Name: "count"}, Series: []record.Series{threads, files}},
	}
}
