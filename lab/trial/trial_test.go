package trial

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"millrace/lab/gate"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/subject"
)

// serveEnv makes the test's own binary a server: "address work answer", with
// work in rounds of a loop per request.
const serveEnv = "TRIAL_TEST_SERVE"

func TestMain(m *testing.M) {
	if what := os.Getenv(serveEnv); what != "" {
		if err := serve(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serve(what string) error {
	var address, answer string
	var work, dieAfter int
	if _, err := fmt.Sscanf(what, "%s %d %d %s", &address, &work, &dieAfter, &answer); err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	served := make(chan struct{}, 1<<20)
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		x := 1.0
		for range work {
			x = math.Sqrt(x + 1)
		}
		if x < 0 {
			panic(x)
		}
		if dieAfter > 0 {
			if served <- struct{}{}; len(served) > dieAfter {
				fmt.Fprintln(os.Stderr, "out of luck")
				os.Exit(3)
			}
		}
		fmt.Fprint(w, answer)
	}))
}

// testArm is an arm that this binary serves.
func testArm(t *testing.T, name string, work, dieAfter int, answer string) Arm {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Arm{Name: name, About: "a test's server", Start: func(ctx context.Context) (*Instance, error) {
		port, err := subject.FreePort()
		if err != nil {
			return nil, err
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %s", serveEnv, address, work, dieAfter, answer))
		p, err := subject.Start(ctx, cmd, address, 20*time.Second)
		if err != nil {
			return nil, err
		}
		return &Instance{URL: map[string]string{"": "http://" + address + "/"}, PIDs: []int{p.PID}, Stop: p.Stop}, nil
	}}
}

func testPlan(arms ...Arm) Plan {
	return Plan{
		Arms:      arms,
		Workloads: []Workload{{Name: "load", Load: load.Config{Connections: 2}}},
		Decide:    []string{"cpu_ns"},
		Blocks:    []int{10}, Slot: MinSlot, Warmup: 10 * time.Millisecond, Seed: 1,
	}
}

func verdictOn(t *testing.T, res *record.Result, arm, metric string) record.Verdict {
	t.Helper()
	for _, v := range res.Verdicts {
		if v.Arm == arm && v.Metric == metric {
			return v
		}
	}
	t.Fatalf("no verdict about %s of %s in %+v", metric, arm, res.Verdicts)
	return record.Verdict{}
}

func gateNamed(t *testing.T, res *record.Result, part string) record.Gate {
	t.Helper()
	for _, g := range res.Gates {
		if strings.Contains(g.Name, part) {
			return g
		}
	}
	t.Fatalf("no gate about %q in %+v", part, res.Gates)
	return record.Gate{}
}

// A server that does much more work is found out, and the numbers
// behind that are kept.
func TestSlower(t *testing.T) {
	var events []record.Event
	res := new(record.Result)
	err := Run(t.Context(), testPlan(testArm(t, "quick", 10, 0, "same"), testArm(t, "slow", 30_000, 0, "same")), res,
		func(e record.Event) { events = append(events, e) })
	if err != nil {
		t.Fatal(err)
	}
	v := verdictOn(t, res, "slow", "cpu_ns")
	if v.Outcome != record.Worse || v.Ratio < 1.2 || v.Baseline != "quick" || v.Blocks > 10 || v.Restarts != v.Blocks {
		t.Errorf("got %+v", v)
	}
	if !strings.Contains(v.Sentence, "CPU time per request") || !strings.Contains(v.Sentence, "worse") {
		t.Errorf("the sentence %q does not name its metric and outcome", v.Sentence)
	}
	if want := 10 * 3; len(res.Samples) != want {
		t.Errorf("%d samples, want %d: two arms and a placebo in each block", len(res.Samples), want)
	}
	if g := gateNamed(t, res, "equal answers"); g.Status != record.Passed {
		t.Errorf("the answers are the same, and yet %+v", g)
	}
	if len(events) == 0 || events[len(events)-1].Done != 1 {
		t.Errorf("the last of %d events does not say that it is done", len(events))
	}
	orders := map[int]bool{}
	for _, s := range res.Samples {
		if s.Arm == "slow" {
			orders[s.Order] = true
		}
	}
	if len(orders) < 2 {
		t.Error("the slow arm had the same place in every block: the order is not random")
	}
}

// Different answers make a result void, unless the plan says why they differ.
func TestDifferentAnswers(t *testing.T) {
	plan := testPlan(testArm(t, "a", 1, 0, "one"), testArm(t, "b", 1, 0, "two"))
	plan.Blocks = []int{1}
	for _, differ := range []string{"", "it is meant to"} {
		plan.Differ = differ
		res := new(record.Result)
		if err := Run(t.Context(), plan, res, nil); err != nil {
			t.Fatal(err)
		}
		if failed := gateNamed(t, res, "equal answers").Status == record.Failed; failed != (differ == "") || failed && !res.Void() {
			t.Errorf("differ = %q: failed = %v, void = %v", differ, failed, res.Void())
		}
	}
}

// A target that dies is named, with what it last said, and whole blocks stay.
func TestDies(t *testing.T) {
	plan := testPlan(testArm(t, "a", 1, 0, "x"), testArm(t, "b", 1, 500, "x"))
	plan.PerRestart = 10
	res := new(record.Result)
	err := Run(t.Context(), plan, res, nil)
	if err == nil || !strings.Contains(err.Error(), "b") {
		t.Fatalf("err = %v, want one that names the arm", err)
	}
	if res.Interrupted == "" {
		t.Error("the result looks complete")
	}
	if len(res.Samples)%3 != 0 {
		t.Errorf("%d samples: half a block was kept", len(res.Samples))
	}
}

// An interrupt keeps whole blocks and is not an error.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res := new(record.Result)
	err := Run(ctx, testPlan(testArm(t, "a", 1, 0, "x"), testArm(t, "b", 1, 0, "x")), res, func(e record.Event) {
		if e.Kind == record.EventSample && len(res.Samples) == 6 { // in the third block, whatever was measured again
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Samples) != 6 || !strings.Contains(res.Interrupted, "2 of 10 blocks") {
		t.Errorf("%d samples, interrupted = %q", len(res.Samples), res.Interrupted)
	}
}

// Arms that are left out are named with the reason; with one arm left there is
// nothing to compare.
func TestSkipped(t *testing.T) {
	skipped := Arm{Name: "nginx", Skipped: "install nginx"}
	plan := testPlan(testArm(t, "a", 1, 0, "x"), skipped, testArm(t, "c", 1, 0, "x"))
	plan.Blocks = []int{2}
	plan.Also = []Pair{{"a", "c"}, {"c", "nginx"}}
	res := new(record.Result)
	if err := Run(t.Context(), plan, res, nil); err != nil {
		t.Fatal(err)
	}
	if v := verdictOn(t, res, "a", "cpu_ns"); v.Baseline != "c" {
		t.Errorf("a was held against %s, not c", v.Baseline)
	}
	if len(res.Verdicts) != 2 { // a against c, which was asked for, and the placebo
		t.Errorf("%d verdicts: %+v", len(res.Verdicts), res.Verdicts)
	}
	if len(res.Samples) != 6 || res.Arms[1].Skipped != "install nginx" || !strings.Contains(strings.Join(res.Notes, "\n"), "install nginx") {
		t.Errorf("samples %d, arms %+v, notes %q", len(res.Samples), res.Arms, res.Notes)
	}
	res = new(record.Result)
	if err := Run(t.Context(), testPlan(testArm(t, "a", 1, 0, "x"), skipped), res, nil); err == nil {
		t.Error("one arm was compared with nothing")
	}
}

// Servers that run already are measured in place: their placebo is a second
// slot of the same.
func TestFixed(t *testing.T) {
	a, b := testArm(t, "a", 1, 0, "x"), testArm(t, "b", 1, 0, "x")
	for _, arm := range []*Arm{&a, &b} {
		in, err := arm.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := in.Stop(); err != nil {
				t.Error(err)
			}
		})
		arm.Fixed = true
		arm.Start = func(context.Context) (*Instance, error) { return &Instance{URL: in.URL, PIDs: in.PIDs}, nil }
	}
	plan := testPlan(a, b)
	plan.Blocks = []int{2}
	res := new(record.Result)
	if err := Run(t.Context(), plan, res, nil); err != nil {
		t.Fatal(err)
	}
	if v := verdictOn(t, res, "b", "cpu_ns"); v.Restarts != 1 || v.Blocks != 2 {
		t.Errorf("got %d restarts and %d blocks, want 1 and 2", v.Restarts, v.Blocks)
	}
	if len(res.Samples) != 6 {
		t.Errorf("%d samples, want 6", len(res.Samples))
	}
}

