package admin

import (
	"millrace/internal/observe/meter"
	"millrace/internal/ops/exposition"
)

// collectPlugin adds the metrics of a WebAssembly module.
func collectPlugin(p *exposition.Page, m *meter.Plugin) {
	p.Counter(describe("plugin_requests_total", "Requests that an instance of the module has served, or has begun to.", "module"), float64(m.Requests.Load()), m.Module)
	failures := describe("plugin_failures_total", "Requests that a module has failed, by the reason: no instance was free (busy), a call trapped or did what the ABI forbids (trap), computed for too long (timeout), the client's body came too slowly (upload), an instance did not start (start).", "module", "reason")
	for _, f := range []struct {
		reason string
		n      *meter.Counter
	}{{"busy", &m.Refused}, {"trap", &m.Traps}, {"timeout", &m.Timeouts}, {"upload", &m.Uploads}, {"start", &m.Starts}} {
		p.Counter(failures, float64(f.n.Load()), m.Module, f.reason)
	}
	instances := describe("plugin_instances", "Instances of the module that serve a request now, and how many may.", "module", "state")
	p.Gauge(instances, float64(m.Busy.Load()), m.Module, "busy")
	p.Gauge(instances, float64(m.Instances.Load()), m.Module, "allowed")
}
