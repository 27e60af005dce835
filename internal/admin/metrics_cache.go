package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"millrace/internal/meter"
)

// cacheMetrics are the metrics of each route's cache.
type cacheMetrics struct {
	requests, uncached                       *prometheus.Desc
	refreshes, purges, evictions             *prometheus.Desc
	upstreamDuration, upstreamBytes, running *prometheus.Desc
	objects, bytes                           *prometheus.Desc // per tier
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

func (d *cacheMetrics) describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		d.requests, d.uncached, d.refreshes, d.purges, d.evictions,
		d.upstreamDuration, d.upstreamBytes, d.running, d.objects, d.bytes,
	} {
		ch <- desc
	}
}

func (d *cacheMetrics) collect(ch chan<- prometheus.Metric, m *meter.Cache) {
	for _, f := range []struct {
		desc    *prometheus.Desc
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
		send(ch, f.desc)(prometheus.NewConstMetric(f.desc, prometheus.CounterValue, float64(f.counter.Load()), labels...))
	}
	m.Reasons.Each(func(reason string, n uint64) {
		send(ch, d.uncached)(prometheus.NewConstMetric(d.uncached, prometheus.CounterValue, float64(n), m.Route, reason))
	})
	for _, f := range []struct {
		desc   *prometheus.Desc
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
		send(ch, f.desc)(prometheus.NewConstMetric(f.desc, prometheus.GaugeValue, float64(f.gauge.Load()), labels...))
	}
	sendHistogram(ch, d.upstreamDuration, m.Upstream.Snapshot(), m.Route)
}