// A pair has one verdict, whichever way round it was asked for: where the planned
// baseline is left out, another arm takes its place.
func TestPairsStandOnce(t *testing.T) {
	trialOf := func(also []Pair, names ...string) *trial {
		tr := &trial{plan: Plan{Also: also}}
		for _, name := range names {
			tr.runners = append(tr.runners, &runner{Arm: Arm{Name: name}, of: strings.TrimSuffix(name, placeboMark)})
		}
		return tr
	}
	for _, c := range []struct {
		also  []Pair
		names []string
		want  string
	}{
		{[]Pair{{"ours", "nginx"}}, []string{"base", "ours", "nginx", "base′"}, "[{ours base} {nginx base} {ours nginx}]"},
		{[]Pair{{"ours", "nginx"}}, []string{"nginx", "ours", "nginx′"}, "[{ours nginx}]"},
		{[]Pair{{"ours", "nginx"}}, []string{"ours", "nginx", "ours′"}, "[{ours nginx}]"},
		{[]Pair{{"ours", "nginx"}, {"nginx", "ours"}}, []string{"base", "ours", "nginx"}, "[{ours base} {nginx base} {ours nginx}]"},
	} {
		if got := fmt.Sprint(trialOf(c.also, c.names...).judged(c.names[0])); got != c.want {
			t.Errorf("%v of %v: %s, want %s", c.also, c.names, got, c.want)
		}
	}
}

