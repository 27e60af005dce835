package images

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/pgo"
	"millrace/lab/record"
)

// controlled is a result whose kernel time moves by a factor in the PGO arm;
// noise is the spread of single blocks.
func controlled(factor, noise float64) *record.Result {
	res := &record.Result{Workloads: []record.Workload{{Name: slowLane}}, Seed: 1}
	for block := range 12 {
		wobble := 1 + noise*float64(block%3-1)
		for arm, cpu := range map[string]float64{withoutProfile: 1000, withoutProfile + "′": 1000 / wobble, withProfile: 1000 * factor * wobble} {
			res.Samples = append(res.Samples, record.Sample{
				Arm: arm, Workload: slowLane, Block: block, Restart: block,
				Values: map[string]float64{"cpu_ns": cpu, kernelShare: 0.5},
			})
		}
	}
	return res
}

// TestKernelGates: a move beyond the band fails, noise does not pass silently.
func TestKernelGates(t *testing.T) {
	for name, c := range map[string]struct {
		res  *record.Result
		mode record.Mode
		want record.GateStatus
		says string
	}{
		"equal":             {controlled(1, 0.01), record.Full, record.Passed, "±0.0 %"},
		"within":            {controlled(1.03, 0.01), record.Full, record.Passed, "+3.0 %"},
		"beyond":            {controlled(1.2, 0.01), record.Full, record.Failed, "+20.0 %"},
		"less":              {controlled(0.8, 0.01), record.Full, record.Failed, "−20.0 %"},
		"quick is wider":    {controlled(1.08, 0.01), record.Quick, record.Passed, "±10 %"},
		"full is not":       {controlled(1.08, 0.01), record.Full, record.Failed, "±5 %"},
		"noisy":             {controlled(1, 0.6), record.Full, record.Unknown, "too noisy"},
		"placebo beside it": {controlled(1, 0.01), record.Full, record.Passed, "placebo"},
	} {
		gates := kernelGates(c.res, c.mode)
		if len(gates) != 1 || gates[0].Status != c.want || !strings.Contains(gates[0].Detail+gates[0].Limit, c.says) {
			t.Errorf("%s: %+v, want %s with %q", name, gates, c.want, c.says)
		}
	}
	blind := controlled(1, 0)
	for _, s := range blind.Samples {
		delete(s.Values, kernelShare)
	}
	if gates := kernelGates(blind, record.Full); gates[0].Status != record.Unknown {
		t.Errorf("without a division into user and kernel: %+v", gates)
	}
}

