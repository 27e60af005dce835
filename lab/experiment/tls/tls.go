// Package tls is the experiment tls: millrace beside nginx, h2o and Caddy where
// browsers are, HTTP/2 and HTTP/1.1 over TLS 1.3, and beside Caddy over HTTP/3. What is asked for is small
// pages, connections, quiet ones, large files and a page with its assets.
package tls

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// rounds are how many times each arm is started anew and given each row.
const rounds = 5

// schedule says how long it is measured; a quick run is enough to see that it works.
func schedule() experiment.Schedule {
	return experiment.Schedule{Rounds: rounds, QuickRounds: 2, Slot: time.Second, QuickSlot: 400 * time.Millisecond, Slow: []string{h2o, caddy, caddyH3}}
}

// peers are the columns of the table.
func peers() []experiment.Peer {
	return []experiment.Peer{{Arm: nginx, Name: "nginx"}, {Arm: h2o, Name: "h2o"}, {Arm: caddy, Name: "Caddy"}, {Arm: bareNet, Name: "net/http"}, {Arm: caddyH3, Name: "Caddy over HTTP/3"}}
}

// Experiment is what the lab lists.
func Experiment() experiment.Experiment {
	return experiment.Experiment{
		Name:  "tls",
		Title: "HTTPS from millrace, nginx, h2o and Caddy: HTTP/2, HTTP/1.1, handshakes, memory",
		Question: "What does a server spend on a request over TLS, with one and with many streams and connections, on a new connection, on a quiet " +
			"one, on a large download and on a page with its assets?",
		Claim: "Millrace answers over HTTP/2 for less than half of the CPU time that nginx spends, and over HTTP/1.1 and TLS for less than nginx.",
		Rule: fmt.Sprintf("In each of %d rounds every server is started anew and does every row once, in random order within a row. A ratio is taken "+
			"within each round; what is shown is the median of the rounds with the least and the greatest. Of five rounds these two hold the true "+
			"median with a chance of 94 %%. A row is lost where the median is above 1, and lost clearly where the least is. There are no further verdicts: five "+
			"rounds are too few for the lab's tests. The result is void when a server gives a wrong page or fails to answer.", rounds),
		Selects: true,
		Run:     run,
	}
}

// A measurement is one run of the experiment.
type measurement struct {
	*experiment.Stage
	*experiment.Servers
	quick     bool
	cert, key string // files
	page      []byte // what / is answered with
	h2load    string // the executable
	missing   error  // why there is none
	large     int64  // bytes of the large file
	most      int    // connections at once
}

func run(ctx context.Context, env experiment.Env, res *record.Result) (err error) {
	m := &measurement{
		Stage:   experiment.NewStage(env, res),
		Servers: &experiment.Servers{Env: env, Site: filepath.Join(env.Work, "site")},
		quick:   env.Mode != record.Full, most: idleConnections,
	}
	if m.quick {
		m.most = idleConnectionsQuick
	}
	m.large, m.most = experiment.LargeSize(m.quick), m.MostConnections(m.most)
	m.h2load, m.missing = experiment.LookForH2load()
	chosen, err := experiment.ChooseRows(m.rows(), env.Only, m.quick, m.Note)
	if err != nil {
		return err
	}
	if err := m.prepare(chosen); err != nil {
		return err
	}
	programs := []experiment.Program{experiment.FileServerProgram(bareNet, "page", "disk")}
	if !m.quick {
		programs = append(programs, experiment.Program{Name: caddy})
	}
	if m.Programs, err = m.Build(ctx, programs); err != nil {
		return err
	}
	m.Built()
	plan := schedule().Plan(m.arms(ctx), chosen, metrics(), env)
	err = trial.Run(ctx, plan, res, m.Part(0, 1, 0))
	res.Tables, res.Answer = append(res.Tables, experiment.Tables(res, chosen, peers())...), experiment.Answer(res, chosen)
	return err
}

// prepare makes what the servers need: the site and the certificate.
func (m *measurement) prepare(chosen []experiment.Row) (err error) {
	if err := experiment.WriteSite(m.Site, slices.Concat(experiment.Site(), experiment.PageFiles())); err != nil {
		return err
	}
	m.page = experiment.Site()[0].Content()
	if slices.ContainsFunc(chosen, isDownload) {
		if err := experiment.WriteLarge(m.Site, m.large); err != nil {
			return err
		}
	}
	m.cert, m.key, err = experiment.Certificate(m.Env.Work)
	return err
}
