package main

import (
	"testing"
)

func TestWrkRequests(t *testing.T) {
	good := []byte("Running 3s test\n  182034 requests in 3.00s, 131.25MB read\nRequests/sec: 60678.00\n")
	if n, err := wrkRequests(good); err != nil || n != 182034 {
		t.Errorf("got %d, %v", n, err)
	}
	for _, bad := range []string{"", "unable to connect", "5 requests in 1s\n  Non-2xx or 3xx responses: 5\n", "5 requests in 1s\n  Socket errors: connect 0, read 1\n"} {
		if n, err := wrkRequests([]byte(bad)); err == nil {
			t.Errorf("%q passed for %d requests", bad, n)
		}
	}
}

func TestMedianRatio(t *testing.T) {
	costs := map[string][]cost{"lab": {{user: 1}, {user: 2}, {user: 9}, {user: 4}}, "wrk": {{user: 2}, {user: 2}, {user: 3}, {user: 2}}}
	if got := medianRatio(costs, func(c cost) float64 { return c.user }); got != 1.5 { // of 0.5, 1, 2, 3
		t.Errorf("got %v", got)
	}
}

func TestFound(t *testing.T) {
	f := found{Verdicts: []verdict{{Arm: "B", Outcome: "equal"}, {Arm: "B", Outcome: "worse"}, {Arm: "A′", Outcome: "better"}}}
	wrong := 0
	for _, v := range f.of("B") {
		if v.wrong() {
			wrong++
		}
	}
	if wrong != 1 {
		t.Errorf("%d wrong verdicts about B, want 1", wrong)
	}
}

func TestSpin(t *testing.T) {
	if spin(0) == 0 || spin(10) == spin(11) {
		t.Error("the work does not depend on its amount")
	}
}
