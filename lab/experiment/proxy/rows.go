package proxy

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// The paths of the application: what they end in is how many bytes it answers.
const (
	small  = "/501"
	medium = "/32768"
	cached = "/cached/501"  // which a cache may keep
	headed = "/headers/501" // with rules for header fields around it
	upload = "/upload"
)

// largeSize is that of a large answer in bytes: long enough that its start and end
// do not count.
func (m *measurement) largeSize() int {
	if m.quick {
		return 64 << 20
	}
	return 256 << 20
}

func metrics() []record.Metric {
	return slices.Concat([]record.Metric{
		{Key: experiment.CPU, Name: "CPU time per request", Unit: "ns", About: "or per download or opening, as the workload says; of the proxy's processes, user and kernel"},
	}, attackMetrics())
}

// rows are all of them, in the order of the table.
func (m *measurement) rows() []experiment.Row {
	return slices.Concat(m.requests(), m.cached(), m.phpRows(), m.secured(), m.transfers(), m.attacks())
}

// few and many are the connections of most rows.
const few, many = 50, 500

// plain completes a row whose load the lab's loops make.
func plain(connections int, cfg load.Config, r experiment.Row) experiment.Row {
	cfg.Connections, cfg.Threads, cfg.Sources = connections, 1, 4
	r.Name = fmt.Sprintf("%s-%d", r.Name, connections)
	r.About = fmt.Sprintf("%s, %d connections", r.About, connections)
	r.Figure, r.Metric, r.Ours, r.Load, r.Connections = "CPU per request", experiment.CPU, millrace, cfg, connections
	if r.Arms == nil {
		r.Arms = proxies()
	}
	return r
}

// requests are the rows of what is passed on.
func (m *measurement) requests() []experiment.Row {
	var all []experiment.Row
	for _, what := range []struct {
		cfg  load.Config
		row  experiment.Row
		slot time.Duration
	}{
		{load.Config{Paths: []string{small}}, experiment.Row{Name: "get", About: "GET of 501 bytes", Goal: 1.2, Headline: true, Quick: true}, 0},
		{load.Config{Paths: []string{medium}}, experiment.Row{Name: "get-32k", About: "GET of 32 KiB"}, 0},
		{
			load.Config{Paths: []string{upload}, Body: bytes.Repeat([]byte("x"), 1<<10)},
			experiment.Row{Name: "post", About: "POST of 1 KiB", Goal: 1.3, Headline: true},
			0,
		},
		// Half a gigabyte is on its way with many connections: that takes a while.
		{load.Config{Paths: []string{upload}, Body: bytes.Repeat([]byte("x"), 1<<20)}, experiment.Row{Name: "post-1m", About: "POST of 1 MiB"}, 3 * time.Second},
	} {
		for _, n := range []int{few, many} {
			r := plain(n, what.cfg, what.row)
			if r.Slot = what.slot; n == few && r.Slot == 0 {
				r.Quick = true
			}
			all = append(all, r)
		}
	}
	for _, n := range []int{few, many} {
		all = append(all, plain(n, load.Config{Paths: []string{headed}}, experiment.Row{
			Name: "headers", About: "GET of 501 bytes with four security headers and an id in the answer, and X-Real-IP, Host and the id for the application",
			Arms: []string{nginx, millrace}, Goal: 1.2, Quick: n == few,
		}))
	}
	return all
}

// cached are the rows of a route with a cache, which has none of the answers.
func (m *measurement) cached() []experiment.Row {
	caches := []string{nginx, millrace}
	var all []experiment.Row
	for _, n := range []int{few, many} {
		all = append(all, plain(n, load.Config{Paths: []string{cached}, Unique: true}, experiment.Row{
			Name: "miss", About: "GET of 501 bytes from a cache (nginx: proxy_cache), each URL asked for once", Arms: caches, Goal: 1.3,
			Quick: n == few, Headline: true,
		}))
	}
	for _, personal := range [][3]string{
		{"cookie", "Cookie", "session=7b1f8a40c2d94e6fb0a3951e8d27c6f4; theme=dark"},
		{"authorization", "Authorization", "Bearer 7b1f8a40c2d94e6fb0a3951e8d27c6f4"},
	} {
		for _, n := range []int{few, many} {
			cfg := load.Config{Paths: []string{cached}, Header: http.Header{personal[1]: {personal[2]}}}
			all = append(all, plain(n, cfg, experiment.Row{
				Name: personal[0], About: "GET of 501 bytes with " + personal[1] + ", which passes a cache by", Arms: caches, Quick: n == few,
			}))
		}
	}
	return all
}

// secured are the rows of TLS to the client, with plain HTTP behind. With many
// connections of HTTP/2 there is one stream on each: as many requests are under way
// as on the few.
func (m *measurement) secured() []experiment.Row {
	var all []experiment.Row
	for _, n := range []int{few, many} {
		streams := many / n
		all = append(all, m.loaded(experiment.H2loadBurst{Connections: n, Streams: streams}, experiment.Row{
			Name: fmt.Sprintf("tls-h2-%d", n), Quick: n == few, About: fmt.Sprintf("GET of 501 bytes over HTTP/2 and TLS, %d connections with streams: %d", n, streams),
		}))
	}
	for _, n := range []int{few, many} {
		all = append(all, m.loaded(experiment.H2loadBurst{Connections: n, Streams: 1, HTTP1: true}, experiment.Row{
			Name: fmt.Sprintf("tls-h1-%d", n), About: fmt.Sprintf("GET of 501 bytes over HTTP/1.1 and TLS, %d connections", n),
		}))
	}
	return all
}

// loaded completes a row whose load h2load makes.
func (m *measurement) loaded(b experiment.H2loadBurst, r experiment.Row) experiment.Row {
	r.Figure, r.Metric, r.Ours, r.Arms, r.Missing, r.Connections = "CPU per request", experiment.CPU, millrace, proxies(), m.missing, b.Connections
	r.Task = func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
		return m.press(ctx, slot, b)
	}
	return r
}

// transfers are the rows of large answers and of WebSockets.
func (m *measurement) transfers() []experiment.Row {
	size := m.largeSize()
	download := experiment.Row{
		Name: "download", Figure: "CPU per download", Metric: experiment.CPU, Ours: millrace, Arms: proxies(), Goal: 1.1, Quick: true, Headline: true,
		About: fmt.Sprintf("GET of %d MiB, 4 times on one connection", size>>20),
		Load:  load.Config{Paths: []string{fmt.Sprintf("/%d", size)}, Connections: 1, Threads: 1, Requests: 4, Timeout: clientTimeout},
		Slot:  clientTimeout,
	}
	return []experiment.Row{
		download,
		m.opened(experiment.Row{
			Name: "ws-open", Ours: sockets, Arms: []string{gws, sockets}, Goal: 1, Quick: true, Headline: true,
			About: "opening a WebSocket, without a proxy: gws's server beside millrace's own",
		}),
		m.opened(experiment.Row{Name: "ws-proxy", Ours: millrace, Arms: proxies(), About: "opening a WebSocket that is passed on to gws's server"}),
	}
}
