package experiment

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
	if err := RunPlan(t.Context(), plan, res, nil); err != nil {
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
