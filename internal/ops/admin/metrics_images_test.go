package admin

import (
	"testing"
	"time"

	"millrace/internal/observe/meter"
)

// countedImages is a route in which every figure differs.
func countedImages() *meter.Meters {
	m := meter.New()
	i := m.Images("photos.example/gallery/")
	for n, c := range []*meter.Counter{&i.Shed, &i.NoGain, &i.Dropped, &i.BytesIn, &i.BytesOut} {
		c.Add(0, uint64(91+n))
	}
	i.CPU.Add(0, 2_500_000_000)
	for n, g := range []*meter.Gauge{&i.Waiting, &i.Running, &i.Memory, &i.Workers, &i.WorkerBytes, &i.Crashed, &i.Variants, &i.VariantBytes} {
		g.Set(int64(101 + n))
	}
	i.Served.Add("webp")
	i.Served.Add("webp")
	i.Served.Add("original converting")
	i.Converted.Add("webp tools")
	i.Failed.Add("broken")
	i.Took.Observe(0, 200*time.Millisecond)
	i.Took.Observe(0, 300*time.Millisecond)
	i.Waited.Observe(0, 100*time.Millisecond)
	i.Encoders.Store(&[]meter.Encoder{{Format: "webp", Level: "tools", By: "cwebp 1.2.4"}, {Format: "avif", Level: "embedded", By: "libaom"}})
	return m
}

// Every figure of the images arrives under its own name.
func TestImagesMetrics(t *testing.T) {
	_, got := scrape(t, Deps{Meters: countedImages()})
	const route = `route="photos.example/gallery/"`
	for name, want := range map[string]float64{
		`images_shed_total{` + route + `}`:                                                91,
		`images_no_gain_total{` + route + `}`:                                             92,
		`images_dropped_total{` + route + `}`:                                             93,
		`images_original_bytes_total{` + route + `}`:                                      94,
		`images_converted_bytes_total{` + route + `}`:                                     95,
		`images_cpu_seconds_total{` + route + `}`:                                         2.5,
		`images_waiting{` + route + `}`:                                                   101,
		`images_running{` + route + `}`:                                                   102,
		`images_predicted_bytes{` + route + `}`:                                           103,
		`images_workers{` + route + `}`:                                                   104,
		`images_worker_resident_bytes{` + route + `}`:                                     105,
		`images_worker_crashes_total{` + route + `}`:                                      106,
		`images_variants{` + route + `}`:                                                  107,
		`images_variant_bytes{` + route + `}`:                                             108,
		`images_requests_total{result="webp",` + route + `}`:                              2,
		`images_requests_total{result="original converting",` + route + `}`:               1,
		`images_conversions_total{result="webp tools",` + route + `}`:                     1,
		`images_failures_total{cause="broken",` + route + `}`:                             1,
		`images_conversion_duration_seconds_count{` + route + `}`:                         2,
		`images_conversion_duration_seconds_sum{` + route + `}`:                           0.5,
		`images_wait_seconds_count{` + route + `}`:                                        1,
		`images_encoder_info{by="cwebp 1.2.4",format="webp",level="tools",` + route + `}`: 1,
		`images_encoder_info{by="libaom",format="avif",level="embedded",` + route + `}`:   1,
		`images_conversion_duration_seconds_bucket{` + route + `,le="0.25"}`:              1,
	} {
		if v, ok := got["millrace_"+name]; !ok || v != want {
			t.Errorf("%s is %v (there: %t), want %v", name, v, ok, want)
		}
	}
}

// A route whose engine has not been asked yet has no encoders, and no crash.
func TestImagesMetricsEarly(t *testing.T) {
	m := meter.New()
	m.Images("/")
	_, got := scrape(t, Deps{Meters: m})
	if v, ok := got[`millrace_images_running{route="/"}`]; !ok || v != 0 {
		t.Errorf("running is %v (there: %t)", v, ok)
	}
}

// TestImagesMetricsLint: the names follow Prometheus's conventions.
func TestImagesMetricsLint(t *testing.T) { lintMetrics(t, countedImages()) }
