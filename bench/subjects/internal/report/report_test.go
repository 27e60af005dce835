package report

import (
	"strings"
	"testing"
	"time"

	"millrace/bench/subjects/internal/metrics"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/wrk"
)

var order = []string{"root", "browser"}

// sample is a run of two rounds in which millrace costs cost µs and nginx 20,
// without a log, and both as much with one.
func sample(cost time.Duration) *record.Run {
	r := &record.Run{
		Scenario: "files", Seed: 42, Rounds: 2, Slot: 3 * time.Second, Hold: time.Minute,
		Started: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC), Took: 20 * time.Minute,
		Machine:  proc.Machine{CPU: "Some CPU", Cores: 2, Kernel: "Linux 6", Memory: 4e9},
		Versions: []record.Version{{Program: "nginx", Version: "1.22.1"}},
		Arms: []record.Arm{
			{Name: "nginx", Title: "nginx", Program: "nginx", Command: "nginx -c DIR/nginx.conf"},
			{Name: "nethttp", Title: "net/http FileServer", Program: "nethttp"},
			{Name: "millrace", Title: "millrace", Program: "millrace", Ours: true},
			{Name: "nginx-log", Title: "nginx, log", Program: "nginx", Logs: true},
			{Name: "millrace-log", Title: "millrace, log", Program: "millrace", Ours: true, Logs: true},
		},
	}
	// Out of order, as a run is: the tables must not be.
	cells := []record.Cell{
		{Workload: "browser", Title: "as a browser", Browser: true, Connections: 1000},
		{Workload: "root", Title: "one file", Connections: 50},
	}
	for round := 1; round <= 2; round++ {
		for _, c := range cells {
			for _, a := range r.Arms {
				each := 20 * time.Microsecond
				if a.Ours && !a.Logs {
					each = cost
				}
				// Round 2 is on a machine that is half as fast.
				r.Small = append(r.Small, slot(c, round, a, each*time.Duration(round)))
			}
		}
		for _, a := range r.Arms {
			if a.Logs {
				continue
			}
			for _, network := range []string{"tcp", "unix"} {
				l := record.Large{Round: round, Arm: a.Name, Network: network, Bytes: 1e9, Duration: time.Second}
				l.Server.Total = 100 * time.Millisecond
				if a.Name == "nethttp" && network == "unix" {
					l.Server.Total *= 4
				}
				r.Large = append(r.Large, l)
			}
		}
	}
	for _, a := range r.Arms {
		r.Memory = append(r.Memory, record.Memory{Arm: a.Name, Held: proc.Memory{RSS: 50e6, PSS: 40e6}})
	}
	return r
}

// slot is one in which 100000 requests were answered at a cost of each.
func slot(c record.Cell, round int, a record.Arm, each time.Duration) record.Small {
	s := record.Small{
		Cell: c, Round: round, Arm: a.Name, Lines: 100_000, Wall: 3 * time.Second,
		Wrk:    wrk.Result{Requests: 100_000, Duration: time.Duration(float64(each) * 1e5), P50: time.Millisecond, P99: time.Millisecond},
		Server: proc.CPU{Total: 100_000 * each},
	}
	if a.Ours {
		s.Counts = &metrics.Counts{Fast: 99_000, Slow: 1000}
	}
	return s
}

func TestBars(t *testing.T) {
	verdicts := map[string]string{}
	for _, b := range bars(sample(14*time.Microsecond), cells(sample(1), order)) {
		if b.got.Min > b.got.Median || b.got.Max < b.got.Median {
			t.Errorf("%s: %+v", b.what, b.got)
		}
		verdicts[b.what] = b.verdict()
	}
	for what, want := range map[string]string{
		"CPU per request of nginx's, no log, one file, 50 connections":          "pass", // 0.70 in each round
		"Requests/s of nginx's, no log, one file, 50 connections":               "pass", // 1.43
		"CPU per request of nginx's, both with a log, one file, 50 connections": "**fail**",
		"256 MB over TCP: CPU per byte of nginx's":                              "pass",
		"256 MB over a UNIX socket: CPU per byte of net/http's FileServer":      "pass", // 0.25
		"Share of the lane in the answers to Chromium":                          "pass",
		"Failed requests of millrace":                                           "pass",
	} {
		if verdicts[what] != want {
			t.Errorf("%s: %q, want %q; there are %v", what, verdicts[what], want, verdicts)
		}
	}
}

