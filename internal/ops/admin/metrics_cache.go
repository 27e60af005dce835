package admin

import (
	"millrace/internal/observe/meter"
	"millrace/internal/ops/exposition"
)

// cacheMetrics are the metrics of each route's cache.
type cacheMetrics struct {
	requests, uncached                       *exposition.Metric
	refreshes, purges, evictions             *exposition.Metric
	upstreamDuration, upstreamBytes, running *exposition.Metric
	objects, bytes                           *exposition.Metric // per tier
}

func newCacheMetrics() cacheMetrics {
	return cacheMetrics{
		requests:         describe("cache_requests_total", "Requests that reached the cache, by outcome, without the hits of the fast lane.", "route", "outcome"),
		uncached:         describe("cache_uncached_total", "Requests that bypassed the cache and answers that it did not keep, by reason.", "route", "reason"),
		refreshes:        describe("cache_refreshes_total", "Answers refreshed in the background.", "route"),
		purges:           describe("cache_purges_total", "Purges.", "route"),
		evictions:        describe("cache_evictions_total", "Answers evicted to make room.", "route"),
		upstreamDuration: describe("cache_upstream_duration_seconds", "Time from a request to the upstream to the header of its answer.", "route"),
		upstreamBytes:    describe("cache_upstream_bytes_total", "Body bytes that came from the upstream.", "route"),
		running:          describe("cache_fills", "Answers that are still arriving from the upstream.", "route"),
		objects:          describe("cache_objects", "Answers held, by tier.", "route", "tier"),
		bytes:            describe("cache_bytes", "Bytes held, by tier.", "route", "tier"),
	}
}

func (d *cacheMetrics) collect(p *exposition.Page, m *meter.Cache) {
	for _, f := range []struct {
		desc    *exposition.Metric
		counter *meter.Counter
		labels  []string
	}{
		{d.requests, &m.Hit, []string{"hit"}},
		{d.requests, &m.Stale, []string{"stale"}},
		{d.requests, &m.Coalesced, []string{"coalesced"}},
		{d.requests, &m.Miss, []string{"miss"}},
		{d.requests, &m.Validated, []string{"validated"}},
		{d.requests, &m.Pass, []string{"pass"}},
		{d.requests, &m.Bypass, []string{"bypass"}},
		{d.requests, &m.Error, []string{"error"}},
		{d.refreshes, &m.Refreshed, nil},
		{d.purges, &m.Purges, nil},
		{d.evictions, &m.Evicted, nil},
		{d.upstreamBytes, &m.FromUpstream, nil},
	} {
		labels := append([]string{m.Route}, f.labels...)
		p.Counter(f.desc, float64(f.counter.Load()), labels...)
	}
	m.Reasons.Each(func(reason string, n uint64) {
		p.Counter(d.uncached, float64(n), m.Route, reason)
	})
	for _, f := range []struct {
		desc   *exposition.Metric
		gauge  *meter.Gauge
		labels []string
	}{
		{d.running, &m.Fills, nil},
		{d.objects, &m.Objects, []string{"memory"}},
		{d.objects, &m.DiskObjects, []string{"disk"}},
		{d.bytes, &m.Memory, []string{"memory"}},
		{d.bytes, &m.DiskBytes, []string{"disk"}},
	} {
		labels := append([]string{m.Route}, f.labels...)
		p.Gauge(f.desc, float64(f.gauge.Load()), labels...)
	}
	histogram(p, d.upstreamDuration, m.Upstream.Snapshot(), m.Route)
}
