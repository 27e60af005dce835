package websocket

// This file is the experiment ws-echo-ramp: how many WebSockets a server holds.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
)

// smallestEffect is the smallest effect that the ramp gives a verdict about.
const smallestEffect = 0.05

// RampExperiment is ws-echo-ramp.
func RampExperiment() experiment.Experiment {
	return experiment.Experiment{
		Name:     "ws-echo-ramp",
		Title:    "how many WebSockets a Go server holds, and what each costs",
		Question: "At how many connections at once does a WebSocket echo server in Go break, does a 32-bit build break earlier, and what CPU time and memory does a connection cost with three libraries?",
		Claim: "An echo server over golang.org/x/net/websocket crashed above 1,500 connections at once; " +
			"its author suspected the 32-bit compiler.",
		Rule: "The breaking point of an arm is the first step at which any connection in any round does not connect, upgrade and get its own message back. " +
			"Every step of every round starts new servers, and each arm is measured once in it, in random order: that is one block. " +
			"CPU time and resident memory per connection are compared with golang.org/x/net/websocket block by block, over all steps that both finished without a failure; " +
			"better or worse needs a difference of at least 5 %, p ≤ 0.01 after Holm's adjustment over the two metrics, and an interval on one side of 1; " +
			"everything else is equal within 5 % or undecided. A second instance of the baseline, the placebo, must not differ from the first. " +
			"The published test began all N at once; here 256 at a time connect, so that the queue of the listening socket is not what breaks, " +
			"and all N are open before the first message is sent.",
		Run: runRamp,
	}
}

// A rampPlan is what is measured.
type rampPlan struct {
	steps      []int // connections, rising
	beyond     []int // steps with several processes, in one round only, where descriptors and memory allow
	rounds     int
	perProcess int           // connections of one server or client process
	limit      time.Duration // for opening, echoing and closing all connections of a step, each
}

// newRampPlan is the plan of a mode on a machine where a process may hold so many
// descriptors. It says what was left out.
func newRampPlan(mode record.Mode, descriptors int, note func(string, ...any)) rampPlan {
	p := rampPlan{
		steps: []int{100, 500, 2000, 5000}, rounds: 3, limit: 8 * time.Second,
		perProcess: min(connectionsPerProcess, descriptors-reservedFiles),
	}
	if mode == record.Full {
		p.steps = []int{100, 200, 500, 1000, 1500, 2000, 3000, 5000, 7500, 10_000, 15_000, connectionsPerProcess}
		p.beyond = []int{38_000, 57_000, 76_000, 100_000}
		p.limit = 40 * time.Second
	}
	asked := len(p.steps)
	p.steps = slices.DeleteFunc(p.steps, func(n int) bool { return n > p.perProcess })
	if len(p.steps) < asked {
		note("steps above %d connections were left out: a process may hold only %d descriptors here; raise that with ulimit -Hn as root, or LimitNOFILE= of systemd", max(0, p.perProcess), descriptors)
		p.beyond = nil
	}
	return p
}

// workloads are the steps, and all of them together, which the verdicts are
// about.
func (p rampPlan) workloads() []record.Workload {
	list := []record.Workload{{Name: allSteps, About: "the steps below together, block by block"}}
	for _, n := range slices.Concat(p.steps, p.beyond) {
		list = append(list, record.Workload{
			Name: workloadName(n), About: fmt.Sprintf("%d connections opened, %d at a time, held, echoed on once each and closed", n, busyAtOnce),
		})
	}
	return list
}

// allSteps is the workload of the verdicts.
const allSteps = "all steps"

const (
	// connectionsPerProcess is the most connections of one process: many systems allow
	// 20,000 descriptors.
	connectionsPerProcess = 19_000
	// spareFiles are the descriptors a process needs beside connections.
	reservedFiles = 200
	// busyAtOnce is how many connections open, echo or close at the same moment. It
	// is far below the queue of a listening socket (net.core.somaxconn, 4096 by
	// default), which would otherwise be what breaks first.
	busyAtOnce = 256
	// stepsToFail is after how many failed steps of a round an arm is not
	// asked for more: each further one costs as long as its timeouts.
	stepsToFail = 2
	// memoryPerConnection is the memory that a connection may take on both its sides,
	// kernel included, generously: what must be free for the largest steps.
	memoryPerConnection = 128 << 10
)

// A ramp is one run of the experiment.
type ramp struct {
	*experiment.Stage
	env      experiment.Env
	res      *record.Result
	rampPlan rampPlan
	random   *rand.Rand
	arms     []*echoServer // those that run
	client   string        // the executable of the load
	found    []stepFinding
}

