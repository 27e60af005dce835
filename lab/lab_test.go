package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/record"
)

func testServer(t *testing.T, answer string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestLoad(t *testing.T) {
	s := testServer(t, "hello")
	events := map[record.EventKind]int{}
	res, err := Load(t.Context(), LoadOptions{Config: load.Config{
		URL: s.URL + "/", Connections: 2, Warmup: 20 * time.Millisecond, Duration: 600 * time.Millisecond,
	}}, func(e record.Event) { events[e.Kind]++ })
	if err != nil {
		t.Fatal(err)
	}
	// The other checks are about the machine, and a busy one may fail them.
	if len(res.Gates) == 0 || res.Gates[0].Name != "answers without errors" || res.Gates[0].Status != record.Passed {
		t.Errorf("checks: %+v", res.Gates)
	}
	v := res.Samples[0].Values
	for _, key := range []string{"requests_per_second", "latency_p99_ns", "cpu_ns", "rss_bytes", "generator_cpu_ns", "bytes_per_answer"} {
		if v[key] <= 0 {
			t.Errorf("%s = %v", key, v[key])
		}
	}
	if len(res.Charts) < 6 || len(res.Tables) != 2 || res.Ended.IsZero() || res.Machine.Cores == 0 {
		t.Errorf("%d charts, %d tables, ended %v, machine %+v", len(res.Charts), len(res.Tables), res.Ended, res.Machine)
	}
	if events[record.EventTick] == 0 || events[record.EventStep] == 0 {
		t.Errorf("events: %v", events)
	}
}

// A target that answers with errors is measured, and the result is void.
func TestLoadOfErrors(t *testing.T) {
	s := testServer(t, "hello")
	res, err := Load(t.Context(), LoadOptions{Config: load.Config{URL: s.URL + "/missing", Connections: 1, Duration: 100 * time.Millisecond}}, nil)
	if err != nil || !res.Void() {
		t.Errorf("err = %v, void = %v", err, res.Void())
	}
}

// A target that refuses is an error, and the result looks like nothing.
func TestLoadOfNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	res, err := Load(t.Context(), LoadOptions{Config: load.Config{URL: "http://" + address, Duration: 100 * time.Millisecond}}, nil)
	if err == nil || !strings.Contains(err.Error(), "refused") || len(res.Samples) != 0 || res.Interrupted == "" {
		t.Errorf("err = %v, samples %d, interrupted %q", err, len(res.Samples), res.Interrupted)
	}
}

// An interrupt keeps what was measured, and says so.
func TestLoadInterrupted(t *testing.T) {
	s := testServer(t, "hello")
	ctx, cancel := context.WithCancel(t.Context())
	res, err := Load(ctx, LoadOptions{Config: load.Config{URL: s.URL, Connections: 1, Duration: time.Minute}}, func(e record.Event) {
		if e.Requests > 0 {
			cancel()
		}
	})
	cancel()
	if err != nil || res.Interrupted == "" || len(res.Samples) != 1 || res.Samples[0].Seconds > 30 {
		t.Errorf("err = %v, interrupted %q, samples %+v", err, res.Interrupted, res.Samples)
	}
}

func TestCompare(t *testing.T) {
	a, b := testServer(t, "hello"), testServer(t, "hello")
	o := CompareOptions{
		Arms: []CompareArm{{Name: "a", URL: a.URL}, {Name: "b", URL: b.URL}},
		Load: load.Config{Connections: 1}, Mode: record.Quick, Blocks: []int{2}, Slot: 60 * time.Millisecond, Seed: 7,
	}
	res, err := Compare(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Samples) != 6 || res.Seed != 7 || res.Rule == "" || res.Title != "a against b" {
		t.Errorf("%d samples, seed %d, rule %q, title %q", len(res.Samples), res.Seed, res.Rule, res.Title)
	}
	for _, v := range res.Verdicts {
		if v.Outcome == record.Better || v.Outcome == record.Worse {
			t.Errorf("two blocks cannot prove anything, and yet: %s", v.Sentence)
		}
	}
	o.Arms = o.Arms[:1]
	if _, err := Compare(t.Context(), o, nil); err == nil {
		t.Error("one arm was compared")
	}
}

