package experiment

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/site"
)

// A spec in small: everything that a page can say in another way.
const page = `
values:
  slot: [100ms, 2s]
  decide: ["[cpu_ns]", "[cpu_ns, requests_per_second]"]
name: small
title: a title
question: why?
selects: true
programs: [{folder: one}, {key: two, folder: one, full: true}]
arms:
  - {name: a, run: "one -listen {address}"}
  - {name: b, run: "millrace serve {site} -l {address}"}
  - {name: c, run: "two -listen {address}", full: true}
also: [[b, c]]
decide: "{decide}"
slot: "{slot}"
delta: 0.05
ours: b
workloads:
  - name: "{what}-{n}"
    each: [{what: get, path: /}, {what: post, path: /up}]
    and: [{n: 50, quick: true}, {n: 500, quick: false}]
    about: "{what} {path}, {n} at once"
    arms: [a, b, c]
    quick: "{quick}"
    paths: ["{path}"]
    connections: "{n}"
  - {name: site, paths: [site, page, /x], rate: 500, browser: true, connections: 7, needs: tool, quick: true, header: {X-Y: z}, body: 3}
`

func parsed(t *testing.T, mode record.Mode) *Spec {
	t.Helper()
	s, err := parseSpec(page, mode)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParse(t *testing.T) {
	s := parsed(t, record.Full)
	if len(s.Arms) != 3 || len(s.Programs) != 2 || s.Programs[0].Key != "one" || s.Slot != 2*time.Second || len(s.Decide) != 2 || len(s.Workloads) != 5 {
		t.Fatalf("%+v", s)
	}
	w := s.Workloads[3]
	if w.Name != "post-500" || w.About != "post /up, 500 at once" || w.Quick || w.Connections != 500 || w.Ours != "b" || w.Metric != CPU || w.Threads != 1 {
		t.Errorf("%+v", w)
	}
	c := s.Workloads[4].load()
	if len(c.Paths) != len(site.Small())+len(site.Page())+1 || c.Arrival != load.Poisson || c.Rate != 500 || c.Header.Get("X-Y") != "z" || c.Header.Get("Sec-Fetch-Mode") == "" || c.Request.Body == nil || *c.Request.Body != "xxx" || c.Connections != 7 {
		t.Errorf("%+v", c)
	}
	s = parsed(t, record.Quick)
	if len(s.Arms) != 2 || len(s.Programs) != 1 || s.Slot != 100*time.Millisecond || len(s.Decide) != 1 || slices.Contains(s.Workloads[0].Arms, "c") {
		t.Errorf("%+v", s)
	}
	for _, wrong := range []string{"nam: x", "workloads: [{nam: x}]", "workloads: [{name: x, each: 7}]", "workloads: [{name: x, each: [7]}]", "values: {x: 1}", "slot: soon"} {
		if _, err := parseSpec(wrong, record.Full); err == nil {
			t.Errorf("%s is a spec", wrong)
		}
	}
	if _, err := Read("nonsense", record.Full); err == nil {
		t.Error("a page that there is not")
	}
}

// TestPageOfLatency: the page of the experiment latency has answers that are not whole, and
// one that no cache has.
func TestPageOfLatency(t *testing.T) {
	s, err := Read("latency", record.Full)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Workloads, func(w Workload) bool { return w.Name == "page-2000" })
	c := s.Workloads[i].load()
	var mu sync.Mutex
	asked, status := map[string]int{}, map[int]int{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"`+r.URL.Path+`"`)
		code := http.StatusOK
		if r.Header.Get("If-None-Match") == `"`+r.URL.Path+`"` {
			code = http.StatusNotModified
		}
		mu.Lock()
		asked[r.RequestURI]++
		status[code]++
		mu.Unlock()
		w.WriteHeader(code)
	}))
	defer srv.Close()
	const turns, each = 5, 31 + 3 + 10 + 1
	c.URL, c.Requests, c.Connections, c.Arrival, c.Rate = srv.URL, turns*each, 1, load.Closed, 0
	res, err := load.Run(t.Context(), c)
	if err != nil || res.Requests != turns*each || res.Non2xx+res.Errors.Unexpected != 0 {
		t.Fatalf("%v, %+v", err, res)
	}
	missed := 0
	for uri, n := range asked {
		if strings.HasPrefix(uri, "/cached/1500?n=") && n == 1 {
			missed++
		}
	}
	if status[http.StatusNotModified] != turns*10 || status[http.StatusOK] != turns*(each-10) || missed != turns || asked["/page/"] != 2*turns || asked["/app/501"] != turns {
		t.Errorf("%v, %v, %d misses", status, asked, missed)
	}
}

var errMissing = errors.New("install it")

// quickRun is a run of the page in quick mode, with two of its workloads.
func quickRun(t *testing.T) *Run {
	t.Helper()
	r := NewRun(Env{Work: t.TempDir(), Mode: record.Quick}, parsed(t, record.Quick), &record.Result{})
	r.Missing["tool"] = errMissing
	return r
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		only  []string
		mode  record.Mode
		want  string
		notes int
	}{
		{[]string{"get-500"}, record.Quick, "get-500", 0},
		{[]string{"get-*", "post-50"}, record.Full, "get-50 get-500 post-50", 0},
		{nil, record.Full, "get-50 get-500 post-50 post-500", 1},
		{nil, record.Quick, "get-50 post-50", 1},
		{[]string{"site"}, record.Full, "", 1},
		{[]string{"nothing"}, record.Full, "", 0},
		{[]string{"["}, record.Full, "", 0},
	} {
		r := NewRun(Env{Mode: c.mode, Only: c.only}, parsed(t, c.mode), &record.Result{})
		r.Missing["tool"] = errMissing
		chosen, err := r.choose()
		var names []string
		for _, w := range chosen {
			names = append(names, w.Name)
		}
		if got := strings.Join(names, " "); got != c.want || (err != nil) != (c.want == "") || len(r.Res.Notes) != c.notes {
			t.Errorf("%q: %q, %v, %q", c.only, got, err, r.Res.Notes)
		}
	}
}

// Arms that no workload needs are not started, those that cannot run say why, and
// there are as many blocks as can give a verdict.
func TestPlan(t *testing.T) {
	r := quickRun(t)
	var err error
	if r.Programs, err = r.Build(t.Context(), r.Spec.Programs); err != nil {
		t.Fatal(err)
	}
	r.Env.Millrace = "/bin/true"
	if r.Chosen, err = r.choose(); err != nil {
		t.Fatal(err)
	}
	arms, err := r.arms(t.Context())
	if err != nil || len(arms) != 2 || arms[0].Skipped != ErrNoSources.Error() || arms[1].Skipped != "" || strings.Join(arms[1].Command, " ") != "true serve SITE -l 127.0.0.1:PORT" {
		t.Fatalf("%+v, %v", arms, err)
	}
	p := r.plan(arms)
	if err := p.Check(); err != nil || len(p.Workloads) != 2 || len(p.Also) != 0 || p.Budget <= 0 || len(p.Blocks) != 3 || p.Blocks[0] < 8 || p.Blocks[2] != 4*p.Blocks[0] {
		t.Errorf("%+v, %v", p, err)
	}
	r.Spec.Unlimited, r.Chosen = true, []Workload{{Name: "many", Connections: 9}, {Name: "few", Connections: 1, Arms: []string{"a"}}}
	if p := r.plan(arms); p.Budget != 0 || p.Workloads[0].Name != "few" {
		t.Errorf("%+v", p)
	}
	r.Chosen = r.Chosen[1:]
	if arms, err := r.arms(t.Context()); err != nil || len(arms) != 1 {
		t.Errorf("%+v, %v", arms, err)
	}
}

// sample is one figure.
func sample(arm, workload string, block int, metric string, v float64) record.Sample {
	return record.Sample{Arm: arm, Workload: workload, Block: block, Values: map[string]float64{metric: v}}
}

// TestRatios: ratios are taken within rounds, and what is lost is listed.
func TestRatios(t *testing.T) {
	w := Workload{Name: "r", Figure: "CPU per request", Metric: CPU, Ours: "millrace", Arms: []string{"nginx", "h2o", "millrace"}, Goal: 0.5}
	res := &record.Result{Metrics: []record.Metric{{Key: CPU, Unit: "ns"}}}
	for block, ns := range []float64{100, 200, 400} {
		for arm, factor := range map[string]float64{"nginx": 1, "millrace": 2, "h2o": 4} {
			res.Samples = append(res.Samples, sample(arm, "r", block, CPU, ns*factor))
		}
	}
	spec := &Spec{Peers: []Peer{{"nginx", "nginx"}, {"h2o", "H2O"}}, Answer: []Sentence{{Rows: true}}}
	r := &Run{Spec: spec, Res: res, Chosen: []Workload{w, {Name: "none", Ours: "-", Arms: []string{"nginx"}}}}
	if rows := r.table(Table{Kind: "standings"}).Rows; len(rows) != 1 || rows[0][4] != "2.00 (2.00–2.00)" || rows[0][6] != "not reached" || rows[0][7] != "800 ns" {
		t.Errorf("standings: %q", rows)
	}
	if rows := r.table(Table{Kind: "losses"}).Rows; len(rows) != 1 || rows[0][2] != "nginx" || rows[0][6] != "in each round" {
		t.Errorf("losses: %q", rows)
	}
	side := Table{Kind: "side", Columns: []Column{{Name: "CPU", Metric: CPU}, {Name: "nothing", Metric: "x"}}}
	if got := r.table(side); len(got.Rows) != 1 || got.Columns[3] != "H2O" || got.Rows[0][2] != "200 ns" {
		t.Errorf("side: %+v", got)
	}
	if side.Arms = []string{"millrace"}; r.table(side).Rows[0][2] != "400 ns" {
		t.Errorf("side of one arm: %+v", r.table(side))
	}
	headline := w
	headline.Headline, headline.Goal = true, 0
	for _, chosen := range [][]Workload{{w}, {headline}, {w, headline}} {
		r.Chosen = chosen
		if got, want := r.answer(), `does Millrace spend less than nginx? not decided here on “r” (2.00 (2.00–2.00) in 3 rounds)`; got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	for block := range 2 {
		res.Samples = append(res.Samples, sample("nginx", "r", 3+block, CPU, 100), sample("millrace", "r", 3+block, CPU, 150))
	}
	if got, want := r.answer(), `does Millrace spend less than nginx? no on “r” (2.00 (1.50–2.00) in 5 rounds)`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	r.Res = &record.Result{}
	if got := r.answer(); got != "" {
		t.Errorf("an answer to nothing: %s", got)
	}
	if rows := r.table(Table{Kind: "losses"}).Rows; len(rows) != 1 || rows[0][0] != "none" {
		t.Errorf("no losses: %q", rows)
	}
}

// verdict is one with an outcome.
func verdict(o record.Outcome, ratio, low, high float64) record.Verdict {
	return record.Verdict{Workload: "w", Metric: CPU, Arm: "b", Baseline: "a", Outcome: o, Ratio: ratio, Low: low, High: high, Delta: 0.05}
}

// A headline says what its verdicts say to a question, and a quick run how to decide
// what is open.
func TestAnswer(t *testing.T) {
	few := verdict(record.Undecided, 0.8, 0.6, 0.9)
	few.Why = "two blocks are too few"
	if got := Difference(few); got != "undecided [−40.0 %, −10.0 %] (two blocks are too few)" {
		t.Error(got)
	}
	better, worse := verdict(record.Better, 0.5, 0.4, 0.6), verdict(record.Worse, 1.5, 1.4, 1.6)
	equal, open := verdict(record.Equal, 1, 0.99, 1.01), verdict(record.Undecided, 0.8, 0.6, 1.2)
	better.Workload, equal.Workload, open.Workload = "u", "v", "x"
	r := &Run{
		Res: &record.Result{
			Verdicts:  []record.Verdict{open, worse, better, equal},
			Workloads: []record.Workload{{Name: "u"}, {Name: "v"}, {Name: "w"}, {Name: "x"}, {Name: "other"}},
		},
		Spec: &Spec{Published: map[string]map[string]float64{"w": {"a": 10, "b": 11}}},
	}
	for _, c := range []struct {
		ask  Sentence
		full bool
		want string
	}{
		{Sentence{Ask: "Less?", Arm: "b", Against: "a", Metric: CPU, Workloads: []string{"u", "w"}}, false, "Less? yes on “u” (−50.0 % [−60.0 %, −40.0 %], better); no on “w” (+50.0 % [+40.0 %, +60.0 %], worse, published +10.0 %)"},
		{Sentence{Ask: "More?", Arm: "b", Against: "a", Metric: CPU, Workloads: []string{"w"}, Yes: record.Worse}, false, "More? yes on “w” (+50.0 % [+40.0 %, +60.0 %], worse, published +10.0 %)"},
		{Sentence{Ask: "Less?", Arm: "b", Against: "a", Metric: CPU, Workloads: []string{"v", "x"}}, false, "Less? no on “v” (equal within ±5 % [−1.0 %, +1.0 %]); not decided here on “x” (undecided [−40.0 %, +20.0 %]), run --full for 15 minutes"},
		{Sentence{Ask: "Less?", Arm: "b", Against: "a", Metric: CPU, Workloads: []string{"x"}}, true, "Less? not decided here on “x” (undecided [−40.0 %, +20.0 %])"},
		{Sentence{Ask: "Less?", Arm: "nobody", Against: "a", Metric: CPU}, false, ""},
	} {
		r.Quick, r.Spec.Answer = !c.full, []Sentence{c.ask}
		if got := r.answer(); got != c.want {
			t.Errorf("%s\nnot %s", got, c.want)
		}
	}
}

func TestTables(t *testing.T) {
	res := &record.Result{
		Arms: []record.Arm{{Name: "a"}, {Name: "b"}, {Name: "a′", Placebo: "a"}}, Workloads: []record.Workload{{Name: "w"}},
		Metrics: []record.Metric{{Key: CPU, Name: "CPU", Unit: "ns"}, {Key: "failed"}},
		Samples: []record.Sample{sample("a", "w", 0, CPU, 2000), sample("b", "w", 0, CPU, 3000), sample("a′", "w", 0, CPU, 2000), sample("b", "w", 1, "failed", 0)},
		Verdicts: []record.Verdict{
			verdict(record.Worse, 1.5, 1.4, 1.6), {Workload: "w", Arm: "b", Baseline: "a′", Metric: CPU}, {Workload: "w", Arm: "a", Baseline: "b", Metric: CPU},
		},
	}
	r := &Run{Res: res, Spec: &Spec{Published: map[string]map[string]float64{"w": {"a": 10, "b": 30}}}}
	columns := []Column{
		{Name: "published", Published: true, Scale: 1}, {Name: "µs", Metric: CPU, Scale: 1e-3, Digits: 1}, {Name: "CPU", Metric: CPU}, {Name: "failed", Metric: "failed"},
	}
	got := r.table(Table{Workloads: []string{"w"}, Against: "a", Columns: columns})
	if want := "[[w a 10 2.0 2 µs –] [w b 30 (+200.0 %) 3.0 (+50.0 %) 3 µs (+50.0 %) 0]]"; fmt.Sprint(got.Rows) != want || got.Columns[1] != "arm" {
		t.Errorf("%q, %q", got.Columns, got.Rows)
	}
	for i := range columns {
		columns[i].Workload = "w"
	}
	if got := r.table(Table{Arms: []string{"b"}, Columns: columns}); len(got.Rows) != 1 || got.Rows[0][0] != "b" || got.Columns[0] != "arm" {
		t.Errorf("%q, %q", got.Columns, got.Rows)
	}
	if got := r.table(Table{Kind: "beside", Arms: []string{"b"}}); len(got.Rows) != 1 || strings.Join(got.Rows[0], "|") != "w|CPU|b|3 µs|a|2 µs|+50.0 %|[+40.0 %, +60.0 %]|worse" {
		t.Errorf("%q", got.Rows)
	}
}

// Workloads of a name that nobody has are not for an experiment that is measured whole.
func TestWhole(t *testing.T) {
	e := Experiment{Spec: &Spec{Name: "x"}}
	if _, err := e.Measure(t.Context(), record.KindExperiment, Env{Only: []string{"w"}}); !errors.Is(err, ErrWhole) {
		t.Error(err)
	}
}
