package admin

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"millrace/internal/observe/meter"
	"millrace/internal/ops/exposition"
)

// TestRuntimeMetrics: what Prometheus's client for Go says of a process and its
// runtime has the same names, types and, where it holds still, values.
func TestRuntimeMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector())
	if runtime.GOOS == "linux" {
		r.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	families, err := r.Gather()
	if err != nil || len(families) < 30 {
		t.Fatalf("%d metrics: %v", len(families), err)
	}
	var page exposition.Page
	newCollector(Deps{Meters: meter.New()}).collect(&page)
	b, err := page.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	_, series := scrape(t, Deps{Meters: meter.New()})
	for _, f := range families {
		if kind := "# TYPE " + f.GetName() + " " + strings.ToLower(f.GetType().String()) + "\n"; !strings.Contains(text, kind) {
			t.Errorf("there is no %s", kind)
		}
		m := f.GetMetric()[0]
		want, got := m.GetGauge().GetValue()+m.GetCounter().GetValue(), series[f.GetName()]
		switch f.GetName() {
		case "go_gc_gogc_percent", "go_gc_gomemlimit_bytes", "go_sched_gomaxprocs_threads", "process_max_fds", "process_start_time_seconds", "process_virtual_memory_max_bytes":
			if math.Abs(got-want) > 1e-9*want {
				t.Errorf("%s is %v, not %v", f.GetName(), got, want)
			}
		case "process_resident_memory_bytes", "process_virtual_memory_bytes", "go_memstats_sys_bytes", "go_memstats_heap_sys_bytes", "go_threads", "process_open_fds":
			if got < want/2 || got > 2*want {
				t.Errorf("%s is %v, not about %v", f.GetName(), got, want)
			}
		}
	}
}
