// Package trial compares arms that serve the same thing: it starts them,
// loads them in turn, in random order and in many short slots, with a placebo
// beside them, reads what each slot cost, and says what that proves.
package trial

import (
	"context"
	"time"

	"millrace/lab/load"
	"millrace/lab/result"
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
	// Fixed is for a server that somebody else started: it is never restarted
	// and has no placebo process; the placebo is a second slot of it.
	Fixed bool
	// Extra metrics of an arm after a slot: how often the lane answered, say.
	// May be nil.
	Extra func(ctx context.Context, in *Instance) map[string]float64
}

// An Instance is a running arm.
type Instance struct {
	// URL by workload; "" is for those not named.
	URL map[string]string
	// PIDs of its processes, children not needed.
	PIDs []int
	// Stop ends it and waits; what it wrote to its standard error is in the
	// error if it ended by itself.
	Stop func() error
}

// A Workload is what every arm is given to do.
type Workload struct {
	Name  string
	About string
	// Load is the load; its URL comes from the instance.
	Load load.Config
	// Arms names those that take part; nil: all.
	Arms []string
}

// A Plan says what is measured and when which verdict is given, before
// anything is.
type Plan struct {
	Arms      []Arm // the first is the baseline
	Workloads []Workload
	// Metrics are keys of Measured; those listed in Decide get verdicts.
	Decide []string

	Delta, Alpha float64 // see stats.Rule
	// Blocks at each look, rising: {12, 18, 24}. At most stats.MaxLooks.
	Blocks []int
	// PerRestart is how many blocks are measured before all arms are started
	// anew; 0: every block has new processes.
	PerRestart int
	// Slot is the measured window and Warmup the load before it, each time.
	Slot, Warmup time.Duration
	// Budget shortens Slot so that all of it ends in time; 0: no limit.
	Budget time.Duration
	// Placebo is the arm that runs a second time; empty: the baseline.
	Placebo string
	// Differ says why answers need not be equal between arms; empty: they must
	// be, or the result is void.
	Differ string
	Seed   uint64
}

// Run carries out a plan. It fills samples, verdicts, gates, machine, metrics,
// arms and workloads of the result that it is given, and leaves the rest alone. When ctx ends it
// returns with what was measured and res.Interrupted set, and no error. An arm
// that cannot start or dies is an error; what was measured is in res then, too.
func Run(ctx context.Context, plan Plan, res *result.Result, watch result.Watch) error {
	panic("not built")
}
