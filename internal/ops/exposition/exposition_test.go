package exposition

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func filled(p *Page) {
	p.Gauge(&Metric{Name: "z", Help: "Last, with \\ and\na line."}, math.NaN())
	labelled := &Metric{Name: "b_total", Help: "With labels.", Labels: []string{"z", "a"}}
	p.Counter(labelled, 12345678901234, "one", `quote " back \ line`+"\n.")
	p.Counter(labelled, 0.1, "", "ü")
	p.Histogram(&Metric{Name: "h", Help: "H.", Labels: []string{"l"}}, []Bucket{{5e-6, 1}, {0.5, 3}}, 7.25, 4, "x")
	p.Summary(&Metric{Name: "s", Help: "S."}, []float64{0, 0.5, 1}, []float64{1, 2, 3}, 6, 3)
}

// TestAsPrometheusWritesIt: the same samples through Prometheus's own client
// give the same page.
func TestAsPrometheusWritesIt(t *testing.T) {
	var page Page
	filled(&page)
	got, err := page.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(theirs{})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&want, f); err != nil {
			t.Fatal(err)
		}
	}
	if string(got) != want.String() {
		t.Errorf("got:\n%s\nPrometheus's client writes:\n%s", got, want.String())
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if parsed, err := parser.TextToMetricFamilies(bytes.NewReader(got)); err != nil || len(parsed) != 4 {
		t.Errorf("Prometheus reads %d families: %v", len(parsed), err)
	}
}

type theirs struct{}

func (theirs) Describe(chan<- *prometheus.Desc) {}

func (theirs) Collect(ch chan<- prometheus.Metric) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	ch <- prometheus.MustNewConstMetric(desc("z", "Last, with \\ and\na line."), prometheus.GaugeValue, math.NaN())
	labelled := desc("b_total", "With labels.", "z", "a")
	ch <- prometheus.MustNewConstMetric(labelled, prometheus.CounterValue, 12345678901234, "one", `quote " back \ line`+"\n.")
	ch <- prometheus.MustNewConstMetric(labelled, prometheus.CounterValue, 0.1, "", "ü")
	ch <- prometheus.MustNewConstHistogram(desc("h", "H.", "l"), 4, 7.25, map[float64]uint64{5e-6: 1, 0.5: 3}, "x")
	ch <- prometheus.MustNewConstSummary(desc("s", "S."), 3, 6, map[float64]float64{0: 1, 0.5: 2, 1: 3})
}

func TestMistakes(t *testing.T) {
	one := &Metric{Name: "m", Help: "M.", Labels: []string{"l"}}
	for want, add := range map[string]func(p *Page){
		"not UTF-8": func(p *Page) { p.Gauge(one, 1, "\xff") },
		"1 labels":  func(p *Page) { p.Gauge(one, 1) },
		"twice":     func(p *Page) { p.Gauge(one, 1, "a"); p.Histogram(one, nil, 1, 1, "a") },
	} {
		var p Page
		add(&p)
		if b, err := p.Bytes(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", want, b, err)
		}
	}
}

func TestHandler(t *testing.T) {
	enter, leave := make(chan struct{}), make(chan struct{})
	wait := false
	h := Handler(func(p *Page) {
		if wait {
			enter <- struct{}{}
			<-leave
		}
		filled(p)
	}, 1, time.Minute)
	ask := func(encoding string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept-Encoding", encoding)
		h.ServeHTTP(w, r)
		return w
	}
	plain, packed := ask("identity"), ask("gzip, deflate")
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil || string(body) != plain.Body.String() || packed.Header().Get("Content-Encoding") != "gzip" || plain.Header().Get("Content-Encoding") != "" {
		t.Errorf("%v, %d and %d bytes, %v", err, len(body), plain.Body.Len(), packed.Header())
	}
	wait = true
	done := make(chan int)
	go func() { done <- ask("").Code }()
	<-enter
	if w := ask(""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a second scrape at once: status %d", w.Code)
	}
	close(leave)
	if code := <-done; code != http.StatusOK {
		t.Errorf("status %d", code)
	}
}