func TestBarsFail(t *testing.T) {
	r := sample(16 * time.Microsecond) // 0.80 of nginx
	r.Small[2].Wrk.Timeout = 1
	for i := range r.Memory {
		r.Memory[i].Held.RSS = 61e6
	}
	for i := range r.Small {
		if r.Small[i].Counts != nil {
			r.Small[i].Counts.Slow = 90_000
		}
	}
	for i := range r.Large {
		if r.Large[i].Arm == "millrace" {
			r.Large[i].Server.Total *= 2
		}
	}
	for _, b := range bars(r, cells(r, order)) {
		if strings.HasPrefix(b.what, "Requests/s of nginx's, no log") {
			continue // exactly the bar
		}
		if b.verdict() != "**fail**" {
			t.Errorf("%s: %+v is a %s", b.what, b.got, b.verdict())
		}
	}
}

func TestNothingMeasuredIsNoPass(t *testing.T) {
	r := &record.Run{Arms: []record.Arm{{Name: "nginx"}}}
	for _, b := range bars(r, nil) {
		if b.verdict() != "not measured" {
			t.Errorf("%s: %q", b.what, b.verdict())
		}
	}
	if missed, measured := Missed(r, nil); missed != 0 || measured != 0 {
		t.Errorf("Missed = %d, %d", missed, measured)
	}
	if text := Files(r, nil); strings.Contains(text, "No peer was better") {
		t.Error("a run without millrace says that no peer was better")
	}
}

func TestLosses(t *testing.T) {
	r := sample(30 * time.Microsecond)
	rows := cells(r, order)
	list := strings.Join(losses(r, rows), "\n")
	for _, want := range []string{
		"| one file, 50 connections | CPU per request | nginx | 45.00 µs | 30.00 µs | 1.50 (1.50–1.50) | in each round |",
		"| as a browser, 1000 connections | requests/s | net/http FileServer |",
	} {
		if !strings.Contains(list, want) {
			t.Errorf("no row %q in\n%s", want, list)
		}
	}
	for _, never := range []string{"log", "256 MB", "latency", "memory"} { // all are even
		if strings.Contains(list, never) {
			t.Errorf("a row about %q, where nobody is better:\n%s", never, list)
		}
	}
	if list := losses(sample(10*time.Microsecond), rows); len(list) != 0 {
		t.Errorf("millrace is better throughout, and loses: %q", list)
	}
	r = sample(10 * time.Microsecond)
	r.Memory[0].Held.PSS = 10e6
	if list := losses(r, rows); len(list) != 1 || !strings.Contains(list[0], "40.0 MB | 10.0 MB | 4.00 | measured once |") {
		t.Errorf("nginx holds a quarter, and the rows are %q", list)
	}
}

func TestFilesIsComplete(t *testing.T) {
	text := Files(sample(14*time.Microsecond), order)
	for _, want := range []string{
		"2025-01-02 03:04 UTC", "Some CPU, 2 cores", "1.22.1", "seed 42",
		"## The bars", "## Where we lose", "### one file, 50 connections", "### 256 MB over a UNIX socket",
		"## Memory", "99.00 %", "bench/run files --seed 42", "nginx -c DIR/nginx.conf",
		"0.70 (0.70–0.70)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Index(text, "### one file") > strings.Index(text, "### as a browser") {
		t.Error("the tables are in the order of the slots, not of the plan")
	}
	for _, never := range []string{"NaN", "%!", "Inf", "quick run", "not quiet"} {
		if strings.Contains(text, never) {
			t.Errorf("%q is in the results:\n%s", never, text)
		}
	}
}

func TestDisturbedRunsSaySo(t *testing.T) {
	r := sample(14 * time.Microsecond)
	r.Quick = true
	for i := range r.Small {
		r.Small[i].Other = time.Second // of 6
	}
	text := Files(r, order)
	for _, want := range []string{"not quiet", "16.7 %", "quick run"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
}

func TestThousands(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567.4: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := thousands(v); got != want {
			t.Errorf("thousands(%v) = %q, want %q", v, got, want)
		}
	}
}
