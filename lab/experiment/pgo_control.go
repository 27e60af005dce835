package experiment

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"millrace/lab/pgo"
	"millrace/lab/result"
)

// The bands in which kernel time per request counts as the same in both arms.
// It is known less exactly than the whole: the kernel divides CPU time between
// itself and the program in ticks of 10 ms.
const (
	kernelBand      = 0.05
	kernelBandQuick = 0.10
)

// sharesQuick and sharesFull are how long each arm is profiled to see where its
// time goes.
const (
	sharesQuick = 2 * time.Second
	sharesFull  = 15 * time.Second
)

// kernelGates are the negative control: a compiler changes nothing in the
// kernel, so time there per request must be what it was. One gate for each
// workload.
func kernelGates(res *result.Result, mode result.Mode) []result.Gate {
	band := kernelBand
	if mode != result.Full {
		band = kernelBandQuick
	}
	var out []result.Gate
	for _, w := range res.Workloads {
		per := map[string]float64{}
		for _, arm := range []string{withoutProfile, withoutProfile + "′", withProfile} {
			per[arm] = kernelTime(res.Samples, arm, w.Name)
		}
		g := result.Gate{Name: "kernel time, " + w.Name, Limit: fmt.Sprintf("equal in both builds within ±%.0f %%", 100*band)}
		base, other := per[withoutProfile], per[withProfile]
		if base == 0 || other == 0 {
			g.Status, g.Detail = result.Unknown, "how much of the CPU time was spent in the kernel is not known here"
			out = append(out, g)
			continue
		}
		moved := other/base - 1
		g.Status = result.Passed
		g.Detail = fmt.Sprintf("%+.1f %% with the profile (%.2f µs against %.2f µs per request)", 100*moved, other/1e3, base/1e3)
		if placebo := per[withoutProfile+"′"]; placebo > 0 {
			g.Detail += fmt.Sprintf(", %+.1f %% in the placebo", 100*(placebo/base-1))
		}
		if math.Abs(moved) > band {
			g.Status = result.Failed
		}
		out = append(out, g)
	}
	return out
}

// kernelTime is the mean kernel time per request in ns, over the blocks in which
// it is known; 0 where it never is.
func kernelTime(samples []result.Sample, arm, workload string) float64 {
	sum, n := 0.0, 0.0
	for _, s := range samples {
		cpu, ok := s.Values["cpu_ns"]
		share, known := s.Values[kernelShare]
		if s.Arm == arm && s.Workload == workload && ok && known {
			sum, n = sum+cpu*share, n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

// shares adds where the CPU time of both arms goes, by sort of code: what the
// profile cannot touch should keep its place.
func (p *proof) shares(ctx context.Context, res *result.Result) {
	if !p.itself() {
		res.Notes = append(res.Notes, "where the time goes was not looked at: record each executable (millrace pgo record) and compare (millrace pgo diff)")
		return
	}
	length := sharesQuick
	if p.env.Mode == result.Full {
		length = sharesFull
	}
	var found []*pgo.Profile
	for _, a := range p.arms {
		p.step("looking where the time goes, " + a.name)
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

func sharesTable(d *pgo.Difference) result.Table {
	t := result.Table{
		Title: "Where the CPU time goes in the slow lane",
		About: fmt.Sprintf("Shares of each build's own CPU time, from %d and %d samples. Only Go code can change by a profile; where it shrinks, "+
			"the shares of the others grow, though they take no longer. Functions are those that changed most, without those that chance explains.",
			d.Base.Samples, d.Other.Samples),
		Columns: []string{"code", "without", "with", "points"},
	}
	row := func(name string, was, is float64) {
		t.Rows = append(t.Rows, []string{name, fmt.Sprintf("%.1f %%", 100*was), fmt.Sprintf("%.1f %%", 100*is), fmt.Sprintf("%+.1f", 100*(is-was))})
	}
	for _, c := range pgo.Classes() {
		row(string(c), d.Base.Shares[c], d.Other.Shares[c])
	}
	real := slices.DeleteFunc(slices.Clone(d.Changes), func(c pgo.Change) bool { return c.Noise })
	for _, c := range real[:min(maxMoved, len(real))] {
		row(c.Func, c.Base, c.Other)
	}
	return t
}

// costs is what the profile costs besides time.
func (p *proof) costs(memory idleMemory) result.Table {
	t := result.Table{
		Title:   "What the profile costs",
		Columns: []string{"", "without", "with", "change"},
		Rows: [][]string{
			{"size of the executable", sizeText(p.arms[0].size), sizeText(p.arms[1].size), change(float64(p.arms[0].size), float64(p.arms[1].size))},
			{"time to build", p.arms[0].build, p.arms[1].build, ""},
		},
	}
	if growth, ok := memory.growth(); ok {
		t.Rows = append(t.Rows, []string{
			fmt.Sprintf("memory with %d idle connections", memory.connections),
			sizeText(int64(middle(memory.rss[0]))), sizeText(int64(middle(memory.rss[1]))), fmt.Sprintf("%+.1f %%", 100*growth),
		})
	}
	return t
}

func change(was, is float64) string {
	if was == 0 {
		return ""
	}
	return fmt.Sprintf("%+.1f %%", 100*(is/was-1))
}
