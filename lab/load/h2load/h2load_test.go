package h2load

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const text = `starting benchmark...
Warm-up started for thread #0.
progress: 100% of clients started
Main benchmark duration is started for thread #0.
Main benchmark duration is over for thread #0. Stopping all clients.
Stopped all clients for thread #0

finished in 1.50s, 148770.00 req/s, 75.48MB/s
requests: 148775 total, 148775 started, 148775 done, 148770 succeeded, 2 failed, 1 errored, 1 timeout
status codes: 148700 2xx, 1 3xx, 1 4xx, 0 5xx
traffic: 75.48MB (79146790) total, 2.32MB (2435430) headers (space savings 92.51%), 89.28MB (93616860) data
                     min         max         mean         sd        +/- sd
time for request:       27us     69.84ms      2.53ms      5.87ms    94.00%
`

// TestListen: h2load's window is the trial's, and all that it counts is read.
func TestListen(t *testing.T) {
	var windows []bool
	w := listen(strings.NewReader(text), func(open bool) { windows = append(windows, open) })
	got, err := w.result(true)
	if err != nil || !slices.Equal(windows, []bool{true, false}) {
		t.Fatalf("%v, windows %v", err, windows)
	}
	if got.Done != 148769 || got.Failed != 3 || got.FirstFailure == "" || got.Values["latency_mean_ns"] != 2.53e6 {
		t.Errorf("%+v", got)
	}
	for _, wrong := range []string{"", "requests: 1 total\n", strings.Replace(text, "Main benchmark duration is over", "x", 1)} {
		w := listen(strings.NewReader(wrong), func(bool) {})
		if _, err := w.result(true); !errors.Is(err, errNoResult) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestArguments(t *testing.T) {
	got := strings.Join(Burst{URL: "https://x/", Connections: 1000, Streams: 10, Length: time.Second}.arguments(), " ")
	if want := "-t 1 -c 1000 -m 10 -D 1000ms --warm-up-time 3000ms https://x/"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	got = strings.Join(Burst{URL: "https://x/", Connections: 1, Streams: 1, HTTP1: true, Requests: 2, Log: "f"}.arguments(), " ")
	if want := "-t 1 -c 1 -m 1 --h1 --log-file=f -n 2 https://x/"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

// TestNoEnd: a run that does not end is ended, and says so.
func TestNoEnd(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "h2load")
	if err := os.WriteFile(exe, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := Burst{Exe: exe, URL: "https://x/", Connections: 1, Streams: 1, Length: time.Millisecond, Window: func(bool) {}, allowance: time.Millisecond}
	if _, err := b.Run(t.Context()); !errors.Is(err, errNoEnd) {
		t.Error(err)
	}
}

// TestLog: the times are read, and what is not a log is told.
func TestLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]time.Duration{
		"1700000000000000\t200\t100\n1700000000000100\t200\t300\n": 300 * time.Microsecond,
		"1 200\n": 0, "1 200 x\n": 0,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readLog(name)
		if (err != nil) != (want == 0) {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil && (got.Quantile(0.99) < want || got.Quantile(0.99) > want+want/50) {
			t.Errorf("%q: %v", text, got.Quantile(0.99))
		}
	}
}
