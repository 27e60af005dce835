package images

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"millrace/internal/ops/chart"
	experiment "millrace/lab/experiment/former"
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
func kernelGates(res *record.Result, mode record.Mode) []record.Gate {
	band := kernelBand
	if mode != record.Full {
		band = kernelBandQuick
	}
	var out []record.Gate
	for _, w := range res.Workloads {
		g := record.Gate{Name: "kernel time, " + w.Name, Limit: fmt.Sprintf("equal in both builds within ±%.0f %%", 100*band)}
		moved, seen := kernelRatio(res, withProfile, w.Name)
		if !seen {
			g.Status, g.Detail = record.Unknown, "how much of the CPU time was spent in the kernel is not known here"
			out = append(out, g)
			continue
		}
		g.Detail = "with the profile " + moves(moved)
		if placebo, ok := kernelRatio(res, withoutProfile+"′", w.Name); ok {
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
		case withoutProfile:
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

// shares adds where the CPU time of both arms goes, by sort of code: what the
// profile cannot touch should keep its place.
func (p *proof) shares(ctx context.Context, res *record.Result) {
	if !p.itself() {
		res.Notes = append(res.Notes, "where the time goes was not looked at: record each executable (millrace pgo record) and compare (millrace pgo diff)")
		return
	}
	length := sharesQuick
	if p.env.Mode == record.Full {
		length = sharesFull
	}
	var found []*pgo.Profile
	for _, a := range p.arms {
		p.begin("looking where the time goes, " + a.name)
		got, err := p.recordOne(ctx, a, slowLane, length)
		if err != nil {
			if ctx.Err() == nil {
				res.Notes = append(res.Notes, "where the time goes is not known: "+err.Error())
			}
			return
		}
		found = append(found, got)
	}
	res.Tables = append(res.Tables, sharesTable(pgo.Diff(found[0], found[1])))
}

// maxMoved is how many functions the table of shares names.
const maxMoved = 8

func sharesTable(d *pgo.Difference) record.Table {
	t := record.Table{
		Title: "Where the CPU time goes in the slow lane",
		About: fmt.Sprintf("Shares of each build's own CPU time, from %d and %d samples. Only Go code can change by a profile; where it shrinks, "+
			"the shares of the others grow, though they take no longer. Functions are those that changed most, without those that chance explains.",
			d.Base.Samples, d.Other.Samples),
		Columns: []string{"code", withoutProfile, withProfile, "points"},
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

// costs is what the profile costs besides time.
func (p *proof) costs(memory idleMemory) record.Table {
	t := record.Table{
		Title:   "What the profile costs",
		Columns: []string{"", withoutProfile, withProfile, "change"},
		Rows: [][]string{
			{"size of the executable", experiment.Bytes(float64(p.arms[0].size)), experiment.Bytes(float64(p.arms[1].size)), change(float64(p.arms[0].size), float64(p.arms[1].size))},
			{"time to build", p.arms[0].build, p.arms[1].build, ""},
		},
	}
	if growth, ok := memory.growth(); ok {
		t.Rows = append(t.Rows, []string{
			fmt.Sprintf("memory with %d idle connections", memory.connections),
			experiment.Bytes(experiment.Median(memory.rss[0])), experiment.Bytes(experiment.Median(memory.rss[1])), experiment.Change(1 + growth),
		})
	}
	return t
}

func change(was, is float64) string {
	if was == 0 {
		return ""
	}
	return experiment.Change(is / was)
}
