package proof

import (
	"compress/gzip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/pgo"
	"millrace/lab/record"
	"millrace/lab/stats"
)

// newRun is a run of the experiment in a mode.
func newRun(t *testing.T, mode record.Mode) *experiment.Run {
	t.Helper()
	spec, err := experiment.Read(name, mode)
	if err != nil {
		t.Fatal(err)
	}
	return experiment.NewRun(experiment.Env{Mode: mode, Work: t.TempDir()}, spec, &record.Result{})
}

// controlled is a result whose kernel time moves by a factor in the PGO arm;
// noise is the spread of single blocks.
func controlled(factor, noise float64) *record.Result {
	res := &record.Result{Workloads: []record.Workload{{Name: slowLane}}, Seed: 1}
	for block := range 12 {
		wobble := 1 + noise*float64(block%3-1)
		for arm, cpu := range map[string]float64{without: 1000, without + "′": 1000 / wobble, with: 1000 * factor * wobble} {
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
		res   *record.Result
		quick bool
		want  record.GateStatus
		says  string
	}{
		"equal":             {controlled(1, 0.01), false, record.Passed, "±0.0 %"},
		"within":            {controlled(1.03, 0.01), false, record.Passed, "+3.0 %"},
		"beyond":            {controlled(1.2, 0.01), false, record.Failed, "+20.0 %"},
		"less":              {controlled(0.8, 0.01), false, record.Failed, "−20.0 %"},
		"quick is wider":    {controlled(1.08, 0.01), true, record.Passed, "±10 %"},
		"full is not":       {controlled(1.08, 0.01), false, record.Failed, "±5 %"},
		"noisy":             {controlled(1, 0.6), false, record.Unknown, "too noisy"},
		"placebo beside it": {controlled(1, 0.01), false, record.Passed, "placebo"},
	} {
		gates := kernelGates(c.res, c.quick)
		if len(gates) != 1 || gates[0].Status != c.want || !strings.Contains(gates[0].Detail+gates[0].Limit, c.says) {
			t.Errorf("%s: %+v, want %s with %q", name, gates, c.want, c.says)
		}
	}
	blind := controlled(1, 0)
	for _, s := range blind.Samples {
		delete(s.Values, kernelShare)
	}
	if gates := kernelGates(blind, false); gates[0].Status != record.Unknown {
		t.Errorf("without a division into user and kernel: %+v", gates)
	}
}

// TestKeepOrNot: what becomes of a profile, for each thing that may be found.
func TestKeepOrNot(t *testing.T) {
	verdict := func(w, metric string, o record.Outcome) record.Verdict {
		return record.Verdict{Workload: w, Metric: metric, Arm: with, Outcome: o}
	}
	better, worse := verdict(slowLane, "cpu_ns", record.Better), verdict(fastLane, "cpu_ns", record.Worse)
	equal := verdict(fastLane, "cpu_ns", record.Equal)
	rate := verdict(slowLane, "requests_per_second", record.Better)
	placebo := better
	placebo.Arm = without + "′"
	same := idleMemory{10_000, [2][]float64{{100, 102}, {101, 103}}}
	more := idleMemory{10_000, [2][]float64{{100, 102}, {107, 108}}}
	mixed := idleMemory{10_000, [2][]float64{{100, 120}, {107, 130}}}
	for name, c := range map[string]struct {
		verdicts []record.Verdict
		gates    []record.Gate
		memory   idleMemory
		want     string
	}{
		"gain":                    {[]record.Verdict{better, equal}, nil, same, "is a gain on “slow lane”, no loss was shown"},
		"gain here, loss there":   {[]record.Verdict{better, worse}, nil, same, "should not be kept: it is slower"},
		"loss":                    {[]record.Verdict{worse}, nil, same, "should not be kept: it is slower"},
		"nothing":                 {[]record.Verdict{equal}, nil, same, "the profile is no gain"},
		"undecided":               {[]record.Verdict{verdict(slowLane, "cpu_ns", record.Undecided), equal}, nil, same, "is not decided here"},
		"only the rate":           {[]record.Verdict{rate}, nil, same, "the profile is no gain"},
		"only the placebo":        {[]record.Verdict{placebo}, nil, same, "the profile is no gain"},
		"gain for memory":         {[]record.Verdict{better}, nil, more, "should not be kept: idle connections need 6.4 % more"},
		"memory overlaps":         {[]record.Verdict{better}, nil, mixed, "within what two runs of one build differ"},
		"memory unknown":          {[]record.Verdict{better}, nil, idleMemory{}, "not known"},
		"void":                    {[]record.Verdict{better}, []record.Gate{{Status: record.Failed}}, same, "nothing is known about"},
		"a check could not look":  {[]record.Verdict{better}, []record.Gate{{Status: record.Unknown}}, same, "is a gain on “slow lane”, no loss was shown"},
		"worse beats more memory": {[]record.Verdict{worse}, nil, more, "slower"},
	} {
		got := keepOrNot(&record.Result{Verdicts: c.verdicts, Gates: c.gates}, c.memory)
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestPrepare: what cannot be compared is refused before anything runs.
func TestPrepare(t *testing.T) {
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
		err := newProof(newRun(t, record.Quick), c.p).prepare(t.Context())
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWorkloads: they are millrace's own, or one load for any other program; a full run
// looks as often as a verdict takes, and twice.
func TestWorkloads(t *testing.T) {
	p := newProof(newRun(t, record.Full), Proof{})
	p.workloads()
	w := p.Spec.Workloads
	if len(w) != 3 || len(w[2].Paths) != pictures || w[2].Requests != 48 || w[0].Connections != fewConnections || len(p.trialArms()) != 2 {
		t.Errorf("%+v", w)
	}
	if fewest := stats.FewestBlocks(len(p.Spec.Decide)*len(w), stats.Rule{Delta: p.Spec.Delta}); p.Spec.Blocks[0] < fewest {
		t.Errorf("the first look is after %d blocks, and a verdict takes %d", p.Spec.Blocks[0], fewest)
	}
	p = newProof(newRun(t, record.Quick), Proof{Args: []string{"-listen", "127.0.0.1:{port}"}, Paths: []string{"/a"}, Connections: 7})
	p.workloads()
	if w := p.Spec.Workloads; len(w) != 1 || w[0].Connections != 7 || w[0].Paths[0] != "/a" || p.Spec.Tables[0].Kind != "beside" {
		t.Errorf("%+v", w)
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

// TestReport: what the profile costs, and what all of that means.
func TestReport(t *testing.T) {
	p := newProof(newRun(t, record.Quick), Proof{})
	p.report()
	if len(p.Res.Tables) != 0 || p.Res.Answer != "" {
		t.Errorf("nothing was built: %+v", p.Res)
	}
	p.arms[0].size, p.arms[1].size, p.arms[1].build = 100, 103, "1 s"
	p.memory = idleMemory{2000, [2][]float64{{100, 102}, {101, 103}}}
	p.Res.Answer = "something"
	p.Res.Verdicts = []record.Verdict{{Arm: with, Workload: slowLane, Metric: "cpu_ns", Outcome: record.Undecided}}
	p.report()
	if rows := p.Res.Tables[0].Rows; len(rows) != 3 || rows[0][3] != "+3.0 %" || rows[2][3] != "+1.0 %" {
		t.Errorf("%q", rows)
	}
	if want := "something; whether the profile is a gain is not decided here"; p.Res.Answer != want || len(p.Res.Notes) != 1 {
		t.Errorf("%s, %q", p.Res.Answer, p.Res.Notes)
	}
}

// TestServe: a program that ends is told, and has no figure for quiet connections.
func TestServe(t *testing.T) {
	p := newProof(newRun(t, record.Quick), Proof{Args: []string{"{port}"}})
	if _, err := p.serve(t.Context(), "/bin/false", p.Args); err == nil || !strings.Contains(err.Error(), "it ended") {
		t.Error(err)
	}
	if m := p.idle(t.Context()); len(m.rss[0]) != 0 || len(p.Res.Notes) != 1 {
		t.Errorf("%+v, %q", m, p.Res.Notes)
	}
}

// TestCodecs: a profile says whether the encoder was at work.
func TestCodecs(t *testing.T) {
	for text, want := range map[string]bool{"a " + codecs + ".Encode b": true, "net/http": false} {
		file := filepath.Join(t.TempDir(), "profile")
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		z := gzip.NewWriter(f)
		_, err = z.Write([]byte(text))
		if err = errors.Join(err, z.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if got := hasCodecs(file); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if hasCodecs("/nowhere") {
		t.Error("no file has samples")
	}
}

// TestPictures: each is there, and they differ.
func TestPictures(t *testing.T) {
	p := newProof(newRun(t, record.Quick), Proof{})
	if err := p.writePictures(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, path := range picturePaths() {
		text, err := os.ReadFile(filepath.Join(p.folder(), path))
		if err != nil || seen[string(text)] {
			t.Errorf("%s: %v", path, err)
		}
		seen[string(text)] = true
	}
}

// TestRecordConversions: the profile of image workers has the encoder in it, also when
// it is merged.
func TestRecordConversions(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	p := newProof(newRun(t, record.Quick), Proof{})
	got, err := p.recordConversions(t.Context(), filepath.Join("..", "..", ".."), 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := pgo.Merge([]pgo.Part{{Profile: got, Weight: 1}}, pgo.MaxMerged)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "merged.pgo")
	if err := os.WriteFile(file, merged.Data, 0o600); err != nil {
		t.Fatal(err)
	}
	if !hasCodecs(file) {
		t.Error("the encoder is not in it")
	}
	if _, err := p.recordConversions(t.Context(), t.TempDir(), time.Second); err == nil {
		t.Error("where there is no source it was recorded")
	}
}
