// Package trial compares arms that serve the same thing. It starts them, loads them
// one at a time, in random order and in many short slots, with a placebo among
// them, reads what each slot cost, and decides what that proves.
//
// A block is one slot of every arm on every workload. All that disturbs a
// machine for longer than a block disturbs every arm alike, and what is judged
// is the ratio within a block. Processes differ from each other even when
// they run the same program (where their memory lies, how their tables hash),
// so arms are started anew between groups of blocks, and a second instance of
// the baseline, the placebo, shows how far apart two of the same are.
package trial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/stats"
)

// An Arm is one thing to compare.
type Arm struct {
	Name    string
	About   string
	Version string
	// Size is that of its executable in bytes, 0 where there is none.
	Size int64
	// Command says how it is started, for the report.
	Command []string
	// Start makes it ready to be asked, and returns when it answers. It is
	// called again after each stop.
	Start func(ctx context.Context) (*Instance, error)
	// Skipped is why the arm cannot be measured here, and what to install.
	Skipped string
	// Fixed is for a server that somebody else started: it is started once,
	// never again, and its placebo is a second slot of the same processes.
	Fixed bool
	// Extra adds figures of an arm's own after a slot, by metric key. May be nil.
	Extra func(ctx context.Context, in *Instance) map[string]float64
}

// An Instance is a running arm.
type Instance struct {
	// URL by workload; "" is for those not named.
	URL map[string]string
	// PIDs of its processes, children not needed. None: its costs are unknown,
	// and only what the generator sees is measured.
	PIDs []int
	// Reports says that it has no processes of its own, and that the tasks it
	// does bring their costs themselves: a command that is started for each.
	Reports bool
	// Stop ends it and waits. It reports an instance that had ended by itself,
	// with what it last wrote. May be nil.
	Stop func() error
}

// A Workload is what every arm is given to do.
type Workload struct {
	Name  string
	About string
	// Load is the load; its URL comes from the instance, its Warmup and
	// Duration from the plan.
	Load load.Config
	// Slot replaces the plan's for a load: for answers that take long; 0: the
	// plan's.
	Slot time.Duration
	// Task is carried out instead of a load, for what no load can say: how long
	// a purge takes, what a quiet connection holds. nil: Load is the work.
	Task Task
	// Arms names those that take part; nil: all.
	Arms []string
	// Decide replaces the plan's; empty: the plan's; NoVerdict in it: none gets a verdict.
	Decide []string
	// Differ says why answers need not be equal between arms on this workload.
	Differ string
	// ErrorsExpected replaces the plan's; 0: the plan's.
	ErrorsExpected float64
	// Blocks is how many of the blocks it is measured in, the first ones; 0: all.
	Blocks int
	// Together has all arms do the Task at once, for what is no question of speed.
	Together bool
}

// A Plan says what is measured and when which verdict is given, before
// anything is.
type Plan struct {
	Arms      []Arm // the first that is not skipped is the baseline
	Workloads []Workload
	// Decide are the metrics that get verdicts, keys of cost.Metrics or Metrics.
	// One that cannot be measured here is left out with a note.
	Decide []string
	// Metrics are those beyond cost.Metrics that tasks and arms bring.
	Metrics []record.Metric

	// Also are pairs that get verdicts of their own, beside every arm against
	// the baseline. Pairs with an arm that was left out are passed over.
	Also []Pair

	Delta, Alpha float64 // as in stats.Rule
	// Blocks is how many there are at each look, rising: 12, 18, 24. The trial
	// ends at the look that leaves nothing undecided, or at the last.
	Blocks []int
	// PerRestart is how many blocks are measured before all arms are started
	// anew; 0: 1, every block has new processes.
	PerRestart int
	// Slot is the measured window and Warmup the load before it, each time.
	Slot, Warmup time.Duration
	// Budget is the time for all of it: slots become shorter than Slot, down
	// to MinSlot, so that there is time for the first look, but for workloads that end after so many requests or have a
	// slot of their own.
	// 0: no limit.
	Budget time.Duration
	// Placebo is the arm that runs a second time; empty: the baseline; "-": none.
	Placebo string
	// Pooled gives the verdicts about all workloads together, under this name; empty:
	// about each.
	Pooled string
	// Differ says why answers need not be equal between arms; empty: they must
	// be, or the result is void.
	Differ string
	// ErrorsExpected is the share of answers that may have a status other than
	// 2xx, for workloads whose target is meant to fail.
	ErrorsExpected float64
	Seed           uint64
}

