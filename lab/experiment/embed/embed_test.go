package embed

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

func TestLdflagsCanBeSplit(t *testing.T) {
	flags := ldflags(experiment.Site(), "abc")
	if !strings.HasPrefix(flags, "-ldflags=-X '") || !strings.Contains(flags, "-X 'main.gitHash=abc'") {
		t.Errorf("it begins with %.40q", flags)
	}
	// Two quotes for each variable, and none within: there are no escapes.
	if n := strings.Count(flags, "'"); n != 2*(len(experiment.Site())+1) {
		t.Errorf("%d quotes", n)
	}
	for _, f := range experiment.Site() {
		if !strings.Contains(flags, "-X 'main."+f.Variable+"=") {
			t.Errorf("%s is missing", f.Variable)
		}
	}
}

func TestOverlay(t *testing.T) {
	name := filepath.Join(t.TempDir(), "overlay.json")
	if err := overlay(name, "/from", "/into", []experiment.File{experiment.SizedFile(512), experiment.SizedFile(1024)}); err != nil {
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
	m := &measurement{Stage: experiment.NewStage(env, &record.Result{}), Servers: &experiment.Servers{Env: env}}
	var err error
	if m.Programs, err = m.Build(t.Context(), programs("-ldflags=", "")); err != nil {
		t.Fatal(err)
	}
	m.packed = m.Packed(t.Context(), filepath.Join(env.Work, "packed"))
	return m
}

func TestPlan(t *testing.T) {
	for _, mode := range []record.Mode{record.Quick, record.Full} {
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
	env := experiment.Env{Mode: record.Quick}
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
	res := &record.Result{
		Arms: []record.Arm{
			{Name: "nethttp-disk", Size: 8000},
			{Name: "nethttp-embed", Size: 8200},
			{Name: "nginx", Skipped: "not here"},
			{Name: "nethttp-disk′", Placebo: "nethttp-disk", Size: 8000},
		},
		Workloads: []record.Workload{{Name: "one page"}},
	}
	for block, rate := range []float64{90, 100, 500} {
		for arm, factor := range map[string]float64{"nethttp-disk": 1, "nethttp-embed": 1.5, "nethttp-disk′": 1} {
			res.Samples = append(res.Samples, record.Sample{Arm: arm, Workload: "one page", Block: block, Values: map[string]float64{
				"requests_per_second": rate * factor, "cpu_ns": 50_000 / factor,
			}})
		}
	}
	with := http.Header{"Last-Modified": {"x"}, "Content-Type": {"x"}}
	without := http.Header{"Content-Type": {"x"}, "X-More": {"x"}}
	tables := tables(res, map[string][]experiment.Probe{
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
	var samples []record.Sample
	for workload, size := range sizes {
		for arm, cost := range map[string]float64{"nethttp-disk": 50_000 + float64(size)*0.1, "nethttp-embed": 20_000 + float64(size)} {
			for _, noise := range []float64{0.9, 1, 5} {
				samples = append(samples, record.Sample{Arm: arm, Workload: workload, Values: map[string]float64{"cpu_ns": cost * noise}})
			}
		}
		samples = append(samples, record.Sample{Arm: "nginx", Workload: workload}) // its cost is unknown
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
	if !strings.Contains(table.About, "nethttp-embed is the cheaper at 0.5 KB, nethttp-disk from about 24 KB on.") {
		t.Errorf("where they cross: %s", table.About)
	}
	charts := curveCharts(series)
	if len(charts) != 2 || charts[1].Series[0].Points[0][1] != 50_051.2/512 {
		t.Errorf("%+v", charts)
	}
	if got := crossings(series, "nethttp-disk", "absent"); got != "Whether nethttp-disk and absent cross was not measured." {
		t.Error(got)
	}
	if got := crossings(series, "nethttp-disk", "nethttp-disk"); got != "There is less than 10 % between nethttp-disk and nethttp-disk at every size." {
		t.Error(got)
	}
}

// line is a line of the curve at 1, 2, 4 … KB.
func line(name string, cost ...float64) record.Series {
	s := record.Series{Name: name}
	for i, c := range cost {
		s.Points = append(s.Points, [2]float64{float64(int(1<<10) << i), c})
	}
	return s
}

// TestChanceDoesNotCross: lines that touch within what chance does have no crossing.
func TestChanceDoesNotCross(t *testing.T) {
	series := []record.Series{line("a", 100, 100, 100, 100), line("b", 95, 105, 98, 103)}
	if found, measured := stretches(series, "a", "b"); found != nil || !measured {
		t.Errorf("%v (%v)", found, measured)
	}
	series[1] = line("b", 50, 105, 95, 200) // 2 and 4 KB decide nothing
	found, _ := stretches(series, "a", "b")
	if len(found) != 2 || found[0] != (stretch{"b", 1 << 10}) || found[1].arm != "a" {
		t.Fatalf("%v", found)
	}
	if from := found[1].from; from < 2.8*1024 || from > 2.9*1024 { // the middle of 1 and 8 KB, in logarithms
		t.Errorf("they cross at %v", from)
	}
	series[1] = line("b", 50, 60, 70, 80)
	if got := crossings(series, "a", "b"); got != "Of a and b, b is the cheaper wherever they differ by 10 % or more." {
		t.Error(got)
	}
}

func TestCurveSizesAreOnesTheSeriesFinds(t *testing.T) {
	for _, mode := range []record.Mode{record.Quick, record.Full} {
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
func cpuSamples(workload string, cpu map[string]float64) (samples []record.Sample) {
	for arm, ns := range cpu {
		samples = append(samples, record.Sample{Arm: arm, Workload: workload, Values: map[string]float64{"cpu_ns": ns, "bytes_per_second": ns * 1e5}})
	}
	return samples
}

func TestAnswer(t *testing.T) {
	res := &record.Result{Samples: cpuSamples("one page", map[string]float64{
		"nethttp-disk": 52_800, "nethttp-embed": 36_000, "millrace-disk": 9500, "millrace-embed": 32_700, "nginx": 15_000, "millrace-packed": 9600,
	})}
	if got := answer(res, nil); got != "" {
		t.Errorf("without a verdict: %s", got)
	}
	page := record.Verdict{
		Workload: "one page", Metric: "requests_per_second", Arm: "nethttp-embed", Baseline: "nethttp-disk",
		Outcome: record.Better, Ratio: 1.428, Low: 1.294, High: 1.494,
	}
	all := page
	all.Workload, all.Ratio, all.Low, all.High = "all", 1.179, 1.138, 1.238
	nginx := record.Verdict{
		Workload: "one page", Metric: "cpu_ns", Arm: "millrace-disk", Baseline: "nginx",
		Outcome: record.Better, Ratio: 0.633, Low: 0.62, High: 0.65,
	}
	packed := record.Verdict{
		Workload: "one page", Metric: "cpu_ns", Arm: "millrace-packed", Baseline: "millrace-disk",
		Outcome: record.Undecided, Ratio: 1.01, Low: 0.99, High: 1.02,
	}
	res.Verdicts = []record.Verdict{page, all, nginx, packed}
	const (
		figures  = "requests/s +42.8 % [+29.4 %, +49.4 %] on one page (claimed +39.5 %) and +17.9 % [+13.8 %, +23.8 %] on all seven paths (claimed +9.1 %)"
		sendfile = "; yet sendfile is not faster than every program: nginx spends 15 µs of CPU on the page, Millrace 9.50 µs (−36.7 % [−38.0 %, −35.0 %]) " +
			"and, packed into one executable, 9.60 µs"
	)
	series := []record.Series{line("nethttp-disk", 100, 100, 100, 100), line("nethttp-embed", 50, 70, 98, 200)}
	want := "net/http serves files of up to about 3 KB faster from go:embed than from disk (" + figures +
		"), and larger ones cost less from disk, where the kernel sends them (sendfile)" + sendfile
	if got := answer(res, series); got != want {
		t.Error(got)
	}
	if got := answer(res, nil); got != "net/http serves these files faster from go:embed than from disk ("+figures+")"+sendfile {
		t.Error(got)
	}
	// Where nothing was shown, nothing is said.
	res.Verdicts[1].Outcome = record.Undecided
	res.Verdicts[2].Outcome = record.Undecided
	want = "net/http with go:embed against net/http on disk: requests/s +42.8 % [+29.4 %, +49.4 %] on one page (claimed +39.5 %) and no difference shown on all seven paths " +
		"(claimed +9.1 %); nginx spends 15 µs of CPU on the page, Millrace 9.50 µs (no difference shown) and, packed into one executable, 9.60 µs"
	if got := answer(res, series); got != want {
		t.Error(got)
	}
}
