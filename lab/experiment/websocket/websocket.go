// Package websocket has the experiments about WebSockets. ws-echo-ramp looks for the
// number of connections at which servers break. websocket is millrace beside servers over
// gws, coder/websocket and gorilla/websocket, and beside nginx where connections
// are passed on. They echo, publish to many, and hold quiet connections.
package websocket

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/stats"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// delta is the smallest effect that counts.
const delta = 0.05

// Experiment is what the lab lists.
func Experiment() experiment.Experiment {
	return experiment.Experiment{
		Name:  "websocket",
		Title: "WebSockets: echo, publishing to many, quiet connections",
		Question: "What does a message cost, what a delivery of what is published to many, and what a connection on which nothing happens, " +
			"plain, over TLS and passed on?",
		Claim: "Millrace echoes and delivers for no more CPU time than gws does, and holds quiet connections in less memory than any of the others.",
		Rule: "In each block every server is started anew and does every workload once, in random order. An arm differs from another in a " +
			"figure when the sign-flip permutation test over restarts gives p < 0.01 after Holm's adjustment over all figures and workloads and " +
			"the interval reaches beyond ±5 %, which is the smallest effect that counts; it is equal when the whole interval lies within " +
			"±5 %; else it is undecided. Messages per second and lag depend on the generator, too, which shares the cores.",
		Run: run,
	}
}

// A measurement is one run of the experiment.
type measurement struct {
	*experiment.Stage
	*experiment.Servers
	upstream  string // host:port of the echo that proxies are in front of
	cert, key string // files
}

func run(ctx context.Context, env experiment.Env, res *record.Result) (err error) {
	m := &measurement{Stage: experiment.NewStage(env, res), Servers: &experiment.Servers{Env: env}}
	if m.Programs, err = m.Build(ctx, []experiment.Program{{Name: "websocket"}}); err != nil {
		return err
	}
	m.Built()
	if m.cert, m.key, err = experiment.Certificate(env.Work); err != nil {
		return err
	}
	if env.Millrace != "" && env.Mode == record.Full {
		echo, err := m.startUpstream(ctx)
		if err != nil {
			return err
		}
		defer echo.Stop() //nolint:errcheck // that it died shows in what is passed on to it
		m.upstream = echo.Address()
	}
	plan := newPlan(m.arms(ctx, env.Mode), env, m.MostConnections(idleConnections))
	plan.Budget = m.Left()
	err = trial.Run(ctx, plan, res, m.Part(0, 1, 0))
	res.Tables = append(res.Tables, experiment.Beside(res, millrace, millrace+overTLS, millrace+channels, millrace+proxy))
	res.Answer = answer(res)
	return err
}

// idleConnections are how many there are of those on which nothing happens.
const idleConnections = 3000

// startUpstream starts the echo that proxies are in front of.
func (m *measurement) startUpstream(ctx context.Context) (*subject.Process, error) {
	return subject.StartFree(ctx, startTime, func(address string) (*exec.Cmd, error) {
		return exec.Command(m.Env.Millrace, "ws", "--listen", address, "--log", "off", "--admin", "off"), nil
	})
}

// startTime is how long a server may take until it listens.
const startTime = 10 * time.Second

// newPlan is what is measured, with at most so many quiet connections; the caller
// sets the budget.
func newPlan(arms []trial.Arm, env experiment.Env, most int) trial.Plan {
	p := trial.Plan{
		Arms: arms, Decide: []string{"cpu_ns", "requests_per_second"}, Metrics: metrics(),
		Delta: delta, PerRestart: 1, Seed: env.Seed,
		Slot: 600 * time.Millisecond, Warmup: 100 * time.Millisecond,
	}
	for _, peer := range []string{"coder", "gorilla"} {
		p.Also = append(p.Also, trial.Pair{Arm: millrace, Baseline: peer})
	}
	for _, peer := range []string{gws + channels, "coder" + channels, "gorilla" + channels} {
		p.Also = append(p.Also, trial.Pair{Arm: millrace + channels, Baseline: peer})
	}
	p.Also = append(p.Also, trial.Pair{Arm: millrace + overTLS, Baseline: gws + overTLS}, trial.Pair{Arm: millrace + proxy, Baseline: "nginx" + proxy})
	p.Also = known(p.Also, arms)
	if env.Mode == record.Full {
		p.Workloads = full(most)
	} else {
		p.Slot, p.Warmup = 250*time.Millisecond, 50*time.Millisecond
		p.Workloads = []trial.Workload{
			idleWorkload("quiet", min(most, 1000), 500*time.Millisecond, nil), echo(20, 50), published(1000, 20*time.Millisecond, 15),
		}
		for i := range p.Workloads {
			p.Workloads[i].Arms = []string{gws, millrace}
		}
		p.Workloads[2].Arms = []string{gws + channels, millrace + channels}
	}
	figures := 0
	for _, w := range p.Workloads {
		if figures += len(w.Decide); len(w.Decide) == 0 {
			figures += len(p.Decide)
		}
	}
	// No more blocks than can give a verdict at all: every restart is one finding.
	p.Blocks = []int{stats.FewestBlocks(figures, stats.Rule{Delta: p.Delta})}
	return p
}

// full are the workloads of a full run. Quiet connections come first: memory is
// read of servers that have done nothing else.
func full(most int) []trial.Workload {
	const idleTime = 2 * time.Second
	w := []trial.Workload{
		idleWorkload("quiet", most, idleTime, echoArms()),
		idleWorkload("quiet over TLS", most/4, idleTime, []string{gws + overTLS, millrace + overTLS}),
		idleWorkload("quiet, passed on", most/2, idleTime, []string{"nginx" + proxy, millrace + proxy}),
	}
	for _, size := range []int{20, 1024} {
		for _, n := range []int{50, 1000} {
			w = append(w, echo(size, n))
		}
	}
	return append(w, published(1000, 20*time.Millisecond, 50), published(most, 300*time.Millisecond, 5))
}

// known are the pairs of arms that there are.
func known(pairs []trial.Pair, arms []trial.Arm) []trial.Pair {
	there := map[string]bool{}
	for _, a := range arms {
		there[a.Name] = true
	}
	var out []trial.Pair
	for _, p := range pairs {
		if there[p.Arm] && there[p.Baseline] {
			out = append(out, p)
		}
	}
	return out
}

// echo is the workload of messages that come back.
func echo(size, connections int) trial.Workload {
	return trial.Workload{
		Name:  fmt.Sprintf("echo %d B, %d", size, connections),
		About: fmt.Sprintf("messages of %d bytes, one under way on each of %d connections", size, connections),
		Load: load.Config{
			Protocol: load.WebSocket, Connections: connections, Sources: 4, Message: bytes.Repeat([]byte("x"), size),
		},
		Arms: echoArms(),
	}
}

// answer is about CPU time of echoes and deliveries, and memory.
func answer(res *record.Result) string {
	var parts []string
	for _, v := range res.Verdicts {
		plain := v.Arm == millrace && v.Baseline == gws || v.Arm == millrace+channels && v.Baseline == gws+channels
		switch {
		case !plain:
		case v.Metric == "cpu_ns":
			parts = append(parts, fmt.Sprintf("CPU time %s on %q", experiment.Difference(v), v.Workload))
		case v.Metric == perConnection:
			parts = append(parts, fmt.Sprintf("memory %s on %q", experiment.Difference(v), v.Workload))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "Millrace against gws: " + experiment.List(parts)
}