func TestPlanCheck(t *testing.T) {
	good := testPlan(Arm{Name: "a"}, Arm{Name: "b"})
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Plan){
		"two arms":     func(p *Plan) { p.Arms = p.Arms[:1] },
		"names":        func(p *Plan) { p.Arms[1].Name = "a" },
		"a workload":   func(p *Plan) { p.Workloads = nil },
		"looks come":   func(p *Plan) { p.Blocks = []int{3, 3} },
		"one to":       func(p *Plan) { p.Blocks = []int{1, 2, 3, 4} },
		"too short":    func(p *Plan) { p.Slot = time.Millisecond },
		"no two such":  func(p *Plan) { p.Also = []Pair{{"a", "a"}} },
		"is not there": func(p *Plan) { p.Workloads[0].Arms = []string{"z"} },
	} {
		p := testPlan(Arm{Name: "a"}, Arm{Name: "b"})
		spoil(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSlotLength(t *testing.T) {
	plan := testPlan(Arm{Name: "a"}, Arm{Name: "b"})
	plan.Slot, plan.Warmup, plan.Blocks = time.Second, 100*time.Millisecond, []int{10}
	tr := newTrial(plan, new(record.Result), func(record.Event) {})
	if got := tr.slotLength(); got != time.Second {
		t.Errorf("without a budget: %v", got)
	}
	tr.plan.Budget = 15 * time.Second // 0.5 s for each of 30 slots
	tr.blocks, tr.spent = 1, 0
	tr.began = time.Now().Add(-1500 * time.Millisecond)
	if got := tr.slotLength(); got < 390*time.Millisecond || got > 400*time.Millisecond {
		t.Errorf("with 0.5 s for a slot and its warm-up: %v", got)
	}
	tr.plan.Blocks, tr.look = []int{10, 1000}, 2
	if again := tr.slotLength(); again != tr.length || again < 390*time.Millisecond {
		t.Errorf("after the first look windows became %v", again)
	}
	tr.plan.Budget, tr.look = time.Second, 1
	if got := tr.slotLength(); got != MinSlot {
		t.Errorf("with no time left: %v", got)
	}
}

func TestSentence(t *testing.T) {
	v := record.Verdict{
		Workload: "/", Arm: "b", Baseline: "a", Outcome: record.Better,
		Ratio: 0.69, Low: 0.67, High: 0.71, Delta: 0.01,
	}
	m := gate.MetricNamed("cpu_ns")
	for want, change := range map[string]func(*record.Verdict){
		"/: CPU time per request −31.0 % [−33.0 %, −29.0 %] for b against a: better": func(*record.Verdict) {},
		"/: CPU time per request ×2.50 [×1.90, ×3.10] for b against a: worse": func(v *record.Verdict) {
			v.Ratio, v.Low, v.High, v.Outcome = 2.5, 1.9, 3.1, record.Worse
		},
		"/: CPU time per request +0.2 % [−0.3 %, +0.7 %] for b against a: equal within ±1 %": func(v *record.Verdict) {
			v.Ratio, v.Low, v.High, v.Outcome = 1.002, 0.997, 1.007, record.Equal
		},
		"/: CPU time per request +3.0 % [−1.0 %, +7.0 %] for b against a: undecided; about 30 more blocks (2m0s) would probably decide it": func(v *record.Verdict) {
			v.Ratio, v.Low, v.High, v.Outcome, v.More, v.Minutes = 1.03, 0.99, 1.07, record.Undecided, 30, 2
		},
		"/: CPU time per request +3.0 % [−1.0 %, +7.0 %] for b against a: undecided; about 1 more block (4s) would probably decide it": func(v *record.Verdict) {
			v.Ratio, v.Low, v.High, v.Outcome, v.More, v.Minutes = 1.03, 0.99, 1.07, record.Undecided, 1, 4.0/60
		},
	} {
		v := v
		change(&v)
		if got := Sentence(v, m); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
