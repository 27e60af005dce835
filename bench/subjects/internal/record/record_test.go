package record

import (
	"reflect"
	"testing"
	"time"

	"millrace/bench/subjects/internal/metrics"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/wrk"
)

func TestSaveAndLoad(t *testing.T) {
	want := &Run{
		Scenario: "files", Seed: 1<<64 - 1, Rounds: 2, Started: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC),
		Versions: []Version{{"wrk", "4"}},
		Arms:     []Arm{{Name: "a", Ours: true}},
		Small: []Small{{
			Cell: Cell{Workload: "root", Connections: 50}, Round: 1, Arm: "a",
			Wrk:    wrk.Result{Requests: 4, Failures: wrk.Failures{Status: 3}, Duration: time.Second},
			Server: proc.CPU{Total: 100}, Counts: &metrics.Counts{Fast: 4},
		}},
		Large:  []Large{{Round: 1, Arm: "a", Network: "unix", Bytes: 50}},
		Memory: []Memory{{Arm: "a", Held: proc.Memory{RSS: 1, PSS: 2}}},
	}
	name, err := Save(t.TempDir(), want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("loaded\n%+v\nsaved\n%+v", got, want)
	}
}

func TestCosts(t *testing.T) {
	s := Small{Wrk: wrk.Result{Requests: 4}, Server: proc.CPU{Total: 100}}
	if got := s.CPUPerRequest(); got != 25 {
		t.Errorf("CPUPerRequest = %d, want 25", got)
	}
	if got := (Small{}).CPUPerRequest(); got != 0 {
		t.Errorf("CPUPerRequest of nothing = %d", got)
	}
	l := Large{Bytes: 400, Server: proc.CPU{Total: 100}}
	if got := l.CPUPerByte(); got != 0.25 {
		t.Errorf("CPUPerByte = %f, want 0.25", got)
	}
}
