package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"millrace/lab/record"
	"millrace/lab/trial"
)

const (
	// fillTries is how many connections are opened to find all workers of a
	// service; one that none of them leads to gets hardly any load either.
	fillTries = 64
	// hotPerSlot is what a slot takes beside its window, hotStart what starting
	// and filling an arm does, and hotFill filling alone: guesses from runs on
	// two cores.
	hotPerSlot = 80 * time.Millisecond
	hotStart   = 1500 * time.Millisecond
	hotFill    = 300 * time.Millisecond
	// hotReserve is left of the budget for stopping what runs.
	hotReserve = 3 * time.Second
)

// measureHot compares the caches when everything is in them, in interleaved
// blocks with a placebo and all gates.
func (r *cacheRun) measureHot(ctx context.Context) error {
	plan := trial.Plan{
		Decide: []string{"cpu_ns", "requests_per_second"}, Delta: smallestEffect,
		PerRestart: r.runPlan.perRestart, Slot: r.runPlan.slot, Warmup: r.runPlan.warmup, Seed: r.env.Seed,
		Differ: "the caches have headers of their own; bodies are held against the right ones by a client of this experiment",
	}
	workload := trial.Workload{Name: hotLoad, About: r.res.Workloads[2].About, Load: loadConfig("")}
	plan.Workloads = []trial.Workload{workload}
	for _, arm := range r.arms {
		if arm.name != directArm {
			plan.Arms = append(plan.Arms, trial.Arm{
				Name: arm.name, About: arm.about, Version: arm.version, Command: arm.shown,
				Start: func(ctx context.Context) (*trial.Instance, error) { return r.startFull(ctx, arm) },
			})
		}
	}
	if len(plan.Arms) < 2 || plan.Arms[0].Name != baselineArm {
		r.Note("the full caches were not compared: that needs go-cache and one other")
		return nil
	}
	blocks := r.hotBlocks(r.Left(), len(plan.Arms)+1)
	if blocks < r.runPlan.blocks {
		r.Note("the time was enough for %d of %d blocks with full caches", blocks, r.runPlan.blocks)
	}
	if blocks < 1 {
		return nil
	}
	plan.Blocks = []int{blocks}
	r.Emit(record.Event{Kind: record.EventStep, Workload: hotLoad, Text: "full caches, compared block by block"})
	var hot record.Result
	err := trial.Run(ctx, plan, &hot, func(e record.Event) {
		if e.Kind == record.EventSample {
			r.Step((r.runPlan.slot + r.runPlan.warmup).Seconds(), e)
			return
		}
		r.Emit(e)
	})
	r.adopt(&hot)
	return err
}

// hotBlocks is how many blocks of so many slots what is left of the budget holds.
// It is their number that gives way and not their length: a slot must be long
// against the moments in which a worker waits for a core.
func (r *cacheRun) hotBlocks(left time.Duration, slots int) int {
	perBlock := time.Duration(slots) * (r.runPlan.slot + r.runPlan.warmup + hotPerSlot)
	starts := hotStart * time.Duration(slots)
	available := left - hotReserve
	if r.env.Mode == record.Quick { // all but the placebo are up
		available -= hotStart + hotFill*time.Duration(slots)
	} else {
		perBlock += starts / time.Duration(r.runPlan.perRestart)
	}
	return min(r.runPlan.blocks, max(0, int(available/perBlock)))
}

// startFull starts an arm, fills its cache from an API that is quick for once,
// and makes that slow again.
func (r *cacheRun) startFull(ctx context.Context, arm *cacheArm) (*trial.Instance, error) {
	in := r.kept[arm.name]
	delete(r.kept, arm.name) // the trial stops it
	if in == nil {
		fresh, err := r.start(ctx, arm, upstreamSetting{expiry: publishedExpiry})
		if err != nil {
			return nil, err
		}
		in = fresh
	}
	client := newChecker(in, true)
	defer client.close()
	err := client.set(ctx, "delay=0s")
	if err == nil {
		err = in.fill(ctx, arm.workers)
	}
	if err == nil {
		err = client.set(ctx, "delay="+apiDelay.String())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("filling the cache: %w", err), in.stop())
	}
	return &trial.Instance{URL: map[string]string{"": in.url + pageTarget(0)}, PIDs: []int{in.service.PID}, Stop: in.stop}, nil
}

// fill asks for every page through each worker of a service, which has a cache
// of its own and stays with a connection.
func (in *runningArm) fill(ctx context.Context, workers int) error {
	byWorker := map[string]*checker{}
	for range fillTries {
		client := newChecker(in, true)
		defer client.close() // all stay open meanwhile, so that workers take turns
		_, name, err := client.get(ctx, in.url+"/ready")
		if err != nil {
			return err
		}
		if byWorker[string(name)] == nil {
			byWorker[string(name)] = client
		}
		if len(byWorker) >= workers {
			break
		}
	}
	clients := slices.Collect(maps.Values(byWorker))
	checks := make([]gradeCounts, len(clients))
	var all sync.WaitGroup // of one goroutine for each worker
	for i, client := range clients {
		all.Go(func() { checks[i] = client.pages(ctx) })
	}
	all.Wait()
	for _, c := range checks {
		if c.right < urlCount {
			return fmt.Errorf("only %d of %d answers were right", c.right, urlCount)
		}
	}
	return ctx.Err()
}

// adopt takes over what the trial found. Its arms and workloads are known
// already, but for the placebo.
func (r *cacheRun) adopt(hot *record.Result) {
	r.res.Metrics = hot.Metrics
	r.res.Samples = append(r.res.Samples, hot.Samples...)
	r.res.Verdicts = append(r.res.Verdicts, hot.Verdicts...)
	r.res.Gates = append(r.res.Gates, hot.Gates...)
	for _, a := range hot.Arms {
		if a.Placebo != "" {
			r.res.Arms = append(r.res.Arms, a)
		}
	}
	for _, text := range hot.Notes {
		r.Note("%s", text)
	}
	if hot.Interrupted != "" {
		r.res.Interrupted = hot.Interrupted + " with full caches"
	}
}
