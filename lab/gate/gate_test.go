package gate

import (
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/lab/load"
	"millrace/lab/record"
)

// good is a slot that passes every gate: 50 connections, 10,000 requests/s of 5 ms.
func good() Slot {
	return Slot{
		Arm: "nginx", Workload: "index", Seconds: 2, Requests: 20000, Sent: 20000,
		Rate: 10000, MeanLatency: 5 * time.Millisecond, Connections: 50, InFlight: 50,
		GeneratorCPU: 0.4, Threads: 1, Steal: 0,
	}
}

// open is good in an open loop.
func open() Slot {
	s := good()
	s.OpenLoop, s.InFlight, s.MeanLatency = true, 10, time.Millisecond
	return s
}

func with(s Slot, change func(*Slot)) Slot {
	change(&s)
	return s
}

// check is one gate's judgement, by name.
func check(t *testing.T, name string, limits Limits, slots ...Slot) record.Gate {
	t.Helper()
	gates := Check(slots, limits)
	i := slices.IndexFunc(gates, func(g record.Gate) bool { return g.Name == name })
	if i < 0 {
		t.Fatalf("no gate %q in %v", name, gates)
	}
	if gates[i].Limit == "" || gates[i].Detail == "" {
		t.Errorf("%s says nothing: %+v", name, gates[i])
	}
	return gates[i]
}

