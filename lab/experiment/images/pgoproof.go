package images

// This file is the experiment pgo-proof: a program built with a CPU profile of
// itself, against the same program built without.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"millrace/lab/experiment/former"
	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/stats"
	"millrace/lab/trial"
)

const (
	// smallestEffect is the smallest one that counts: half of what
	// the Go project calls the lower end of usual gains.
	smallestEffect = 0.01
	// mostMemory is how much more memory a profile may cost before it is not
	// kept, however fast it is.
	mostMemory = 0.02
	// fewConnections are few enough that each costs what it costs alone.
	fewConnections = 50

	// The names of the two arms.
	withoutProfile = "plain"
	withProfile    = "PGO"

	// The workloads of millrace itself.
	fastLane = "fast lane"
	slowLane = "slow lane"
)

// PGOExperiment is pgo-proof.
func PGOExperiment() experiment.Experiment {
	return experiment.Experiment{
		Name:  "pgo-proof",
		Title: "millrace built with a CPU profile of itself: gain, noise or harm",
		Question: "Does building millrace with a profile of its own work (profile-guided optimisation) make it answer with less CPU time, " +
			"and what does that cost in memory, size and time to build?",
		Claim: "A run of 104.92 s became one of 99 s (\"about 4 %\"), and `ab -k -c 5 -n 20000` went from 0.022 to 0.020 ms a request, " +
			"each figure measured once; the author was not sure whether that was a gain or an error of measurement, and a test on the published " +
			"figures gives p = 0.15: they prove nothing either way.",
		Rule: "Both executables come from the same source and the same compiler; they differ in the profile alone (-pgo=off against -pgo=FILE). " +
			"In each block both, and a second instance of the one without (the placebo), are started anew and loaded once with each workload, in " +
			"random order. Faster or slower where the whole 95 % interval of the ratio of CPU time per request lies on one side of 1, its " +
			"centre is at least 1 % away, and the sign-flip permutation test over restarts gives p < 0.01 after Holm's adjustment over all " +
			"figures and workloads; equal where the whole interval lies within ±1 %; undecided otherwise. Negative control: time in the " +
			"kernel per request, which no compiler can change, must be equal within the band named at its check, or the result is void. " +
			"The profile is not worth keeping where it is slower on any workload, or where 8,000 idle connections (2,000 in a quick run) " +
			"need over 2 % more memory.",
		Run: func(ctx context.Context, env experiment.Env, res *record.Result) error {
			return newProof(env, Proof{}, res).run(ctx, res)
		},
	}
}

// A Proof is what [Prove] compares: the same program, built without and with a
// profile. Zero values are millrace itself.
type Proof struct {
	// Without and With are executables that were built already; empty: they
	// are built from Package.
	Without, With string
	// Package is the main package to build, as for go build in Dir; empty:
	// millrace's own in the checkout.
	Package, Dir string
	// Profile is the CPU profile to build with; empty: default.pgo in the
	// folder of the package and, for millrace, else one that is recorded first.
	Profile string
	// Args make the program serve: {port} stands for a port of 127.0.0.1. nil:
	// millrace serves a small site of the lab, once with and once without its
	// fast lane, and images that it converts for each request.
	Args []string
	// Paths are asked for in turn; nil: "/".
	Paths []string
	// Connections are open at once; 0: 50.
	Connections int
}

// Prove runs the experiment pgo-proof on any program. As with every
// experiment the result holds what was measured even where there is an error.
func Prove(ctx context.Context, env experiment.Env, p Proof) (*record.Result, error) {
	e := PGOExperiment()
	e.Name = "pgo-prove"
	if p.Args != nil {
		e.Title = "a program built with a CPU profile: gain, noise or harm"
		e.Question = "Does building this program with a profile of its work make it answer with less CPU time, and what does that cost?"
		e.Claim = "The Go project saw 2 to 14 % less CPU time in representative programs (go.dev/doc/pgo)."
	}
	e.Run = func(ctx context.Context, env experiment.Env, res *record.Result) error {
		return newProof(env, p, res).run(ctx, res)
	}
	return former.Adapt(e).Measure(ctx, record.KindPGO, env)
}

// proof is one run of the experiment.
type proof struct {
	Proof
	*experiment.Stage
	env  experiment.Env
	site string
	arms [2]proofArm // without a profile, with one
}

// proofArm is one of the two executables.
type proofArm struct {
	name  string
	about string
	exe   string
	size  int64
	build string // how long it took to build, in words
	proof string // the -pgo setting in it
}

func newProof(env experiment.Env, p Proof, res *record.Result) *proof {
	p.Connections = cmp.Or(p.Connections, fewConnections)
	if p.Paths == nil {
		p.Paths = []string{"/"}
	}
	return &proof{Proof: p, Stage: experiment.NewStage(env, res), env: env, site: filepath.Join(env.Work, "site")}
}

