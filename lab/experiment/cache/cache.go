// Package cache has the experiments about caches. api-cache is one slow API with a
// cache in front and without. cache is nginx, Varnish and millrace in front of
// one API. It has three kinds of workloads: hits under load, cases in which a
// cache decides how long clients wait and how often the API is asked, and what a
// cache holds in memory while it is asked for ever other URLs.
package cache

import (
	"context"
	"fmt"
	"slices"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/stats"
	"millrace/lab/trial"
)

// The arms.
const (
	nginx    = "nginx"
	varnish  = "varnish"
	millrace = "millrace"
)

const (
	// delta is the smallest effect that counts.
	delta = 0.05
	// memory is the budget of each cache, in MiB: what the URLs of the workload
	// "ever new" would take is several times that.
	memory = 16
)

// Experiment is what the lab lists.
func Experiment() experiment.Experiment {
	return experiment.Experiment{
		Name:  "cache",
		Title: "a cache in front of an API: hits, waiting, purging, memory",
		Question: "What does a hit cost, how long do clients wait and how often is the API asked when many want the same at once, " +
			"how soon is a purge seen, and how much memory does a cache hold that is asked for ever other URLs?",
		Claim: "Millrace answers hits for less CPU time than nginx does, asks the API once however many wait, makes nobody wait for an " +
			"answer that is not to be shared, and forgets 20,000 answers with one tag at once.",
		Rule: "In each block every cache is started anew and does every workload once, in random order. An arm differs from another in a " +
			"figure when the sign-flip permutation test over restarts gives p < 0.01 after Holm's adjustment over all figures and workloads and " +
			"the interval reaches beyond ±5 %, which is the smallest effect that counts; it is equal when the whole interval lies within " +
			"±5 %; else it is undecided. A wrong answer of any arm ends the run.",
		Run: run,
	}
}

// A measurement is one run of the experiment.
type measurement struct {
	*experiment.Stage
	*experiment.Servers
	api     *Server
	version uint64 // of the API's answers
	tagged  int    // answers with one tag
	urls    int    // of the workload "ever new"
}

func run(ctx context.Context, env experiment.Env, res *record.Result) error {
	api, err := Start()
	if err != nil {
		return err
	}
	defer api.Close()
	m := &measurement{
		Stage: experiment.NewStage(env, res), Servers: &experiment.Servers{Env: env, Probed: hitPaths()},
		api: api, tagged: 20_000, urls: 40_000,
	}
	if env.Mode != record.Full {
		m.tagged = 2000
	}
	plan := m.newPlan(m.arms(ctx), env)
	plan.Budget = m.Left()
	err = trial.Run(ctx, plan, res, m.Part(0, 1, 0))
	res.Tables, res.Answer = append(res.Tables, experiment.Beside(res, millrace)), answer(res)
	return err
}

// newPlan is what is measured; the caller sets the budget.
func (m *measurement) newPlan(arms []trial.Arm, env experiment.Env) trial.Plan {
	p := trial.Plan{
		Arms: arms, Decide: []string{"cpu_ns", "requests_per_second"}, Metrics: metrics(),
		Also: []trial.Pair{{Arm: millrace, Baseline: varnish}},
		// nginx makes the clients of the workload "private" wait for 10 s: once is enough.
		Placebo: millrace,
		Delta:   delta, PerRestart: 1, Seed: env.Seed,
		Slot: 600 * time.Millisecond, Warmup: 100 * time.Millisecond,
	}
	hits := hits()
	cold := trial.Workload{
		Name: "cold", About: fmt.Sprintf("%d clients ask at once for what nobody has asked for, which takes %v", coldClients, slow),
		Task: m.cold, Decide: []string{slowest, asked},
	}
	purged := trial.Workload{
		Name: "purged", About: fmt.Sprintf("a tag of %d answers is forgotten, and one of them is asked for until the new one comes", m.tagged),
		Arms: []string{varnish, millrace}, Task: m.purge, Decide: []string{purgeTime, seen},
	}
	if env.Mode == record.Full {
		p.Workloads = append(hits, cold, purged,
			trial.Workload{
				Name: "private", About: fmt.Sprintf("%d clients ask at once for what must not be kept, and do so again", privateClients),
				Task: m.private, Decide: []string{slowest, second},
			},
			trial.Workload{
				Name: "follow", About: fmt.Sprintf("one asks for what is being sent to another, for %v", streaming),
				Task: m.follow, Decide: []string{firstByte, asked},
			},
			trial.Workload{
				Name: "stale", About: fmt.Sprintf("%d clients ask at once for what is too old and may be served while it is fetched anew", staleClients),
				Task: m.stale, Decide: []string{slowest, asked},
			},
			trial.Workload{
				Name: "ever new", About: fmt.Sprintf("%d URLs of 1 KB, each asked for once, with a budget of %d MiB", m.urls, memory),
				Arms: []string{varnish, millrace}, Task: m.everNew, Decide: []string{peak, "cpu_ns"},
			},
		)
	} else {
		p.Slot, p.Warmup = 250*time.Millisecond, 50*time.Millisecond
		p.Workloads = []trial.Workload{hits[0], cold, purged}
	}
	// No more blocks than can give a verdict at all: every restart is one
	// finding, and every workload has two figures.
	p.Blocks = []int{stats.FewestBlocks(2*len(p.Workloads), stats.Rule{Delta: p.Delta})}
	return p
}

// hits are the workloads of one answer that is stored.
func hits() []trial.Workload {
	var all []trial.Workload
	for _, size := range []struct {
		name  string
		bytes int
	}{{"40 B", MinSize}, {"32 KB", 32 << 10}} {
		o := Object{Path: "/hit", Size: size.bytes}
		for _, n := range []int{50, 1000} {
			all = append(all, trial.Workload{
				Name: fmt.Sprintf("hit %s, %d", size.name, n), About: fmt.Sprintf("JSON of %s that is stored, %d connections, closed loop", size.name, n),
				Load: load.Config{Paths: []string{o.Target()}, Connections: n, Threads: 1, Sources: 4},
			})
		}
	}
	return all
}

// hitPaths are what the hits ask for, so that a cache that has just started has
// stored it.
func hitPaths() []string {
	var paths []string
	for _, w := range hits() {
		if path := w.Load.Paths[0]; !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// answer is about the hits, and about who waits.
func answer(res *record.Result) string {
	var parts []string
	for _, w := range hits() {
		if v, ok := experiment.VerdictOn(res, millrace, nginx, w.Name, "cpu_ns"); ok {
			parts = append(parts, fmt.Sprintf("%s on %q", experiment.Difference(v), w.Name))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	s := "CPU time of millrace against nginx's: " + experiment.List(parts)
	if v := experiment.MedianOf(res, millrace, "purged", seen); v > 0 {
		s += fmt.Sprintf("; a purge is seen after %s", experiment.Duration(v))
	}
	return s
}
