package admin

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"millrace/internal/ops/exposition"
)

// runtimeMetric is a metric of the Go runtime: the sum of some of
// [runtime/metrics]. Names are those of Prometheus's client for Go, whose
// dashboards and alerts expect them.
type runtimeMetric struct {
	name, help string
	counter    bool
	of         []string
}

func runtimeMetrics() []runtimeMetric {
	const (
		objects  = "/memory/classes/heap/objects:bytes"
		unused   = "/memory/classes/heap/unused:bytes"
		released = "/memory/classes/heap/released:bytes"
		free     = "/memory/classes/heap/free:bytes"
		stacks   = "/memory/classes/heap/stacks:bytes"
		spans    = "/memory/classes/metadata/mspan/inuse:bytes"
		caches   = "/memory/classes/metadata/mcache/inuse:bytes"
		tiny     = "/gc/heap/tiny/allocs:objects"
	)
	return []runtimeMetric{
		{"goroutines", "Goroutines that exist.", false, []string{"/sched/goroutines:goroutines"}},
		{"sched_gomaxprocs_threads", "GOMAXPROCS: threads that run Go code at once.", false, []string{"/sched/gomaxprocs:threads"}},
		{"gc_gogc_percent", "GOGC: how much the heap may grow until garbage is collected.", false, []string{"/gc/gogc:percent"}},
		{"gc_gomemlimit_bytes", "GOMEMLIMIT.", false, []string{"/gc/gomemlimit:bytes"}},
		{"memstats_alloc_bytes", "Bytes of the heap in use.", false, []string{objects}},
		{"memstats_alloc_bytes_total", "Bytes allocated on the heap since the start.", true, []string{"/gc/heap/allocs:bytes"}},
		{"memstats_sys_bytes", "Bytes obtained from the system.", false, []string{"/memory/classes/total:bytes"}},
		{"memstats_mallocs_total", "Objects allocated since the start.", true, []string{"/gc/heap/allocs:objects", tiny}},
		{"memstats_frees_total", "Objects freed since the start.", true, []string{"/gc/heap/frees:objects", tiny}},
		{"memstats_heap_alloc_bytes", "Bytes of the heap in use.", false, []string{objects}},
		{"memstats_heap_sys_bytes", "Bytes of the heap obtained from the system.", false, []string{objects, unused, released, free}},
		{"memstats_heap_idle_bytes", "Bytes of the heap that wait to be used.", false, []string{released, free}},
		{"memstats_heap_inuse_bytes", "Bytes of the heap in spans in use.", false, []string{objects, unused}},
		{"memstats_heap_released_bytes", "Bytes of the heap given back to the system.", false, []string{released}},
		{"memstats_heap_objects", "Objects on the heap.", false, []string{"/gc/heap/objects:objects"}},
		{"memstats_stack_inuse_bytes", "Bytes of stacks in use.", false, []string{stacks}},
		{"memstats_stack_sys_bytes", "Bytes of stacks obtained from the system.", false, []string{stacks, "/memory/classes/os-stacks:bytes"}},
		{"memstats_mspan_inuse_bytes", "Bytes of mspan structures in use.", false, []string{spans}},
		{"memstats_mspan_sys_bytes", "Bytes of mspan structures obtained from the system.", false, []string{spans, "/memory/classes/metadata/mspan/free:bytes"}},
		{"memstats_mcache_inuse_bytes", "Bytes of mcache structures in use.", false, []string{caches}},
		{"memstats_mcache_sys_bytes", "Bytes of mcache structures obtained from the system.", false, []string{caches, "/memory/classes/metadata/mcache/free:bytes"}},
		{"memstats_buck_hash_sys_bytes", "Bytes of profiling's hash table.", false, []string{"/memory/classes/profiling/buckets:bytes"}},
		{"memstats_gc_sys_bytes", "Bytes of the garbage collector's own data.", false, []string{"/memory/classes/metadata/other:bytes"}},
		{"memstats_other_sys_bytes", "Bytes of other data of the runtime.", false, []string{"/memory/classes/other:bytes"}},
		{"memstats_next_gc_bytes", "Bytes of the heap at which garbage is collected next.", false, []string{"/gc/heap/goal:bytes"}},
	}
}

// goMetrics puts the metrics of the Go runtime on a page.
func goMetrics(p *exposition.Page) {
	for _, m := range runtimeMetrics() {
		samples := make([]metrics.Sample, len(m.of))
		for i, name := range m.of {
			samples[i].Name = name
		}
		metrics.Read(samples)
		var sum float64
		for _, s := range samples {
			if s.Value.Kind() == metrics.KindUint64 {
				sum += float64(s.Value.Uint64())
			}
		}
		add := p.Gauge
		if m.counter {
			add = p.Counter
		}
		add(&exposition.Metric{Name: "go_" + m.name, Help: m.help}, sum)
	}
	p.Gauge(&exposition.Metric{Name: "go_info", Help: "Always 1; the label says which version of Go.", Labels: []string{"version"}}, 1, runtime.Version())
	threads, _ := runtime.ThreadCreateProfile(nil)
	p.Gauge(&exposition.Metric{Name: "go_threads", Help: "Threads of the system that were made."}, float64(threads))
	collections(p)
}

// collections puts on a page how long the garbage collector has stopped all else.
func collections(p *exposition.Page) {
	quantiles := []float64{0, 0.25, 0.5, 0.75, 1}
	stats := debug.GCStats{PauseQuantiles: make([]time.Duration, len(quantiles))}
	debug.ReadGCStats(&stats)
	pauses := make([]float64, len(quantiles))
	for i, d := range stats.PauseQuantiles {
		pauses[i] = d.Seconds()
	}
	p.Summary(&exposition.Metric{Name: "go_gc_duration_seconds", Help: "Pauses for garbage collection."},
		quantiles, pauses, stats.PauseTotal.Seconds(), uint64(max(stats.NumGC, 0)))
	last := 0.0
	if !stats.LastGC.IsZero() {
		last = math.Max(0, float64(stats.LastGC.UnixNano())/1e9)
	}
	p.Gauge(&exposition.Metric{Name: "go_memstats_last_gc_time_seconds", Help: "When garbage was last collected, in seconds since 1970."}, last)
}