func TestParseArm(t *testing.T) {
	for text, want := range map[string]CompareArm{
		"A=http://127.0.0.1:1/x?y=z":        {Name: "A", URL: "http://127.0.0.1:1/x?y=z"},
		"b=unix:/run/x.sock":                {Name: "b", URL: "unix:/run/x.sock"},
		"c=./serve -a=1 127.0.0.1:{port}":   {Name: "c", Command: "./serve -a=1 127.0.0.1:{port}"},
		"ws=wss://127.0.0.1/":               {Name: "ws", URL: "wss://127.0.0.1/"},
		"new-one=PORT={port} ./server -all": {Name: "new-one", Command: "PORT={port} ./server -all"},
	} {
		if got, err := ParseArm(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "A", "=x", "A=", "http://127.0.0.1/?a=b", "A=./server -p 80", "a b=./x {port}"} {
		if got, err := ParseArm(text); err == nil {
			t.Errorf("%q became %+v", text, got)
		}
	}
}

func FuzzParseArm(f *testing.F) {
	for _, s := range []string{"A=http://x", "A='x {port}'", "=", "A=unix:", "\x00=\x00{port}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		arm, err := ParseArm(s)
		if err != nil {
			return
		}
		if arm.Name == "" || (arm.URL == "") == (arm.Command == "") {
			t.Errorf("%q became %+v", s, arm)
		}
		if back := arm.Name + "=" + arm.URL + arm.Command; back != s {
			t.Errorf("%q came back as %q", s, back)
		}
	})
}

func TestListening(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := testServer(t, "")
	for _, url := range []string{s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1) + "/path", "unix:" + l.Addr().String()} {
		if pids, err := listening(url, ""); err != nil || len(pids) == 0 {
			t.Errorf("%s: %v, %v", url, pids, err)
		}
	}
	for _, url := range []string{"http://192.0.2.1/", "http://example.org:80/", "http://[::1", "unix:/nowhere"} {
		if pids, err := listening(url, ""); err == nil {
			t.Errorf("%s: %v", url, pids)
		}
	}
}

func TestExperiment(t *testing.T) {
	_, err := Experiment(t.Context(), "nonsense", experiment.Env{})
	if err == nil || !strings.Contains(err.Error(), "embed-vs-disk") {
		t.Errorf("the error does not say what there is: %v", err)
	}
	all, err := Experiments()
	if err != nil || len(all) != 14 {
		t.Fatalf("%d experiments, %v", len(all), err)
	}
	seen := map[string]bool{}
	for _, e := range all {
		if e.Title == "" || e.Question == "" || e.Claim == "" || e.Rule == "" || seen[e.Name] || !strings.HasSuffix(e.Question, "?") {
			t.Errorf("%s is incomplete or there twice", e.Name)
		}
		seen[e.Name] = true
	}
	// Nothing was measured yet when it is stopped at once.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res, err := Experiment(ctx, "pgo-proof", experiment.Env{Mode: record.Quick, Work: t.TempDir()})
	if err != nil && !errors.Is(err, context.Canceled) || res == nil || res.Interrupted == "" {
		t.Errorf("res = %+v, err = %v", res, err)
	}
}

// A closed loop that stood still says so, with the rate to ask for by the clock
// and a percentile that counts who would have waited.
func TestHolesAreSaid(t *testing.T) {
	got := &load.Result{Took: 10 * time.Second, Requests: 100_000, Interval: 5 * time.Millisecond, Holes: []load.Hole{
		{At: 4 * time.Second, Length: time.Second}, {At: 9 * time.Second, Length: 900 * time.Millisecond},
	}}
	for range 990 {
		got.Latency.Record(4 * time.Millisecond)
	}
	got.Latency.Record(time.Second)
	want := "Nothing was answered for 1s at a time, 2 times (19 % of the time): a closed loop does not ask meanwhile, so that its 99th percentile of 4.01ms " +
		"hides what visitors would see, about 944ms; measure that with --rate 5000, half of what was answered here"
	if s := holesAnswer(got); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	table := latencyTable(got, load.Config{})
	if strings.Join(table.Columns, "|") != "|latency|corrected|opening a connection" {
		t.Errorf("columns %q", table.Columns)
	}
	got.Holes = nil
	if table := latencyTable(got, load.Config{}); len(table.Columns) != 3 || strings.Contains(table.About, "Corrected") {
		t.Errorf("without holes: %+v", table)
	}
}
