package admin

import (
	"millrace/internal/observe/meter"
	"millrace/internal/ops/exposition"
)

// collectImages adds the metrics of a route's images.
func collectImages(p *exposition.Page, m *meter.Images) {
	s := routeSamples{p, m.Route}
	s.reasons("images_requests_total", "Requests for images by the format that was sent, or the original and why, without those of the fast lane.", "result", &m.Served)
	s.reasons("images_conversions_total", "Conversions that succeeded, by format and level of the encoder.", "result", &m.Converted)
	s.reasons("images_failures_total", "Images that could not be converted, by cause.", "cause", &m.Failed)
	s.counter("images_shed_total", "Conversions that were refused because the queue was full.", &m.Shed)
	s.counter("images_no_gain_total", "Conversions whose result was not smaller than the original.", &m.NoGain)
	s.counter("images_dropped_total", "Variants that were removed because their original changed or went away.", &m.Dropped)
	s.counter("images_original_bytes_total", "Bytes of the originals that were converted.", &m.BytesIn)
	s.counter("images_converted_bytes_total", "Bytes of the variants made from them.", &m.BytesOut)
	p.Counter(describe("images_cpu_seconds_total", "CPU time of conversions, their processes included.", "route"), float64(m.CPU.Load())/1e9, m.Route) // it counts nanoseconds
	s.gauge("images_waiting", "Conversions that wait. Routes with the same engine show the same.", &m.Waiting)
	s.gauge("images_running", "Conversions under way. Routes with the same engine show the same.", &m.Running)
	s.gauge("images_predicted_bytes", "Memory that the conversions under way are expected to take.", &m.Memory)
	s.gauge("images_workers", "Processes that convert, or wait for work.", &m.Workers)
	s.gauge("images_worker_resident_bytes", "Resident memory of the worker processes.", &m.WorkerBytes)
	s.gauge("images_variants", "Variants stored.", &m.Variants)
	s.gauge("images_variant_bytes", "Bytes that they take in their folder.", &m.VariantBytes)
	// A counter, which the workers keep themselves.
	p.Counter(describe("images_worker_crashes_total", "Worker processes that crashed since the start.", "route"), float64(m.Crashed.Load()), m.Route)
	s.histogram("images_conversion_duration_seconds", "Time of a conversion, without its wait.", m.Took.Snapshot())
	s.histogram("images_wait_seconds", "Time that a visitor waited for a conversion.", m.Waited.Snapshot())
	if encoders := m.Encoders.Load(); encoders != nil {
		info := describe("images_encoder_info", "Always 1; the labels say which encoder writes a format: tools or embedded.", "route", "format", "level", "by")
		for _, e := range *encoders {
			p.Gauge(info, 1, m.Route, e.Format, e.Level, e.By)
		}
	}
}
