package admin

import (
	"cmp"
	"runtime"
	"strconv"
	"time"

	"millrace/internal/observe/meter"
	"millrace/internal/ops/exposition"
)

// latencyBounds are the buckets of millrace_request_duration_seconds: from what
// the fast lane takes to what a stalled upload takes. The meter's own, finer
// buckets are added up to these; see [meter.Snapshot.CountWithin].
var latencyBounds = []time.Duration{
	5 * time.Microsecond, 10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// collector reads the meters when somebody scrapes. Nothing of it is on the path
// of a request.
type collector struct {
	meters  *meter.Meters
	gather  []func()
	figures []figure

	requests, duration, bytes *exposition.Metric // per job and lane
	certificates              func() []Certificate
}

// figure is a metric that is one number.
type figure struct {
	add    func(p *exposition.Page, m *exposition.Metric, value float64, labels ...string)
	desc   *exposition.Metric
	labels []string
	read   func() float64
}

func describe(name, help string, labels ...string) *exposition.Metric {
	return &exposition.Metric{Name: "millrace_" + name, Help: help, Labels: labels}
}

func buildInfo(d Deps) figure {
	return figure{
		(*exposition.Page).Gauge,
		describe("build_info", "Always 1; the labels say what runs.", "version", "revision", "goversion"),
		[]string{cmp.Or(d.Version, "unknown"), cmp.Or(d.Revision, "unknown"), runtime.Version()},
		func() float64 { return 1 },
	}
}

func newCollector(d Deps) *collector {
	m := d.Meters
	sent := describe("sent_bytes_total", "Body bytes by how they were sent.", "path")
	traces := describe("traces_total", "Requests whose spans were to be sent to a collector, by what became of them.", "outcome")
	rejected := describe("trace_spans_rejected_total", "Spans that the collector took and threw away.")
	buffered := describe("buffered_bytes", "Bytes held for who has not taken them yet: bodies between the two sides of a proxy, in memory and in files; about what streams of HTTP/2 and HTTP/3 take that wait for their clients.", "where")
	reloads := describe("config_reloads_total", "Reloads of the config by their result.", "result")
	handshakes := describe("tls_handshakes_total", "TLS handshakes by the version that was agreed on, failed, or resumed (which the versions contain).", "result")
	return &collector{
		meters: m,
		gather: d.Gather,
		figures: append(refusals(m), []figure{
			counter(sent, &m.Sent.Sendfile, "sendfile"),
			counter(sent, &m.Sent.Writev, "writev"),
			counter(sent, &m.Sent.Copied, "copied"),
			counter(describe("log_dropped_total", "Access log lines that were not written."), &m.LogDropped),
			gauge(describe("connections", "Open client connections."), &m.Connections),
			counter(describe("connections_accepted_total", "Client connections accepted."), &m.Accepted),
			counter(describe("connections_rejected_total", "Client connections closed at once: limits, failed handshakes."), &m.Rejected),
			gauge(describe("lane_entries", "Answers held by the fast lane."), &m.LaneEntries),
			gauge(describe("lane_bytes", "Bytes held by the fast lane."), &m.LaneBytes),
			counter(describe("lane_evictions_total", "Answers that the fast lane evicted to make room."), &m.LaneEvicted),
			counter(describe("lane_offers_total", "Answers offered to the fast lane."), &m.LaneOffers),
			counter(describe("lane_voided_total", "Answers that the fast lane dropped because their file, route or site changed."), &m.LaneVoided),
			counter(handshakes, &m.TLS.V12, "tls1.2"),
			counter(handshakes, &m.TLS.V13, "tls1.3"),
			counter(handshakes, &m.TLS.Resumed, "resumed"),
			counter(handshakes, &m.TLS.Failed, "failed"),
			counter(describe("trapped_total", "Addresses that were caught by a trap."), &m.Trapped),
			gauge(describe("http3_connections", "Open client connections over HTTP/3, of all in millrace_connections."), &m.HTTP3Connections),
			counter(describe("http3_requests_total", "Requests over HTTP/3, of all in millrace_requests_total."), &m.HTTP3Requests),
			counter(traces, &m.Tracing.Sent, "sent"),
			counter(traces, &m.Tracing.Dropped, "dropped"),
			counter(traces, &m.Tracing.Failed, "failed"),
			counter(rejected, &m.Tracing.Rejected),
			gauge(buffered, &m.BufferedMemory, "memory"),
			gauge(buffered, &m.BufferedFiles, "files"),
			gauge(buffered, &m.BufferedStreams, "streams"),
			gauge(describe("streams", "Open streams of HTTP/2 and HTTP/3, but for answers that are sent at once."), &m.Streams),
			counter(describe("mirror_dropped_total", "Requests of which a mirror got no copy, since too many copies were under way."), &m.Unmirrored),
			counter(describe("upstream_unasked_total", "Connections to upstreams that were closed because of bytes that came without a request."), &m.UpstreamUnasked),
			counter(describe("upstream_lookup_failures_total", "Look-ups of upstreams' names that failed, so that the addresses they had were used."), &m.UpstreamLookups),
			counter(reloads, &m.ConfigReloads, "success"),
			counter(reloads, &m.ConfigReloadFailures, "failure"),
			gauge(describe("config_last_reload_success_timestamp_seconds", "When the config in use took effect, in seconds since 1970."), &m.ConfigLoaded),
			buildInfo(d),
		}...),
		requests: describe("requests_total", "Requests answered, by lane, job and status code.", "lane", "job", "code"),
		duration: describe("request_duration_seconds", "Time from a request's arrival to the last byte of its answer.", "lane", "job"),
		bytes:    describe("response_bytes_total", "Body bytes of the answers.", "lane", "job"),

		certificates: d.Certificates,
	}
}

// refusals are requests and connections that were refused, by the reason.
func refusals(m *meter.Meters) []figure {
	refused := describe("http2_refused_total", "HTTP/2 connections that were cut off for what the client sent, by the reason.", "reason")
	denied := describe("requests_refused_total", "Requests that were refused: by an access list or after a trap (403), by a rate limit (429), until a client has proved that it is no crawler, or as streams of HTTP/2 and HTTP/3 while too many wait for their clients.", "reason")
	refused3 := describe("http3_refused_total", "HTTP/3 requests and connections that were cut off for what the client sent, by the reason.", "reason")
	return []figure{
		counter(refused, &m.HTTP2Refused.Malformed, "malformed"),
		counter(refused, &m.HTTP2Refused.Headers, "headers"),
		counter(refused, &m.HTTP2Refused.Idle, "idle_frames"),
		counter(refused, &m.HTTP2Refused.Resets, "resets"),
		counter(refused, &m.HTTP2Refused.Stalled, "stalled"),
		counter(refused, &m.HTTP2Refused.TooMany, "too_many"),
		counter(denied, &m.Refused.Address, "address"),
		counter(denied, &m.Refused.Rate, "rate"),
		counter(denied, &m.Refused.Caught, "trap"),
		counter(denied, &m.Refused.Proof, "challenge"),
		counter(denied, &m.Refused.TooMany, "too_many"),
		counter(refused3, &m.HTTP3Refused.Headers, "headers"),
		counter(refused3, &m.HTTP3Refused.Resets, "resets"),
		counter(refused3, &m.HTTP3Refused.Requests, "requests"),
		counter(refused3, &m.HTTP3Refused.TooMany, "too_many"),
	}
}

func counter(desc *exposition.Metric, c *meter.Counter, labels ...string) figure {
	return figure{(*exposition.Page).Counter, desc, labels, func() float64 { return float64(c.Load()) }}
}

func gauge(desc *exposition.Metric, g *meter.Gauge, labels ...string) figure {
	return figure{(*exposition.Page).Gauge, desc, labels, func() float64 { return float64(g.Load()) }}
}

// collect puts everything on a page.
func (c *collector) collect(p *exposition.Page) {
	for _, refresh := range c.gather {
		refresh()
	}
	for _, f := range c.figures {
		f.add(p, f.desc, f.read(), f.labels...)
	}
	goMetrics(p)
	processMetrics(p)
	c.collectJobs(p)
	for _, m := range c.meters.Caches() {
		collectCache(p, m)
	}
	for _, m := range c.meters.WebSockets() {
		collectWebSocket(p, m)
	}
	for _, m := range c.meters.AllImages() {
		collectImages(p, m)
	}
	for _, m := range c.meters.Plugins() {
		collectPlugin(p, m)
	}
	for _, m := range c.meters.Stores() {
		collectStore(p, m)
	}
	if c.certificates == nil {
		return
	}
	for _, one := range c.certificates() {
		collectCertificate(p, one)
	}
}

// collectJobs adds up what the routes of each job have counted: a label for the
// route would make a series of every bucket for each of them.
func (c *collector) collectJobs(p *exposition.Page) {
	jobs := c.meters.Jobs() // those of one name follow each other
	for len(jobs) > 0 {
		name := jobs[0].Name
		var fast, through, slow meter.Reading
		for len(jobs) > 0 && jobs[0].Name == name {
			for _, of := range []struct {
				sum *meter.Reading
				one *meter.Traffic
			}{{&fast, &jobs[0].Fast}, {&through, &jobs[0].Through}, {&slow, &jobs[0].Slow}} {
				r := of.one.Read()
				of.sum.Merge(&r)
			}
			jobs = jobs[1:]
		}
		c.collectTraffic(p, &fast, "fast", name)
		c.collectTraffic(p, &through, "through", name)
		c.collectTraffic(p, &slow, "slow", name)
	}
}

func (c *collector) collectTraffic(p *exposition.Page, t *meter.Reading, lane, job string) {
	for _, n := range t.Codes() {
		code := "other"
		if n.Code != 0 {
			code = strconv.Itoa(n.Code)
		}
		p.Counter(c.requests, float64(n.Count), lane, job, code)
	}
	p.Counter(c.bytes, float64(t.Bytes), lane, job)

	histogram(p, c.duration, t.Latency, lane, job)
}

func histogram(p *exposition.Page, desc *exposition.Metric, latency meter.Snapshot, labels ...string) {
	within := make([]exposition.Bucket, len(latencyBounds))
	for i, bound := range latencyBounds {
		within[i] = exposition.Bucket{Bound: bound.Seconds(), Count: latency.CountWithin(bound)}
	}
	p.Histogram(desc, within, latency.Sum().Seconds(), latency.Count(), labels...)
}