func TestGatesHaveAnOrder(t *testing.T) {
	want := []string{nameErrors, nameLittle, nameGenerator, nameLate, nameSteal, nameOthers}
	for _, slots := range [][]Slot{nil, {good()}, {open(), good()}} {
		var got []string
		for _, g := range Check(slots, Limits{}) {
			got = append(got, g.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	for _, g := range Check(nil, Limits{}) {
		if g.Status != record.Unknown {
			t.Errorf("%s of nothing: %s", g.Name, g.Status)
		}
	}
	for _, g := range Check([]Slot{good(), open()}, Limits{}) {
		if g.Status != record.Passed {
			t.Errorf("%s of good slots: %s: %s", g.Name, g.Status, g.Detail)
		}
	}
}

func TestGates(t *testing.T) {
	for _, c := range []struct {
		name   string
		gate   string
		limits Limits
		slots  []Slot
		want   record.GateStatus
		detail string // part of it
	}{
		{"no errors", nameErrors, Limits{}, []Slot{good()}, record.Passed, "none of 20000"},
		{"few errors", nameErrors, Limits{}, []Slot{with(good(), func(s *Slot) { s.Errors = 20 })}, record.Passed, "0.0999 %"},
		{"many errors", nameErrors, Limits{}, []Slot{with(good(), func(s *Slot) { s.Errors, s.FirstError = 21, "reset" })}, record.Failed, "nginx on index: 0.105 % of 20021 requests: 0 not 2xx, 0 not as expected, 21 not answered, first: reset"},
		{"many 404", nameErrors, Limits{}, []Slot{with(good(), func(s *Slot) { s.Non2xx = 20000 })}, record.Failed, "100 %"},
		{"unexpected answers", nameErrors, Limits{}, []Slot{with(good(), func(s *Slot) { s.Unexpected = 21 })}, record.Failed, "21 not as expected"},
		{"half of them, of one target alone", nameErrors, Limits{Single: true}, []Slot{with(good(), func(s *Slot) { s.Unexpected, s.Non2xx = 6000, 4000 })}, record.Doubtful, "50 %"},
		{"all of them, of one target alone", nameErrors, Limits{Single: true}, []Slot{with(good(), func(s *Slot) { s.Non2xx = 20000 })}, record.Failed, "100 %"},
		{"errors that were asked for", nameErrors, Limits{FailuresOn: map[string]float64{"index": 0.1}}, []Slot{with(good(), func(s *Slot) { s.Non2xx = 1000 })}, record.Passed, "5 %"},
		{"errors that were asked for elsewhere", nameErrors, Limits{FailuresOn: map[string]float64{"dying": 0.1}}, []Slot{with(good(), func(s *Slot) { s.Non2xx = 1000 })}, record.Failed, "5 %"},
		{"no answer at all", nameErrors, Limits{}, []Slot{{Arm: "dead"}}, record.Failed, "dead: no answer at all"},
		{"a failed slot is named", nameErrors, Limits{}, []Slot{good(), with(good(), func(s *Slot) { s.Block, s.Non2xx = 7, 10000 })}, record.Failed, "(block 7: 50 %"},

		{"as many as counted", nameLittle, Limits{}, []Slot{good()}, record.Passed, "= 50, against 50 in flight (+0.0 %)"},
		{"a connection for each request", nameLittle, Limits{}, []Slot{with(good(), func(s *Slot) { s.InFlight, s.MeanLatency = 10, time.Millisecond })}, record.Passed, "= 10, against 10 in flight (+0.0 %)"},
		{"some that hang", nameLittle, Limits{}, []Slot{with(good(), func(s *Slot) { s.MeanLatency, s.Rest = 3*time.Millisecond, 20 })}, record.Passed, "= 30, +20 of requests that were lost, not as expected, or at the edges of the window, against 50 in flight (+0.0 %)"},
		{"within the tolerance", nameLittle, Limits{}, []Slot{with(good(), func(s *Slot) { s.MeanLatency = 4910 * time.Microsecond })}, record.Passed, "-1.8 %"},
		{"fewer than were counted", nameLittle, Limits{}, []Slot{with(good(), func(s *Slot) { s.MeanLatency = 4400 * time.Microsecond })}, record.Failed, "10000/s × 4.4ms = 44, against 50 in flight (-12.0 %)"},
		{"more than were counted", nameLittle, Limits{}, []Slot{with(good(), func(s *Slot) { s.MeanLatency = 6 * time.Millisecond })}, record.Failed, "+20.0 %"},
		{"open loop, as counted", nameLittle, Limits{}, []Slot{open()}, record.Passed, "10 in flight"},
		{"not counted", nameLittle, Limits{}, []Slot{with(open(), func(s *Slot) { s.InFlight = 0 })}, record.Unknown, "nginx on index"},

		{"a generator with time left", nameGenerator, Limits{}, []Slot{good()}, record.Passed, "40 %"},
		{"a generator that shares a core", nameGenerator, Limits{}, []Slot{with(good(), func(s *Slot) { s.GeneratorCPU = 0.94 })}, record.Passed, "94 %"},
		{"a generator that never waits", nameGenerator, Limits{}, []Slot{with(good(), func(s *Slot) { s.GeneratorCPU = 0.97 })}, record.Failed, "its thread was busy for 97 %"},
		{"a generator that never waits for one target alone", nameGenerator, Limits{Single: true}, []Slot{with(good(), func(s *Slot) { s.GeneratorCPU = 0.97 })}, record.Doubtful, "could answer more than it was asked"},
		{"a generator in one slot of many", nameGenerator, Limits{}, []Slot{good(), good(), with(good(), func(s *Slot) { s.Block, s.GeneratorCPU = 3, 0.99 })}, record.Passed, "(block 3: its thread was busy for 99 %"},
		{"a generator nobody watched", nameGenerator, Limits{}, []Slot{with(good(), func(s *Slot) { s.GeneratorCPU = -1 })}, record.Unknown, "not known"},

		{"a task has no generator", nameGenerator, Limits{}, []Slot{{Arm: "a", Task: true, Requests: 1}}, record.Passed, "nothing was put under load"},
		{"a task has no rate", nameLittle, Limits{}, []Slot{{Arm: "a", Task: true, Requests: 1}}, record.Passed, "nothing was put under load"},

		{"a closed loop is never late", nameLate, Limits{}, []Slot{with(good(), func(s *Slot) { s.Late = 20000 })}, record.Passed, "closed loop"},
		{"in time", nameLate, Limits{}, []Slot{with(open(), func(s *Slot) { s.Late = 200 })}, record.Passed, "200 of 20000 sends late (1 %)"},
		{"late", nameLate, Limits{}, []Slot{with(open(), func(s *Slot) { s.Late = 201 })}, record.Doubtful, "% of latencies that are longest are the generator's"},
		{"late by half", nameLate, Limits{}, []Slot{with(open(), func(s *Slot) { s.Late = 10001 })}, record.Failed, "(50 %)"},
		{"never sent", nameLate, Limits{}, []Slot{with(open(), func(s *Slot) { s.Dropped = 900 })}, record.Passed, "900 due but never sent"},
		{"nothing sent", nameLate, Limits{}, []Slot{with(open(), func(s *Slot) { s.Sent = 0 })}, record.Unknown, "nothing was sent"},

		{"no steal", nameSteal, Limits{}, []Slot{good()}, record.Passed, "0 % stolen"},
		{"little steal", nameSteal, Limits{}, []Slot{with(good(), func(s *Slot) { s.Steal = 0.05 })}, record.Passed, "5 % stolen"},
		{"steal", nameSteal, Limits{}, []Slot{with(good(), func(s *Slot) { s.Steal = 0.06 })}, record.Doubtful, "worse than this machine's own"},
		{"steal of a quarter", nameSteal, Limits{}, []Slot{with(good(), func(s *Slot) { s.Steal = 0.26 })}, record.Failed, "26 % stolen"},
		{"steal from all arms alike", nameSteal, Limits{}, []Slot{with(good(), func(s *Slot) { s.Steal = 0.16 }), with(good(), func(s *Slot) { s.Arm, s.Steal = "b", 0.12 })}, record.Doubtful, "at most 4.0 points apart), so that ratios within blocks hold"},
		{"late, and who had the CPU", nameLate, Limits{}, []Slot{with(open(), func(s *Slot) { s.Late, s.Takers = 2000, "of 2 cores had, on average: python3 (7) 1.80" })}, record.Doubtful, "python3 (7) 1.80"},
		{"steal from one arm", nameSteal, Limits{}, []Slot{with(good(), func(s *Slot) { s.Steal = 0.16 }), with(good(), func(s *Slot) { s.Arm, s.Steal = "b", 0.06 })}, record.Failed, "16 % stolen"},
		{"steal in one short slot", nameSteal, Limits{}, []Slot{good(), with(good(), func(s *Slot) { s.Seconds, s.Steal = 0.2, 0.3 })}, record.Passed, "2.73 % stolen (block 0: 30 % stolen)"},
		{"unreadable steal", nameSteal, Limits{}, []Slot{with(good(), func(s *Slot) { s.Steal = -1 })}, record.Unknown, "cannot be read"},
		{"steal without a figure", nameSteal, Limits{}, []Slot{with(good(), func(s *Slot) { s.Steal = math.NaN() })}, record.Unknown, "cannot be read"},
		{"steal of one arm unreadable, of another too much", nameSteal, Limits{}, []Slot{with(good(), func(s *Slot) { s.Steal = -1 }), with(good(), func(s *Slot) { s.Arm, s.Steal = "b", 0.5 })}, record.Failed, "b on index: 50 %"},
		{"steal of one arm unreadable", nameSteal, Limits{}, []Slot{with(good(), func(s *Slot) { s.Steal = -1 }), with(good(), func(s *Slot) { s.Arm = "b" })}, record.Unknown, "nginx on index; furthest out of the others: b on index"},
		{"nobody else", nameOthers, Limits{}, []Slot{good()}, record.Passed, "0 % used by other programs"},
		{"somebody else", nameOthers, Limits{}, []Slot{with(good(), func(s *Slot) { s.Others, s.Takers = 0.3, "of 2 cores had, on average: gcc 0.60" })}, record.Doubtful, "30 % used by other programs; of 2 cores had, on average: gcc 0.60"},
		{"somebody else beside one block", nameOthers, Limits{}, []Slot{good(), with(good(), func(s *Slot) { s.Block, s.Others, s.Takers = 1, 0.3, "gcc" })}, record.Doubtful, "30 % used by other programs in block 1, the worst; gcc"},
		{"nobody looked", nameOthers, Limits{}, []Slot{with(good(), func(s *Slot) { s.Others = -1 })}, record.Unknown, "cannot be read"},
		{"another limit", nameSteal, Limits{Steal: 0.6}, []Slot{with(good(), func(s *Slot) { s.Steal = 0.5 })}, record.Passed, "50 %"},
	} {
		got := check(t, c.gate, c.limits, c.slots...)
		if got.Status != c.want || !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s: %s: %s; want %s: …%s…", c.name, got.Status, got.Detail, c.want, c.detail)
		}
	}
}

func TestDetailIsBounded(t *testing.T) {
	var slots []Slot
	for i := range 100 {
		slots = append(slots, with(good(), func(s *Slot) { s.Arm, s.Steal = strings.Repeat("x", 1+i), 1 }))
	}
	got := check(t, nameSteal, Limits{}, slots...)
	if !strings.HasSuffix(got.Detail, "; and 95 more") {
		t.Errorf("a hundred failed arms: %s", got.Detail)
	}
}

func TestFromLoad(t *testing.T) {
	res := load.Result{
		Path: "epoll", Took: 2 * time.Second, Requests: 1000,
		Status:     map[int]uint64{200: 800, 101: 50, 204: 50, 304: 40, 404: 60},
		Errors:     load.Errors{Connect: 1, Closed: 2, Timeout: 3, Protocol: 4, Unexpected: 5, First: "refused"},
		Unanswered: 6, Late: 7, Dropped: 8, InFlight: 9, Non2xx: 100, Rest: time.Second, CPU: 1500 * time.Millisecond,
	}
	for range 900 {
		res.Service.Record(time.Millisecond)
		res.Latency.Record(time.Second) // in an open loop: with the wait
	}
	cfg := load.Config{Connections: 10, Streams: 3, Threads: 2, Arrival: load.Constant}
	want := Slot{
		Arm: "a", Workload: "w", Block: 4, Seconds: 2, Requests: 1000, Non2xx: 100, Unexpected: 5, Errors: 10, FirstError: "refused",
		Rate: 450, MeanLatency: res.Service.Mean(), Connections: 30, InFlight: 9, Rest: 0.5,
		OpenLoop: true, Sent: 1015, Late: 7, Dropped: 8, GeneratorCPU: 0.375, Threads: 2, Steal: 0.25, Others: 0.125,
	}
	if diff := cmp.Diff(want, FromLoad(Slot{Arm: "a", Workload: "w", Block: 4, Steal: 0.25, Others: 0.125}, cfg, &res)); diff != "" {
		t.Error(diff)
	}
	if got := want.MeanLatency; got < 990*time.Microsecond || got > 1010*time.Microsecond {
		t.Errorf("mean %v, want 1 ms", got)
	}

	s := FromLoad(Slot{Arm: "a", Workload: "w", Steal: -1, Others: -1}, load.Config{}, &load.Result{Path: "epoll"})
	if s.Connections != 50 || s.Threads != 1 || s.GeneratorCPU >= 0 || s.OpenLoop || s.Steal != -1 || s.Rate != 0 {
		t.Errorf("an empty load makes %+v", s)
	}
	if got := FromLoad(Slot{Arm: "a", Workload: "w"}, load.Config{Connections: 19000}, &load.Result{Path: "epoll"}).Threads; got != min(2, runtime.GOMAXPROCS(0)) {
		t.Errorf("%d threads for 19,000 connections", got)
	}
	if got := FromLoad(Slot{Arm: "a", Workload: "w"}, load.Config{}, &load.Result{Path: "goroutines"}).Threads; got != runtime.GOMAXPROCS(0) {
		t.Errorf("%d threads for goroutines", got)
	}
}

// What a real load counts agrees with what the gates make of it: no errors, and
// Little's law within its limit.
func TestRealLoadObeysTheGates(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(2 * time.Millisecond) // so that the target, not this machine, sets the pace
	}))
	defer s.Close()
	cfg := load.Config{URL: s.URL, Connections: 4, Requests: 400, Duration: 5 * time.Second}
	res, err := load.Run(t.Context(), cfg)
	if err != nil {
		t.Skipf("no load here: %v", err)
	}
	slot := FromLoad(Slot{Arm: "a", Workload: "w"}, cfg, res)
	if got := check(t, nameErrors, Limits{}, slot); got.Status != record.Passed {
		t.Errorf("%s: %s", got.Status, got.Detail)
	}
	if got := check(t, nameLittle, Limits{}, slot); got.Status != record.Passed {
		t.Errorf("%s: %s", got.Status, got.Detail)
	}
}

