package gate

import (
	"os"
	"strings"
	"testing"
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
)

func answered(n int) *load.Result {
	r := &load.Result{Took: 2 * time.Second, Requests: uint64(n), Body: 500 * uint64(n), Bytes: 700 * uint64(n), CPU: time.Duration(n) * 3000}
	for range n {
		r.Latency.Record(time.Millisecond)
	}
	return r
}

// Without a target only what the generator saw is there; a missing figure is
// missing, not zero.
func TestValuesWithoutTarget(t *testing.T) {
	var m Meter
	v := m.Values(answered(1000))
	for key, want := range map[string]float64{
		"requests_per_second": 500, "bytes_per_second": 250_000, "bytes_per_answer": 700, "generator_cpu_ns": 3000, "errors": 0,
	} {
		if v[key] != want {
			t.Errorf("%s = %v, want %v", key, v[key], want)
		}
	}
	for _, key := range []string{"cpu_ns", "rss_bytes", "syscalls", "user_instructions"} {
		if got, ok := v[key]; ok {
			t.Errorf("%s = %v, though nobody looked", key, got)
		}
	}
	if m.Steal() >= 0 || m.TargetCPU() != 0 {
		t.Errorf("steal %v and CPU %v of a window that never opened", m.Steal(), m.TargetCPU())
	}
	if v := m.Values(&load.Result{Took: time.Second, Errors: load.Errors{Connect: 3}}); len(v) != 1 || v["errors"] != 3 {
		t.Errorf("nothing was answered, and yet: %v", v)
	}
}

// This process as its own target: what it burns between two looks is its cost.
func TestValuesOfTarget(t *testing.T) {
	target, err := record.Open(os.Getpid())
	if err != nil {
		t.Skip(err)
	}
	defer target.Close()
	m := Meter{Target: target}
	m.Window(true)
	before := time.Now()
	x := 0
	for time.Since(before) < 30*time.Millisecond {
		x++
	}
	m.Window(false)
	if m.Err() != nil {
		t.Fatal(m.Err())
	}
	v := m.Values(answered(10))
	if v["cpu_ns"] <= 0 || v["rss_bytes"] <= 0 || v["cpu_ns_per_mb"] <= v["cpu_ns"] {
		t.Errorf("%v after %d rounds", v, x)
	}
	if m.TargetCPU() <= 0 {
		t.Error("it was not busy at all")
	}
}

func TestMeasured(t *testing.T) {
	got := Measured([]record.Sample{{Values: map[string]float64{"own_figure": 1, "latency_p99_ns": 1}}, {Values: map[string]float64{"cpu_ns": 1}}})
	var keys []string
	for _, m := range got {
		keys = append(keys, m.Key)
	}
	if len(keys) != 3 || keys[0] != "cpu_ns" || keys[1] != "latency_p99_ns" || keys[2] != "own_figure" {
		t.Errorf("got %v: those of Metrics first and in their order", keys)
	}
	if got[2].Name != "own figure" {
		t.Errorf("an arm's own figure is named %q", got[2].Name)
	}
	seen := map[string]bool{}
	for _, m := range Metrics() {
		if m.Name == "" || seen[m.Key] {
			t.Errorf("%q has no name or is there twice", m.Key)
		}
		seen[m.Key] = true
	}
}

// TestTakers: the window names who had the CPU, programs and not processes.
func TestTakers(t *testing.T) {
	at := time.Now()
	usage := func(pid int, name string, cpu time.Duration) record.Usage {
		return record.Usage{PID: pid, Name: name, CPU: cpu}
	}
	m := Meter{machineRead: true}
	m.machine = [2]record.System{{At: at}, {At: at.Add(10 * time.Second), Steal: time.Second}}
	m.everybody[0] = map[int]record.Usage{os.Getpid(): usage(os.Getpid(), "cost.test", time.Second)}
	m.everybody[1] = map[int]record.Usage{
		os.Getpid(): usage(os.Getpid(), "cost.test", 6*time.Second), -1: usage(-1, "python3", 4*time.Second), -2: usage(-2, "python3", 5*time.Second),
		-3: usage(-3, "sshd", 100*time.Millisecond),
	}
	if got := m.Takers(); !strings.HasSuffix(got, " cores had, on average: python3 0.90 (2 processes), this generator 0.50, the hypervisor 0.10") {
		t.Errorf("got %q", got)
	}
	if got := new(Meter).Takers(); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
