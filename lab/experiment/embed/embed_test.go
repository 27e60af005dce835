package embed

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/lab/experiment"
	"millrace/lab/experiment/fileserver"
	"millrace/lab/result"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

func TestLdflagsCanBeSplit(t *testing.T) {
	flags := ldflags(fileserver.Site(), "abc")
	if !strings.HasPrefix(flags, "-ldflags=-X '") || !strings.Contains(flags, "-X 'main.gitHash=abc'") {
		t.Errorf("it begins with %.40q", flags)
	}
	// Two quotes for each variable, and none within: there are no escapes.
	if n := strings.Count(flags, "'"); n != 2*(len(fileserver.Site())+1) {
		t.Errorf("%d quotes", n)
	}
	for _, f := range fileserver.Site() {
		if !strings.Contains(flags, "-X 'main."+f.Variable+"=") {
			t.Errorf("%s is missing", f.Variable)
		}
	}
}

func TestOverlay(t *testing.T) {
	name := filepath.Join(t.TempDir(), "overlay.json")
	if err := overlay(name, "/from", "/into", []fileserver.File{fileserver.SizedFile(512), fileserver.SizedFile(1024)}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Replace map[string]string }
	if err := json.Unmarshal(b, &got); err != nil || len(got.Replace) != 2 || got.Replace["/into/size/512.bin"] != "/from/size/512.bin" {
		t.Errorf("%s (%v)", b, err)
	}
}

// bare is a run on a machine on which nothing was built.
func bare(t *testing.T, env experiment.Env) *measurement {
	t.Helper()
	env.Work = t.TempDir()
	m := &measurement{Stage: experiment.NewStage(env, &result.Result{}), Servers: &fileserver.Servers{Env: env}}
	var err error
	if m.Programs, err = m.Build(t.Context(), []experiment.Program{{Name: "nethttp-embed"}}); err != nil {
		t.Fatal(err)
	}
	m.packed = m.Packed(t.Context(), filepath.Join(env.Work, "packed"))
	return m
}

func TestPlan(t *testing.T) {
	for _, mode := range []result.Mode{result.Quick, result.Full} {
		env := experiment.Env{Mode: mode, Millrace: "/opt/millrace"}
		arms := bare(t, env).arms(t.Context())
		plan := newPlan(arms, env)
		if err := plan.Check(); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if plan.Arms[0].Name != "nethttp-disk" {
			t.Errorf("%s: the baseline is %s", mode, plan.Arms[0].Name)
		}
		if plan.Differ != "" {
			t.Errorf("%s: bodies may differ", mode)
		}
		for _, w := range plan.Workloads {
			if w.Load.Connections != 1000 || len(w.Load.Paths) == 0 {
				t.Errorf("%s: %s: %+v", mode, w.Name, w.Load)
			}
			claim, ok := claims()[w.Name]
			if !ok {
				t.Errorf("nothing is claimed about %s", w.Name)
			}
			for arm := range claim {
				if !slices.ContainsFunc(arms, func(a trial.Arm) bool { return a.Name == arm }) {
					t.Errorf("claimed of %s, which is not an arm", arm)
				}
			}
		}
	}
}

func TestArmsThatCannotRunSayWhy(t *testing.T) {
	env := experiment.Env{Mode: result.Quick}
	for _, a := range bare(t, env).arms(t.Context()) {
		if a.Skipped == "" {
			t.Errorf("%s can run without a checkout and without millrace", a.Name)
		}
	}
	env.Bench = &subject.Bench{Dir: t.TempDir()}
	for _, a := range bare(t, env).arms(t.Context()) {
		if a.Name == "nethttp-embed" && !strings.Contains(a.Skipped, "there is no folder of this name") {
			t.Errorf("skipped with %q", a.Skipped)
		}
	}
}

func TestTables(t *testing.T) {
	res := &result.Result{
		Arms: []result.Arm{
			{Name: "nethttp-disk", Size: 8000},
			{Name: "nethttp-embed", Size: 8200},
			{Name: "nginx", Skipped: "not here"},
			{Name: "nethttp-disk′", Placebo: "nethttp-disk", Size: 8000},
		},
		Workloads: []result.Workload{{Name: "one page"}},
	}
	for block, rate := range []float64{90, 100, 500} {
		for arm, factor := range map[string]float64{"nethttp-disk": 1, "nethttp-embed": 1.5, "nethttp-disk′": 1} {
			res.Samples = append(res.Samples, result.Sample{Arm: arm, Workload: "one page", Block: block, Values: map[string]float64{
				"requests_per_second": rate * factor, "cpu_ns": 50_000 / factor,
			}})
		}
	}
	with := http.Header{"Last-Modified": {"x"}, "Content-Type": {"x"}}
	without := http.Header{"Content-Type": {"x"}, "X-More": {"x"}}
	tables := tables(res, map[string][]fileserver.Probe{
		"nethttp-disk":  {{Path: "/", Header: with, Head: 200, Body: 501}, {Path: "/b", Header: with, Head: 200, Body: 10}},
		"nethttp-embed": {{Path: "/", Header: without, Head: 150, Body: 501}, {Path: "/b", Header: with, Head: 150, Body: 10}},
	})
	want := [][][]string{
		{
			{"one page", "nethttp-disk", "83519", "100", "50.0"},
			{"one page", "nethttp-embed", "116485 (+39.5 %)", "150 (+50.0 %)", "33.3 (−33.3 %)"},
		},
		{{"nethttp-disk", "8000", "+0.0 %"}, {"nethttp-embed", "8200", "+2.5 %"}},
		{{"nethttp-disk", "200", "501", "701", "400", "511", "911"}, {"nethttp-embed", "150", "501", "651", "300", "511", "811"}},
		{{"nethttp-embed", "Last-Modified", "X-More", "–", "–"}},
	}
	for i, table := range tables {
		if !slices.EqualFunc(table.Rows, want[i], slices.Equal[[]string]) {
			t.Errorf("%s: %q, not %q", table.Title, table.Rows, want[i])
		}
		for _, row := range table.Rows {
			if len(row) != len(table.Columns) {
				t.Errorf("%s: %d cells in %d columns", table.Title, len(row), len(table.Columns))
			}
		}
	}
}