func TestPlacebo(t *testing.T) {
	verdict := func(o record.Outcome, high float64) record.Verdict {
		return record.Verdict{Arm: "nginx′", Baseline: "nginx", Workload: "index", Metric: "cpu", Outcome: o, Ratio: 1.001, Low: 0.99, High: high, P: 0.5}
	}
	for _, c := range []struct {
		name     string
		verdicts []record.Verdict
		want     record.GateStatus
		detail   string
	}{
		{"none", nil, record.Unknown, "no placebo"},
		{"equal", []record.Verdict{verdict(record.Equal, 1.005)}, record.Passed, "1 equal, 0 undecided"},
		{"undecided", []record.Verdict{verdict(record.Equal, 1.005), verdict(record.Undecided, 1.2)}, record.Passed, "1 equal, 1 undecided; furthest out: cpu of nginx′ on index ÷ nginx is 1.0010 [0.9900, 1.2000], p 0.5"},
		{"worse", []record.Verdict{verdict(record.Equal, 1.005), verdict(record.Worse, 1.2)}, record.Failed, "[0.9900, 1.2000], p 0.5: worse"},
		{"better", []record.Verdict{verdict(record.Better, 1.2)}, record.Failed, "better"},
	} {
		got := Placebo(c.verdicts)
		if got.Status != c.want || !strings.Contains(got.Detail, c.detail) || got.Name != namePlacebo || got.Limit == "" {
			t.Errorf("%s: %+v; want %s: …%s…", c.name, got, c.want, c.detail)
		}
	}
}