// itself reports whether millrace is what is measured.
func (p *proof) itself() bool { return p.Args == nil }

// reserve is the time that is kept for what comes after the trial.
func (p *proof) reserve() time.Duration {
	if p.env.Mode == record.Full {
		return 2 * time.Minute
	}
	return 12 * time.Second
}

func (p *proof) begin(text string) { p.Emit(record.Event{Kind: record.EventStep, Text: text}) }

func (p *proof) run(ctx context.Context, res *record.Result) error {
	if p.itself() && p.Without == "" {
		p.begin("building millrace twice comes first; on a fresh machine that takes minutes, which are not part of the time for measuring")
	}
	if p.itself() {
		if err := errors.Join(experiment.WriteSite(p.site, experiment.Site()), p.writePhotos()); err != nil {
			return err
		}
	}
	if err := p.prepare(ctx, res); err != nil {
		return err
	}
	p.Built()
	plan, rest := p.plan(), p.reserve()
	plan.Budget = p.Left() - rest
	share := float64(plan.Budget) / float64(plan.Budget+rest)
	err := trial.Run(ctx, plan, res, p.Part(0, share, rest))
	res.Gates = append(res.Gates, kernelGates(res, p.env.Mode)...)
	if err != nil || ctx.Err() != nil {
		return err
	}
	memory := p.idle(ctx, res)
	p.shares(ctx, res)
	res.Tables = append(append([]record.Table{p.compared(res)}, res.Tables...), p.costs(memory))
	res.Answer = experiment.Capital(gains(res) + keepOrNot(res, memory))
	return nil
}

// plan is what is measured; the caller sets the budget.
func (p *proof) plan() trial.Plan {
	work := load.Config{Paths: p.Paths, Connections: p.Connections, Threads: 1}
	plan := trial.Plan{
		Decide: []string{"cpu_ns", "user_instructions", "requests_per_second"},
		Delta:  smallestEffect, PerRestart: 1, Seed: p.env.Seed,
		Slot: time.Second, Warmup: 200 * time.Millisecond,
	}
	for _, a := range p.arms {
		plan.Arms = append(plan.Arms, p.arm(a))
	}
	about := fmt.Sprintf("%d connections, closed loop", p.Connections)
	plan.Workloads = []trial.Workload{{Name: "load", About: "GET, " + about, Load: work}}
	if p.itself() {
		plan.Workloads = []trial.Workload{
			{Name: fastLane, About: "GET / (501 bytes) answered by the fast lane, " + about, Load: work},
			{Name: slowLane, About: "the same with --no-lane, through net/http, " + about, Load: work},
			p.imageWorkload(),
		}
	}
	fewest := stats.FewestBlocks(len(plan.Decide)*len(plan.Workloads), stats.Rule{Delta: smallestEffect})
	plan.Blocks = []int{fewest, fewest * 3 / 2, fewest * 2}
	if p.env.Mode != record.Full {
		plan.Slot, plan.Warmup = 300*time.Millisecond, 60*time.Millisecond
		plan.Blocks = []int{fewest} // every restart is one finding, and there is time for no more
	}
	return plan
}

// keepOrNot says what the findings mean for the profile.
func keepOrNot(res *record.Result, memory idleMemory) string {
	better, worse := "", ""
	for _, v := range res.Verdicts {
		if v.Arm != withProfile || v.Metric == "requests_per_second" {
			continue // a rate depends on the generator, too
		}
		switch v.Outcome {
		case record.Better:
			better = v.Workload
		case record.Worse:
			worse = v.Workload
		case record.Equal, record.Undecided:
		}
	}
	growth, known := memory.growth()
	switch {
	case res.Void():
		return "the profile: a check failed, so nothing is known about it"
	case worse != "":
		return fmt.Sprintf("the profile should not be kept: it is slower on the workload %q", worse)
	case known && growth > mostMemory && memory.apart():
		return fmt.Sprintf("the profile should not be kept: idle connections need %.1f %% more memory, and %.0f %% is the limit", 100*growth, 100*mostMemory)
	case better == "":
		return "the profile: no gain was shown; nothing is lost by building without it"
	case !known:
		return fmt.Sprintf("the profile is a gain on the workload %q; what it costs in memory is not known (see above)", better)
	}
	return fmt.Sprintf("the profile is worth keeping: a gain on the workload %q, slower on none, and %s", better, memory.sentence())
}

// errNoCheckout is what there is no source without.
var errNoCheckout = errors.New("millrace's source is not here: run this in a checkout, or name two executables (millrace pgo prove --without FILE --with FILE --args ARGS)")
