package proof

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"millrace/internal/ops/chart"
	"millrace/lab/experiment"
	"millrace/lab/load/client"
	"millrace/lab/pgo"
	"millrace/lab/record"
	"millrace/lab/stats"
)

// The bands in which kernel time per request counts as the same in both arms.
// It is known less exactly than the whole: the kernel divides CPU time between
// itself and the program in ticks of 10 ms.
const (
	kernelBand      = 0.05
	kernelBandQuick = 0.10
)

// leastControl is how many blocks the control needs: an interval of fewer says
// nothing.
const leastControl = 4

// sharesQuick and sharesFull are how long each arm is profiled to see where its
// time goes.
const (
	sharesQuick = 2 * time.Second
	sharesFull  = 15 * time.Second
)

// kernelGates are the negative control: a compiler changes nothing in the
// kernel, so time there per request must be what it was. One gate for each
// workload. It fails where a move beyond the band is shown, not where the
// machine was too noisy to see.
func kernelGates(res *record.Result, quick bool) []record.Gate {
	band := kernelBand
	if quick {
		band = kernelBandQuick
	}
	var out []record.Gate
	for _, w := range res.Workloads {
		g := record.Gate{Name: "kernel time, " + w.Name, Limit: fmt.Sprintf("equal in both builds within ±%.0f %%", 100*band)}
		moved, seen := kernelRatio(res, with, w.Name)
		if !seen {
			g.Status, g.Detail = record.Unknown, "how much of the CPU time was spent in the kernel is not known here"
			out = append(out, g)
			continue
		}
		g.Detail = "with the profile " + moves(moved)
		if placebo, ok := kernelRatio(res, without+"′", w.Name); ok {
			g.Detail += ", in the placebo " + moves(placebo)
		}
		switch {
		case moved.Low > 1+band || moved.High < 1-band:
			g.Status = record.Failed
		case moved.High-moved.Low > 4*band:
			g.Status = record.Unknown
			g.Detail += "; too noisy to tell"
		default:
			g.Status = record.Passed
		}
		out = append(out, g)
	}
	return out
}

func moves(e stats.Estimate) string {
	change, interval := chart.Effect(e.Ratio, e.Low, e.High)
	return change + " " + interval
}

// kernelRatio is kernel time per request of an arm ÷ that of the baseline, over
// the blocks in which both are known.
func kernelRatio(res *record.Result, arm, workload string) (stats.Estimate, bool) {
	type side struct{ base, arm float64 }
	blocks := map[int]*side{}
	restart := map[int]int{}
	for _, s := range res.Samples {
		cpu, ok := s.Values["cpu_ns"]
		share, known := s.Values[kernelShare]
		if s.Workload != workload || !ok || !known || cpu*share <= 0 {
			continue
		}
		if blocks[s.Block] == nil {
			blocks[s.Block] = &side{}
		}
		restart[s.Block] = s.Restart
		switch s.Arm {
		case without:
			blocks[s.Block].base = cpu * share
		case arm:
			blocks[s.Block].arm = cpu * share
		}
	}
	var pairs []stats.Pair
	for _, block := range slices.Sorted(maps.Keys(blocks)) {
		if b := blocks[block]; b.base > 0 && b.arm > 0 {
			pairs = append(pairs, stats.Pair{Restart: restart[block], Block: block, LogRatio: math.Log(b.arm / b.base)})
		}
	}
	if len(pairs) < leastControl {
		return stats.Estimate{}, false
	}
	return stats.Decide(map[string][]stats.Pair{"kernel": pairs}, stats.Rule{Seed: res.Seed})["kernel"].Estimate, true
}

// shares looks where the CPU time of both arms goes, by sort of code: what the
// profile cannot touch should keep its place.
func (p *proof) shares(ctx context.Context) {
	if !p.itself() {
		p.Note("where the time goes was not looked at: record each executable (millrace-lab pgo record) and compare (millrace-lab pgo diff)")
		return
	}
	length := sharesQuick
	if !p.Quick {
		length = sharesFull
	}
	var found []*pgo.Profile
	for _, a := range p.arms {
		p.begin("looking where the time goes, " + a.name)
		got, err := p.recordOne(ctx, a, slowLane, length)
		if err != nil {
			if ctx.Err() == nil {
				p.Note("where the time goes is not known: %v", err)
			}
			return
		}
		found = append(found, got)
	}
	p.table = sharesTable(pgo.Diff(found[0], found[1]))
}

