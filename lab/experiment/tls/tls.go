// Package tls is the experiment tls: millrace beside nginx, h2o and Caddy where
// browsers are, HTTP/2 and HTTP/1.1 over TLS 1.3. What is asked for is small
// pages, connections, quiet ones, large files and a page with its assets.
package tls

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/experiment/fileserver"
	"millrace/lab/result"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

const (
	// rounds are how many times each arm is started anew and given each row, and
	// quickRounds in a quick run: enough to see that it works.
	rounds, quickRounds = 5, 2
)

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
	*fileserver.Servers
	quick     bool
	cert, key string // files
	page      []byte // what / is answered with
	h2load    string // the executable
	large     int64  // bytes of the large file
	most      int    // connections at once
}

func run(ctx context.Context, env experiment.Env, res *result.Result) (err error) {
	m := &measurement{
		Stage:   experiment.NewStage(env, res),
		Servers: &fileserver.Servers{Env: env, Site: filepath.Join(env.Work, "site")},
		quick:   env.Mode != result.Full, most: quietConnections,
	}
	if m.quick {
		m.most = quietConnectionsQuick
	}
	m.large, m.most = fileserver.LargeSize(m.quick), m.MostConnections(m.most)
	rows, err := m.choose(env.Only)
	if err != nil {
		return err
	}
	if err := m.prepare(rows); err != nil {
		return err
	}
	programs := []experiment.Program{{Name: pageSubject}}
	if !m.quick {
		programs = append(programs, experiment.Program{Name: caddy})
	}
	if m.Programs, err = m.Build(ctx, programs); err != nil {
		return err
	}
	m.Built()
	plan := newPlan(m.arms(ctx), rows, env)
	err = trial.Run(ctx, plan, res, m.Part(0, 1, 0))
	res.Tables, res.Answer = append(res.Tables, tables(res, rows)...), answer(res, rows)
	return err
}

// choose are the rows to measure: those that patterns name, or all, but in a quick
// run only some. Rows whose tool is not here are left out with a note.
func (m *measurement) choose(only []string) ([]row, error) {
	h2load, missing := subject.Look("h2load", "nghttp2-client")
	m.h2load = h2load
	var chosen []row
	var names, left []string
	for _, r := range m.rows() {
		names = append(names, r.name)
		wanted, err := named(r.name, only)
		if err != nil {
			return nil, err
		}
		switch {
		case len(only) > 0 && !wanted, len(only) == 0 && m.quick && !r.quick:
		case r.h2load && missing != nil:
			left = append(left, r.name)
		default:
			chosen = append(chosen, r)
		}
	}
	if len(left) > 0 {
		m.Note("left out: %s: %v", strings.Join(left, ", "), missing)
	}
	if len(chosen) == 0 && len(left) > 0 {
		return nil, missing
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w %q, only %s", errNoRow, strings.Join(only, " "), strings.Join(names, ", "))
	}
	return chosen, nil
}

// errNoRow is why nothing is measured.
var errNoRow = errors.New("there is no workload")

// named reports whether one of the patterns is for a name.
func named(name string, patterns []string) (bool, error) {
	for _, p := range patterns {
		ok, err := path.Match(p, name)
		if err != nil {
			return false, fmt.Errorf("reading the pattern %q: %w", p, err)
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}

// prepare makes what the servers need: the site and the certificate.
func (m *measurement) prepare(rows []row) (err error) {
	if err := fileserver.Write(m.Site, slices.Concat(fileserver.Site(), pageFiles())); err != nil {
		return err
	}
	m.page = fileserver.Site()[0].Content()
	if slices.ContainsFunc(rows, func(r row) bool { return r.large }) {
		if err := fileserver.WriteLarge(m.Site, m.large); err != nil {
			return err
		}
	}
	m.cert, m.key, err = fileserver.Certificate(m.Env.Work)
	return err
}

// newPlan is what is measured. There is no budget: rows that were asked for are
// measured, however long that takes.
func newPlan(arms []trial.Arm, rows []row, env experiment.Env) trial.Plan {
	p := trial.Plan{
		Arms: arms, Metrics: metrics(), Blocks: []int{rounds}, PerRestart: 1, Seed: env.Seed,
		Placebo: "-", // the least and the greatest of the rounds say how far apart two of the same are
		Slot:    time.Second,
	}
	if env.Mode != result.Full {
		p.Blocks, p.Slot = []int{quickRounds}, 400*time.Millisecond
		p.Arms = slices.DeleteFunc(slices.Clone(arms), func(a trial.Arm) bool { return a.Name == h2o || a.Name == caddy })
	}
	needed := map[string]bool{}
	inTurn := slices.Clone(rows)
	slices.SortStableFunc(inTurn, func(a, b row) int { return a.load - b.load })
	for _, r := range inTurn {
		w := r.workload()
		w.Arms = slices.DeleteFunc(slices.Clone(r.arms), func(name string) bool {
			return !slices.ContainsFunc(p.Arms, func(a trial.Arm) bool { return a.Name == name })
		})
		for _, name := range w.Arms {
			needed[name] = true
		}
		p.Workloads = append(p.Workloads, w)
	}
	p.Arms = slices.DeleteFunc(slices.Clone(p.Arms), func(a trial.Arm) bool { return !needed[a.Name] })
	return p
}

// answer is about the rows that count most, or about all where none of these was
// measured.
func answer(res *result.Result, rows []row) string {
	for _, all := range []bool{false, true} {
		var parts []string
		for _, r := range rows {
			if s, ok := stand(res, r, millraceOf(r), r.arms[0]); ok && (r.headline || all) {
				parts = append(parts, fmt.Sprintf("%s of %s's on %q", s.text(), r.arms[0], r.name))
			}
		}
		if len(parts) > 0 {
			return "Millrace spends " + experiment.List(parts)
		}
	}
	return ""
}
