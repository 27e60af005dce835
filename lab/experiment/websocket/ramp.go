package websocket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/trial"
)

const (
	// perProcess is the most connections of one process: many systems allow 20,000
	// descriptors. One source address is good for as many.
	perProcess = 19_000
	// reservedFiles are the descriptors a process needs beside connections.
	reservedFiles = 200
	// busy is how many connections open, echo or close at the same moment. It is far
	// below the queue of a listening socket (net.core.somaxconn, 4096 by default),
	// which would otherwise be what breaks first.
	busy = 256
	// failures are how many failed steps of a round an arm has before it is not asked
	// for more: each further one costs as long as its timeouts.
	failures = 2
	// memoryEach is the memory that a connection may take on both its sides, kernel
	// included, generously: what must be free for the largest steps.
	memoryEach = 128 << 10
	// phaseTimeout is how long one connection may take for one phase.
	phaseTimeout = 10 * time.Second
	// claimed is above how many connections the published server crashed.
	claimed = 1500
	// baseline is the published server.
	baseline = "xnet"
)

// ramp is one run of ws-echo-ramp.
type ramp struct {
	*experiment.Run
	spent       time.Duration // for all steps so far
	connections int           // of these
	failed      map[string]int
	why         map[string]string // by arm: why it broke first
}

// RampHooks are those of the experiment ws-echo-ramp.
func RampHooks(r *experiment.Run) experiment.Hooks {
	w := &ramp{Run: r, failed: map[string]int{}, why: map[string]string{}}
	h := experiment.Hooks{
		Prepare: func(context.Context) error { return w.cut(openFileLimit()) },
		Tasks:   map[string]experiment.Task{"ramp": w.step},
		Start:   map[string]func(context.Context) (*trial.Instance, error){},
		Report:  w.report,
	}
	for _, a := range r.Spec.Arms { // every step starts servers of its own
		h.Start[a.Name] = func(context.Context) (*trial.Instance, error) {
			clear(w.failed) // a round begins
			return &trial.Instance{Reports: true, URL: map[string]string{"path": a.URL["path"]}}, nil
		}
	}
	return h
}

// errFew is why nothing can be measured.
var errFew = errors.New("a process may hold too few descriptors for any step of this experiment: raise the limit with ulimit -n")

// cut leaves out the steps for which there are not descriptors or memory enough.
func (w *ramp) cut(descriptors int, err error) error {
	if err != nil {
		return err
	}
	most, free := min(perProcess, descriptors-reservedFiles), availableMemory()
	w.Spec.Workloads = slices.DeleteFunc(w.Spec.Workloads, func(s experiment.Workload) bool {
		needed := uint64(s.Connections) * memoryEach
		switch {
		case most < min(s.Connections, perProcess):
			w.Note("steps above %d connections were left out: a process may hold only %d descriptors here; raise that with ulimit -Hn as root, or LimitNOFILE= of systemd", max(0, most), descriptors)
			return true
		case s.Connections > perProcess && !w.Quick && free < needed:
			w.Note("%d connections were left out: %d MB of free memory were wanted, %d MB are there", s.Connections, needed>>20, free>>20)
			return true
		}
		return false
	})
	if len(w.Spec.Workloads) == 0 {
		return errFew
	}
	return nil
}

// step starts an arm's servers, as many as the connections need, has the same number
// of clients ramp against them, and stops everything.
func (w *ramp) step(ctx context.Context, slot trial.TaskSlot, s experiment.Workload) (got trial.TaskResult, err error) {
	n := s.Connections
	switch {
	case w.failed[slot.Arm] >= failures:
		return got, nil // it broke before
	case w.connections > 0 && w.Left() < time.Duration(float64(w.spent)/float64(w.connections)*float64(n)):
		w.Note("the time was over before %d connections to %s in round %d", n, slot.Arm, slot.Block+1)
		return got, nil
	}
	began := time.Now()
	r, values, err := w.measure(ctx, slot, s)
	w.spent += time.Since(began)
	w.connections += n
	if err != nil {
		return got, err
	}
	if r.Failed > 0 {
		w.failed[slot.Arm]++
		if _, known := w.why[slot.Arm]; !known {
			w.why[slot.Arm] = r.First
		}
	}
	return trial.TaskResult{Values: values, Done: uint64(r.Succeeded), Failed: uint64(r.Failed), FirstFailure: r.First}, nil // counts are not negative
}

