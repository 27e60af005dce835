package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/lab/experiment"
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
	var checks, more grades
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

func newFake(t *testing.T) (*fakeAPI, *service) {
	t.Helper()
	f := &fakeAPI{kept: map[string]string{}, broken: "-"}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return f, &service{url: s.URL, upstream: s.URL}
}

func TestAfter(t *testing.T) {
	f, in := newFake(t)
	f.broken = pageURL(17)
	var seen grades
	if _, err := in.after(t.Context(), &seen); err != nil {
		t.Fatal(err)
	}
	if seen.wrong != 2 || seen.checked() != 2*urlCount {
		t.Errorf("%d wrong of %d, want both answers for one of %d URLs", seen.wrong, seen.checked(), urlCount)
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
	if _, err := in.after(ctx, &seen); err == nil {
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
	s := semantics{stampede: 9}
	if err := s.askStampede(t.Context(), in, c); err != nil || s.reached != 1 || s.right != 9 || s.wrong {
		t.Errorf("%+v, %v", s, err)
	}
	f.broken = "/expiry/"
	if err := s.askExpiry(t.Context(), c); err != nil || !s.wrong || !strings.Contains(s.expiry, "no right answer") {
		t.Errorf("%+v, %v", s, err)
	}
	if got := strings.Join(s.cells(), "|"); !strings.HasPrefix(got, "1 of 9|9|no right answer") || !strings.HasSuffix(got, "–|–|–|yes") {
		t.Error(got)
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

// newAPI is a run of api-cache.
func newAPI(t *testing.T, bench *subject.Bench, watch record.Watch) *api {
	t.Helper()
	spec, err := experiment.Read("api-cache", record.Quick)
	if err != nil {
		t.Fatal(err)
	}
	return &api{
		Run:   experiment.NewRun(experiment.Env{Mode: record.Quick, Bench: bench, Work: t.TempDir(), Watch: watch}, spec, &record.Result{}),
		loads: map[string]*load.Result{}, found: map[string]semantics{}, first: map[string]string{},
	}
}

// The report has what was found, and says who was wrong.
func TestReport(t *testing.T) {
	a := newAPI(t, nil, nil)
	a.report()
	if len(a.Res.Tables)+len(a.Res.Charts) != 0 || a.Res.Answer != "" {
		t.Errorf("of nothing: %+v", a.Res)
	}
	a.Res.Arms = []record.Arm{{Name: "go-cache"}, {Name: "nginx"}}
	a.Res.Samples = []record.Sample{
		{Arm: "go-cache", Workload: "errors", Values: map[string]float64{"wrong": 7, "checked": 38}}, {Arm: "nginx", Workload: "errors", Values: map[string]float64{"checked": 30}},
	}
	a.found["nginx"], a.loads["coldnginx"], a.first["go-cache"], a.Res.Answer = semantics{}, &load.Result{}, "for /x came 200", "something"
	a.report()
	if len(a.Res.Tables) != 1 || len(a.Res.Tables[0].Rows[0]) != len(a.Res.Tables[0].Columns) || len(a.Res.Charts) != 2 {
		t.Errorf("%+v", a.Res)
	}
	if want := "something; wrong answers came from go-cache (7 of 38)"; a.Res.Answer != want || !strings.Contains(a.Res.Notes[0], "for /x came 200") {
		t.Errorf("%s, %q", a.Res.Answer, a.Res.Notes)
	}
	a.Res.Samples[0].Values["wrong"] = 0
	if a.Res.Answer = ""; true {
		a.report()
	}
	if a.Res.Answer != "no wrong answer was seen" {
		t.Error(a.Res.Answer)
	}
}

func TestWorkers(t *testing.T) {
	for arm, want := range map[string]int{"flask-4": 4, "sanic-1": 1, "go-cache": 1, "nginx": 1} {
		if got := workers(arm); got != want {
			t.Errorf("%s: %d", arm, got)
		}
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
			r := newAPI(t, bench, func(e record.Event) { text = append(text, e.Text) })
			dir, err := r.virtualEnvironment(t.Context(), source)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("%v, want %q in it", err, c.want)
				}
				return
			}
			if err != nil || !strings.Contains(strings.Join(text, "\n"), "pip: flask==1") {
				t.Fatalf("%v, %q", err, text)
			}
			// What is complete is found again; what is not is made again.
			text = nil
			again, err := r.virtualEnvironment(t.Context(), source)
			if err != nil || again != dir || len(text) != 0 {
				t.Errorf("the second time: %s, %v, %q", again, err, text)
			}
			os.Remove(filepath.Join(dir, venvDone))
			if _, err := r.virtualEnvironment(t.Context(), source); err != nil || len(text) == 0 {
				t.Errorf("an unfinished one: %v, %q", err, text)
			}
		})
	}
	t.Setenv("PATH", t.TempDir())
	r := newAPI(t, &subject.Bench{Dir: t.TempDir()}, nil)
	if _, err := subject.Look("python3", ""); err != nil {
		if _, err := r.virtualEnvironment(t.Context(), "."); err == nil || !strings.Contains(err.Error(), "install python3") {
			t.Errorf("no Python: %v", err)
		}
	}
}
