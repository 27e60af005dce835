package report

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/lab/record"
)

func TestRoundTrip(t *testing.T) {
	for name := range fixtures() {
		res := fixture(t, name)
		var b bytes.Buffer
		if err := Write(&b, res); err != nil {
			t.Fatal(err)
		}
		again, err := Read(&b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(res, again); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestReadRefuses: never a report that looks valid from a bad file.
func TestReadRefuses(t *testing.T) {
	good, err := os.ReadFile(filepath.Join("testdata", "compare.json"))
	if err != nil {
		t.Fatal(err)
	}
	swap := func(old, replacement string) string {
		if !strings.Contains(string(good), old) {
			t.Fatalf("the fixture has no %s", old)
		}
		return strings.Replace(string(good), old, replacement, 1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"other version": {
			swap("millrace-lab/1", "millrace-lab/0"),
			`this file is "millrace-lab/0"; this millrace reads "millrace-lab/1": measure again, or draw it with the version that wrote it`,
		},
		"other version with other fields": {`{"format": "millrace-lab/2", "arms": "three"}`, `this file is "millrace-lab/2"`},
		"empty":                           {" \n", "this file is empty"},
		"cut off":                         {string(good[:len(good)/2]), "cut off after"},
		"garbage":                         {"\x7fELF\x02", "this is not a result file"},
		"other JSON":                      {`{"name": "left-pad"}`, `does not say its "format"`},
		"a list":                          {`[1, 2]`, "this is not a result file"},
		"null":                            {`null`, `does not say its "format"`},
		"something behind":                {string(good) + "{}", "this is not a result file"},
		"field unknown":                   {swap(`"seed"`, `"sead"`), `unknown field "sead"`},
		"wrong type":                      {swap(`"seed": 1795303417`, `"seed": "x"`), "seed is a string, not a uint64"},
		"figure too large":                {swap(`"seconds": 0.5`, `"seconds": 1e999`), "not a float64"},
		"kind":                            {swap(`"kind": "compare"`, `"kind": "guess"`), `"guess" is not a kind of result`},
		"mode":                            {swap(`"mode": "quick"`, `"mode": "slow"`), `"slow" is not a mode`},
		"time":                            {swap(`"ended": "2026`, `"ended": "2025`), "before it started"},
		"arm of a sample":                 {swap(`"arm": "millrace"`, `"arm": "apache"`), `"apache" is not an arm of this result`},
		"workload":                        {swap(`"workload": "/"`, `"workload": "/x"`), `"/x" is not a workload of this result`},
		"metric":                          {swap(`"rss_bytes": 9000000`, `"pss_bytes": 9000000`), `"pss_bytes" is not a metric of this result`},
		"block":                           {swap(`"block": 1`, `"block": -1`), "negative"},
		"two arms":                        {swap(`"name": "millrace"`, `"name": "nginx"`), `there are two arms "nginx"`},
		"placebo":                         {swap(`"placebo": "nginx"`, `"placebo": "apache"`), `the placebo of "apache"`},
		"outcome":                         {swap(`"outcome": "better"`, `"outcome": "great"`), `"great" is not an outcome`},
		"interval":                        {swap(`"low": 0.6768`, `"low": 0.96768`), "before it begins"},
		"ratio":                           {swap(`"ratio": 0.69`, `"ratio": 0.1`), "outside of its interval"},
		"no ratio":                        {swap(`"ratio": 0.69`, `"ratio": 0`), "without a ratio"},
		"p":                               {swap(`"p": 0.0004`, `"p": 4`), "from 0 to 1"},
		"gate":                            {swap(`"status": "passed"`, `"status": "fine"`), `"fine" is not a status`},
	} {
		res, err := Read(strings.NewReader(c.text))
		if err == nil {
			t.Errorf("%s: it was read as %+v", name, res)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is %q, want %q in one line", name, err, c.want)
		}
	}
}

func TestReadRefusesTablesAndCharts(t *testing.T) {
	for want, change := range map[string]func(*record.Result){
		`row 1 has 2 cells for 1 columns`: func(r *record.Result) {
			r.Tables = []record.Table{{Title: "t", Columns: []string{"a"}, Rows: [][]string{{"1", "2"}}}}
		},
		`series "s": x goes back at point 3`: func(r *record.Result) {
			r.Charts = []record.Chart{{Title: "c", Series: []record.Series{{Name: "s", Points: [][2]float64{{1, 1}, {2, 1}, {1.5, 1}}}}}}
		},
	} {
		res := compareResult()
		change(res)
		data, err := json.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Read(bytes.NewReader(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

// endless is a file without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestReadIsBounded(t *testing.T) {
	if _, err := Read(endless{}); err == nil || !strings.Contains(err.Error(), "larger than 64 MB") {
		t.Errorf("the error is %v", err)
	}
}

// TestWriteLeavesNoNumberOut: JSON has no NaN, and one must not cost the run.
func TestWriteLeavesNoNumbersOut(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	res := compareResult()
	res.Samples[0].Values["cpu_ns"] = nan
	res.Samples[1].Values["rss_bytes"] = inf
	res.Verdicts[0].Outcome, res.Verdicts[0].Low, res.Verdicts[0].P = record.Undecided, nan, nan
	res.Charts = []record.Chart{{Title: "c", Series: []record.Series{{Name: "s", Points: [][2]float64{{2, 1}, {1, nan}, {1, 5}, {inf, 3}}}}}}
	var b bytes.Buffer
	if err := Write(&b, res); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := got.Samples[0].Values["cpu_ns"]; ok {
		t.Error("a figure that is none was written")
	}
	if v := got.Verdicts[0]; v.Low != 0 || v.High != 0 || v.P != 1 {
		t.Errorf("half an interval is left: %+v", v)
	}
	if diff := cmp.Diff([][2]float64{{1, 5}, {2, 1}}, got.Charts[0].Series[0].Points); diff != "" {
		t.Error(diff)
	}
	if n := got.Notes[len(got.Notes)-1]; n != "6 figures were not numbers and left out" {
		t.Errorf("the note is %q", n)
	}
	if !math.IsNaN(res.Samples[0].Values["cpu_ns"]) || len(res.Charts[0].Series[0].Points) != 4 {
		t.Error("the result itself was changed")
	}
}

func FuzzRead(f *testing.F) {
	// Small ones: the fuzzer gets further with what it can change as a whole.
	for _, res := range []*record.Result{voidResult(), loadResult()} {
		res.Samples, res.Verdicts, res.Metrics = res.Samples[:1], res.Verdicts[:min(len(res.Verdicts), 1)], res.Metrics[:4]
		for i := range res.Charts {
			res.Charts[i].Series = res.Charts[i].Series[:1]
			res.Charts[i].Series[0].Points = res.Charts[i].Series[0].Points[:3]
		}
		data, err := json.Marshal(res)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"format":"millrace-lab/1","kind":"load","arms":null,"workloads":[]}`))
	f.Add([]byte(`{"format":"millrace-lab/0"}`))
	f.Add([]byte(`{"format":"millrace-lab/1","kind":"load","charts":[{"series":[{"points":[[1e308,-1e308],[1e308,1e308]]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		res, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		// Whatever is read can be written and read again, and drawn.
		var file, page, other bytes.Buffer
		if err := Write(&file, res); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(&file); err != nil {
			t.Fatal(err)
		}
		if err := HTML(&page, res); err != nil {
			t.Fatal(err)
		}
		if page.Len() > maxPage {
			t.Fatalf("a page of %d bytes", page.Len())
		}
		if err := Markdown(&other, res); err != nil {
			t.Fatal(err)
		}
		if err := Text(&other, res, 80); err != nil {
			t.Fatal(err)
		}
		if err := Benchstat(&other, res); err != nil {
			t.Fatal(err)
		}
		_ = SummaryTable([]*record.Result{res})
		_ = Sentence(res)
	})
}
