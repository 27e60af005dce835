package millrace_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/ops/chart"
)

// update writes docs/performance.svg anew: go test . -run TestPerformanceChart -update
var update = flag.Bool("update", false, "write docs/performance.svg anew")

// charted are the rows of docs/performance.svg: where in bench's results each
// one stands. In "The bars" a row is found by what it measures, in "Where we
// lose" by where, figure and peer, and in the lab's tables by the cells that "" does
// not leave open.
var charted = []struct {
	group, label string
	file         string
	cells        []string
}{
	{"A small file, 50 connections", "nginx", "RESULTS.md", []string{"CPU per request of nginx's, no log, `/` alone, bare, 50 connections"}},
	{"A small page over HTTPS, 50 connections", "nginx, HTTP/2, 10 streams", "TLS.md", []string{"h2-10", "CPU per request"}},
	{"A small page over HTTPS, 50 connections", "nginx, HTTP/2, 1 stream", "TLS.md", []string{"h2-1", "CPU per request"}},
	{"A small page over HTTPS, 50 connections", "nginx, HTTP/1.1", "TLS.md", []string{"h1-50", "CPU per request"}},
	{"A cached answer of 40 bytes, 50 connections", "nginx", "CACHE.md", []string{"CPU per request of nginx's, 40 bytes, 50 connections"}},
	{"A cached answer of 40 bytes, 50 connections", "Varnish", "CACHE.md", []string{"CPU per request of Varnish's, 40 bytes, 50 connections"}},
	{"A cached answer of 32 KB, 50 connections", "nginx", "CACHE.md", []string{"CPU per request of the better peer's (nginx), 32 KB, 50 connections"}},
	{"A request passed on to an application, 50 connections", "nginx", "PROXY.md", []string{"get-50", "CPU per request"}},
	{"A request passed on to an application, 50 connections", "nginx, HTTP/2 over TLS", "PROXY.md", []string{"tls-h2-50", "CPU per request"}},
	{"A visitor now and then, 500 requests a second", "nginx, a small file", "LATENCY.md", []string{"browser-500", "CPU per request"}},
	{"A visitor now and then, 500 requests a second", "nginx, passed on to an application", "LATENCY.md", []string{"proxy-500", "CPU per request"}},
	{"A request that a cache has to pass on, 50 connections", "nginx", "PROXY.md", []string{"miss-50", "CPU per request"}},
	{"A WebSocket echo of 20 bytes, 1,000 connections", "gws", "WEBSOCKET.md", []string{"CPU per echo of gws's, 20 bytes, 1,000 connections"}},
	{"A message delivered to 10,000 subscribers", "gws", "WEBSOCKET.md", []string{"CPU per delivery of gws's, 1 → 10,000, 5 a second"}},
	{"A WebSocket opened", "gws", "PROXY.md", []string{"ws-open", "CPU per opening"}},
	{"A photograph converted to WebP", "vips; here with cwebp", "IMAGES.md", []string{"folder", "CPU time per megapixel", "millrace", "", "vips"}},
	{"A photograph converted to WebP", "vips; here embedded", "IMAGES.md", []string{"folder", "CPU time per megapixel", "millrace-embedded", "", "vips"}},
	{"A converted picture sent, 50 connections", "nginx, 20 KB", "IMAGES.md", []string{"ready 20k", "CPU time per request", "millrace", "", "nginx"}},
	{"A converted picture sent, 50 connections", "nginx, 70 KB", "IMAGES.md", []string{"ready 70k", "CPU time per request", "millrace", "", "nginx"}},
	{"A converted picture sent, 50 connections", "nginx, 350 KB", "IMAGES.md", []string{"ready 350k", "CPU time per request", "millrace", "", "nginx"}},
	{"A file of 256 MB", "nginx, TCP", "RESULTS.md", []string{"256 MB over TCP", "CPU per byte", "nginx"}},
	{"A file of 256 MB", "nginx, UNIX socket", "RESULTS.md", []string{"256 MB over a UNIX socket", "CPU per byte", "nginx"}},
}

// ratio is "0.61 (0.57–0.75)", or "1.48" where it was measured once. The lab
// writes a change and its interval: "−54.1 % | \[−56.3 %, −51.1 %\]", or "×3.49 |
// \[×3.39, ×3.56\]".
var (
	ratio  = regexp.MustCompile(`^([\d.]+)(?: \(([\d.]+)–([\d.]+)\))?$`)
	change = regexp.MustCompile(`\| ([^ |]+(?: %)?) \| \\\[([^,]+), ([^\]]+)\\\] \|`)
)

// TestPerformanceChart: README's chart shows what stands in the results.
func TestPerformanceChart(t *testing.T) {
	c := chart.Intervals{
		Title: "CPU time, Millrace against others: left of the line it needs less",
		About: "medians and ranges of the rounds; made from lab/bench/*.md",
	}
	for _, row := range charted {
		low, mid, high := measured(t, filepath.Join("lab", "bench", row.file), row.cells)
		one := chart.Interval{Group: row.group, Label: row.label, Ratio: mid, Low: low, High: high, Mark: chart.Open, Verdict: "no clear difference"}
		switch {
		case high > 0 && high < 1:
			one.Mark, one.Verdict = chart.Good, "less"
		case low > 1 || high == 0 && mid > 1:
			one.Mark, one.Verdict = chart.Bad, "more"
		}
		c.Rows = append(c.Rows, one)
	}
	var svg bytes.Buffer
	if err := c.Standalone(&svg, chart.Size{Width: 800}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("docs", "performance.svg")
	if *update {
		if err := os.WriteFile(file, svg.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := os.ReadFile(file); err != nil || !bytes.Equal(was, svg.Bytes()) {
		t.Errorf("%s is not what bench's results say (%v): make docs", file, err)
	}
}

// measured is the ratio in the row of a results page whose first cells are these.
func measured(t *testing.T, file string, cells []string) (low, mid, high float64) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if !begins(line, cells) {
			continue
		}
		if m := change.FindStringSubmatch(line); m != nil {
			return factor(t, m[2]), factor(t, m[1]), factor(t, m[3])
		}
		for cell := range strings.SplitSeq(line, " | ") {
			if m := ratio.FindStringSubmatch(strings.TrimSpace(cell)); m != nil {
				number := func(i int) float64 {
					v, _ := strconv.ParseFloat(m[i], 64) // 0 where there is none
					return v
				}
				return number(2), number(1), number(3)
			}
		}
	}
	t.Fatalf("%s has no row that begins with %q: it was measured anew under another name; change charted", file, cells)
	return 0, 0, 0
}

// begins says whether these are the first cells of a row; "" is any cell.
func begins(line string, cells []string) bool {
	row := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
	if len(row) <= len(cells) {
		return false
	}
	for i, cell := range cells {
		if cell != "" && cell != strings.TrimSpace(row[i]) {
			return false
		}
	}
	return true
}

// factor is 0.459 for "−54.1 %" and 3.49 for "×3.49".
func factor(t *testing.T, text string) float64 {
	t.Helper()
	text = strings.TrimSpace(text)
	if times, ok := strings.CutPrefix(text, "×"); ok {
		v, err := strconv.ParseFloat(times, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v, err := strconv.ParseFloat(strings.NewReplacer("−", "-", "±", "", "+", "", " %", "").Replace(text), 64)
	if err != nil {
		t.Fatal(err)
	}
	return 1 + v/100
}
