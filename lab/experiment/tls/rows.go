package tls

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/trial"
)

func metrics() []record.Metric {
	return []record.Metric{
		{Key: experiment.CPU, Name: "CPU time per request", Unit: "ns", About: "or per connection, page or download, as the workload says; of the server's processes, user and kernel"},
		{Key: perConnection, Name: "resident memory per connection", Unit: "bytes", About: "of all of the server's processes, with connections that rest, above what it had after some were opened and closed"},
	}
}

// rows are all of them, in the order of the table.
func (m *measurement) rows() []experiment.Row {
	return slices.Concat(m.requests(), m.connections(), m.transfers())
}

// requests are the rows of small pages under load.
func (m *measurement) requests() []experiment.Row {
	var all []experiment.Row
	for _, connections := range []int{50, 1000} {
		for _, streams := range []int{1, 10, 100} {
			name, goal := fmt.Sprintf("h2-%d", streams), map[int]float64{1: 0.85, 10: 0.40, 100: 0.35}[streams]
			if connections == 1000 {
				name, goal = name+"-1000", 0
				if streams == 10 {
					goal = 0.50
				}
			}
			r := m.loaded(experiment.H2loadBurst{Connections: connections, Streams: streams}, experiment.Row{
				Name: name, Goal: goal, Quick: name == "h2-10" || name == "h2-1", Headline: streams == 10,
				About: fmt.Sprintf("GET / (501 bytes) over HTTP/2, %d connections with %s", connections, plural(streams, "stream")),
			})
			if connections*streams > 50_000 {
				r.Arms = []string{nginx, h2o, millrace}
				r.About += "; without Caddy, with which h2load never ends here"
			}
			all = append(all, r)
		}
	}
	for _, connections := range []int{50, 1000} {
		all = append(all, m.loaded(experiment.H2loadBurst{Connections: connections, Streams: 1, HTTP1: true}, experiment.Row{
			Name: fmt.Sprintf("h1-%d", connections), Goal: map[int]float64{50: 0.85, 1000: 0.80}[connections],
			About: fmt.Sprintf("GET / (501 bytes) over HTTP/1.1 and TLS, %d connections", connections),
			Quick: connections == 50, Headline: true,
		}))
	}
	for _, streams := range []int{1, 10} {
		all = append(all, experiment.Row{
			Name: fmt.Sprintf("h3-%d", streams), Goal: 1, Figure: "CPU per request", Metric: experiment.CPU,
			Ours: millraceH3, Arms: []string{caddyH3, millraceH3}, Connections: 50,
			About: fmt.Sprintf("GET / (501 bytes) over HTTP/3, 50 connections with %s, from the lab's own client", plural(streams, "stream")),
			Load:  load.Config{Protocol: load.HTTP3, Connections: 50, Streams: streams, Insecure: true, Timeout: visitTimeout},
		})
	}
	cold := m.loaded(experiment.H2loadBurst{Connections: 50, Streams: 10}, experiment.Row{
		Name: "cold", Goal: 40.0 / 33, Quick: true,
		About: "GET / over HTTP/2, 50 connections with 10 streams: a file without the lane, beside the least handler of net/http",
	})
	cold.Ours, cold.Arms = noLane, []string{bareNet, noLane}
	return append(all, cold)
}

// loaded completes a row whose load h2load makes.
func (m *measurement) loaded(b experiment.H2loadBurst, r experiment.Row) experiment.Row {
	r.Figure, r.Metric, r.Ours, r.Arms, r.Missing = "CPU per request", experiment.CPU, millrace, servers(), m.missing
	r.Connections = b.Connections
	r.Task = func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
		return m.press(ctx, slot, b)
	}
	return r
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// A protocol is one of the two that rows are measured over.
type protocol struct {
	suffix, name string
	http2        bool
}

func protocols() []protocol {
	return []protocol{{"h2", "HTTP/2", true}, {"h1", "HTTP/1.1", false}}
}

// connections are the rows of new and of quiet connections.
func (m *measurement) connections() []experiment.Row {
	var all []experiment.Row
	for _, p := range protocols() {
		all = append(all, experiment.Row{
			Name: "handshake-" + p.suffix, Goal: 1.35, Quick: p.http2,
			About: "a new connection with a full handshake (X25519, ECDSA P-256), one GET / over " + p.name + ", and its end",
			Task: func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
				return m.shake(ctx, slot, p.http2, false)
			},
		}, experiment.Row{
			Name: "resumed-" + p.suffix, Goal: 1.2, Quick: p.http2,
			About: "the same with a session that is resumed by its ticket, over " + p.name,
			Task: func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
				return m.shake(ctx, slot, p.http2, true)
			},
		})
	}
	for i := range all {
		all[i].Figure, all[i].Metric, all[i].Ours, all[i].Arms = "CPU per connection", experiment.CPU, millrace, servers()
	}
	for _, p := range protocols() {
		r := experiment.Row{
			Name: "quiet-" + p.suffix, Figure: "memory per connection", Metric: perConnection, Ours: millrace, Arms: servers(), Quick: p.http2,
			About: fmt.Sprintf("%d connections over TLS that have asked once over %s, after %v in which nothing happens", m.most, p.name, idleTime),
			Task: func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
				return m.measureIdle(ctx, slot, p.http2)
			},
		}
		if p.http2 {
			r.Most = 14e3
		}
		all = append(all, r)
	}
	return all
}

// download begins the names of the rows that need the large file.
const download = "download-"

func isDownload(r experiment.Row) bool { return strings.HasPrefix(r.Name, download) }

// transfers are the rows of large files and of a whole page.
func (m *measurement) transfers() []experiment.Row {
	var all []experiment.Row
	for _, p := range protocols() {
		r := m.loaded(experiment.H2loadBurst{Connections: 1, Streams: 1, HTTP1: !p.http2, URL: experiment.LargePath, Requests: 2}, experiment.Row{
			Name: download + p.suffix, Quick: p.http2,
			About: fmt.Sprintf("a file of %d MiB over %s and TLS, twice on one connection", m.large>>20, p.name),
		})
		if p.http2 {
			r.Goal = 1.2
		}
		r.Figure = "CPU per download"
		all = append(all, r)
	}
	return append(all, experiment.Row{
		Name: "page", Figure: "CPU per page", Metric: experiment.CPU, Ours: millrace, Arms: servers(), Quick: true, Task: m.view,
		About: fmt.Sprintf("a page of 8 KB, then its %d assets (0.6 to 34 KB) at once, over one HTTP/2 connection and with Chromium's header fields; %d visitors at once", experiment.Assets, visitors),
	})
}
