package admin

import (
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"millrace/internal/observe/meter"
)

// scrape reads /metrics as Prometheus does: series with their labels → value.
func scrape(t *testing.T, d Deps) (text string, series map[string]float64) {
	t.Helper()
	_, c, url := start(t, Options{Listen: "unix:" + shortDir(t) + "/a.sock"}, d)
	status, text := ask(t, c, request(t, "GET", url+"/metrics"))
	if status != 200 {
		t.Fatalf("status %d: %s", status, text)
	}
	series = make(map[string]float64)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.Contains(line, "} ") { // a label's value may hold spaces
			i := strings.LastIndex(line, "} ") + 1
			name, value = line[:i], strings.TrimSpace(line[i:])
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if _, twice := series[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		series[name] = v
	}
	return text, series
}

// counted is a set of meters in which every figure differs.
func counted() *meter.Meters {
	m := meter.New()
	m.Sent.Sendfile.Add(1, 11)
	m.Sent.Writev.Add(2, 12)
	m.Sent.Copied.Add(3, 13)
	m.LogDropped.Add(4, 14)
	m.Connections.Add(15)
	m.Accepted.Add(5, 16)
	m.Rejected.Add(6, 17)
	m.LaneEntries.Set(18)
	m.LaneBytes.Set(19)
	m.LaneEvicted.Add(0, 20)
	m.LaneOffers.Add(0, 21)
	m.LaneVoided.Add(0, 22)
	m.ConfigReloads.Add(0, 23)
	m.ConfigReloadFailures.Add(0, 24)
	m.ConfigLoaded.Set(1_800_000_000)
	static := m.Job("static")
	for range 3 {
		static.Fast.Observe(1, 200, 501, 7*time.Microsecond)
	}
	static.Fast.Observe(2, 304, 0, 7*time.Microsecond)
	static.Slow.Observe(3, 404, 9, 2*time.Millisecond)
	static.Slow.Observe(3, 999, 0, 40*time.Second)
	cached := m.Cache("blog.example/api/")
	for i, c := range []*meter.Counter{
		&cached.Hit, &cached.Stale, &cached.Coalesced, &cached.Miss, &cached.Validated, &cached.Pass, &cached.Bypass,
		&cached.Error, &cached.Refreshed, &cached.Purges, &cached.Evicted, &cached.FromUpstream,
	} {
		c.Add(uint32(i), uint64(31+i))
	}
	for i, g := range []*meter.Gauge{&cached.Fills, &cached.Memory, &cached.Objects, &cached.DiskBytes, &cached.DiskObjects} {
		g.Set(int64(51 + i))
	}
	cached.Upstream.Observe(1, 100*time.Millisecond)
	cached.Reasons.Add("cookie")
	cached.Reasons.Add("cookie")
	cached.Reasons.Add("no lifetime")
	plugin := m.Plugin("token.wasm")
	for i, c := range []*meter.Counter{&plugin.Requests, &plugin.Refused, &plugin.Traps, &plugin.Timeouts, &plugin.Uploads, &plugin.Starts} {
		c.Add(0, uint64(91+i))
	}
	plugin.Busy.Set(97)
	plugin.Instances.Set(98)
	ws := m.WebSocket("chat.example/live/")
	for i, c := range []*meter.Counter{
		&ws.Opened, &ws.Refused, &ws.MessagesIn, &ws.MessagesOut, &ws.BytesIn, &ws.BytesOut, &ws.Published, &ws.Delivered, &ws.Recovered, &ws.Lost,
	} {
		c.Add(uint32(i), uint64(61+i))
	}
	for i, g := range []*meter.Gauge{&ws.Open, &ws.QueuedBytes, &ws.QueuedMessages, &ws.HeldBytes, &ws.Channels, &ws.Subscriptions, &ws.BusDown} {
		g.Set(int64(81 + i))
	}
	ws.Lag.Observe(1, 100*time.Millisecond)
	ws.Lag.Observe(2, 300*time.Millisecond)
	ws.Closed.Add("client 1000")
	ws.Closed.Add("client 1000")
	ws.Closed.Add("server 1012")
	ws.Dropped.Add("slow")
	shared := m.Store("redis", "10.0.0.1:6379", "cache of /")
	for i, g := range []*meter.Gauge{&shared.Open, &shared.Down, &shared.Waiting} {
		g.Set(int64(91 + i))
	}
	for i, c := range []*meter.Counter{&shared.Errors, &shared.Hits, &shared.Misses, &shared.Read, &shared.Written} {
		c.Add(0, uint64(94+i))
	}
	shared.Calls.Observe(1, 100*time.Millisecond)
	m.Store("redis", "10.0.0.2:6379", "not in use any more")
	return m
}

func TestMetrics(t *testing.T) {
	gathered := false
	_, got := scrape(t, Deps{
		Meters: counted(), Version: "1.2.3", Revision: "abc",
		Gather: []func(){func() { gathered = true }},
	})
	if !gathered {
		t.Error("the gather function was not called")
	}
	for name, want := range map[string]float64{
		`millrace_sent_bytes_total{path="sendfile"}`:                                    11,
		`millrace_sent_bytes_total{path="writev"}`:                                      12,
		`millrace_sent_bytes_total{path="copied"}`:                                      13,
		`millrace_log_dropped_total`:                                                    14,
		`millrace_connections`:                                                          15,
		`millrace_connections_accepted_total`:                                           16,
		`millrace_connections_rejected_total`:                                           17,
		`millrace_lane_entries`:                                                         18,
		`millrace_lane_bytes`:                                                           19,
		`millrace_lane_evictions_total`:                                                 20,
		`millrace_lane_offers_total`:                                                    21,
		`millrace_lane_voided_total`:                                                    22,
		`millrace_config_reloads_total{result="success"}`:                               23,
		`millrace_config_reloads_total{result="failure"}`:                               24,
		`millrace_config_last_reload_success_timestamp_seconds`:                         1.8e9,
		`millrace_requests_total{code="200",job="static",lane="fast"}`:                  3,
		`millrace_requests_total{code="304",job="static",lane="fast"}`:                  1,
		`millrace_requests_total{code="404",job="static",lane="slow"}`:                  1,
		`millrace_requests_total{code="other",job="static",lane="slow"}`:                1,
		`millrace_response_bytes_total{job="static",lane="fast"}`:                       1503,
		`millrace_response_bytes_total{job="static",lane="slow"}`:                       9,
		`millrace_request_duration_seconds_count{job="static",lane="fast"}`:             4,
		`millrace_request_duration_seconds_sum{job="static",lane="fast"}`:               28e-6,
		`millrace_request_duration_seconds_bucket{job="static",lane="fast",le="5e-06"}`: 0,
		`millrace_request_duration_seconds_bucket{job="static",lane="fast",le="1e-05"}`: 4,
		`millrace_request_duration_seconds_bucket{job="static",lane="slow",le="30"}`:    1,
		`millrace_request_duration_seconds_bucket{job="static",lane="slow",le="+Inf"}`:  2,

		`millrace_cache_requests_total{outcome="hit",route="blog.example/api/"}`:             31,
		`millrace_cache_requests_total{outcome="stale",route="blog.example/api/"}`:           32,
		`millrace_cache_requests_total{outcome="coalesced",route="blog.example/api/"}`:       33,
		`millrace_cache_requests_total{outcome="miss",route="blog.example/api/"}`:            34,
		`millrace_cache_requests_total{outcome="validated",route="blog.example/api/"}`:       35,
		`millrace_cache_requests_total{outcome="pass",route="blog.example/api/"}`:            36,
		`millrace_cache_requests_total{outcome="bypass",route="blog.example/api/"}`:          37,
		`millrace_cache_requests_total{outcome="error",route="blog.example/api/"}`:           38,
		`millrace_cache_refreshes_total{route="blog.example/api/"}`:                          39,
		`millrace_cache_purges_total{route="blog.example/api/"}`:                             40,
		`millrace_cache_evictions_total{route="blog.example/api/"}`:                          41,
		`millrace_cache_upstream_bytes_total{route="blog.example/api/"}`:                     42,
		`millrace_cache_fills{route="blog.example/api/"}`:                                    51,
		`millrace_cache_bytes{route="blog.example/api/",tier="memory"}`:                      52,
		`millrace_cache_objects{route="blog.example/api/",tier="memory"}`:                    53,
		`millrace_cache_bytes{route="blog.example/api/",tier="disk"}`:                        54,
		`millrace_cache_objects{route="blog.example/api/",tier="disk"}`:                      55,
		`millrace_cache_uncached_total{reason="cookie",route="blog.example/api/"}`:           2,
		`millrace_cache_uncached_total{reason="no lifetime",route="blog.example/api/"}`:      1,
		`millrace_cache_upstream_duration_seconds_count{route="blog.example/api/"}`:          1,
		`millrace_cache_upstream_duration_seconds_sum{route="blog.example/api/"}`:            0.1,
		`millrace_cache_upstream_duration_seconds_bucket{route="blog.example/api/",le="10"}`: 1,

		`millrace_store_up{server="10.0.0.1:6379",store="redis",use="cache of /"}`:                              0,
		`millrace_store_waiting{server="10.0.0.1:6379",store="redis",use="cache of /"}`:                         93,
		`millrace_store_errors_total{server="10.0.0.1:6379",store="redis",use="cache of /"}`:                    94,
		`millrace_store_reads_total{result="hit",server="10.0.0.1:6379",store="redis",use="cache of /"}`:        95,
		`millrace_store_reads_total{result="miss",server="10.0.0.1:6379",store="redis",use="cache of /"}`:       96,
		`millrace_store_bytes_total{direction="read",server="10.0.0.1:6379",store="redis",use="cache of /"}`:    97,
		`millrace_store_bytes_total{direction="written",server="10.0.0.1:6379",store="redis",use="cache of /"}`: 98,
		`millrace_store_call_duration_seconds_count{server="10.0.0.1:6379",store="redis",use="cache of /"}`:     1,
		`millrace_plugin_requests_total{module="token.wasm"}`:                                                   91,
		`millrace_plugin_failures_total{module="token.wasm",reason="busy"}`:                                     92,
		`millrace_plugin_failures_total{module="token.wasm",reason="trap"}`:                                     93,
		`millrace_plugin_failures_total{module="token.wasm",reason="timeout"}`:                                  94,
		`millrace_plugin_failures_total{module="token.wasm",reason="upload"}`:                                   95,
		`millrace_plugin_failures_total{module="token.wasm",reason="start"}`:                                    96,
		`millrace_plugin_instances{module="token.wasm",state="busy"}`:                                           97,
		`millrace_plugin_instances{module="token.wasm",state="allowed"}`:                                        98,

		`millrace_websocket_connections_opened_total{route="chat.example/live/"}`:                      61,
		`millrace_websocket_connections_refused_total{route="chat.example/live/"}`:                     62,
		`millrace_websocket_messages_total{direction="in",route="chat.example/live/"}`:                 63,
		`millrace_websocket_messages_total{direction="out",route="chat.example/live/"}`:                64,
		`millrace_websocket_bytes_total{direction="in",route="chat.example/live/"}`:                    65,
		`millrace_websocket_bytes_total{direction="out",route="chat.example/live/"}`:                   66,
		`millrace_websocket_published_total{route="chat.example/live/"}`:                               67,
		`millrace_websocket_delivered_total{route="chat.example/live/"}`:                               68,
		`millrace_websocket_recoveries_total{result="recovered",route="chat.example/live/"}`:           69,
		`millrace_websocket_recoveries_total{result="lost",route="chat.example/live/"}`:                70,
		`millrace_websocket_connections{route="chat.example/live/"}`:                                   81,
		`millrace_websocket_queued_bytes{route="chat.example/live/"}`:                                  82,
		`millrace_websocket_queued_messages{route="chat.example/live/"}`:                               83,
		`millrace_websocket_held_bytes{route="chat.example/live/"}`:                                    84,
		`millrace_websocket_channels{route="chat.example/live/"}`:                                      85,
		`millrace_websocket_subscriptions{route="chat.example/live/"}`:                                 86,
		`millrace_websocket_bus_down{route="chat.example/live/"}`:                                      87,
		`millrace_websocket_connections_closed_total{reason="client 1000",route="chat.example/live/"}`: 2,
		`millrace_websocket_connections_closed_total{reason="server 1012",route="chat.example/live/"}`: 1,
		`millrace_websocket_dropped_total{reason="slow",route="chat.example/live/"}`:                   1,
		`millrace_websocket_delivery_lag_seconds_count{route="chat.example/live/"}`:                    2,
		`millrace_websocket_delivery_lag_seconds_sum{route="chat.example/live/"}`:                      0.4,
		`millrace_websocket_delivery_lag_seconds_bucket{route="chat.example/live/",le="0.25"}`:         1,
		`millrace_websocket_delivery_lag_seconds_bucket{route="chat.example/live/",le="10"}`:           2,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %t), want %v", name, v, ok, want)
		}
	}
	build := slices.Collect(maps.Keys(got))
	build = slices.DeleteFunc(build, func(s string) bool { return !strings.HasPrefix(s, "millrace_build_info{") })
	if len(build) != 1 || !strings.Contains(build[0], `revision="abc"`) || !strings.Contains(build[0], `version="1.2.3"`) {
		t.Errorf("build info %v", build)
	}
	for _, name := range []string{"go_goroutines", "go_gc_gogc_percent"} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s of the Go runtime is missing", name)
		}
	}
}

