package report

import (
	"strings"
	"testing"
	"time"

	"millrace/bench/subjects/internal/cache"
	"millrace/bench/subjects/internal/metrics"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/record"
)

var cacheOrder = []string{"json40", "json32k"}

// cacheSample is a run of two rounds in which nginx costs 20 µs, Varnish 30 and
// millrace cost.
func cacheSample(cost time.Duration) *record.Run {
	r := &record.Run{
		Scenario: "cache", Seed: 42, Rounds: 2, Slot: 3 * time.Second, Hold: time.Minute, Tagged: 100_000,
		Machine: proc.Machine{CPU: "Some CPU", Cores: 2, Kernel: "Linux 6", Memory: 4e9},
		Arms: []record.Arm{
			{Name: "nginx", Title: "nginx", Program: "nginx", Command: "nginx -c DIR/nginx.conf"},
			{Name: "varnish", Title: "Varnish", Program: "varnish"},
			{Name: "millrace", Title: "millrace", Program: "millrace", Ours: true},
		},
	}
	costs := map[string]time.Duration{"nginx": 20 * time.Microsecond, "varnish": 30 * time.Microsecond, "millrace": cost}
	for round := 1; round <= 2; round++ {
		for _, c := range []record.Cell{{Workload: "json32k", Title: "32 KB", Connections: 50}, {Workload: "json40", Title: "40 bytes", Connections: 1000}} {
			for _, a := range r.Arms {
				s := slot(c, round, a, costs[a.Name]*time.Duration(round))
				if a.Ours {
					s.Counts = &metrics.Counts{Fast: 100}
				}
				r.Small = append(r.Small, s)
			}
		}
		for _, a := range r.Arms {
			slowest := 310.0
			if a.Name == "nginx" {
				slowest = 520
			}
			r.Cases = append(r.Cases,
				record.Case{Name: cache.Cold, Round: round, Arm: a.Name, Values: map[string]float64{cache.Asked: 1, cache.Slowest: slowest, cache.Failed: 0}},
				record.Case{Name: cache.Private, Round: round, Arm: a.Name, Values: map[string]float64{cache.Slowest: 2 * slowest, cache.Second: slowest}},
				record.Case{Name: cache.Follow, Round: round, Arm: a.Name, Values: map[string]float64{cache.First: 1, cache.Asked: 1}},
				record.Case{Name: cache.Stale, Round: round, Arm: a.Name, Values: map[string]float64{cache.Slowest: 2, cache.Asked: 1}})
			if a.Name != "nginx" {
				r.Cases = append(r.Cases, record.Case{Name: cache.Purged, Round: round, Arm: a.Name, Values: map[string]float64{cache.Purge: .2, cache.Seen: .5, cache.Stored: 1}})
			}
		}
	}
	f := record.Flood{Arm: "millrace", Budget: 200e6, Size: 1024, URLs: 1_000_000, Filled: 40 * time.Second, Took: 100 * time.Second, Done: 1_600_000, Reached: 1_600_000}
	for i := range 100 {
		f.Readings = append(f.Readings, record.Reading{At: time.Duration(i) * time.Second, Done: uint64(i) * 16_000, Memory: proc.Memory{RSS: uint64(min(i, 40)) * 6e6}})
	}
	r.Floods = []record.Flood{f}
	return r
}

func TestCacheBars(t *testing.T) {
	verdicts := map[string]string{}
	r := cacheSample(14 * time.Microsecond)
	for _, b := range barsOf(r, cells(r, cacheOrder)) {
		verdicts[b.what] = b.verdict()
	}
	for what, want := range map[string]string{
		"CPU per request of nginx's, 40 bytes, 1000 connections":                   "pass", // 0.70
		"CPU per request of Varnish's, 40 bytes, 1000 connections":                 "pass", // 0.47
		"CPU per request of the better peer's (nginx), 32 KB, 50 connections":      "pass",
		"Failed requests of millrace, hits":                                        "pass",
		"Requests that reached the API during the hits, of all caches":             "pass",
		"100 clients, a cold answer of 300 ms: requests to the API":                "pass",
		"100 clients, a cold answer of 300 ms: the slowest client":                 "pass",
		"50 clients, a `private` answer of 300 ms: the slowest client, first wave": "pass",
		"a tag of all answers purged: until the purge is answered":                 "pass",
		"Memory at most, of the budget, 1,000,000 URLs":                            "pass", // 1.2
		"Memory in the last third of the 1m0s after that, of the first third":      "pass",
	} {
		if verdicts[what] != want {
			t.Errorf("%s: %q, want %q; there are %v", what, verdicts[what], want, verdicts)
		}
	}
	if missed, measured := Missed(r, cacheOrder); missed != 0 || measured != len(verdicts) || measured < 15 {
		t.Errorf("%d of %d missed", missed, measured)
	}
}

func TestCacheBarsFail(t *testing.T) {
	r := cacheSample(40 * time.Microsecond)
	r.Small[2].Upstream, r.Small[2].Wrk.Status = 1, 1
	for i := range r.Cases {
		for key := range r.Cases[i].Values {
			r.Cases[i].Values[key] += 1000
		}
	}
	f := &r.Floods[0]
	for i := range f.Readings {
		f.Readings[i].RSS = uint64(i) * 3e6
	}
	for _, b := range barsOf(r, cells(r, cacheOrder)) {
		if b.verdict() != "**fail**" {
			t.Errorf("%s: %+v is a %s", b.what, b.got, b.verdict())
		}
	}
}

func TestCacheIsComplete(t *testing.T) {
	text := Cache(cacheSample(25*time.Microsecond), cacheOrder)
	for _, want := range []string{
		"# Results of `bench/run cache`", "### 40 bytes, 1000 connections", "## Waiting, streaming and purging", "bench/run cache --seed 42",
		"| 40 bytes, 1000 connections | CPU per request | nginx | 37.50 µs | 30.00 µs | 1.25 (1.25–1.25) | in each round |",
		"| a tag of all answers purged | until the purge is answered | ≤ 1.00 ms | – | 0.20 ms (0.20 ms–0.20 ms) | 0.20 ms",
		"| 40 bytes, 1000 connections | millrace | 200,000 | 0 | 100.00 % |",
		"Runs of each case: 2. Purges: 2, of 100,000 answers, 100.0 %", "at most 240.0 MB were resident, 1.20 of it",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, never := range []string{"NaN", "%!", "Inf", "256 MB over", "after 1m0s of load", "quick run"} {
		if strings.Contains(text, never) {
			t.Errorf("%q is in the results:\n%s", never, text)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestCacheOfNothing: arms that are missing leave dashes, and no claims.
func TestCacheOfNothing(t *testing.T) {
	r := &record.Run{Scenario: "cache", Arms: []record.Arm{{Name: "millrace", Title: "millrace", Ours: true}}}
	for _, b := range barsOf(r, nil) {
		if b.verdict() != "not measured" {
			t.Errorf("%s: %q", b.what, b.verdict())
		}
	}
	r.Floods = []record.Flood{{Arm: "millrace", Budget: 1, Readings: []record.Reading{{At: time.Second}}}}
	if text := Cache(r, nil); strings.Contains(text, "NaN") || strings.Contains(text, "No peer was better") {
		t.Error(text)
	}
}