// A Pair is two arms by name: the first is held against the second.
type Pair struct{ Arm, Baseline string }

// MinSlot is the shortest window that still says something: at 10,000 requests/s
// some 500 of them, and longer than a scheduler's time slice by an order.
const MinSlot = 50 * time.Millisecond

// NoVerdict is in the Decide of a workload that is only shown.
const NoVerdict = "-"

// maxArms bounds the processes that run side by side.
const maxArms = 64

// Check says what is wrong with a plan.
func (p *Plan) Check() error {
	switch {
	case len(p.Arms) < 2:
		return errors.New("a comparison needs two arms")
	case len(p.Arms) > maxArms:
		return fmt.Errorf("%d arms are more than the %d that can run side by side", len(p.Arms), maxArms)
	case len(p.Workloads) == 0:
		return errors.New("a comparison needs a workload")
	case len(p.Blocks) == 0 || len(p.Blocks) > stats.MaxLooks:
		return fmt.Errorf("a comparison has one to %d looks, not %d", stats.MaxLooks, len(p.Blocks))
	case p.Slot < MinSlot:
		return fmt.Errorf("a slot of %v is too short: at least %v", p.Slot, MinSlot)
	}
	names := map[string]bool{}
	for _, a := range p.Arms {
		if a.Name == "" || names[a.Name] {
			return fmt.Errorf("arms need names of their own: %q has none or is there twice", a.Name)
		}
		names[a.Name] = true
	}
	for i := 1; i < len(p.Blocks); i++ {
		if p.Blocks[i] <= p.Blocks[i-1] {
			return fmt.Errorf("looks come after more and more blocks, not %v", p.Blocks)
		}
	}
	for _, pair := range p.Also {
		if !names[pair.Arm] || !names[pair.Baseline] || pair.Arm == pair.Baseline {
			return fmt.Errorf("%q against %q: there are no two such arms", pair.Arm, pair.Baseline)
		}
	}
	for _, w := range p.Workloads {
		if err := p.checkWorkload(w, names); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) checkWorkload(w Workload, arms map[string]bool) error {
	if w.Name == "" {
		return errors.New("workloads need names")
	}
	for _, name := range w.Arms {
		if !arms[name] {
			return fmt.Errorf("workload %q is for an arm %q that is not there", w.Name, name)
		}
	}
	return nil
}

// Run carries out a plan. It fills samples, verdicts, gates, machine, metrics,
// arms and workloads of the result that it is given, and leaves the rest alone.
// When ctx ends it returns with what was measured and res.Interrupted set, and
// no error. An arm that cannot start or dies is an error that names it; what was
// measured is in res then, too, judged as far as it goes and marked as
// interrupted.
func Run(ctx context.Context, plan Plan, res *record.Result, watch record.Watch) error {
	if err := plan.Check(); err != nil {
		return err
	}
	if watch == nil {
		watch = func(record.Event) {}
	}
	t := newTrial(plan, res, watch)
	err := t.run(ctx)
	if stopErr := t.stop(); err == nil {
		err = stopErr
	}
	switch {
	case ctx.Err() != nil:
		res.Interrupted = fmt.Sprintf("stopped after %d of %d blocks", t.blocks, t.lastBlock())
		err = nil
	case err != nil:
		res.Interrupted = err.Error()
	}
	t.judge()
	t.check()
	return err
}

// run measures block after block until a look leaves nothing open.
func (t *trial) run(ctx context.Context) error {
	for look, until := range t.plan.Blocks {
		t.look = look + 1
		for t.blocks < until {
			if t.overBudget() {
				t.note(fmt.Sprintf("the time was over after %d of %d blocks", t.blocks, t.lastBlock()))
				return nil
			}
			if err := t.block(ctx); err != nil {
				return err
			}
		}
		t.judge()
		t.emit(record.Event{
			Kind: record.EventLook, Verdicts: t.res.Verdicts,
			Text: fmt.Sprintf("look %d of %d, after %d blocks", t.look, len(t.plan.Blocks), t.blocks),
		})
		if t.decided() {
			return nil
		}
	}
	return nil
}