// TestKeepOrNot: what becomes of a profile, for each thing that may be found.
func TestKeepOrNot(t *testing.T) {
	verdict := func(w, metric string, o record.Outcome) record.Verdict {
		return record.Verdict{Workload: w, Metric: metric, Arm: withProfile, Outcome: o}
	}
	better, worse := verdict(slowLane, "cpu_ns", record.Better), verdict(fastLane, "cpu_ns", record.Worse)
	equal := verdict(fastLane, "cpu_ns", record.Equal)
	rate := verdict(slowLane, "requests_per_second", record.Better)
	placebo := better
	placebo.Arm = withoutProfile + "′"
	same := idleMemory{10_000, [2][]float64{{100, 102}, {101, 103}}}
	more := idleMemory{10_000, [2][]float64{{100, 102}, {107, 108}}}
	mixed := idleMemory{10_000, [2][]float64{{100, 120}, {107, 130}}}
	for name, c := range map[string]struct {
		verdicts []record.Verdict
		gates    []record.Gate
		memory   idleMemory
		want     string
	}{
		"gain":                    {[]record.Verdict{better, equal}, nil, same, "worth keeping"},
		"gain here, loss there":   {[]record.Verdict{better, worse}, nil, same, "should not be kept: it is slower"},
		"loss":                    {[]record.Verdict{worse}, nil, same, "should not be kept: it is slower"},
		"nothing":                 {[]record.Verdict{equal}, nil, same, "no gain was shown"},
		"only the rate":           {[]record.Verdict{rate}, nil, same, "no gain was shown"},
		"only the placebo":        {[]record.Verdict{placebo}, nil, same, "no gain was shown"},
		"gain for memory":         {[]record.Verdict{better}, nil, more, "should not be kept: idle connections need 6.4 % more"},
		"memory overlaps":         {[]record.Verdict{better}, nil, mixed, "within what two runs of one build differ"},
		"memory unknown":          {[]record.Verdict{better}, nil, idleMemory{}, "not known"},
		"void":                    {[]record.Verdict{better}, []record.Gate{{Status: record.Failed}}, same, "nothing is known"},
		"a check could not look":  {[]record.Verdict{better}, []record.Gate{{Status: record.Unknown}}, same, "worth keeping"},
		"worse beats more memory": {[]record.Verdict{worse}, nil, more, "slower"},
	} {
		got := keepOrNot(&record.Result{Verdicts: c.verdicts, Gates: c.gates}, c.memory)
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestProofPrepare: what cannot be compared is refused before anything runs.
func TestProofPrepare(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		p    Proof
		is   error
		says string
	}{
		"no source":        {Proof{}, errNoCheckout, ""},
		"one executable":   {Proof{Without: self}, nil, "two executables"},
		"none there":       {Proof{Without: text + "x", With: self}, os.ErrNotExist, "plain"},
		"no program":       {Proof{Without: text, With: self}, nil, "build information"},
		"without profiles": {Proof{Without: self, With: self}, pgo.ErrNoProof, filepath.Base(self)},
	} {
		err := newProof(experiment.Env{Work: t.TempDir()}, c.p, &record.Result{}).prepare(t.Context(), &record.Result{})
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProofPlan: both plans are valid, for millrace and for any program.
func TestProofPlan(t *testing.T) {
	for _, mode := range []record.Mode{record.Quick, record.Full} {
		for workloads, args := range map[int][]string{3: nil, 1: {"-listen", "127.0.0.1:{port}"}} {
			p := newProof(experiment.Env{Mode: mode, Work: t.TempDir()}, Proof{Args: args}, &record.Result{})
			p.arms = [2]proofArm{{name: withoutProfile, exe: "a"}, {name: withProfile, exe: "b"}}
			plan := p.plan()
			if err := plan.Check(); err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			if len(plan.Workloads) != workloads || plan.Arms[0].Name != withoutProfile {
				t.Errorf("%s: %+v", mode, plan)
			}
		}
	}
}

// TestProveSays: even where it fails at once, the result says what was asked.
func TestProveSays(t *testing.T) {
	res, err := Prove(t.Context(), experiment.Env{Work: t.TempDir(), Mode: record.Quick}, Proof{})
	if !errors.Is(err, errNoCheckout) || res == nil || res.Kind != record.KindPGO || res.Ended.IsZero() || res.Interrupted == "" ||
		res.Question == "" || res.Claim == "" || res.Rule == "" {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestOpenIdle: every connection is open and was answered; one that is not
// answered is an error that counts.
func TestOpenIdle(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	conns, err := openIdle(t.Context(), s.Listener.Addr().String(), "/", 20)
	if err != nil || len(conns) != 20 {
		t.Errorf("%d connections, %v", len(conns), err)
	}
	closeAll(conns)
	mute := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	}))
	defer mute.Close()
	conns, err = openIdle(t.Context(), mute.Listener.Addr().String(), "/", 3)
	if err == nil || !strings.Contains(err.Error(), "connection 1") {
		t.Errorf("%v", err)
	}
	closeAll(conns)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conns, err := openIdle(ctx, s.Listener.Addr().String(), "/", 3); err == nil {
		closeAll(conns)
		t.Error("opened after the end")
	}
}

// cpuSamples are one block of CPU time per request on a workload.
func cpuSamples(workload string, cpu map[string]float64) (samples []record.Sample) {
	for arm, ns := range cpu {
		samples = append(samples, record.Sample{Arm: arm, Workload: workload, Values: map[string]float64{"cpu_ns": ns, "bytes_per_second": ns * 1e5}})
	}
	return samples
}

func TestPGOAnswer(t *testing.T) {
	res := &record.Result{
		Workloads: []record.Workload{{Name: fastLane}, {Name: slowLane}},
		Samples:   append(cpuSamples(fastLane, map[string]float64{withoutProfile: 10_000, withProfile: 9000}), cpuSamples(slowLane, nil)...),
		Verdicts: []record.Verdict{
			{Workload: fastLane, Metric: "cpu_ns", Arm: withProfile, Baseline: withoutProfile, Outcome: record.Better, Ratio: 0.9},
			{Workload: slowLane, Metric: "cpu_ns", Arm: withProfile, Baseline: withoutProfile, Outcome: record.Equal, Ratio: 1, Delta: 0.01},
		},
	}
	want := `CPU time per request with the profile: −10.0 % on the workload "fast lane" and equal within ±1 % on the workload "slow lane"; `
	if got := gains(res); got != want {
		t.Error(got)
	}
	table := newProof(experiment.Env{}, Proof{}, res).compared(res)
	if got := strings.Join(table.Rows[2], "|"); len(table.Rows) != 4 || got != "measured|CPU time per request, fast lane|10 µs|9 µs|−10.0 %, better" {
		t.Errorf("%d rows, %s", len(table.Rows), got)
	}
}
