package admin

import (
	"millrace/internal/observe/meter"
	"millrace/internal/ops/exposition"
)

// imagesMetrics are the metrics of each route's images.
type imagesMetrics struct {
	served, converted, failed            *exposition.Metric // by result
	shed, noGain, dropped                *exposition.Metric
	original, variant, cpu               *exposition.Metric // of conversions
	waiting, running, memory             *exposition.Metric // of the queue
	workers, workerMemory, crashed       *exposition.Metric
	variants, variantBytes, took, waited *exposition.Metric
	encoder                              *exposition.Metric
}

func newImagesMetrics() imagesMetrics {
	return imagesMetrics{
		served:       describe("images_requests_total", "Requests for images by the format that was sent, or the original and why, without those of the fast lane.", "route", "result"),
		converted:    describe("images_conversions_total", "Conversions that succeeded, by format and level of the encoder.", "route", "result"),
		failed:       describe("images_failures_total", "Images that could not be converted, by cause.", "route", "cause"),
		shed:         describe("images_shed_total", "Conversions that were refused because the queue was full.", "route"),
		noGain:       describe("images_no_gain_total", "Conversions whose result was not smaller than the original.", "route"),
		dropped:      describe("images_dropped_total", "Variants that were removed because their original changed or went away.", "route"),
		original:     describe("images_original_bytes_total", "Bytes of the originals that were converted.", "route"),
		variant:      describe("images_converted_bytes_total", "Bytes of the variants made from them.", "route"),
		cpu:          describe("images_cpu_seconds_total", "CPU time of conversions, their processes included.", "route"),
		waiting:      describe("images_waiting", "Conversions that wait. Routes with the same engine show the same.", "route"),
		running:      describe("images_running", "Conversions under way. Routes with the same engine show the same.", "route"),
		memory:       describe("images_predicted_bytes", "Memory that the conversions under way are expected to take.", "route"),
		workers:      describe("images_workers", "Processes that convert, or wait for work.", "route"),
		workerMemory: describe("images_worker_resident_bytes", "Resident memory of the worker processes.", "route"),
		crashed:      describe("images_worker_crashes_total", "Worker processes that crashed since the start.", "route"),
		variants:     describe("images_variants", "Variants stored.", "route"),
		variantBytes: describe("images_variant_bytes", "Bytes that they take in their folder.", "route"),
		took:         describe("images_conversion_duration_seconds", "Time of a conversion, without its wait.", "route"),
		waited:       describe("images_wait_seconds", "Time that a visitor waited for a conversion.", "route"),
		encoder:      describe("images_encoder_info", "Always 1; the labels say which encoder writes a format: tools or embedded.", "route", "format", "level", "by"),
	}
}

func (d *imagesMetrics) collect(p *exposition.Page, m *meter.Images) {
	for _, f := range []struct {
		desc    *exposition.Metric
		counter *meter.Counter
		unit    float64
	}{
		{d.shed, &m.Shed, 1},
		{d.noGain, &m.NoGain, 1},
		{d.dropped, &m.Dropped, 1},
		{d.original, &m.BytesIn, 1},
		{d.variant, &m.BytesOut, 1},
		{d.cpu, &m.CPU, 1e9}, // it counts nanoseconds
	} {
		p.Counter(f.desc, float64(f.counter.Load())/f.unit, m.Route)
	}
	for _, f := range []struct {
		desc    *exposition.Metric
		reasons *meter.Reasons
	}{
		{d.served, &m.Served},
		{d.converted, &m.Converted},
		{d.failed, &m.Failed},
	} {
		f.reasons.Each(func(reason string, n uint64) {
			p.Counter(f.desc, float64(n), m.Route, reason)
		})
	}
	for _, f := range []struct {
		desc  *exposition.Metric
		gauge *meter.Gauge
	}{
		{d.waiting, &m.Waiting},
		{d.running, &m.Running},
		{d.memory, &m.Memory},
		{d.workers, &m.Workers},
		{d.workerMemory, &m.WorkerBytes},
		{d.variants, &m.Variants},
		{d.variantBytes, &m.VariantBytes},
	} {
		p.Gauge(f.desc, float64(f.gauge.Load()), m.Route)
	}
	// A counter, which the workers keep themselves.
	p.Counter(d.crashed, float64(m.Crashed.Load()), m.Route)
	histogram(p, d.took, m.Took.Snapshot(), m.Route)
	histogram(p, d.waited, m.Waited.Snapshot(), m.Route)
	if encoders := m.Encoders.Load(); encoders != nil {
		for _, e := range *encoders {
			p.Gauge(d.encoder, 1, m.Route, e.Format, e.Level, e.By)
		}
	}
}