func (w *ramp) measure(ctx context.Context, slot trial.TaskSlot, s experiment.Workload) (r report, values map[string]float64, err error) {
	n, processes := s.Connections, (s.Connections+perProcess-1)/perProcess
	client, err := w.Programs.Path("websocket")
	if err != nil {
		return r, nil, err
	}
	var servers []*trial.Instance
	var pids []int
	var commands [][]string
	defer func() {
		for _, in := range servers {
			if stopErr := in.Stop(); stopErr != nil && r.Failed == 0 { // it ended by itself: that is a failure of all
				r.Succeeded, r.Failed, r.First = 0, n, stopErr.Error()
				values = r.values()
			}
		}
	}()
	for i := range processes {
		in, err := w.StartWith(ctx, slot.Arm, nil, nil)
		if err != nil {
			return r, nil, err
		}
		servers, pids = append(servers, in), append(pids, in.PIDs...)
		commands = append(commands, clientCommand(client, in.URL["address"], slot.Instance.URL["path"], i, processes, n, s.Idle))
	}
	target, err := record.Open(pids...)
	if err != nil {
		return r, nil, err
	}
	defer target.Close() //nolint:errcheck // it was only read
	idle, err := target.Read()
	if err != nil {
		return r, nil, err
	}
	var held record.Reading
	var heldErr error
	if r, err = runClients(ctx, commands, func() { held, heldErr = target.Read() }); err != nil {
		return r, nil, err
	}
	values = r.values()
	if after, err := target.Read(); err == nil && heldErr == nil && r.Failed == 0 { // figures of a step that broke are of nothing
		values["cpu_ns_per_connection"] = float64(after.Sub(idle).CPU) / float64(n)
		if held.RSS > idle.RSS {
			values["rss_bytes_per_connection"] = float64(held.RSS-idle.RSS) / float64(n)
		}
	}
	return r, values, nil
}

// clientCommand is that of the i-th of so many clients; the connections are shared out
// evenly, and so are those that may be busy at once.
func clientCommand(exe, address, path string, i, clients, connections int, limit time.Duration) []string { //nolint:revive // an argument for each of the command
	share := connections*(i+1)/clients - connections*i/clients
	return []string{
		exe, "client", "-address", address, "-path", path, "-connections", strconv.Itoa(share), "-first-source", strconv.Itoa(2 + i), "-sources", "1",
		"-busy", strconv.Itoa(max(1, busy/clients)), "-timeout", phaseTimeout.String(), "-limit", limit.String(),
	}
}

// An outcome is what an arm did at one number of connections: of the worst round.
type outcome struct{ connections, succeeded, failed int }

// outcomes are those of an arm, by connections.
func outcomes(res *record.Result, chosen []experiment.Workload, arm string) (all []outcome) {
	for _, w := range chosen {
		o := outcome{connections: w.Connections, succeeded: w.Connections}
		seen := false
		for _, s := range res.Samples {
			if good, ok := s.Values["succeeded"]; ok && s.Arm == arm && s.Workload == w.Name {
				seen = true
				o.succeeded, o.failed = min(o.succeeded, int(good)), max(o.failed, int(s.Values["failed"]))
			}
		}
		if seen {
			all = append(all, o)
		}
	}
	return all
}

// report adds what was published beside what was measured, where each arm broke, the
// article's two charts and one of memory, and the answer.
func (w *ramp) report() {
	arms := slices.DeleteFunc(slices.Clone(w.Res.Arms), func(a record.Arm) bool { return a.Placebo != "" || a.Skipped != "" })
	published := record.Table{
		Title: "Published and measured: connections that succeeded / failed", Lead: true,
		About:   "Of the worst round at each step. Published was a crash above 1,500 connections, without the figures of the steps.",
		Columns: []string{"connections", "published, x/net"},
	}
	breaking := record.Table{
		Title: "Breaking point", About: "The first number of connections at once at which any of them failed in any round.",
		Columns: []string{"arm", "breaks at", "measured up to", "why"},
	}
	at := map[string]map[int]outcome{}
	for _, a := range arms {
		published.Columns = append(published.Columns, called(a.Name))
		at[a.Name] = map[int]outcome{}
		first, last := "nowhere", 0
		for _, o := range outcomes(w.Res, w.Chosen, a.Name) {
			at[a.Name][o.connections] = o
			if last = o.connections; o.failed > 0 && first == "nowhere" {
				first = strconv.Itoa(o.connections)
			}
		}
		if last > 0 {
			breaking.Rows = append(breaking.Rows, []string{a.Name, first, strconv.Itoa(last), experiment.FirstLine(w.why[a.Name])})
		}
	}
	for _, s := range w.Chosen {
		row, seen := []string{experiment.Count(s.Connections), "holds"}, false
		if s.Connections > claimed {
			row[1] = "crashes"
		}
		for _, a := range arms {
			o, ok := at[a.Name][s.Connections]
			seen = seen || ok
			cell := "–"
			if ok {
				cell = experiment.Count(o.succeeded) + " / " + experiment.Count(o.failed)
			}
			row = append(row, cell)
		}
		if seen {
			published.Rows = append(published.Rows, row)
		}
	}
	if len(published.Rows) == 0 {
		return
	}
	w.Res.Tables = append([]record.Table{published, breaking}, w.Res.Tables...)
	w.Res.Charts = append(w.Res.Charts, w.charts(arms)...)
	w.Res.Answer = answer(w.Res, w.Chosen, arms)
}

