package websocket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/report"
	"millrace/lab/stats"
)

const goodLine = `{"connections":3,"succeeded":2,"failed":1,"unclean":0,"first_error":"refused","open_ns":1000,"echo_ns":200,"close_ns":30,` +
	`"connect":[[100,1],[200,1]],"upgrade":[[300,2]],"echo":[[400,2]]}`

func TestParseLine(t *testing.T) {
	l, err := parseLine([]byte(goodLine))
	if err != nil || l.Succeeded != 2 || l.First != "refused" || len(l.Connect) != 2 {
		t.Fatalf("%+v, %v", l, err)
	}
	for name, edit := range map[string][2]string{
		"not all counted":   {`"failed":1`, `"failed":0`},
		"more than all":     {`"succeeded":2`, `"succeeded":4`},
		"none":              {`"connections":3`, `"connections":0`},
		"too many measured": {`[[300,2]]`, `[[300,4]]`},
		"negative count":    {`[[300,2]]`, `[[300,-2]]`},
		"negative time":     {`[[300,2]]`, `[[-300,2]]`},
		"negative phase":    {`"echo_ns":200`, `"echo_ns":-1`},
		"cut off":           {`"echo":[[400,2]]}`, `"echo":[[40`},
	} {
		line := strings.Replace(goodLine, edit[0], edit[1], 1)
		if line == goodLine {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, err := parseLine([]byte(line)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	long := clientLine{Connections: math.MaxInt32, Succeeded: math.MaxInt32, Echo: slices.Repeat([][2]int64{{1, 1}}, maxBuckets+1)}
	text, _ := json.Marshal(long)
	if _, err := parseLine(text); err == nil {
		t.Error("a histogram without end: accepted")
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(goodLine))
	f.Add([]byte(`{"connections":1,"failed":1}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, line []byte) {
		l, err := parseLine(line)
		if err != nil {
			return
		}
		if l.Connections > 100_000 {
			return // adding up takes as long as there are connections
		}
		r := addUp([]clientLine{l})
		if r.Succeeded+r.Failed != r.Connections || r.echo.Count() > uint64(l.Connections) {
			t.Fatalf("%+v of %s", r, line)
		}
	})
}

func TestAddUp(t *testing.T) {
	a, _ := parseLine([]byte(goodLine))
	b := a
	b.First, b.OpenNS, b.CloseNS = "later", 5000, 1
	r := addUp([]clientLine{a, b})
	if r.Connections != 6 || r.Succeeded != 4 || r.Failed != 2 || r.First != "refused" || r.connect.Count() != 4 {
		t.Errorf("%+v", r)
	}
	if want := 5000 + 200 + 30*time.Nanosecond; r.Duration != want {
		t.Errorf("took %v, want %v: each phase as long as the slowest client's", r.Duration, want)
	}
}

func finding(arm string, n, block, failed int, cpu float64) stepFinding {
	f := stepFinding{arm: arm, connections: n, block: block, cpu: cpu, rss: 20_000, spent: time.Second}
	f.report = clientsReport{Connections: n, Succeeded: n - failed, Failed: failed, Duration: time.Duration(n) * time.Microsecond}
	if failed > 0 {
		f.report.First = "connection reset by peer"
	}
	for range n - failed {
		f.report.connect.Record(time.Millisecond)
		f.report.upgrade.Record(2 * time.Millisecond)
		f.report.echo.Record(3 * time.Millisecond)
	}
	return f
}

func TestBreakingPoint(t *testing.T) {
	found := []stepFinding{
		finding("a", 100, 0, 0, 1), finding("a", 500, 1, 0, 1), finding("a", 1500, 2, 0, 1), finding("a", 2000, 3, 40, 1),
		finding("a", 100, 4, 0, 1), finding("a", 500, 5, 0, 1), finding("a", 1500, 6, 1, 1),
		finding("b", 100, 0, 0, 1),
	}
	died := finding("c", 100, 0, 0, 1)
	died.died = "it ended (exit status 2)\nfatal error"
	found = append(found, died)
	for arm, want := range map[string]struct {
		at  int
		why string
	}{"a": {1500, "connection reset by peer"}, "b": {0, ""}, "c": {100, died.died}} {
		at, why := breakingPoint(stepsOf(found, arm))
		if at != want.at || why != want.why {
			t.Errorf("%s breaks at %d (%s), want %d (%s)", arm, at, why, want.at, want.why)
		}
	}
	table := breakingTable([]*echoServer{{name: "a"}, {name: "b"}, {name: "c"}, {name: "never measured"}}, found)
	want := [][]string{
		{"a", "1500", "2000", "2", "connection reset by peer"},
		{"b", "nowhere", "100", "1", "–"},
		{"c", "100", "100", "1", "it ended (exit status 2)"},
	}
	if fmt.Sprint(table.Rows) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", table.Rows, want)
	}
}

func TestWSTable(t *testing.T) {
	found := []stepFinding{
		finding("a", 100, 0, 0, 100_000), finding("a", 100, 1, 2, 300_000), finding("a", 100, 2, 0, 200_000), finding("a", 500, 3, 500, 0),
	}
	table := stepsTable(&echoServer{name: "a", about: "An arm"}, stepsOf(found, "a"))
	if len(table.Rows) != 2 {
		t.Fatalf("%v", table.Rows)
	}
	if got, want := strings.Join(table.Rows[0], "|"), "100|100000|98|2|20 KB|200 µs|1 ms|1 ms|2 ms|2 ms|3 ms|3 ms"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := table.Rows[1]; got[2] != "0" || got[3] != "500" || got[5] != "–" || got[6] != "–" {
		t.Errorf("a step that failed whole: %v", got)
	}
	for _, row := range table.Rows {
		if len(row) != len(table.Columns) {
			t.Errorf("%d cells in %d columns", len(row), len(table.Columns))
		}
	}
}

func TestWSCharts(t *testing.T) {
	arms := []*echoServer{{name: "a"}, {name: "b"}, {name: "a′", placebo: "a"}}
	var found []stepFinding
	for _, arm := range arms {
		found = append(found, finding(arm.name, 100, 0, 0, 1), finding(arm.name, 500, 1, 0, 1))
	}
	found = append(found, finding("b", 2000, 2, 1, 1), finding("a", 2000, 2, 0, 1), finding("a′", 2000, 2, 0, 1))
	charts := allCharts(arms, found)
	if len(charts) != 6 {
		t.Fatalf("%d charts, want duration, outcome, memory and three histograms", len(charts))
	}
	if s := charts[0].Series; len(s) != 2 || fmt.Sprint(s[0].Points) != "[[100 100000] [500 500000] [2000 2e+06]]" {
		t.Errorf("duration: %v", s)
	}
	if s := charts[1].Series; len(s) != 4 || s[3].Name != "b failed" || s[3].Points[2][1] != 1 {
		t.Errorf("outcome: %v", s)
	}
	for _, c := range charts[3:] {
		if !strings.Contains(c.Title, "500 connections") {
			t.Errorf("%q is not about the largest step that all finished", c.Title)
		}
		for _, s := range c.Series {
			sum := 0.0
			for _, p := range s.Points {
				sum += p[1]
			}
			if math.Abs(sum-100) > 1e-6 {
				t.Errorf("%s: the shares of %s add up to %v %%", c.Title, s.Name, sum)
			}
		}
	}
	if h := phaseCharts(arms, found[:1]); h != nil {
		t.Errorf("histograms of a step that one arm alone did: %v", h)
	}
}

func TestBins(t *testing.T) {
	var h load.Histogram
	if bins(&h) != nil {
		t.Error("an empty histogram has bins")
	}
	for range 3 {
		h.Record(time.Millisecond)
	}
	h.Record(time.Second)
	points := bins(&h)
	if first, last := points[0], points[len(points)-1]; math.Abs(first[1]-75) > 1 || math.Abs(last[1]-25) > 1 || first[0] < 0.8e6 || last[0] > 1.3e9 {
		t.Errorf("%v", points)
	}
}

func TestWSVerdicts(t *testing.T) {
	res := &record.Result{}
	w := &ramp{Stage: experiment.NewStage(experiment.Env{}, res), env: experiment.Env{Seed: 1}, res: res}
	for _, name := range []string{baselineArm, "dear", "short", placeboArm} {
		w.arms = append(w.arms, &echoServer{name: name})
		if name == placeboArm {
			w.arms[len(w.arms)-1].placebo = baselineArm
		}
	}
	for block := range 12 {
		noise := 1 + 0.01*float64(block%3)
		w.found = append(w.found, finding(baselineArm, 100, block, 0, 100_000), finding("dear", 100, block, 0, 150_000*noise),
			finding(placeboArm, 100, block, 0, 100_000*(1+0.01*float64(block%2))))
		if block < 4 {
			w.found = append(w.found, finding("short", 100, block, 0, 150_000*noise))
		}
	}
	// Blocks that failed are not figures about cost.
	w.found = append(w.found, finding(baselineArm, 500, 12, 0, 100_000), finding("dear", 500, 12, 499, 1))
	w.judge()
	want := map[string]record.Outcome{"dear": record.Worse, "short": record.Undecided, placeboArm: record.Equal}
	for _, v := range res.Verdicts {
		if v.Metric == cpuMetric && v.Outcome != want[v.Arm] {
			t.Errorf("CPU of %s: %s, want %s (%s)", v.Arm, v.Outcome, want[v.Arm], v.Sentence)
		}
		if v.Arm == "dear" && (v.Blocks != 12 || v.Metric == cpuMetric && math.Abs(v.Ratio-1.515) > 0.01) {
			t.Errorf("%+v", v)
		}
	}
	res.Format, res.Kind = record.Format, record.KindExperiment
	res.Metrics, res.Workloads = ownMetrics(), rampPlan{steps: []int{100, 500}}.workloads()
	for _, arm := range w.arms {
		res.Arms = append(res.Arms, record.Arm{Name: arm.name, Placebo: arm.placebo})
	}
	for _, f := range w.found {
		res.Samples = append(res.Samples, f.sample())
	}
	if err := report.Check(res); err != nil {
		t.Errorf("the report refuses it: %v", err)
	}
	if len(res.Verdicts) != 6 {
		t.Errorf("%d verdicts, want two for each arm", len(res.Verdicts))
	}
	if g := res.Gates[0]; g.Status != record.Passed || !strings.Contains(g.Detail, placeboArm) {
		t.Errorf("%+v", g)
	}
}

func TestLessIsBetter(t *testing.T) {
	for o, want := range map[stats.Outcome]record.Outcome{
		stats.Below: record.Better, stats.Above: record.Worse, stats.Equal: record.Equal, stats.Undecided: record.Undecided,
	} {
		if got := lessIsBetter(o); got != want {
			t.Errorf("%v is %s, want %s", o, got, want)
		}
	}
}

func TestWSPlan(t *testing.T) {
	for _, c := range []struct {
		mode        record.Mode
		descriptors int
		last        int
		beyond      int
		notes       int
	}{
		{record.Quick, 20_000, 5000, 0, 0},
		{record.Full, 20_000, 19_000, 4, 0},
		{record.Full, 1 << 20, 19_000, 4, 0},
		{record.Full, 4096, 3000, 0, 1},
		{record.Quick, 1024, 500, 0, 1},
	} {
		notes := 0
		p := newRampPlan(c.mode, c.descriptors, func(string, ...any) { notes++ })
		if p.steps[len(p.steps)-1] != c.last || len(p.beyond) != c.beyond || notes != c.notes {
			t.Errorf("%s with %d descriptors: %+v and %d notes", c.mode, c.descriptors, p, notes)
		}
	}
	if p := newRampPlan(record.Full, 64, func(string, ...any) {}); len(p.steps) != 0 {
		t.Errorf("with 64 descriptors: %v", p.steps)
	}
}

func TestParseAvailable(t *testing.T) {
	for text, want := range map[string]uint64{
		"MemTotal: 5 kB\nMemAvailable:    2048 kB\n": 2 << 20,
		"MemTotal: 5 kB\n":                           0,
		"MemAvailable: much kB\n":                    0,
		"MemAvailable: 99999999999999999999 kB\n":    0,
		"MemAvailable: 12\n":                         0,
		"":                                           0,
	} {
		if got := parseAvailable([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func FuzzParseAvailable(f *testing.F) {
	f.Add([]byte("MemAvailable: 1 kB\n"))
	f.Add([]byte("MemAvailable:\nMemAvailable: 18014398509481983 kB"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if n := parseAvailable(text); n%1024 != 0 {
			t.Fatalf("%d bytes are no KiB", n)
		}
	})
}

// fakeClient is a shell script in the client's place.
func fakeClient(t *testing.T, script string) []string {
	t.Helper()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("no /bin/sh to play the client")
	}
	return []string{"/bin/sh", "-c", script}
}

func TestRunClients(t *testing.T) {
	good := fakeClient(t, `echo open; read a; echo echoed; read b; [ "$a $b" = "echo close" ] && echo '`+goodLine+`'`)
	held := 0
	r, err := runClients(t.Context(), [][]string{good, good}, func() { held++ })
	if err != nil || r.Connections != 6 || held != 1 {
		t.Errorf("%+v, %v, held %d times", r, err, held)
	}
	for name, c := range map[string]struct{ script, want string }{
		"ends":        {`echo open; echo no memory >&2; exit 1`, "no memory"},
		"other words": {`echo hello; read a`, "hello"},
		"nonsense":    {`echo open; read a; echo echoed; read b; echo '{}'`, "0 of 0"},
		"silent end":  {`exit 0`, "ended early"},
	} {
		_, err := runClients(t.Context(), [][]string{good, fakeClient(t, c.script)}, func() {})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
	if _, err := runClients(t.Context(), [][]string{{"/nowhere/client"}}, func() {}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no client: %v", err)
	}
}

// TestRunWSClientsCancelled ends the context while a client keeps silent.
func TestRunWSClientsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	silent := fakeClient(t, `echo open; read a; echo echoed; read b; exec sleep 600`)
	_, err := runClients(ctx, [][]string{silent}, cancel)
	if err == nil {
		t.Error("no error")
	}
}

func TestWSArms(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range echoServers() {
		if seen[a.name] || a.about == "" || !strings.HasPrefix(a.path, "/") {
			t.Errorf("%+v", a)
		}
		seen[a.name] = true
		if command := a.command("127.0.0.1:81"); !slices.Contains(command, "127.0.0.1:81") || strings.HasPrefix(command[0], "-") {
			t.Errorf("%s: %q does not say where it listens", a.name, command)
		}
	}
	for _, name := range []string{baselineArm, placeboArm, arm386, millraceArm} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestMillraceIsTheProgramGiven: nothing is built for it, and without it the
// reason is told.
func TestMillraceIsTheProgramGiven(t *testing.T) {
	arms := echoServers()
	millrace := arms[slices.IndexFunc(arms, func(a *echoServer) bool { return a.name == millraceArm })]
	w := &ramp{env: experiment.Env{Millrace: "/opt/millrace"}}
	if err := w.program(nil, millrace); err != nil || millrace.exe != "/opt/millrace" {
		t.Errorf("%v, it is %q", err, millrace.exe)
	}
	w.env.Millrace = ""
	if err := w.program(nil, millrace); !errors.Is(err, experiment.ErrNoMillrace) {
		t.Errorf("without a program: %v", err)
	}
}

func TestWSClientCommands(t *testing.T) {
	w := &ramp{client: "/bin/client", rampPlan: rampPlan{limit: time.Second}}
	addresses := []string{"127.0.0.1:81", "127.0.0.1:82"}
	commands := w.clientCommands(&echoServer{path: "/echo"}, addresses, 7)
	if len(commands) != 2 {
		t.Fatalf("%q", commands)
	}
	for i, share := range []string{"3", "4"} {
		line := strings.Join(commands[i], " ")
		for _, want := range []string{" -address " + addresses[i] + " ", " -path /echo ", " -connections " + share + " "} {
			if !strings.Contains(line, want) {
				t.Errorf("client %d: %q is missing in %s", i, want, line)
			}
		}
	}
}

// heldStep is a step that all connections held; failed of them did not.
func heldStep(arm string, connections, failed int, rss float64) stepFinding {
	f := stepFinding{arm: arm, connections: connections, rss: rss}
	f.report.Succeeded, f.report.Failed, f.report.First = connections-failed, failed, "reset"
	return f
}

// TestWSAnswer: the sentence answers what was asked, with figures, and says
// nothing that was not seen.
func TestWSAnswer(t *testing.T) {
	arms := []*echoServer{{name: baselineArm}, {name: arm386}, {name: millraceArm}, {name: placeboArm, placebo: baselineArm}}
	held := []stepFinding{
		heldStep(baselineArm, 100, 0, 33_000), heldStep(baselineArm, 5000, 0, 22_700), heldStep(arm386, 5000, 0, 20_000),
		heldStep(millraceArm, 5000, 0, 1600), heldStep(placeboArm, 5000, 0, 22_700),
	}
	broke := append([]stepFinding{heldStep(arm386, 2000, 500, 0)}, held...)
	for name, c := range map[string]struct {
		found []stepFinding
		want  string
	}{
		"nothing":  {nil, ""},
		"all held": {held, "No server failed up to 5,000 connections; x/net, said to break at 1,500, held all of them with 22.7 KB each, millrace with 1.6 KB"},
		"one broke": {
			broke,
			"x/net on 32 bits failed at 2,000 connections; the others held 5,000; x/net, said to break at 1,500, held all of them with 22.7 KB each, millrace with 1.6 KB",
		},
	} {
		if got := answerSentence(arms, c.found); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	table := publishedTable(arms, broke)
	var rows []string
	for _, row := range table.Rows {
		rows = append(rows, strings.Join(row, "|"))
	}
	want := "100|holds|100 / 0|–|–\n2,000|crashes|–|1,500 / 500|–\n5,000|crashes|5,000 / 0|5,000 / 0|5,000 / 0"
	if got := strings.Join(rows, "\n"); got != want {
		t.Errorf("published and measured:\n%s", got)
	}
}

// TestWithoutCheckout says where to run it.
func TestWithoutCheckout(t *testing.T) {
	err := RampExperiment().Run(t.Context(), experiment.Env{Mode: record.Quick, Work: t.TempDir()}, &record.Result{})
	if err == nil || !strings.Contains(err.Error(), "checkout") {
		t.Error(err)
	}
}
