package gate

// This file puts together what the generator saw in one measured window and
// what the target used in it.

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
)

// Metrics are all that a window is measured by, as far as the machine shows it.
func Metrics() []record.Metric {
	return []record.Metric{
		{Key: "cpu_ns", Name: "CPU time per request", Unit: "ns", About: "of the server's processes, user and kernel; not the latency that users see"},
		{Key: "user_instructions", Name: "user instructions per request", About: "in the server's own code, not the kernel's; not a time at all"},
		{Key: "kernel_instructions", Name: "kernel instructions per request", About: "that the kernel executed for the server"},
		{Key: "requests_per_second", Name: "requests per second", Unit: "1/s", Higher: true, About: "with generator and server on the same cores"},
		{Key: "bytes_per_second", Name: "body bytes per second", Unit: "bytes/s", Higher: true},
		{Key: "cpu_ns_per_mb", Name: "CPU time per megabyte", Unit: "ns", About: "of bodies, 10⁶ bytes"},
		{Key: "latency_mean_ns", Name: "mean latency", Unit: "ns"},
		{Key: "latency_p50_ns", Name: "median latency", Unit: "ns"},
		{Key: "latency_p75_ns", Name: "75th percentile of latency", Unit: "ns"},
		{Key: "latency_p90_ns", Name: "90th percentile of latency", Unit: "ns"},
		{Key: "latency_p95_ns", Name: "95th percentile of latency", Unit: "ns"},
		{Key: "latency_p99_ns", Name: "99th percentile of latency", Unit: "ns"},
		{Key: "latency_p99.9_ns", Name: "99.9th percentile of latency", Unit: "ns"},
		{Key: "latency_p99.99_ns", Name: "99.99th percentile of latency", Unit: "ns"},
		{Key: "latency_max_ns", Name: "longest latency", Unit: "ns"},
		{Key: "bytes_per_answer", Name: "bytes per answer", Unit: "bytes", About: "head and body"},
		{Key: "errors", Name: "requests without a right answer"},
		{Key: "failed", Name: "share of requests that failed", About: "not answered, not as expected, or with another status than 2xx"},
		{Key: "syscalls", Name: "system calls per request"},
		{Key: "sendfile_calls", Name: "sendfile calls per request"},
		{Key: "switches", Name: "context switches per request"},
		{Key: "rss_bytes", Name: "resident memory", Unit: "bytes", About: "at the end of the slot"},
		{Key: "generator_cpu_ns", Name: "generator's CPU time per request", Unit: "ns"},
	}
}

// A Meter reads the target's counters and the machine's when a window opens
// and closes: its Window is for load.Config. It serves one window.
type Meter struct {
	Target *record.Target // nil: its costs are unknown
	// Everybody has the CPU time of all processes read, too, for [Meter.Takers] and
	// [Meter.Others]; Ours are those that belong to the measurement beside this one.
	Everybody bool
	Ours      []int

	everybody     [2]map[int]record.Usage
	before, after record.Reading
	machine       [2]record.System
	machineRead   bool
	err           error
}

// Err is why a reading failed, if one did: the target may have ended.
func (m *Meter) Err() error { return m.err }

// Window takes a reading.
func (m *Meter) Window(open bool) {
	reading, system := &m.after, &m.machine[1]
	if open {
		reading, system = &m.before, &m.machine[0]
	}
	if m.Everybody {
		at := 1
		if open {
			at = 0
		}
		m.everybody[at], _ = record.Everybody() // nobody is named where that cannot be seen
	}
	var err error
	if *system, err = record.ReadSystem(); err == nil && !open {
		m.machineRead = true
	}
	if m.Target != nil {
		*reading, err = m.Target.Read()
		m.err = errors.Join(m.err, err)
	}
}

// Steal is the share of CPU time that the hypervisor took away; negative when
// that is not known.
func (m *Meter) Steal() float64 {
	total := m.machine[1].Total - m.machine[0].Total
	if !m.machineRead || total <= 0 {
		return -1
	}
	return float64(m.machine[1].Steal-m.machine[0].Steal) / float64(total)
}

// Others is the share of CPU time that programs had which do not belong to the
// measurement; negative when that is not known.
func (m *Meter) Others() float64 {
	total := m.machine[1].Total - m.machine[0].Total
	if m.everybody[0] == nil || m.everybody[1] == nil || !m.machineRead || total <= 0 {
		return -1
	}
	var used time.Duration
	for _, u := range record.Strangers(m.everybody[0], m.everybody[1], append(m.Ours, os.Getpid())...) {
		used += u.CPU
	}
	return float64(used) / float64(total)
}

// maxTakers is how many programs Takers names.
const maxTakers = 5

// leastTaken is the share of a core from which a program is worth naming.
const leastTaken = 0.03

