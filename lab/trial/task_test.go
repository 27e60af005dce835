package trial

import (
	"context"
	"slices"
	"strings"
	"testing"

	"millrace/lab/load"
	"millrace/lab/record"
)

// A task beside a load: each has figures, verdicts and failures of its own.
func TestTask(t *testing.T) {
	plan := testPlan(testArm(t, "a", 1, 0, "x"), testArm(t, "b", 1, 0, "x"))
	blocks := map[int]bool{}
	plan.Workloads = []Workload{
		{Name: "load", Load: load.Config{Connections: 2}, Decide: []string{"latency_p99_ns"}},
		{Name: "task", ErrorsExpected: 0.6, Task: func(_ context.Context, slot TaskSlot) (TaskResult, error) {
			if slot.URL == "" || slot.Target == nil || slot.Length == 0 {
				t.Errorf("the slot is %+v", slot)
			}
			blocks[slot.Block] = true
			seen := 2.0
			if slot.Arm == "b" {
				seen = 1 + slot.Random.Float64()/1e6
			}
			slot.Window(true)
			slot.Window(false)
			return TaskResult{Values: map[string]float64{"seen_ns": seen, "stored": 1}, Done: 1, Failed: 1}, nil
		}},
	}
	plan.Decide = []string{"seen_ns", "stored"}
	plan.Metrics = []record.Metric{{Key: "seen_ns", Name: "time until it is seen", Unit: "ns"}, {Key: "stored", Name: "stored", Higher: true}}
	plan.PerRestart = 1
	plan.Blocks = []int{12}
	res := new(record.Result)
	if err := Run(t.Context(), plan, res, nil); err != nil {
		t.Fatal(err)
	}
	if len(blocks) != 12 {
		t.Errorf("the task ran in %d blocks of 12", len(blocks))
	}
	if v := verdictOn(t, res, "b", "seen_ns"); v.Outcome != record.Better || v.Workload != "task" {
		t.Errorf("got %+v", v)
	}
	if v := verdictOn(t, res, "b", "stored"); v.Outcome != record.Equal {
		t.Errorf("got %+v", v)
	}
	if v := verdictOn(t, res, "b", "latency_p99_ns"); v.Workload != "load" {
		t.Errorf("got %+v", v)
	}
	if n := len(res.Verdicts); n != 2*3 {
		t.Errorf("%d verdicts, want 6: three metrics of one arm and the placebo", n)
	}
	for _, s := range res.Samples {
		if _, has := s.Values["seen_ns"]; has != (s.Workload == "task") {
			t.Errorf("a sample of %s has %v", s.Workload, s.Values)
		}
	}
	i := slices.IndexFunc(res.Metrics, func(m record.Metric) bool { return m.Key == "seen_ns" })
	if i < 0 || res.Metrics[i].Name != "time until it is seen" || !res.Metrics[i].Decides {
		t.Errorf("the metrics are %+v", res.Metrics)
	}
	for _, part := range []string{"errors", "generator"} {
		if g := gateNamed(t, res, part); g.Status == record.Failed || strings.Contains(g.Detail, "on task: 0 ") {
			t.Errorf("%+v", g)
		}
	}
}

// A workload of the first block only, which all arms do at once; and verdicts about
// two workloads together.
func TestTogetherAndPooled(t *testing.T) {
	plan := testPlan(testArm(t, "a", 1, 0, "x"), testArm(t, "b", 1, 0, "x"))
	meeting := make(chan struct{}) // a block beside another program may be measured again
	task := func(_ context.Context, slot TaskSlot) (TaskResult, error) {
		return TaskResult{Done: 1, Values: map[string]float64{"seen_ns": map[string]float64{"a": 2, "b": 3}[slot.Arm]}}, nil
	}
	plan.Workloads = []Workload{
		{Name: "one", Task: task},
		{Name: "two", Task: task},
		{Name: "meet", Blocks: 1, Together: true, Decide: []string{"never"}, Task: func(ctx context.Context, slot TaskSlot) (TaskResult, error) {
			select { // for ever, if it had to wait for its turn
			case meeting <- struct{}{}:
			case <-meeting:
			}
			return task(ctx, slot)
		}},
	}
	plan.Decide, plan.Pooled, plan.Placebo, plan.Blocks = []string{"seen_ns"}, "all", "-", []int{6}
	res := new(record.Result)
	if err := Run(t.Context(), plan, res, nil); err != nil {
		t.Fatal(err)
	}
	v := verdictOn(t, res, "b", "seen_ns")
	if len(res.Workloads) != 4 || res.Workloads[0].Name != "all" || len(res.Samples) != 2*6*2+2 || len(res.Verdicts) != 1 || v.Workload != "all" || v.Outcome != record.Worse || v.Blocks != 13 {
		t.Errorf("%d samples, %+v", len(res.Samples), res.Verdicts)
	}
}