// maxMoved is how many functions the table of shares names.
const maxMoved = 8

func sharesTable(d *pgo.Difference) record.Table {
	t := record.Table{
		Title: "Where the CPU time goes in the slow lane",
		About: fmt.Sprintf("Shares of each build's own CPU time, from %d and %d samples. Only Go code can change by a profile; where it shrinks, "+
			"the shares of the others grow, though they take no longer. Functions are those that changed most, without those that chance explains.",
			d.Base.Samples, d.Other.Samples),
		Columns: []string{"code", without, with, "points"},
	}
	row := func(name string, was, is float64) {
		t.Rows = append(t.Rows, []string{name, fmt.Sprintf("%.1f %%", 100*was), fmt.Sprintf("%.1f %%", 100*is), fmt.Sprintf("%+.1f", 100*(is-was))})
	}
	for _, c := range pgo.Classes() {
		row(string(c), d.Base.Shares[c], d.Other.Shares[c])
	}
	sure := slices.DeleteFunc(slices.Clone(d.Changes), func(c pgo.Change) bool { return c.Noise })
	for _, c := range sure[:min(maxMoved, len(sure))] {
		row(c.Func, c.Base, c.Other)
	}
	return t
}

const (
	idleQuick = 2_000
	idleFull  = 8_000 // one address has at most half of 16,384 connections
	// The rounds are how often each arm is started for it: the heap of a Go
	// program depends on when it was collected last, by several percent.
	idleRoundsQuick = 2
	idleRoundsFull  = 5
	// idleSettle is how long the connections rest before the memory is read:
	// long enough for goroutines to park and the collector to come round.
	idleSettle = 700 * time.Millisecond
	// mostMemory is how much more memory a profile may cost before it is not
	// kept, however fast it is.
	mostMemory = 0.02
)

// idleMemory is the resident memory of each arm with idle connections.
type idleMemory struct {
	connections int
	rss         [2][]float64 // bytes; without a profile, with one
}

// growth is how much more the build with the profile needs, as a share.
func (m idleMemory) growth() (share float64, known bool) {
	if len(m.rss[0]) == 0 || len(m.rss[1]) == 0 {
		return 0, false
	}
	return experiment.Median(m.rss[1])/experiment.Median(m.rss[0]) - 1, true
}

// apart reports whether every reading with the profile is above every one
// without: less could come from when the collector ran.
func (m idleMemory) apart() bool {
	return len(m.rss[0]) > 0 && len(m.rss[1]) > 0 && slices.Min(m.rss[1]) > slices.Max(m.rss[0])
}

// idle opens many connections to each arm, asks once over each, lets them rest
// and reads the memory. What cannot be measured becomes a note.
func (p *proof) idle(ctx context.Context) idleMemory {
	m, rounds := idleMemory{connections: idleQuick}, idleRoundsQuick
	if !p.Quick {
		m.connections, rounds = idleFull, idleRoundsFull
	}
	for round := range rounds {
		for i := range p.arms {
			i = (i + round) % len(p.arms) // each arm is first in turn
			p.begin(fmt.Sprintf("opening %d idle connections, %s", m.connections, p.arms[i].name))
			rss, err := p.idleOnce(ctx, p.arms[i], m.connections)
			if err != nil {
				if ctx.Err() == nil {
					p.Note("memory with %d idle connections is not known: %v", m.connections, err)
				}
				return idleMemory{connections: m.connections}
			}
			m.rss[i] = append(m.rss[i], float64(rss))
		}
	}
	return m
}

