// Package images has the experiments about image servers. pgo-proof is a program
// built with a profile and without. images is photographs converted to WebP by
// millrace when they are asked for, and by vips and cwebp as commands; then what
// is ready, a crowd, conversions in a row, and what is refused.
package images

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
	"millrace/lab/stats"
	"millrace/lab/trial"
)

const (
	// delta is the smallest effect that counts.
	delta = 0.05
	// quickBlocks are those of a quick run: enough to see that it works, too few
	// for a verdict.
	quickBlocks = 2
)

// Experiment is what the lab lists.
func Experiment() experiment.Experiment {
	return experiment.Experiment{
		Name:  "images",
		Title: "photographs converted to WebP: millrace, vips and cwebp; what is ready, a crowd, memory",
		Question: "What does a conversion cost in CPU time, memory and bytes, what does it cost to send what is ready, " +
			"and what happens when many ask at once or for what is refused?",
		Claim: "Millrace with the engine tools converts a folder of photographs for less than 0.6 of the CPU time of vips, " +
			"holds no more memory after it, and sends what is ready for less than nginx does.",
		Rule: "In each block every server is started anew, with nothing converted, and does every workload once, in random order; a command is " +
			"started for each photograph. An arm differs from another in a figure when the sign-flip permutation test over restarts gives p < 0.01 " +
			"after Holm's adjustment over all figures and workloads and the interval reaches beyond ±5 %, which is the smallest effect that counts; it is " +
			"equal when the whole interval lies within ±5 %; else it is undecided. A quick run has too few blocks for a verdict. " +
			"A photograph that is not converted is a failure; the result is void when there are failures.",
		Selects: true,
		Run:     run,
	}
}

// A measurement is one run of the experiment.
type measurement struct {
	*experiment.Stage
	*experiment.Servers
	size
	photos      []photograph       // in the folder of the site
	ready       map[string][]byte  // what is answered, by path
	answers     string             // the folder in which these are files
	crops       []string           // names in the site
	burstImages []string           // likewise
	changes     int                // of the crops
	commands    map[string]command // by arm
	samples     map[sample]string  // the file of each distinct WebP
}

// size is how much there is of everything.
type size struct {
	quick   bool
	crops   int // images that change
	passes  int // over these
	clients int // of the burst
	burst   int // images of the burst
	each    int // requests of a client
	alone   time.Duration
	idle    time.Duration
}

// sizeFor is that of a mode. A server rests until its workers, which end after 3
// s without work, are gone.
func sizeFor(mode record.Mode) size {
	if mode == record.Full {
		return size{crops: 40, passes: 4, clients: 64, burst: 20, each: 5, alone: 3 * time.Second, idle: 4 * time.Second}
	}
	return size{quick: true, crops: 8, passes: 2, clients: 8, burst: 4, each: 2, alone: time.Second, idle: 4 * time.Second}
}

func run(ctx context.Context, env experiment.Env, res *record.Result) error {
	m := &measurement{
		Stage:   experiment.NewStage(env, res),
		Servers: &experiment.Servers{Env: env, Site: filepath.Join(env.Work, "site")},
		size:    sizeFor(env.Mode), commands: map[string]command{}, samples: map[sample]string{}, ready: map[string][]byte{},
	}
	m.answers = filepath.Join(env.Work, "answers")
	if err := m.prepare(); err != nil {
		return err
	}
	arms := m.arms(ctx)
	workloads, err := choose(m.workloads(), env.Only)
	if err != nil {
		return err
	}
	if err := m.convertReady(ctx, arms); err != nil {
		return err
	}
	m.Built()
	err = trial.Run(ctx, m.newPlan(arms, workloads, env), res, m.Part(0, 1, 0))
	res.Tables = append(res.Tables, experiment.Beside(res, millrace, embedded), m.photoTable())
	if err == nil && ctx.Err() == nil && !m.quick {
		err = m.quality(ctx, res)
	}
	res.Answer = answer(res)
	return err
}

// errNoWorkload is why nothing is measured.
var errNoWorkload = errors.New("there is no workload")

// choose are the workloads that patterns name, or all.
func choose(all []trial.Workload, only []string) (chosen []trial.Workload, err error) {
	var names []string
	for _, w := range all {
		names = append(names, w.Name)
		wanted := len(only) == 0
		for _, p := range only {
			ok, err := path.Match(p, w.Name)
			if err != nil {
				return nil, fmt.Errorf("reading the pattern %q: %w", p, err)
			}
			wanted = wanted || ok
		}
		if wanted {
			chosen = append(chosen, w)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w %q, only %s", errNoWorkload, strings.Join(only, " "), strings.Join(names, ", "))
	}
	return chosen, nil
}

// newPlan is what is measured. A full run has no budget: a block with all its
// conversions takes some two minutes, however few are left for it.
func (m *measurement) newPlan(arms []trial.Arm, workloads []trial.Workload, env experiment.Env) trial.Plan {
	p := trial.Plan{
		Arms: arms, Workloads: workloads, Metrics: metrics(), Decide: []string{"cpu_ns", "requests_per_second"},
		Also: []trial.Pair{
			{Arm: millrace, Baseline: cwebp},
			{Arm: millrace, Baseline: cwebpFast},
			{Arm: embedded, Baseline: cwebp},
			{Arm: embedded, Baseline: cwebpFast},
			{Arm: millrace, Baseline: nginx},
			{Arm: strict, Baseline: nginx},
		},
		Placebo: millrace, Delta: delta, PerRestart: 1, Seed: env.Seed,
		Slot: time.Second, Warmup: 200 * time.Millisecond,
	}
	if m.quick {
		p.Blocks, p.Slot, p.Warmup, p.Budget = []int{quickBlocks}, 250*time.Millisecond, 50*time.Millisecond, m.Left()
		return p
	}
	// No more blocks than can give a verdict at all: every restart is one finding.
	p.Blocks = []int{stats.FewestBlocks(2*len(workloads), stats.Rule{Delta: p.Delta})}
	return p
}

// answer is about the folder, and about what is ready.
func answer(res *record.Result) string {
	var parts []string
	for _, c := range []struct{ arm, baseline, workload, metric, text string }{
		{millrace, vips, folder, perMegapixel, "the folder with the engine tools, against vips"},
		{embedded, vips, folder, perMegapixel, "the folder with the engine embedded, against vips"},
		{millrace, nginx, readyName("20k"), "cpu_ns", "a WebP of 20 KB that is ready, against nginx"},
	} {
		if v, ok := experiment.VerdictOn(res, c.arm, c.baseline, c.workload, c.metric); ok {
			parts = append(parts, fmt.Sprintf("%s on %s", experiment.Difference(v), c.text))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "CPU time of millrace: " + experiment.List(parts)
}
