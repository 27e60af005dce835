package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/lab/load"
	"millrace/lab/result"
	"millrace/lab/trial"
)

const (
	// fillRounds is how often every worker's cache is gone through before it is
	// called full.
	fillRounds = 3
	// fillTime bounds that.
	fillTime = 4 * time.Second
	// hotReserve is left of the budget for stopping what runs.
	hotReserve = 3 * time.Second
)

// measureHot compares the caches when everything is in them, in interleaved
// blocks with a placebo and all gates.
func (r *apiRun) measureHot(ctx context.Context) error {
	plan := trial.Plan{
		Decide: []string{"cpu_ns", "requests_per_second"}, Delta: apiDelta,
		Blocks: []int{r.apiPlan.blocks}, PerRestart: r.apiPlan.perRestart, Slot: r.apiPlan.slot, Warmup: r.apiPlan.warmup,
		Budget: max(trial.MinSlot, r.left()-hotReserve), Seed: r.env.Seed,
		Differ: "the caches have headers of their own; bodies are held against the right ones by a client of this experiment",
	}
	workload := trial.Workload{Name: apiHot, About: r.res.Workloads[2].About, Load: loadConfig("")}
	plan.Workloads = []trial.Workload{workload}
	for _, arm := range r.arms {
		if arm.name != apiDirect {
			plan.Arms = append(plan.Arms, trial.Arm{
				Name: arm.name, About: arm.about, Version: arm.version, Command: arm.shown,
				Start: func(ctx context.Context) (*trial.Instance, error) { return r.startFull(ctx, arm) },
			})
		}
	}
	if len(plan.Arms) < 2 || plan.Arms[0].Name != apiBaseline {
		r.note("the full caches were not compared: that needs go-cache and one other")
		return nil
	}
	if r.left() < hotReserve {
		r.note("the full caches were not compared: the time was over")
		return nil
	}
	r.say(result.Event{Kind: result.EventStep, Workload: apiHot, Text: "full caches, compared block by block"})
	var hot result.Result
	err := trial.Run(ctx, plan, &hot, func(e result.Event) {
		if e.Kind == result.EventSample {
			r.step((r.apiPlan.slot + r.apiPlan.warmup).Seconds(), e)
			return
		}
		r.say(e)
	})
	r.adopt(&hot)
	return err
}

// startFull starts an arm, fills its cache from an API that is quick for once,
// and makes that slow again.
func (r *apiRun) startFull(ctx context.Context, arm *apiArm) (*trial.Instance, error) {
	in, err := r.start(ctx, arm, apiSetting{expiry: apiExpiry})
	if err != nil {
		return nil, err
	}
	client := newAPIClient(in, true)
	defer client.close()
	cfg := loadConfig(in.url)
	cfg.Duration, cfg.Requests = fillTime, uint64(apiURLs*arm.workers*fillRounds) //nolint:gosec // not negative
	_, err = load.Run(ctx, cfg)
	if err == nil {
		err = client.set(ctx, "delay="+apiDelay.String())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("filling the cache: %w", err), in.stop())
	}
	return &trial.Instance{URL: map[string]string{"": in.url + apiPath(0)}, PIDs: []int{in.service.PID}, Stop: in.stop}, nil
}

// adopt takes over what the trial found. Its arms and workloads are known
// already, but for the placebo.
func (r *apiRun) adopt(hot *result.Result) {
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
		r.note("%s", text)
	}
	if hot.Interrupted != "" {
		r.res.Interrupted = hot.Interrupted + " with full caches"
	}
}
