package tls

import (
	"context"
	"fmt"
	"slices"

	"millrace/lab/experiment/fileserver"
	"millrace/lab/result"
	"millrace/lab/trial"
)

// A row is one workload, and what of it counts.
type row struct {
	name, about string
	figure      string // what the metric is here: "CPU per page"
	metric      string
	arms        []string // the first one is what millrace is held against
	task        trial.Task

	// goal is the ratio to the first arm that must not be passed, and most the
	// figure itself; 0: there is none.
	goal, most float64

	// load is how many connections ask at once all the time: rows with many come
	// last in a round, since a server holds on to what it needed for them.
	load int

	quick    bool // in quick runs, too
	h2load   bool // h2load is needed
	large    bool // the large file is needed
	headline bool // in the answer
}

func (r row) workload() trial.Workload {
	return trial.Workload{Name: r.name, About: r.about, Task: r.task, Arms: r.arms}
}

// The metric that the trial has of itself: of a page, a connection or a download
// as of a request.
const cpu = "cpu_ns"

func metrics() []result.Metric {
	return []result.Metric{
		{Key: cpu, Name: "CPU time per request", Unit: "ns", About: "or per connection, page or download, as the workload says; of the server's processes, user and kernel"},
		{Key: perConnection, Name: "resident memory per connection", Unit: "bytes", About: "of all of the server's processes, with connections that rest, above what it had after some were opened and closed"},
	}
}

// rows are all of them, in the order of the table.
func (m *measurement) rows() []row {
	return slices.Concat(m.requests(), m.connections(), m.transfers())
}

// requests are the rows of small pages under load.
func (m *measurement) requests() []row {
	var rows []row
	for _, connections := range []int{50, 1000} {
		for _, streams := range []int{1, 10, 100} {
			name, goal := fmt.Sprintf("h2-%d", streams), map[int]float64{1: 0.85, 10: 0.40, 100: 0.35}[streams]
			if connections == 1000 {
				name, goal = name+"-1000", 0
				if streams == 10 {
					goal = 0.50
				}
			}
			rows = append(rows, m.loaded(burst{connections: connections, streams: streams}, row{
				name: name, goal: goal, quick: name == "h2-10" || name == "h2-1", headline: streams == 10,
				about: fmt.Sprintf("GET / (501 bytes) over HTTP/2, %d connections with %s", connections, plural(streams, "stream")),
			}))
		}
	}
	for _, connections := range []int{50, 1000} {
		rows = append(rows, m.loaded(burst{connections: connections, streams: 1, http1: true}, row{
			name: fmt.Sprintf("h1-%d", connections), goal: map[int]float64{50: 0.85, 1000: 0.80}[connections],
			about: fmt.Sprintf("GET / (501 bytes) over HTTP/1.1 and TLS, %d connections", connections),
			quick: connections == 50, headline: true,
		}))
	}
	cold := m.loaded(burst{connections: 50, streams: 10}, row{
		name: "cold", goal: 40.0 / 33, quick: true,
		about: "GET / over HTTP/2, 50 connections with 10 streams: a file without the lane, beside the least handler of net/http",
	})
	cold.arms = []string{bareNet, noLane}
	return append(rows, cold)
}

// loaded completes a row whose load h2load makes.
func (m *measurement) loaded(b burst, r row) row {
	r.figure, r.metric, r.arms, r.h2load = "CPU per request", cpu, servers(), true
	r.load = b.connections
	r.task = func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) { return m.press(ctx, slot, b) }
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
func (m *measurement) connections() []row {
	var rows []row
	for _, p := range protocols() {
		rows = append(rows, row{
			name: "handshake-" + p.suffix, goal: 1.35, quick: p.http2,
			about: "a new connection with a full handshake (X25519, ECDSA P-256), one GET / over " + p.name + ", and its end",
			task: func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
				return m.shake(ctx, slot, p.http2, false)
			},
		}, row{
			name: "resumed-" + p.suffix, goal: 1.2, quick: p.http2,
			about: "the same with a session that is resumed by its ticket, over " + p.name,
			task: func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
				return m.shake(ctx, slot, p.http2, true)
			},
		})
	}
	for i := range rows {
		rows[i].figure, rows[i].metric, rows[i].arms = "CPU per connection", cpu, servers()
	}
	for _, p := range protocols() {
		r := row{
			name: "quiet-" + p.suffix, figure: "memory per connection", metric: perConnection, arms: servers(), quick: p.http2,
			about: fmt.Sprintf("%d connections over TLS that have asked once over %s, after %v in which nothing happens", m.most, p.name, rest),
			task: func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
				return m.quietOn(ctx, slot, p.http2)
			},
		}
		if p.http2 {
			r.most = 14e3
		}
		rows = append(rows, r)
	}
	return rows
}

// transfers are the rows of large files and of a whole page.
func (m *measurement) transfers() []row {
	var rows []row
	for _, p := range protocols() {
		r := m.loaded(burst{connections: 1, streams: 1, http1: !p.http2, path: fileserver.LargePath, requests: 2}, row{
			name: "download-" + p.suffix, large: true, quick: p.http2,
			about: fmt.Sprintf("a file of %d MiB over %s and TLS, twice on one connection", m.large>>20, p.name),
		})
		if p.http2 {
			r.goal = 1.2
		}
		r.figure = "CPU per download"
		rows = append(rows, r)
	}
	return append(rows, row{
		name: "page", figure: "CPU per page", metric: cpu, arms: servers(), quick: true, task: m.view,
		about: fmt.Sprintf("a page of 8 KB, then its %d assets (0.6 to 34 KB) at once, over one HTTP/2 connection and with Chromium's header fields; %d visitors at once", assets, visitors),
	})
}