// TestMetricsKeepNames holds names, types, texts and labels against what was
// published: dashboards, alerts and scripts use them.
func TestMetricsKeepNames(t *testing.T) {
	text, _ := scrape(t, Deps{Meters: counted()})
	published, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	there := make(map[string]bool)
	for line := range strings.Lines(text) {
		if name, _, labelled := strings.Cut(line, "{"); labelled {
			line = name + strings.Join(regexp.MustCompile(`[{,][a-z]+=`).FindAllString(line, -1), "") + "\n"
		}
		there[line] = true
	}
	for line := range strings.Lines(string(published)) {
		if strings.Contains(line, " process_") && runtime.GOOS != "linux" {
			continue
		}
		if !there[line] {
			t.Errorf("there is no %s", line)
		}
	}
}

// The exposition parses, and its names follow Prometheus's conventions.
func TestMetricsLint(t *testing.T) { lintMetrics(t, counted()) }

func lintMetrics(t *testing.T, m *meter.Meters) {
	t.Helper()
	text, _ := scrape(t, Deps{Meters: m})
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "millrace_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// Buckets hold what a cumulative histogram must: never less than the one before.
func TestHistogramIsCumulative(t *testing.T) {
	m := meter.New()
	for d := time.Duration(100); d < time.Minute; d = d*11/10 + 1 {
		m.Job("a").Slow.Observe(uint32(d), 200, 0, d)
	}
	_, got := scrape(t, Deps{Meters: m})
	last, n := 0.0, 0
	for _, bound := range latencyBounds {
		le := strconv.FormatFloat(bound.Seconds(), 'g', -1, 64)
		v, ok := got[`millrace_request_duration_seconds_bucket{job="a",lane="slow",le="`+le+`"}`]
		if !ok || v <= last {
			t.Errorf("le=%s holds %v (there: %t), the one before %v", le, v, ok, last)
		}
		last = v
		n++
	}
	if total := got[`millrace_request_duration_seconds_count{job="a",lane="slow"}`]; n < 10 || last >= total {
		t.Errorf("%d buckets hold %v of %v: some were longer", n, last, total)
	}
}

// A job's name that cannot be a label makes an error, not a panic.
func TestBadLabel(t *testing.T) {
	m := meter.New()
	m.Job("\xff")
	_, c, url := start(t, Options{Listen: "127.0.0.1:0"}, Deps{Meters: m})
	if status, body := ask(t, c, request(t, "GET", url+"/metrics")); status != 500 || !strings.Contains(body, "UTF-8") {
		t.Errorf("status %d: %.200s", status, body)
	}
}

func TestScrapeWhileCounting(t *testing.T) {
	m := meter.New()
	_, c, url := start(t, Options{Listen: "127.0.0.1:0"}, Deps{Meters: m})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for shard := range uint32(3) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					m.Job(strconv.Itoa(i%5)).Fast.Observe(shard, 200, 1, time.Duration(i))
				}
			}
		})
	}
	for range 10 {
		if status, body := ask(t, c, request(t, "GET", url+"/metrics")); status != 200 {
			t.Errorf("status %d: %.200s", status, body)
		}
	}
	close(stop)
	wg.Wait()
}
