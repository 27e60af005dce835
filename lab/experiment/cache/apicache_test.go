package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/subject"
)

// TestRightAnswer has the golden values of lab/bench/subjects/upstream.
func TestRightAnswer(t *testing.T) {
	for _, c := range []struct {
		page    string
		version int
		want    string
	}{
		{"/2021/a", 0, `{"count":93442,"key":"a9e0b162c8018992"}`},
		{"/2021/a", 1, `{"count":81653,"key":"a9e0b262c8018b45"}`},
		{"/2021/b", 0, `{"count":51939,"key":"90c4ac62ba085483"}`},
	} {
		if got := rightAnswer(c.page, c.version); got != c.want {
			t.Errorf("%s, version %d: %s, want %s", c.page, c.version, got, c.want)
		}
	}
	seen := map[string]bool{}
	for i := range urlCount {
		seen[rightAnswer(pageURL(i), 0)] = true
	}
	if len(seen) != urlCount || len(pageTargets()) != urlCount {
		t.Errorf("%d different answers for %d URLs", len(seen), urlCount)
	}
}

func TestGradeAnswer(t *testing.T) {
	want := rightAnswer("/a", 0)
	for _, c := range []struct {
		status int
		body   string
		grade  grade
	}{
		{200, want, gradeRight},
		{200, want + "\n", gradeRight},
		{200, rightAnswer("/b", 0), gradeWrong},
		{200, rightAnswer("/a", 1), gradeWrong},
		{200, `{"error":"the database did not answer!"}`, gradeWrong},
		{200, "", gradeWrong},
		{500, `{"error":"the database did not answer!"}`, gradeFailed},
		{500, want, gradeFailed},
		{204, "", gradeFailed},
	} {
		if got := gradeAnswer(c.status, []byte(c.body), want); got != c.grade {
			t.Errorf("%d %q: %d, want %d", c.status, c.body, got, c.grade)
		}
	}
	var checks, more gradeCounts
	for g, n := range map[grade]int{gradeRight: 4, gradeWrong: 3, gradeFailed: 2, gradeNone: 1} {
		for range n {
			checks.add(g, "/a", []byte("nonsense"))
		}
	}
	more.merge(checks)
	more.merge(checks)
	if more.right != 8 || more.wrong != 6 || more.failed != 4 || more.none != 2 || more.checked() != 18 || !strings.Contains(more.first, "/a") {
		t.Errorf("%+v", more)
	}
}

func TestExpiryText(t *testing.T) {
	for _, c := range []struct {
		kept, first, second grade
		want                string
	}{
		{gradeRight, gradeRight, gradeRight, "nothing is kept"},
		{gradeWrong, gradeRight, gradeRight, "fresh at once"},
		{gradeWrong, gradeWrong, gradeRight, "old once, then fresh"},
		{gradeWrong, gradeWrong, gradeWrong, "old still"},
		{gradeWrong, gradeFailed, gradeRight, "no answer when expired"},
		{gradeNone, gradeRight, gradeRight, "not kept, and no answer"},
	} {
		if got := expiryText(c.kept, c.first, c.second); got != c.want {
			t.Errorf("%d %d %d: %s, want %s", c.kept, c.first, c.second, got, c.want)
		}
	}
}