func (p *proof) idleOnce(ctx context.Context, a arm, n int) (rss uint64, err error) {
	s, err := p.serve(ctx, a.exe, p.exampleArgs())
	if err != nil {
		return 0, err
	}
	defer s.Stop() //nolint:errcheck // it was only looked at
	target, err := record.Open(s.PID)
	if err != nil {
		return 0, err
	}
	defer target.Close() //nolint:errcheck // it only read
	d, err := client.New(experiment.Workload{Paths: p.Paths}.Options("http://" + s.Address() + "/"))
	if err != nil {
		return 0, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	all := experiment.Gather(ctx, d, n, func(c client.Conn) error {
		_, err := c.Do(ctx, 0, nil)
		return err
	})
	defer all.Part()
	if all.Err != nil {
		return 0, all.Err
	}
	if err := experiment.Sleep(ctx, idleSettle); err != nil {
		return 0, err
	}
	now, err := target.Read()
	return now.RSS, err
}

// report adds the negative control, what the profile costs, and what all of that means
// for it.
func (p *proof) report() {
	p.Res.Gates = append(p.Res.Gates, kernelGates(p.Res, p.Quick)...)
	if p.arms[1].build == "" {
		return // nothing was built
	}
	p.Res.Tables = append(p.Res.Tables, p.costs())
	if len(p.table.Rows) > 0 {
		p.Res.Tables = append(p.Res.Tables, p.table)
	}
	if p.Res.Answer != "" {
		p.Res.Answer += "; " + keepOrNot(p.Res, p.memory)
	}
	if p.itself() && !p.codecs {
		p.Note("the profile has no samples of the WebP encoder, which works in processes of its own: what converts pictures is compiled alike in both builds, " +
			"but for what it shares with the rest; so a difference on “image conversions” would not be the encoder's")
	}
}

// costs is what the profile costs besides time.
func (p *proof) costs() record.Table {
	size := func(i int) float64 { return float64(p.arms[i].size) }
	t := record.Table{
		Title:   "What the profile costs",
		Columns: []string{"", without, with, "change"},
		Rows: [][]string{
			{"size of the executable", experiment.Bytes(size(0)), experiment.Bytes(size(1)), experiment.Known(size(0), func(v float64) string { return experiment.Change(size(1) / v) })},
			{"time to build", p.arms[0].build, p.arms[1].build, ""},
		},
	}
	if growth, ok := p.memory.growth(); ok {
		t.Rows = append(t.Rows, []string{
			fmt.Sprintf("memory with %d idle connections", p.memory.connections),
			experiment.Bytes(experiment.Median(p.memory.rss[0])), experiment.Bytes(experiment.Median(p.memory.rss[1])), experiment.Change(1 + growth),
		})
	}
	return t
}

// keepOrNot says what the findings mean for the profile: worth keeping where a gain was
// shown and no loss, and nothing where too little is decided.
func keepOrNot(res *record.Result, memory idleMemory) string {
	of := map[record.Outcome]string{}
	for _, v := range res.Verdicts {
		if v.Arm == with && v.Metric != "requests_per_second" { // a rate depends on the generator, too
			of[v.Outcome] = v.Workload
		}
	}
	growth, known := memory.growth()
	costs := experiment.Change(1+growth) + " memory with idle connections"
	if growth > 0 && !memory.apart() {
		costs += ", within what two runs of one build differ"
	}
	switch {
	case res.Void():
		return "a check failed, so nothing is known about the profile"
	case of[record.Worse] != "":
		return fmt.Sprintf("the profile should not be kept: it is slower on “%s”", of[record.Worse])
	case known && growth > mostMemory && memory.apart():
		return fmt.Sprintf("the profile should not be kept: idle connections need %.1f %% more memory, and %.0f %% is the limit", 100*growth, 100*mostMemory)
	case of[record.Better] != "" && !known:
		return fmt.Sprintf("the profile is a gain on “%s”; what it costs in memory is not known (see above)", of[record.Better])
	case of[record.Better] != "":
		return fmt.Sprintf("the profile is a gain on “%s”, no loss was shown, and it costs %s", of[record.Better], costs)
	case of[record.Undecided] != "":
		return "whether the profile is a gain is not decided here"
	}
	return "the profile is no gain"
}
