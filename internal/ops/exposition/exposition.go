// Package exposition writes metrics in Prometheus's text format, version 0.0.4:
// https://prometheus.io/docs/instrumenting/exposition_formats/. The client
// library for Go would register a route with the default mux (decision 52).
package exposition

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/internal/wire/negotiate"
)

// Metric names and explains samples. Names are not checked: they are constants.
type Metric struct {
	Name, Help string
	Labels     []string // names of labels, in the order in which samples give their values
}

// Page gathers samples and writes them grouped by metric, since the format asks
// for that. It is for one goroutine.
type Page struct {
	families map[string]*family
	err      error
}

// family is the text of a metric's samples.
type family struct {
	help, kind string
	lines      bytes.Buffer
	seen       map[string]bool // labels of samples
}

// Counter adds a sample of a counter.
func (p *Page) Counter(m *Metric, value float64, labels ...string) {
	if f, of := p.series(m, "counter", labels); f != nil {
		f.line(m.Name, of, value)
	}
}

// Gauge adds a sample of a gauge.
func (p *Page) Gauge(m *Metric, value float64, labels ...string) {
	if f, of := p.series(m, "gauge", labels); f != nil {
		f.line(m.Name, of, value)
	}
}

// Bucket is how many of a histogram's observations were at most Bound.
type Bucket struct {
	Bound float64
	Count uint64
}

// Histogram adds a histogram. Buckets come in order and hold what is in those
// before them as well; the one for all observations is count.
func (p *Page) Histogram(m *Metric, buckets []Bucket, sum float64, count uint64, labels ...string) {
	f, of := p.series(m, "histogram", labels)
	if f == nil {
		return
	}
	for _, b := range buckets {
		f.line(m.Name+"_bucket", with(of, "le", b.Bound), float64(b.Count))
	}
	f.line(m.Name+"_bucket", with(of, "le", math.Inf(1)), float64(count))
	f.line(m.Name+"_sum", of, sum)
	f.line(m.Name+"_count", of, float64(count))
}

// Summary adds a summary of observations: values at quantiles that are given.
func (p *Page) Summary(m *Metric, quantiles, values []float64, sum float64, count uint64) {
	f, of := p.series(m, "summary", nil)
	if f == nil {
		return
	}
	for i, q := range quantiles {
		f.line(m.Name, with(of, "quantile", q), values[i])
	}
	f.line(m.Name+"_sum", of, sum)
	f.line(m.Name+"_count", of, float64(count))
}

// series is the metric's family and the labels as they are written, without
// braces. It is nil after a mistake, which the scraper gets to see.
func (p *Page) series(m *Metric, kind string, values []string) (*family, string) {
	if len(values) != len(m.Labels) {
		p.fail(m, "has %d labels, not %d", len(m.Labels), len(values))
		return nil, ""
	}
	pairs := make([]string, len(values))
	for i, v := range values {
		if !utf8.ValidString(v) {
			p.fail(m, "has a label that is not UTF-8: %q", v)
			return nil, ""
		}
		pairs[i] = m.Labels[i] + `="` + escaped(v, true) + `"`
	}
	slices.Sort(pairs)
	labels := strings.Join(pairs, ",")
	f := p.families[m.Name]
	if f == nil {
		f = &family{help: m.Help, kind: kind, seen: make(map[string]bool)}
		if p.families == nil {
			p.families = make(map[string]*family)
		}
		p.families[m.Name] = f
	}
	if f.seen[labels] {
		p.fail(m, "is there twice with %s", labels)
		return nil, ""
	}
	f.seen[labels] = true
	return f, labels
}

// fail keeps the first mistake.
func (p *Page) fail(m *Metric, format string, a ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("the metric %s %s", m.Name, fmt.Sprintf(format, a...))
	}
}

// with is labels and one more.
func with(labels, name string, value float64) string {
	if labels != "" {
		labels += ","
	}
	return labels + name + `="` + number(value) + `"`
}

func (f *family) line(name, labels string, value float64) {
	f.lines.WriteString(name)
	if labels != "" {
		f.lines.WriteString("{" + labels + "}")
	}
	f.lines.WriteString(" " + number(value) + "\n")
}

// number writes NaN, +Inf and -Inf as the format has them.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// escaped is a text of the format; in quotes these are escaped as well.
func escaped(s string, quotes bool) string {
	s = strings.ReplaceAll(s, `\`, `\\`)
	s = strings.ReplaceAll(s, "\n", `\n`)
	if quotes {
		s = strings.ReplaceAll(s, `"`, `\"`)
	}
	return s
}

// Bytes is the page: metrics in the order of their names, samples as they came.
func (p *Page) Bytes() ([]byte, error) {
	if p.err != nil {
		return nil, p.err
	}
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(p.families)) {
		f := p.families[name]
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, escaped(f.help, false), name, f.kind)
		b.Write(f.lines.Bytes())
	}
	return b.Bytes(), nil
}

// Handler answers scrapes with what collect puts on a page, at most so many at
// once (503 above), and 503 when collect takes longer than timeout.
func Handler(collect func(*Page), most int, timeout time.Duration) http.Handler {
	running := make(chan struct{}, most)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
		default:
			http.Error(w, fmt.Sprintf("Limit of concurrent requests reached (%d), try again later.", most), http.StatusServiceUnavailable)
			return
		}
		var page Page
		collect(&page)
		body, err := page.Bytes()
		if err != nil {
			http.Error(w, "An error has occurred while serving metrics:\n\n"+err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, r, body)
	})
	return http.TimeoutHandler(h, timeout, fmt.Sprintf("Exceeded configured timeout of %v.\n", timeout))
}

func answer(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Vary", "Accept-Encoding")
	if coding, ok := negotiate.Encoding(r.Header.Values("Accept-Encoding"), negotiate.Set(0).With(negotiate.Gzip)); !ok || coding != negotiate.Gzip {
		_, _ = w.Write(body) // the client may have gone
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = z.Write(body)
	_ = z.Close()
}
