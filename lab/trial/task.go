package trial

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"

	"millrace/lab/gate"
	"millrace/lab/record"
)

// A Task is work that is not a load: it does something to a running arm, once, and
// says what that brought.
type Task func(ctx context.Context, slot TaskSlot) (TaskResult, error)

// A TaskSlot is what a task finds around it.
type TaskSlot struct {
	Arm      string // of a placebo, the name of the arm that it is a second instance of
	URL      string // of the instance, for this workload
	Instance *Instance
	Target   *record.Target // nil: its costs are unknown
	Block    int            // from 0
	Length   time.Duration  // of a slot, for tasks that can be cut to it
	Random   *rand.Rand     // repeats itself with the plan's seed
	// Window opens (true) and closes (false) the window in which costs count;
	// without it, that is all of the task. Opened again, it begins anew.
	Window func(open bool)
}

// A TaskResult is what a task brought.
type TaskResult struct {
	// Values by metric. The arm's costs for each thing done are added to them,
	// where they are known: CPU time per request, and so on.
	Values map[string]float64
	// Done is how many things were done in the window, requests or messages:
	// costs are divided by it. Failed ones are not among them.
	Done, Failed uint64
	FirstFailure string // in words
}

// task has an arm do a task.
func (t *trial) task(ctx context.Context, r *runner, w Workload, length time.Duration) (finding, error) {
	m := gate.Meter{Target: r.target}
	closed := false
	window := func(open bool) {
		m.Window(open)
		closed = !open
	}
	whole := gate.Meter{} // a window may be shorter than the machine's clock is fine
	whole.Window(true)
	began := time.Now()
	window(true)
	got, err := w.Task(ctx, TaskSlot{
		Arm: r.of, URL: r.in.at(w.Name), Instance: r.in, Target: r.target,
		Block: t.blocks, Length: length, Random: t.random, Window: window,
	})
	if !closed {
		window(false)
	}
	whole.Window(false)
	if err == nil {
		err = m.Err()
	}
	if err != nil {
		return finding{}, err
	}
	values := m.Costs(got.Done)
	maps.Copy(values, got.Values)
	values["errors"] = float64(got.Failed)
	return finding{
		values: values, targetCPU: m.TargetCPU(),
		slot: gate.Slot{
			Arm: r.Name, Workload: w.Name, Block: t.blocks, Seconds: time.Since(began).Seconds(), Task: true,
			Requests: got.Done, Errors: got.Failed, FirstError: got.FirstFailure, Steal: whole.Steal(),
		},
	}, nil
}

// at is where an instance serves a workload.
func (in *Instance) at(workload string) string {
	if url := in.URL[workload]; url != "" {
		return url
	}
	return in.URL[""]
}