func TestCurve(t *testing.T) {
	sizes := map[string]int{"0.5 KB": 512, "8 KB": 8 << 10, "128 KB": 128 << 10}
	var samples []result.Sample
	for workload, size := range sizes {
		for arm, cost := range map[string]float64{"nethttp-disk": 50_000 + float64(size)*0.1, "nethttp-embed": 20_000 + float64(size)} {
			for _, noise := range []float64{0.9, 1, 5} {
				samples = append(samples, result.Sample{Arm: arm, Workload: workload, Values: map[string]float64{"cpu_ns": cost * noise}})
			}
		}
		samples = append(samples, result.Sample{Arm: "nginx", Workload: workload}) // its cost is unknown
	}
	arms := []trial.Arm{{Name: "nethttp-disk"}, {Name: "nethttp-embed"}, {Name: "nginx"}}
	series := curveSeries(samples, arms, sizes)
	if len(series) != 2 || len(series[0].Points) != 3 || series[0].Points[0] != [2]float64{512, 50_051.2} {
		t.Fatalf("%+v", series)
	}
	table := curveTable(series, []int{512, 8 << 10, 128 << 10, 1 << 20})
	if got := table.Rows[3]; !slices.Equal(got, []string{"1 MB", "–", "–"}) {
		t.Errorf("the size that was not measured: %q", got)
	}
	if got := table.Rows[0]; !slices.Equal(got, []string{"0.5 KB", "50.1", "20.5"}) {
		t.Errorf("0.5 KB: %q", got)
	}
	if !strings.Contains(table.About, "At 0.5 KB nethttp-embed is the cheaper") || !strings.Contains(table.About, "KB on nethttp-disk is") {
		t.Errorf("where they cross: %s", table.About)
	}
	charts := curveCharts(series)
	if len(charts) != 2 || charts[1].Series[0].Points[0][1] != 50_051.2/512 {
		t.Errorf("%+v", charts)
	}
	if got := crossover(series, "nethttp-disk", "absent"); got != "Whether nethttp-disk and absent cross was not measured." {
		t.Error(got)
	}
	if got := crossover(series, "nethttp-disk", "nethttp-disk"); !strings.Contains(got, "does not change") {
		t.Error(got)
	}
}

func TestCurveSizesAreOnesTheSeriesFinds(t *testing.T) {
	for _, mode := range []result.Mode{result.Quick, result.Full} {
		names := map[string]bool{}
		for _, size := range curveSizes(mode) {
			if size&(size-1) != 0 || size < 512 || size > 1<<20 {
				t.Errorf("%d", size)
			}
			names[sizeName(size)] = true
		}
		if len(names) != len(curveSizes(mode)) {
			t.Errorf("two sizes have one name: %v", names)
		}
	}
}

// cpuSamples are one block of CPU time per request on a workload.
func cpuSamples(workload string, cpu map[string]float64) (samples []result.Sample) {
	for arm, ns := range cpu {
		samples = append(samples, result.Sample{Arm: arm, Workload: workload, Values: map[string]float64{"cpu_ns": ns, "bytes_per_second": ns * 1e5}})
	}
	return samples
}

func TestAnswer(t *testing.T) {
	res := &result.Result{Samples: cpuSamples("one page", map[string]float64{
		"nethttp-disk": 52_800, "nethttp-embed": 36_000, "millrace-disk": 9500, "millrace-embed": 32_700, "nginx": 15_000, "millrace-packed": 9600,
	})}
	if got := answer(res); !strings.HasPrefix(got, "millrace from disk spends 9.50 µs and nginx 15 µs") {
		t.Errorf("without a verdict: %s", got)
	}
	res.Verdicts = []result.Verdict{
		{Workload: "one page", Metric: "cpu_ns", Arm: "nethttp-embed", Baseline: "nethttp-disk", Outcome: result.Better, Ratio: 0.672, Low: 0.65, High: 0.69},
		{Workload: "one page", Metric: "cpu_ns", Arm: "millrace-packed", Baseline: "millrace-disk", Outcome: result.Equal, Ratio: 1.001, Delta: 0.01},
		{Workload: "one page", Metric: "requests_per_second", Arm: "nethttp-embed", Baseline: "nethttp-disk", Outcome: result.Undecided, Ratio: 1.4},
	}
	want := "net/http spends 36 µs of CPU on a page from the executable and 52.8 µs on one from disk (−32.8 % [−35.0 %, −31.0 %]; requests/s: no difference shown, claimed +39.5 %); " +
		"millrace from disk spends 9.50 µs and nginx 15 µs, and the same site packed into its executable 9.60 µs (equal within ±1 %): less than net/http from its executable, so it is the way of serving that matters, not the place of the bytes"
	if got := answer(res); got != want {
		t.Error(got)
	}
}
