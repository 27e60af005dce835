package embed

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/site"
	"millrace/lab/subject"
)

func TestLdflagsCanBeSplit(t *testing.T) {
	flags := ldflags(site.Small())
	if !strings.HasPrefix(flags, "-ldflags=-X '") || !strings.Contains(flags, "-X 'main.gitHash=") {
		t.Errorf("it begins with %.40q", flags)
	}
	// Two quotes for each variable, and none within: there are no escapes.
	if n := strings.Count(flags, "'"); n != 2*(len(site.Small())+1) {
		t.Errorf("%d quotes", n)
	}
	for _, f := range site.Small() {
		if !strings.Contains(flags, "-X 'main."+f.Variable+"=") {
			t.Errorf("%s is missing", f.Variable)
		}
	}
}

// TestFlags: the two programs that have files of their own get their flags, and the
// overlay names files that are there.
func TestFlags(t *testing.T) {
	s, err := experiment.Read("embed-vs-disk", record.Quick)
	if err != nil {
		t.Fatal(err)
	}
	r := experiment.NewRun(experiment.Env{Work: t.TempDir(), Bench: &subject.Bench{Dir: t.TempDir()}}, s, &record.Result{})
	if err := flags(r); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Programs {
		if want := p.Key == sized || p.Key == "nethttp-ldflags"; want != (len(p.Flags) == 2) {
			t.Errorf("%s: %d flags", p.Key, len(p.Flags))
		}
		name, ok := strings.CutPrefix(p.Flags[len(p.Flags)-1], "-overlay=")
		if !ok {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var over struct{ Replace map[string]string }
		if err := json.Unmarshal(text, &over); err != nil || len(over.Replace) != 12 {
			t.Errorf("%s, %v", text, err)
		}
		for at, file := range over.Replace {
			if _, err := os.Stat(file); err != nil || !strings.Contains(at, "fileserver") {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
}

func TestTables(t *testing.T) {
	res := &record.Result{Arms: []record.Arm{
		{Name: "nethttp-disk", Size: 8000}, {Name: "nethttp-embed", Size: 8200}, {Name: "nginx", Skipped: "not here"}, {Name: "nethttp-disk′", Placebo: "nethttp-disk", Size: 8000},
	}}
	with := http.Header{"Last-Modified": {"x"}, "Content-Type": {"x"}}
	without := http.Header{"Content-Type": {"x"}, "X-More": {"x"}}
	probes := map[string][]experiment.Probe{
		"nethttp-disk":  {{Path: "/", Header: with, Head: 200, Body: 501}, {Path: "/b", Header: with, Head: 200, Body: 10}},
		"nethttp-embed": {{Path: "/", Header: without, Head: 150, Body: 501}, {Path: "/b", Header: with, Head: 150, Body: 10}},
	}
	for _, c := range []struct {
		table record.Table
		want  [][]string
	}{
		{sizes(res), [][]string{{"nethttp-disk", "8000", "+0.0 %"}, {"nethttp-embed", "8200", "+2.5 %"}}},
		{answerBytes(res, probes), [][]string{{"nethttp-disk", "200", "501", "701", "400", "511", "911"}, {"nethttp-embed", "150", "501", "651", "300", "511", "811"}}},
		{headers(res, probes), [][]string{{"nethttp-embed", "Last-Modified", "X-More", "–", "–"}}},
	} {
		if !slices.EqualFunc(c.table.Rows, c.want, slices.Equal[[]string]) || len(c.table.Columns) != len(c.want[0]) {
			t.Errorf("%s: %q, not %q", c.table.Title, c.table.Rows, c.want)
		}
	}
}

func TestCurve(t *testing.T) {
	r := &experiment.Run{Res: &record.Result{}, Chosen: []experiment.Workload{{Name: "one page"}, {Name: "0.5 KB", Decide: []string{"-"}, Arms: []string{base, sized, "nginx"}}}}
	curve(r)
	if len(r.Res.Tables)+len(r.Res.Charts) != 0 {
		t.Errorf("nothing was measured, and yet %+v", r.Res)
	}
	for workload, size := range map[string]float64{"0.5 KB": 512, "8 KB": 8 << 10, "128 KB": 128 << 10} {
		for arm, cost := range map[string]float64{base: 50_000 + size*0.1, sized: 20_000 + size} {
			for _, noise := range []float64{0.9, 1, 5} {
				r.Res.Samples = append(r.Res.Samples, record.Sample{Arm: arm, Workload: workload, Values: map[string]float64{"cpu_ns": cost * noise}})
			}
		}
	}
	curve(r)
	table, charts := r.Res.Tables[0], r.Res.Charts
	if want := "[[0.5 KB 50.1 20.5 –] [8 KB 50.8 28.2 –] [128 KB 63.1 151.1 –]]"; fmt.Sprint(table.Rows) != want {
		t.Errorf("%q", table.Rows)
	}
	if !strings.Contains(table.About, sized+" is the cheaper at 0.5 KB, nethttp-disk from about 24 KB on.") {
		t.Errorf("where they cross: %s", table.About)
	}
	if len(charts) != 2 || charts[1].Series[0].Points[0][1] != 50_051.2/512 {
		t.Errorf("%+v", charts)
	}
	series := charts[0].Series
	if got := crossings(series, base, "absent"); got != "Whether nethttp-disk and absent cross was not measured." {
		t.Error(got)
	}
	if got := crossings(series, base, base); got != "There is less than 10 % between nethttp-disk and nethttp-disk at every size." {
		t.Error(got)
	}
}

// drawn is a line of the curve at 1, 2, 4 … KB.
func drawn(name string, cost ...float64) record.Series {
	s := record.Series{Name: name}
	for i, c := range cost {
		s.Points = append(s.Points, [2]float64{float64(int(1<<10) << i), c})
	}
	return s
}

// TestChanceDoesNotCross: lines that touch within what chance does have no crossing.
func TestChanceDoesNotCross(t *testing.T) {
	series := []record.Series{drawn("a", 100, 100, 100, 100), drawn("b", 95, 105, 98, 103)}
	if found, measured := stretches(series, "a", "b"); found != nil || !measured {
		t.Errorf("%v (%v)", found, measured)
	}
	series[1] = drawn("b", 50, 105, 95, 200) // 2 and 4 KB decide nothing
	found, _ := stretches(series, "a", "b")
	if len(found) != 2 || found[0] != (stretch{"b", 1 << 10}) || found[1].arm != "a" {
		t.Fatalf("%v", found)
	}
	if from := found[1].from; from < 2.8*1024 || from > 2.9*1024 { // the middle of 1 and 8 KB, in logarithms
		t.Errorf("they cross at %v", from)
	}
	series[1] = drawn("b", 50, 60, 70, 80)
	if got := crossings(series, "a", "b"); got != "Of a and b, b is the cheaper wherever they differ by 10 % or more." {
		t.Error(got)
	}
}
