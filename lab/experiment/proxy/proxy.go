// Package proxy is the experiment proxy: millrace beside nginx, HAProxy and Caddy in
// front of one application. What is asked for is what a cache does not answer:
// small and large answers, uploads, misses, personal requests, WebSockets; and the
// same while others hold connections that do not end.
package proxy

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// rounds are how many times each arm is started anew and given each row.
const rounds = 5

// Experiment is what the lab lists.
func Experiment() experiment.Experiment {
	return experiment.Experiment{
		Name:  "proxy",
		Title: "the way through: millrace, nginx, HAProxy and Caddy in front of an application, and under slow clients",
		Question: "What does a proxy spend on a request that it passes on, on an upload, on a cache's miss, on a personal request, on a large answer and " +
			"on a WebSocket, and what becomes of a good client while others hold connections with uploads, downloads and streams that do not end?",
		Claim: "Millrace passes a request on for no more than 1.2 of the CPU time that nginx spends, and no slow client is in another's way.",
		Rule: fmt.Sprintf("In each of %d rounds every server is started anew and does every row once, in random order within a row. A ratio is taken "+
			"within each round; what is shown is the median of the rounds with the least and the greatest. Of five rounds these two hold the true "+
			"median with a chance of 94 %%. A row is lost where the median is above 1, and lost clearly where the least is. Under an attack the good client "+
			"may have no failure in any round, and a 99th percentile of at most twice that of its idle server and %s. There are no further verdicts: five rounds are too few for the lab's tests. The application and its CPU time are "+
			"the same for all and not counted. The result is void when a server gives a wrong answer or fails to answer.", rounds, experiment.Duration(float64(allowance))),
		Selects: true,
		Run:     run,
	}
}

// schedule says how long it is measured; a quick run is enough to see that it works.
func schedule() experiment.Schedule {
	return experiment.Schedule{
		Rounds: rounds, QuickRounds: 2, Slot: time.Second, QuickSlot: 400 * time.Millisecond, Warmup: 200 * time.Millisecond,
		Slow: []string{haproxy, caddy},
	}
}

// peers are the columns of the tables.
func peers() []experiment.Peer {
	return []experiment.Peer{{Arm: nginx, Name: "nginx"}, {Arm: haproxy, Name: "HAProxy"}, {Arm: caddy, Name: "Caddy"}, {Arm: gws, Name: "gws"}}
}

// A measurement is one run of the experiment.
type measurement struct {
	*experiment.Stage
	*experiment.Servers
	quick     bool
	cert, key string // files
	app, echo string // host:port of what the proxies are in front of
	h2load    string // the executable
	missing   error  // why there is none

	fpmExe, fpm, phpRoot string // php-fpm, its socket, its scripts; empty until it runs
	fpmMissing           error
}

func run(ctx context.Context, env experiment.Env, res *record.Result) (err error) {
	m := &measurement{
		Stage:   experiment.NewStage(env, res),
		Servers: &experiment.Servers{Env: env},
		quick:   env.Mode != record.Full,
	}
	m.h2load, m.missing = experiment.LookForH2load()
	m.fpmExe, m.fpmMissing = lookFPM()
	chosen, err := experiment.ChooseRows(m.rows(), env.Only, m.quick, m.Note)
	if err != nil {
		return err
	}
	if m.cert, m.key, err = experiment.Certificate(env.Work); err != nil {
		return err
	}
	programs := []experiment.Program{{Name: appSubject}, {Name: echoSubject}}
	if !m.quick {
		programs = append(programs, experiment.Program{Name: caddy})
	}
	if m.Programs, err = m.Build(ctx, programs); err != nil {
		return err
	}
	m.Built()
	stop, err := m.startUpstreams(ctx)
	if err != nil {
		return err
	}
	defer stop()
	stopFPM, err := m.startFPM(ctx, chosen)
	if err != nil {
		return err
	}
	defer stopFPM()
	plan := schedule().Plan(m.arms(ctx), chosen, metrics(), env)
	err = trial.Run(ctx, plan, res, m.Part(0, 1, 0))
	timed, attacks := split(chosen)
	res.Tables = append(res.Tables, experiment.Tables(res, timed, peers())...)
	res.Tables = append(res.Tables, attackTable(res, attacks), sideTable(res, timed))
	res.Answer = answer(res, timed, attacks)
	return err
}

// startUpstreams starts the application and the echo that the proxies are in front of.
func (m *measurement) startUpstreams(ctx context.Context) (stop func(), err error) {
	app, err := m.startUpstream(ctx, appSubject, func(address string) []string { return []string{"bytes", "-listen", address} })
	if err != nil {
		return nil, err
	}
	echo, err := m.startUpstream(ctx, echoSubject, echoArgs)
	if err != nil {
		_ = app.Stop() // that the other one did not start matters more
		return nil, err
	}
	m.app, m.echo = app.Address(), echo.Address()
	return func() { _, _ = app.Stop(), echo.Stop() }, nil // that one died shows in what is passed on to it
}

// startTime is how long a server may take until it listens.
const startTime = 10 * time.Second

func (m *measurement) startUpstream(ctx context.Context, name string, args func(address string) []string) (*subject.Process, error) {
	exe, err := m.Programs.Path(name)
	if err != nil {
		return nil, err
	}
	return subject.StartFree(ctx, startTime, func(address string) (*exec.Cmd, error) { return exec.Command(exe, args(address)...), nil })
}

// answer is about the rows that count most, and about the attacks.
func answer(res *record.Result, timed, attacks []experiment.Row) string {
	parts := []string{experiment.Answer(res, timed)}
	if held := attacksHeld(res, attacks); held != "" {
		parts = append(parts, held)
	}
	return strings.TrimPrefix(strings.Join(parts, "; "), "; ")
}