// Takers says which programs had the CPU in the window, in cores, and what the
// hypervisor took; empty where that is not known.
func (m *Meter) Takers() string {
	length := m.machine[1].At.Sub(m.machine[0].At).Seconds()
	if m.everybody[0] == nil || m.everybody[1] == nil || !m.machineRead || length <= 0 {
		return ""
	}
	cores, processes := map[string]float64{}, map[string]int{}
	for _, u := range record.Takers(m.everybody[0], m.everybody[1]) {
		name := u.Name
		switch {
		case u.PID == os.Getpid():
			name = "this generator"
		case m.Target != nil && m.Target.Has(u.PID):
			name = "the target, " + name
		}
		cores[name] += u.CPU.Seconds() / length
		processes[name]++
	}
	cores["the hypervisor"] = (m.machine[1].Steal - m.machine[0].Steal).Seconds() / length
	var named []string
	for _, name := range slices.SortedFunc(maps.Keys(cores), func(a, b string) int { return cmp.Compare(cores[b], cores[a]) }) {
		if cores[name] < leastTaken || len(named) == maxTakers {
			break
		}
		text := fmt.Sprintf("%s %.2f", name, cores[name])
		if n := processes[name]; n > 1 {
			text += fmt.Sprintf(" (%d processes)", n)
		}
		named = append(named, text)
	}
	if len(named) == 0 {
		return ""
	}
	return fmt.Sprintf("of %d cores had, on average: %s", runtime.NumCPU(), strings.Join(named, ", "))
}

// Values are the window's figures by metric. What was not seen is not there.
func (m *Meter) Values(got *load.Result) map[string]float64 {
	v := map[string]float64{"errors": float64(got.Errors.Sum())}
	if failed, all := got.Failed(); all > 0 {
		v["failed"] = float64(failed) / float64(all)
	}
	if got.Requests == 0 {
		return v
	}
	n, seconds := float64(got.Requests), got.Took.Seconds()
	v["requests_per_second"] = n / seconds
	v["bytes_per_second"] = float64(got.Body) / seconds
	v["latency_mean_ns"] = float64(got.Latency.Mean())
	for _, q := range []float64{50, 75, 90, 95, 99, 99.9, 99.99} {
		v[fmt.Sprintf("latency_p%g_ns", q)] = float64(got.Latency.Quantile(q / 100))
	}
	v["latency_max_ns"] = float64(got.Latency.Max())
	if got.Bytes > 0 {
		v["bytes_per_answer"] = float64(got.Bytes) / n
	}
	v["generator_cpu_ns"] = float64(got.CPU) / n
	m.costs(v, n, float64(got.Body)/1e6)
	return v
}

// Costs are the window's figures by metric for work that was not a load: what each
// of the things that were done in it cost the target. Nothing where none was, or
// where the target is unknown.
func (m *Meter) Costs(done uint64) map[string]float64 {
	v := map[string]float64{}
	if done > 0 {
		m.costs(v, float64(done), 0)
	}
	return v
}

// costs are what the window's requests cost the target, where that is known.
func (m *Meter) costs(v map[string]float64, requests, megabytes float64) {
	if m.Target == nil || !m.after.At.After(m.before.At) {
		return
	}
	used := m.after.Sub(m.before)
	v["cpu_ns"] = float64(used.CPU) / requests
	if megabytes > 0 {
		v["cpu_ns_per_mb"] = float64(used.CPU) / megabytes
	}
	if i := used.Instructions; i.User > 0 {
		v["user_instructions"] = float64(i.User) / requests
		v["kernel_instructions"] = float64(i.Kernel) / requests
	}
	if used.Syscalls > 0 {
		v["syscalls"] = float64(used.Syscalls) / requests
		v["sendfile_calls"] = float64(used.Sendfiles) / requests
	}
	v["switches"] = float64(used.Voluntary+used.Involuntary) / requests
	v["rss_bytes"] = float64(m.after.RSS)
}

// MetricNamed is the metric with a key; one that is not of [Metrics] is named by it.
func MetricNamed(key string) record.Metric {
	for _, m := range Metrics() {
		if m.Key == key {
			return m
		}
	}
	return record.Metric{Key: key, Name: strings.ReplaceAll(key, "_", " ")}
}

// Measured lists the metrics that occur in samples, those of [Metrics] first and
// in their order.
func Measured(samples []record.Sample) []record.Metric {
	seen := map[string]bool{}
	for _, s := range samples {
		for k := range s.Values {
			seen[k] = true
		}
	}
	var out []record.Metric
	for _, m := range Metrics() {
		if seen[m.Key] {
			out = append(out, m)
			delete(seen, m.Key)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, MetricNamed(k))
	}
	return out
}

// TargetCPU is how many cores the target kept busy; 0 when that is unknown.
func (m *Meter) TargetCPU() float64 {
	if m.Target == nil || !m.after.At.After(m.before.At) {
		return 0
	}
	return float64(m.after.CPU-m.before.CPU) / float64(m.after.At.Sub(m.before.At))
}
