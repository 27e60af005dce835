package admin

import (
	"millrace/internal/observe/meter"
	"millrace/internal/ops/exposition"
)

// collectStore adds the metrics of a server that several machines share, while it is in use.
func collectStore(p *exposition.Page, m *meter.Store) {
	if m.Open.Load() == 0 {
		return
	}
	labels := []string{m.Kind, m.Server, m.Use}
	named := func(name, help string, more ...string) *exposition.Metric {
		return describe(name, help, append([]string{"store", "server", "use"}, more...)...)
	}
	with := func(more string) []string { return append(labels[:3:3], more) }
	up := 1.0
	if m.Down.Load() > 0 {
		up = 0
	}
	p.Gauge(named("store_up", "1 while the shared server can be used."), up, labels...)
	p.Counter(named("store_errors_total", "Calls of the shared server that it did not answer, or refused."), float64(m.Errors.Load()), labels...)
	reads := named("store_reads_total", "Reads from the shared server, by whether they found something.", "result")
	p.Counter(reads, float64(m.Hits.Load()), with("hit")...)
	p.Counter(reads, float64(m.Misses.Load()), with("miss")...)
	bytes := named("store_bytes_total", "Bytes read from the shared server and written to it.", "direction")
	p.Counter(bytes, float64(m.Read.Load()), with("read")...)
	p.Counter(bytes, float64(m.Written.Load()), with("written")...)
	p.Gauge(named("store_waiting", "Purges or publications that wait until the shared server can be reached."), float64(m.Waiting.Load()), labels...)
	histogram(p, named("store_call_duration_seconds", "Time of a call of the shared server."), m.Calls.Snapshot(), labels...)
}
