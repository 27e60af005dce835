package admin

import (
	"millrace/internal/observe/meter"
	"millrace/internal/ops/exposition"
)

// routeSamples adds the metrics of a route, whose name is their first label.
type routeSamples struct {
	page  *exposition.Page
	route string
}

// counter adds a counter. label is empty, or a name and a value.
func (s routeSamples) counter(name, help string, c *meter.Counter, label ...string) {
	s.number((*exposition.Page).Counter, name, help, float64(c.Load()), label)
}

// gauge adds a gauge, as counter does.
func (s routeSamples) gauge(name, help string, g *meter.Gauge, label ...string) {
	s.number((*exposition.Page).Gauge, name, help, float64(g.Load()), label)
}

func (s routeSamples) number(add func(*exposition.Page, *exposition.Metric, float64, ...string), name, help string, value float64, label []string) {
	names, values := []string{"route"}, []string{s.route}
	if len(label) == 2 {
		names, values = append(names, label[0]), append(values, label[1])
	}
	add(s.page, describe(name, help, names...), value, values...)
}

// reasons adds a counter for each reason; label is what they are called.
func (s routeSamples) reasons(name, help, label string, r *meter.Reasons) {
	m := describe(name, help, "route", label)
	r.Each(func(reason string, n uint64) { s.page.Counter(m, float64(n), s.route, reason) })
}

func (s routeSamples) histogram(name, help string, h meter.Snapshot) {
	histogram(s.page, describe(name, help, "route"), h, s.route)
}

// collectCache adds the metrics of a route's cache.
func collectCache(p *exposition.Page, m *meter.Cache) {
	s := routeSamples{p, m.Route}
	for _, o := range []struct {
		outcome string
		counter *meter.Counter
	}{
		{"hit", &m.Hit},
		{"stale", &m.Stale},
		{"coalesced", &m.Coalesced},
		{"miss", &m.Miss},
		{"validated", &m.Validated},
		{"pass", &m.Pass},
		{"bypass", &m.Bypass},
		{"error", &m.Error},
	} {
		s.counter("cache_requests_total", "Requests that reached the cache, by outcome, without the hits of the fast lane.", o.counter, "outcome", o.outcome)
	}
	s.counter("cache_refreshes_total", "Answers refreshed in the background.", &m.Refreshed)
	s.counter("cache_purges_total", "Purges.", &m.Purges)
	s.counter("cache_evictions_total", "Answers evicted to make room.", &m.Evicted)
	s.counter("cache_upstream_bytes_total", "Body bytes that came from the upstream.", &m.FromUpstream)
	s.reasons("cache_uncached_total", "Requests that bypassed the cache and answers that it did not keep, by reason.", "reason", &m.Reasons)
	s.gauge("cache_fills", "Answers that are still arriving from the upstream.", &m.Fills)
	s.gauge("cache_objects", "Answers held, by tier.", &m.Objects, "tier", "memory")
	s.gauge("cache_objects", "Answers held, by tier.", &m.DiskObjects, "tier", "disk")
	s.gauge("cache_bytes", "Bytes held, by tier.", &m.Memory, "tier", "memory")
	s.gauge("cache_bytes", "Bytes held, by tier.", &m.DiskBytes, "tier", "disk")
	s.histogram("cache_upstream_duration_seconds", "Time from a request to the upstream to the header of its answer.", m.Upstream.Snapshot())
}
