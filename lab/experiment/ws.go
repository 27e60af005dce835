package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"millrace/lab/result"
)

// wsDelta is the smallest effect that the ramp gives a verdict about.
const wsDelta = 0.05

// wsEchoRamp is the experiment about how many WebSockets a server holds.
func wsEchoRamp() Experiment {
	return Experiment{
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
		Run: runWSEchoRamp,
	}
}

// A wsPlan is what is measured.
type wsPlan struct {
	steps      []int // connections, rising
	beyond     []int // steps with several processes, in one round only, where descriptors and memory allow
	rounds     int
	perProcess int           // connections of one server or client process
	limit      time.Duration // for opening, echoing and closing all connections of a step, each
}

// newWSPlan is the plan of a mode on a machine where a process may hold so many
// descriptors. It says what was left out.
func newWSPlan(mode result.Mode, descriptors int, note func(string, ...any)) wsPlan {
	p := wsPlan{
		steps: []int{100, 500, 2000, 5000}, rounds: 3, limit: 8 * time.Second,
		perProcess: min(wsPerProcess, descriptors-wsSpareFiles),
	}
	if mode == result.Full {
		p.steps = []int{100, 200, 500, 1000, 1500, 2000, 3000, 5000, 7500, 10_000, 15_000, wsPerProcess}
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
func (p wsPlan) workloads() []result.Workload {
	list := []result.Workload{{Name: wsAllSteps, About: "the steps below together, block by block"}}
	for _, n := range slices.Concat(p.steps, p.beyond) {
		list = append(list, result.Workload{
			Name: wsWorkload(n), About: fmt.Sprintf("%d connections opened, %d at a time, held, echoed on once each and closed", n, wsBusy),
		})
	}
	return list
}

// wsAllSteps is the workload of the verdicts.
const wsAllSteps = "all steps"

const (
	// wsPerProcess is the most connections of one process: many systems allow
	// 20,000 descriptors.
	wsPerProcess = 19_000
	// wsSpareFiles are the descriptors a process needs beside connections.
	wsSpareFiles = 200
	// wsBusy is how many connections open, echo or close at the same moment. It
	// is far below the queue of a listening socket (net.core.somaxconn, 4096 by
	// default), which would otherwise be what breaks first.
	wsBusy = 256
	// wsFailedSteps is after how many failed steps of a round an arm is not
	// asked for more: each further one costs as long as its timeouts.
	wsFailedSteps = 2
	// wsBytes is the memory that a connection may take on both its sides,
	// kernel included, generously: what must be free for the largest steps.
	wsBytes = 128 << 10
)

// A wsRamp is one run of the experiment.
type wsRamp struct {
	*stage
	wsPlan wsPlan
	random *rand.Rand
	arms   []*wsArm // those that run
	client string   // the executable of the load
	found  []wsFinding
}

func runWSEchoRamp(ctx context.Context, env Env, res *result.Result) error {
	s := newStage(env, res)
	res.Metrics = wsMetrics()
	descriptors, err := openFileLimit()
	if err != nil {
		return err
	}
	w := &wsRamp{
		stage: s, wsPlan: newWSPlan(env.Mode, descriptors, s.note),
		random: rand.New(rand.NewPCG(env.Seed, 0x7773)), //nolint:gosec // an order that must be repeatable
	}
	if len(w.wsPlan.steps) == 0 {
		return errors.New("a process may hold too few descriptors for any step of this experiment: raise the limit with ulimit -n")
	}
	if err := w.build(ctx); err != nil {
		return err
	}
	res.Workloads = w.wsPlan.workloads()
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
func (w *wsRamp) measure(ctx context.Context) error {
	beyond := w.allowedBeyond()
	work := 0.0
	for _, n := range w.wsPlan.steps {
		work += wsWork(n) * float64(w.wsPlan.rounds)
	}
	for _, n := range beyond {
		work += wsWork(n)
	}
	w.plan(work * float64(len(w.arms)))
	block := 0
	for round := range w.wsPlan.rounds {
		steps := w.wsPlan.steps
		if round == 0 {
			// What only the first round has comes at the end of it: if time runs
			// short, it is the repeats of the largest steps that are missing.
			steps = slices.Concat(steps, beyond)
		}
		failed := map[string]int{}
		for _, n := range steps {
			if !w.timeFor(n) {
				w.note("the time was over in round %d, before %d connections", round+1, n)
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
func (w *wsRamp) allowedBeyond() []int {
	free := availableMemory()
	return slices.DeleteFunc(slices.Clone(w.wsPlan.beyond), func(n int) bool {
		needed := uint64(n) * wsBytes
		if free >= needed {
			return false
		}
		w.note("%d connections were left out: %d MB of free memory were wanted, %d MB are there", n, needed>>20, free>>20)
		return true
	})
}

// timeFor reports whether a block of n connections will probably end in time:
// by what the ones before took for each connection.
func (w *wsRamp) timeFor(n int) bool {
	var spent time.Duration
	connections := 0
	for _, f := range w.found {
		spent += f.spent
		connections += f.connections
	}
	if connections == 0 {
		return w.left() > 0
	}
	perArm := time.Duration(float64(spent) / float64(connections) * float64(n))
	return w.left() > perArm*time.Duration(len(w.arms))
}

// block measures every arm at one step, in random order.
func (w *wsRamp) block(ctx context.Context, round, block, n int, failed map[string]int) error {
	order := slices.Clone(w.arms)
	w.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for i, arm := range order {
		if failed[arm.name] >= wsFailedSteps {
			w.step(wsWork(n), result.Event{Kind: result.EventStep, Arm: arm.name, Text: fmt.Sprintf("%s broke before, and is not asked for %d connections", arm.name, n)})
			continue
		}
		w.say(result.Event{Kind: result.EventStep, Arm: arm.name, Workload: wsWorkload(n), Text: fmt.Sprintf("%s, round %d: %d connections", arm.name, round+1, n)})
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
		w.step(wsWork(n), result.Event{
			Kind: result.EventSample, Arm: arm.name, Workload: wsWorkload(n),
			Requests: uint64(f.report.Succeeded), Errors: uint64(f.report.Failed), P50: f.report.echo.Quantile(0.5), P99: f.report.echo.Quantile(0.99), //nolint:gosec // counts are not negative
		})
	}
	return nil
}

// wsWork is how long a step takes, in connections: starting servers and clients
// takes as long as some hundred of them.
func wsWork(n int) float64 { return float64(n) + 500 }

func wsWorkload(n int) string { return fmt.Sprintf("%d connections", n) }