func (w *ramp) charts(arms []record.Arm) []record.Chart {
	x := record.Axis{Name: "connections at once"}
	duration := record.Chart{Title: "Duration by connections", Lead: true, X: x, Y: record.Axis{Name: "duration of the step", Unit: "ns"}}
	outcome := record.Chart{
		Title: "Succeeded and failed by connections", Lead: true, X: x, Y: record.Axis{Name: "connections"},
		About: "Of the worst round. Where nothing failed, the lines of all arms lie on each other.",
	}
	memory := record.Chart{Title: "Memory per connection", X: x, Y: record.Axis{Name: "resident memory per connection", Unit: "bytes"}}
	for _, a := range arms {
		took, rss := record.Series{Name: a.Name}, record.Series{Name: a.Name}
		good, bad := record.Series{Name: a.Name + " succeeded"}, record.Series{Name: a.Name + " failed"}
		for _, o := range outcomes(w.Res, w.Chosen, a.Name) {
			n, name := float64(o.connections), fmt.Sprintf("%d connections", o.connections)
			took.Points = append(took.Points, [2]float64{n, experiment.MedianOf(w.Res, a.Name, name, "step_ns")})
			good.Points, bad.Points = append(good.Points, [2]float64{n, float64(o.succeeded)}), append(bad.Points, [2]float64{n, float64(o.failed)})
			if v := experiment.MedianOf(w.Res, a.Name, name, "rss_bytes_per_connection"); v > 0 {
				rss.Points = append(rss.Points, [2]float64{n, v})
			}
		}
		duration.Series, memory.Series, outcome.Series = append(duration.Series, took), append(memory.Series, rss), append(outcome.Series, good, bad)
	}
	return []record.Chart{duration, outcome, memory}
}

// called is an arm's name as people know it.
func called(arm string) string {
	switch arm {
	case baseline:
		return "x/net"
	case "xnet-386":
		return "x/net on 32 bits"
	}
	return arm
}

// answer is where servers broke, and what a connection costs those that held.
func answer(res *record.Result, chosen []experiment.Workload, arms []record.Arm) string {
	highest := 0
	var broken, each []string
	published := ""
	for _, a := range arms {
		all := outcomes(res, chosen, a.Name)
		if len(all) == 0 {
			continue
		}
		last := all[len(all)-1]
		highest = max(highest, last.connections)
		cost := ""
		if v := experiment.MedianOf(res, a.Name, fmt.Sprintf("%d connections", last.connections), "rss_bytes_per_connection"); v > 0 {
			cost = " with " + experiment.Bytes(v) + " each"
		}
		if i := slices.IndexFunc(all, func(o outcome) bool { return o.failed > 0 }); i >= 0 {
			broken = append(broken, fmt.Sprintf("%s failed at %s connections", called(a.Name), experiment.Count(all[i].connections)))
			if a.Name == baseline {
				published = called(a.Name) + ", said to break at 1,500, did not hold"
			}
			continue
		}
		switch a.Name {
		case baseline:
			published = called(a.Name) + ", said to break at 1,500, held all of them" + cost
		case "millrace":
			each = append(each, a.Name+cost)
		}
	}
	s := fmt.Sprintf("no server failed up to %s connections", experiment.Count(highest))
	if len(broken) > 0 {
		s = experiment.List(broken) + fmt.Sprintf("; the others held %s", experiment.Count(highest))
	}
	if published != "" {
		s += "; " + published
	}
	if len(each) > 0 {
		s += ", " + each[0]
	}
	return s
}