func runRamp(ctx context.Context, env experiment.Env, res *record.Result) error {
	s := experiment.NewStage(env, res)
	res.Metrics = ownMetrics()
	descriptors, err := openFileLimit()
	if err != nil {
		return err
	}
	w := &ramp{
		Stage: s, env: env, res: res, rampPlan: newRampPlan(env.Mode, descriptors, s.Note),
		random: rand.New(rand.NewPCG(env.Seed, 0x7773)), // an order that must be repeatable
	}
	if len(w.rampPlan.steps) == 0 {
		return errors.New("a process may hold too few descriptors for any step of this experiment: raise the limit with ulimit -n")
	}
	if err := w.build(ctx); err != nil {
		return err
	}
	w.Built()
	res.Workloads = w.rampPlan.workloads()
	err = w.measure(ctx)
	w.report()
	if ctx.Err() != nil {
		res.Interrupted = fmt.Sprintf("stopped after %d measurements", len(w.found))
		return nil
	}
	return err
}

// measure goes through the rounds. Steps rise within a round, so that a server
// breaks at the lowest number that breaks it.
func (w *ramp) measure(ctx context.Context) error {
	beyond := w.allowedBeyond()
	work := 0.0
	for _, n := range w.rampPlan.steps {
		work += workOf(n) * float64(w.rampPlan.rounds)
	}
	for _, n := range beyond {
		work += workOf(n)
	}
	w.Plan(work * float64(len(w.arms)))
	block := 0
	for round := range w.rampPlan.rounds {
		steps := w.rampPlan.steps
		if round == 0 {
			// What only the first round has comes at the end of it: if time runs
			// short, it is the repeats of the largest steps that are missing.
			steps = slices.Concat(steps, beyond)
		}
		failed := map[string]int{}
		for _, n := range steps {
			if !w.timeFor(n) {
				w.Note("the time was over in round %d, before %d connections", round+1, n)
				return nil
			}
			if err := w.block(ctx, round, block, n, failed); err != nil {
				return err
			}
			block++
		}
	}
	return nil
}

// allowedBeyond are the steps with several processes that memory allows.
func (w *ramp) allowedBeyond() []int {
	free := availableMemory()
	return slices.DeleteFunc(slices.Clone(w.rampPlan.beyond), func(n int) bool {
		needed := uint64(n) * memoryPerConnection
		if free >= needed {
			return false
		}
		w.Note("%d connections were left out: %d MB of free memory were wanted, %d MB are there", n, needed>>20, free>>20)
		return true
	})
}

// timeFor reports whether a block of n connections will probably end in time:
// by what the ones before took for each connection.
func (w *ramp) timeFor(n int) bool {
	var spent time.Duration
	connections := 0
	for _, f := range w.found {
		spent += f.spent
		connections += f.connections
	}
	if connections == 0 {
		return w.Left() > 0
	}
	perArm := time.Duration(float64(spent) / float64(connections) * float64(n))
	return w.Left() > perArm*time.Duration(len(w.arms))
}

// block measures every arm at one step, in random order.
func (w *ramp) block(ctx context.Context, round, block, n int, failed map[string]int) error {
	order := slices.Clone(w.arms)
	w.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for i, arm := range order {
		if failed[arm.name] >= stepsToFail {
			w.Step(workOf(n), record.Event{Kind: record.EventStep, Arm: arm.name, Text: fmt.Sprintf("%s broke before, and is not asked for %d connections", arm.name, n)})
			continue
		}
		w.Emit(record.Event{Kind: record.EventStep, Arm: arm.name, Workload: workloadName(n), Text: fmt.Sprintf("%s, round %d: %d connections", arm.name, round+1, n)})
		f, err := w.measureArm(ctx, arm, n)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("measuring %s with %d connections: %w", arm.name, n, err)
		}
		f.round, f.block = round, block
		if f.report.Failed > 0 || f.died != "" {
			failed[arm.name]++
		}
		w.found = append(w.found, f)
		sample := f.sample()
		sample.Order = i
		w.res.Samples = append(w.res.Samples, sample)
		w.Step(workOf(n), record.Event{
			Kind: record.EventSample, Arm: arm.name, Workload: workloadName(n),
			Requests: uint64(f.report.Succeeded), Errors: uint64(f.report.Failed), P50: f.report.echo.Quantile(0.5), P99: f.report.echo.Quantile(0.99), // counts are not negative
		})
	}
	return nil
}

// workOf is how long a step takes, in connections: starting servers and clients
// takes as long as some hundred of them.
func workOf(n int) float64 { return float64(n) + 500 }

func workloadName(n int) string { return fmt.Sprintf("%d connections", n) }