func TestParseCount(t *testing.T) {
	n, err := parseCount([]byte(`{"requests":7,"errors":2,"gone":1}`))
	if err != nil || n.Requests != 7 || n.Errors != 2 {
		t.Errorf("%+v, %v", n, err)
	}
	for _, bad := range []string{"", "<html>", `{"requests":-1}`, `{"requests":1,"errors":2}`} {
		if _, err := parseCount([]byte(bad)); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
}

func FuzzParseCount(f *testing.F) {
	f.Add([]byte(`{"requests":7,"errors":2}`))
	f.Add([]byte(`{"requests":1e99}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if n, err := parseCount(text); err == nil && n.Errors > n.Requests {
			t.Fatalf("%+v", n)
		}
	})
}

// A fakeAPI answers as lab/bench/subjects/upstream does, and as a cache in front
// of it that keeps everything, errors too, until it is told to forget.
type fakeAPI struct {
	mu      sync.Mutex
	count   int
	version int
	kept    map[string]string
	broken  string // the page that fails in the API
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.URL.Path {
	case "/__count":
		fmt.Fprintf(w, `{"requests":%d}`, f.count)
	case "/__set":
		if r.URL.Query().Get("version") == "1" {
			f.version = 1
		}
		if r.URL.Query().Get("delay") == "never" {
			w.WriteHeader(400)
		}
	default:
		page := r.URL.Query().Get("url")
		if f.kept[page] == "" {
			f.count++
			f.kept[page] = rightAnswer(page, f.version)
			if page == f.broken {
				f.kept[page] = "broken"
			}
		}
		fmt.Fprint(w, f.kept[page])
	}
}

func newFake(t *testing.T) (*fakeAPI, *runningArm) {
	t.Helper()
	f := &fakeAPI{kept: map[string]string{}, broken: "-"}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return f, &runningArm{url: s.URL, upstream: s.URL}
}

func TestSweep(t *testing.T) {
	f, in := newFake(t)
	f.broken = pageURL(17)
	finding := loadFinding{}
	if err := finding.queryUpstream(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if wrong, checked := finding.wrong(); wrong != 2 || checked != 2*urlCount {
		t.Errorf("%d wrong of %d, want both answers for one of %d URLs", wrong, checked, urlCount)
	}
	if f.count != urlCount {
		t.Errorf("the API was asked %d times", f.count)
	}
	c := newChecker(in, true)
	defer c.close()
	if err := c.set(t.Context(), "delay=never"); err == nil {
		t.Error("a refused setting: no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := finding.queryUpstream(ctx, in); err == nil {
		t.Error("cancelled: no error")
	}
}

func TestFill(t *testing.T) {
	f, in := newFake(t)
	if err := in.fill(t.Context(), 1); err != nil || f.count != urlCount+1 { // and /ready
		t.Errorf("the API was asked %d times: %v", f.count, err)
	}
	// Four workers of which only one ever shows itself.
	if err := in.fill(t.Context(), 4); err != nil {
		t.Error(err)
	}
	f.kept = map[string]string{}
	f.broken = pageURL(3)
	if err := in.fill(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "399 of 400") {
		t.Errorf("a wrong answer while filling: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := in.fill(ctx, 1); err == nil {
		t.Error("cancelled: no error")
	}
}

// TestBeside looks at bodies until it is told to stop: an answer that is cut
// off then is not counted.
func TestBeside(t *testing.T) {
	f, in := newFake(t)
	for i := range urlCount {
		f.kept[pageURL(i)] = rightAnswer(pageURL(0), 0) // one answer for all
	}
	c := newChecker(in, true)
	defer c.close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	checks := c.beside(ctx, rand.New(rand.NewPCG(1, 2)))
	if checks.wrong == 0 || checks.none > 0 || !strings.Contains(checks.first, `93442`) && !strings.Contains(checks.first, "count") {
		t.Errorf("%+v", checks)
	}
}

func TestStampedeAndExpiry(t *testing.T) {
	f, in := newFake(t)
	c := newChecker(in, true)
	defer c.close()
	s := semanticsFinding{stampede: 9}
	if err := s.askStampede(t.Context(), in, c); err != nil || s.reached != 1 || s.right != 9 || s.wrong {
		t.Errorf("%+v, %v", s, err)
	}
	f.broken = "/expiry/"
	if err := s.askExpiry(t.Context(), c); err != nil || !s.wrong || !strings.Contains(s.expiry, "no right answer") {
		t.Errorf("%+v, %v", s, err)
	}
	for _, c := range []struct {
		g    grade
		want string
	}{{gradeRight, "200, right"}, {gradeWrong, "200, wrong"}, {gradeFailed, "502"}, {gradeNone, "no answer"}} {
		if got := gradeText(c.g, 502); got != c.want {
			t.Errorf("%d: %s", c.g, got)
		}
	}
}

func TestSlower(t *testing.T) {
	var h load.Histogram
	if slower(&h, time.Second) != 0 {
		t.Error("of nothing, something is slow")
	}
	for i := range 1000 {
		h.Record(time.Duration(i) * 20 * time.Millisecond)
	}
	if n := slower(&h, 10*time.Second); n < 495 || n > 505 { // a bucket is 1.6 % wide
		t.Errorf("%d of 1000 are slower than the median", n)
	}
	if slower(&h, time.Minute) != 0 || slower(&h, 0) != 1000 {
		t.Error("all and none are not all and none")
	}
}

func foundLoad(arm, workload string, took time.Duration, wrong int) loadFinding {
	f := loadFinding{arm: arm, workload: workload, result: &load.Result{
		Took: took, Requests: 3, Unanswered: 100, Status: map[int]uint64{200: 2, 500: 1}, Errors: load.Errors{Timeout: 4},
	}}
	for _, d := range []time.Duration{104 * time.Millisecond, 4 * time.Second, 11 * time.Second} {
		f.result.Latency.Record(d)
	}
	f.during = gradeCounts{right: 10, wrong: wrong, failed: 1, first: "for /x came 200"}
	f.after = gradeCounts{right: 20}
	f.values = map[string]float64{"cpu_share": 0.073, "cpu_ns": 345_678}
	f.asked.Requests = 55
	return f
}

func TestAPITable(t *testing.T) {
	runs := []loadFinding{
		foundLoad("nginx", coldLoad, time.Minute, 0), foundLoad(directArm, coldLoad, time.Minute, 0), foundLoad("go-cache", errorLoad, time.Second, 7),
		{arm: "flask-1", workload: coldLoad}, // did not start
	}
	runs[0].result.Latency = load.Histogram{}
	table := coldTable(newPlan(record.Full), coldLoad, runs)
	if len(table.Rows) != 2 || table.Rows[0][0] != directArm || table.Rows[1][1] != "–" {
		t.Fatalf("%v", table.Rows)
	}
	want := "direct|104 > 5035 > 11000 ms|3|1|5|100|0 of 31|55|7.3 %|346 µs"
	if got := strings.Join(table.Rows[0], "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := coldTable(newPlan(record.Full), errorLoad, runs).Rows[0][6]; got != "7 of 38 (18.4 %)" {
		t.Errorf("wrong answers: %s", got)
	}
	for _, table := range []record.Table{table, publishedTable(), semanticsTable([]semanticsFinding{{arm: "a"}})} {
		for _, row := range table.Rows {
			if len(row) != len(table.Columns) {
				t.Errorf("%s: %d cells in %d columns", table.Title, len(row), len(table.Columns))
			}
		}
	}
	if got := wrongText(0, 0); got != "none looked at" {
		t.Error(got)
	}
}

// TestAPIReport keeps what was measured however little it is.
func TestAPIReport(t *testing.T) {
	res := &record.Result{}
	r := &cacheRun{Stage: experiment.NewStage(experiment.Env{}, res), res: res, runPlan: newPlan(record.Quick)}
	r.report()
	if len(res.Tables) != 1 || len(res.Charts) != 0 {
		t.Errorf("of nothing: %d tables, %d charts", len(res.Tables), len(res.Charts))
	}
	*res = record.Result{Samples: []record.Sample{
		{Arm: "nginx", Workload: hotLoad, Values: map[string]float64{"cpu_ns": 10_000, "requests_per_second": 40_000}},
		{Arm: "nginx", Workload: hotLoad, Values: map[string]float64{"cpu_ns": 30_000, "requests_per_second": 60_000}},
		{Arm: "go-cache", Workload: hotLoad, Values: map[string]float64{"cpu_ns": 15_000, "wrong": 1}},
	}, Metrics: []record.Metric{{Key: "cpu_ns", Decides: true}}}
	r.runs = []loadFinding{foundLoad("go-cache", errorLoad, time.Second, 7)}
	r.report()
	if len(res.Tables) != 3 {
		t.Fatalf("%d tables", len(res.Tables))
	}
	if rows := res.Tables[2].Rows; rows[0][0] != "go-cache" || strings.Join(rows[1], "|") != "nginx|50000|20 µs|–|–|0|–|2" {
		t.Errorf("%v", rows)
	}
	for _, m := range res.Metrics {
		if m.Decides != (m.Key == "cpu_ns") || m.Key == "wrong" && m.About == "" {
			t.Errorf("%+v", m)
		}
	}
	if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "7 wrong answers of 38") {
		t.Errorf("%q", res.Notes)
	}
}

func TestRatePoints(t *testing.T) {
	ticks := []load.Tick{{At: -time.Second, Length: time.Second, Requests: 5}}
	for i := range 9 {
		ticks = append(ticks, load.Tick{At: time.Duration(i+1) * 250 * time.Millisecond, Length: 250 * time.Millisecond, Requests: uint64(i)})
	}
	points := ratePoints(ticks)
	if len(points) != 3 || points[1][1] != 3+4+5+6 {
		t.Errorf("%v", points)
	}
	if ratePoints(nil) != nil {
		t.Error("points of nothing")
	}
}

func TestMillraceArm(t *testing.T) {
	r := &cacheRun{}
	if a := r.millraceArm(t.Context()); a.skipped == "" || a.command != nil {
		t.Errorf("without an executable: %+v", a)
	}
	exe := filepath.Join(t.TempDir(), "millrace")
	if err := os.WriteFile(exe, []byte("#!/bin/sh\necho millrace 1.2 \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.env.Millrace = exe
	a := r.millraceArm(t.Context())
	if a.skipped != "" || a.workers != 1 || a.size == 0 || a.name != millraceName {
		t.Fatalf("%+v", a)
	}
	if _, err := os.Stat("/bin/sh"); err == nil && a.version != "millrace 1.2 version" {
		t.Errorf("the version is %q", a.version)
	}
	cmd, err := a.command(place{Address: "127.0.0.1:1", Upstream: "127.0.0.1:2", Expiry: 2 * time.Second})
	want := exe + " cache http://127.0.0.1:2 --listen 127.0.0.1:1 --ttl 2s --cors https://blog.example --log off --admin off"
	if err != nil || strings.Join(cmd.Args, " ") != want {
		t.Errorf("%q, %v, want %s", cmd.Args, err, want)
	}
	if shown := strings.Join(a.shown, " "); !strings.HasPrefix(shown, "millrace cache http://127.0.0.1:UPSTREAM --listen 127.0.0.1:PORT --ttl 5m0s") {
		t.Errorf("shown as %s", shown)
	}
}

// fakePython puts a python3 first on PATH that does what the script says.
func fakePython(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestVirtualEnvironment(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("no /bin/sh to play Python")
	}
	for name, c := range map[string]struct{ script, want string }{
		"no venv": {`[ "$1" = --version ] && { echo Python 3.99; exit; }; echo "No module named venv"; exit 1`, "install python3-venv"},
		"no way out": {
			`[ "$1" = --version ] && { echo Python 3.99; exit; }
			[ "$2" = venv ] && { mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; }
			echo "Could not find a version"; exit 1`, "Could not find a version",
		},
		"all well": {
			`[ "$1" = --version ] && { echo Python 3.99; exit; }
			[ "$2" = venv ] && { mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; }
			echo "Collecting flask==1 (from -r x)"`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fakePython(t, c.script)
			bench := &subject.Bench{Dir: t.TempDir()}
			source := t.TempDir()
			os.WriteFile(filepath.Join(source, "requirements.txt"), []byte("flask==1\n"), 0o600)
			var text []string
			env := experiment.Env{Bench: bench, Watch: func(e record.Event) { text = append(text, e.Text) }}
			r := &cacheRun{Stage: experiment.NewStage(env, &record.Result{}), env: env}
			dir, version, err := r.virtualEnvironment(t.Context(), source)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("%v, want %q in it", err, c.want)
				}
				return
			}
			if err != nil || version != "Python 3.99" || !strings.Contains(strings.Join(text, "\n"), "pip: flask==1") {
				t.Fatalf("%v, %q, %q", err, version, text)
			}
			// What is complete is found again; what is not is made again.
			text = nil
			again, _, err := r.virtualEnvironment(t.Context(), source)
			if err != nil || again != dir || len(text) != 0 {
				t.Errorf("the second time: %s, %v, %q", again, err, text)
			}
			os.Remove(filepath.Join(dir, venvDone))
			if _, _, err := r.virtualEnvironment(t.Context(), source); err != nil || len(text) == 0 {
				t.Errorf("an unfinished one: %v, %q", err, text)
			}
		})
	}
	t.Setenv("PATH", t.TempDir())
	r := &cacheRun{env: experiment.Env{Bench: &subject.Bench{Dir: t.TempDir()}}}
	if _, err := subject.Look("python3", ""); err != nil {
		if _, _, err := r.virtualEnvironment(t.Context(), "."); err == nil || !strings.Contains(err.Error(), "install python3") {
			t.Errorf("no Python: %v", err)
		}
	}
}

// TestHotBlocks gives way in number when time runs short.
func TestHotBlocks(t *testing.T) {
	for _, mode := range []record.Mode{record.Quick, record.Full} {
		r := &cacheRun{env: experiment.Env{Mode: mode}, runPlan: newPlan(mode)}
		last := r.runPlan.blocks + 1
		for _, left := range []time.Duration{time.Hour, 30 * time.Second, 10 * time.Second, 0, -time.Minute} {
			n := r.hotBlocks(left, 8)
			if n > last || n > r.runPlan.blocks || left == time.Hour && n != r.runPlan.blocks || left <= 0 && n != 0 {
				t.Errorf("%s: %d blocks in %v", mode, n, left)
			}
			last = n
		}
	}
}

func TestNginxArm(t *testing.T) {
	r := &cacheRun{env: experiment.Env{Bench: &subject.Bench{Dir: filepath.Join("..", "..", "bench")}}}
	a := r.nginxArm(t.Context())
	if a.skipped != "" {
		t.Skip(a.skipped)
	}
	dir := t.TempDir()
	cmd, err := a.command(place{Dir: dir, Address: "127.0.0.1:8000", Upstream: "127.0.0.1:9000", Expiry: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(filepath.Join(dir, "nginx.conf"))
	for _, want := range []string{"listen 127.0.0.1:8000 ", "server 127.0.0.1:9000 ", "proxy_cache_valid 200 300s;", "proxy_cache_lock on;", dir + "/cache "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the config", want)
		}
	}
	if out, err := exec.Command(cmd.Path, append(cmd.Args[1:], "-t")...).CombinedOutput(); err != nil {
		t.Errorf("nginx refuses it: %s", out)
	}
}

func TestAPIAnswer(t *testing.T) {
	found := func(arm string, mean time.Duration, wrong int) loadFinding {
		f := loadFinding{arm: arm, workload: coldLoad, result: new(load.Result)}
		f.result.Latency.Record(mean)
		f.during.wrong = wrong
		return f
	}
	runs := []loadFinding{found(millraceName, 300*time.Millisecond, 0), found(directArm, 4*time.Second, 0), found("flask-4", time.Second, 0)}
	want := "From an empty cache the slow API alone answers in 4000 ms on average (answers: 1) and millrace answers in 300 ms on average (answers: 1); no wrong answer was seen"
	if got := answerSentence(runs); got != want {
		t.Error(got)
	}
	if got := answerSentence(append(runs, found("flask-1", time.Second, 2))); !strings.HasSuffix(got, "; wrong answers came from flask-1") {
		t.Error(got)
	}
	if got := answerSentence(nil); got != "" {
		t.Error(got)
	}
}

// TestWithoutCheckout says where to run it.
func TestWithoutCheckout(t *testing.T) {
	err := APIExperiment().Run(t.Context(), experiment.Env{Mode: record.Quick, Work: t.TempDir()}, &record.Result{})
	if err == nil || !strings.Contains(err.Error(), "checkout") {
		t.Error(err)
	}
}
