package cache

// This file is the experiment api-cache: what a cache in front of a slow API
// brings, costs and gets wrong.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/record"
)

// APIExperiment is api-cache.
func APIExperiment() experiment.Experiment {
	return experiment.Experiment{
		Name:     "api-cache",
		Title:    "what a cache in front of a slow API brings, costs and gets wrong",
		Question: "How long do clients of a slow API wait behind each of seven caches, what does an answer cost, and does every client get the answer to its own question?",
		Claim: "In one minute each, latency as min > mean > max in ms: Flask 104 > 4194 > 32000 with 4,043 requests, 326 of them over 10 s; " +
			"Sanic with a memory cache and 4 workers 81 > 1152 > 12408, 13,558 and 210; with 1 worker 81 > 1367 > 18869, 11,589 and 171; " +
			"a Go proxy with go-cache 80 > 341 > 6745, 14,663 and 175, its CPU 7 % where Python's was 30 %. nginx's cache could not be made to work.",
		Rule: "The API takes 104 ms for an answer and gives one at a time. 100 clients ask for 400 URLs in turn, each as soon as its last answer is there, beginning with an empty cache: " +
			"that is shown as published, one unbroken minute for each arm (in quick mode some seconds), because requests that wait 10 s would not fit into shorter slots; it is one sample each, and so gets no verdict. " +
			"Verdicts are about the second workload, the full cache: every arm is started anew, filled, and loaded in turn in short slots, in random order. " +
			"Its CPU time per request and requests per second are compared with go-cache's, block by block; better or worse needs a difference of at least 5 %, " +
			"p ≤ 0.01 after Holm's adjustment over the two metrics, and an interval on one side of 1; everything else is equal within 5 % or undecided. " +
			"An answer is wrong if its status is 200 and its body is not the API's answer for that very URL: a client beside the load looks at bodies, and afterwards every URL is asked for twice. " +
			"Any wrong answer is a fault whatever the speed.",
		Run: runAPI,
	}
}

const (
	apiDelay        = 104 * time.Millisecond // of the API, as published
	clientsAtOnce   = 100
	urlCount        = 400
	errorShare      = 0.05
	publishedExpiry = 5 * time.Minute // as published
	// requestTimeout is far above 10 s, so that what the article calls an error is
	// counted as what it is, an answer that came late.
	requestTimeout = time.Minute
	// slowAnswer is what the article calls an error.
	slowAnswer = 10 * time.Second
	// togetherTime is what loading all arms at once may take, with starting them.
	togetherTime = 15 * time.Second
	// smallestEffect is the smallest effect that gets a verdict.
	smallestEffect = 0.05
)

// The workloads.
const (
	coldLoad  = "cold"
	errorLoad = "errors"
	hotLoad   = "full cache"
)

// A runPlan is what is measured.
type runPlan struct {
	cold, errors time.Duration // of one arm
	stampede     int           // clients that ask for one URL at once
	blocks       int           // of the full cache
	perRestart   int
	slot, warmup time.Duration
	python       time.Duration // limit for installing
}

func newPlan(mode record.Mode) runPlan {
	if mode == record.Full {
		return runPlan{
			cold: time.Minute, errors: 10 * time.Second, stampede: 50,
			blocks: 12, perRestart: 1, slot: time.Second, warmup: 200 * time.Millisecond,
			python: 4 * time.Minute,
		}
	}
	return runPlan{
		cold: 2500 * time.Millisecond, errors: 2 * time.Second, stampede: 20,
		blocks: 9, perRestart: 9, slot: 200 * time.Millisecond, warmup: 50 * time.Millisecond,
		python: 2 * time.Minute,
	}
}

// A cacheRun is one run of the experiment.
type cacheRun struct {
	*experiment.Stage
	env      experiment.Env
	res      *record.Result
	runPlan  runPlan
	random   *rand.Rand
	upstream string // executable of the API
	arms     []*cacheArm
	kept     map[string]*runningArm // by arm: those that stay up from the first load to the last
	runs     []loadFinding
	sub      []semanticsFinding
}

func runAPI(ctx context.Context, env experiment.Env, res *record.Result) error {
	r := &cacheRun{
		Stage: experiment.NewStage(env, res), env: env, res: res, runPlan: newPlan(env.Mode),
		random: rand.New(rand.NewPCG(env.Seed, 0x617069)), // an order that must be repeatable
	}
	res.Workloads = r.workloads()
	err := r.measure(ctx)
	r.report()
	if ctx.Err() != nil {
		if res.Interrupted == "" {
			res.Interrupted = fmt.Sprintf("stopped after %d loads", len(r.runs))
		}
		return nil
	}
	return err
}

func (r *cacheRun) workloads() []record.Workload {
	load := fmt.Sprintf("%d connections, closed loop, %d URLs in turn", clientsAtOnce, urlCount)
	together := ""
	if r.env.Mode == record.Quick {
		together = "; all arms at once"
	}
	return []record.Workload{
		{Name: coldLoad, About: fmt.Sprintf("%s, %v, from an empty cache", load, r.runPlan.cold)},
		{Name: errorLoad, About: fmt.Sprintf("%s, %v, from an empty cache; 5 %% of the API's answers are errors (500)%s", load, r.runPlan.errors, together)},
		{Name: hotLoad, About: load + ", all of them in the cache"},
	}
}

// measure does everything in the order of what matters most if time runs
// short. What was measured is in r and in the result whenever it returns.
func (r *cacheRun) measure(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	r.Built()
	r.Emit(record.Event{Kind: record.EventStep, Text: "stampede, expiry and a dying API, for all arms at once"})
	perArm := r.runPlan.cold + r.runPlan.errors
	hot := time.Duration(r.runPlan.blocks) * (r.runPlan.slot + r.runPlan.warmup)
	r.Plan(float64(len(r.arms)) * (perArm + hot).Seconds())
	if err := r.measureSemantics(ctx); err != nil {
		return err
	}
	if r.env.Mode == record.Quick {
		// Starting services takes longer than loading them: here they stay up
		// between the first load and the last.
		defer r.stopKept(ctx)
		if err := r.startKept(ctx); err != nil {
			return err
		}
	}
	if err := r.loadAll(ctx, coldLoad, false); err != nil {
		return err
	}
	// What 5 % errors do to answers is no question of speed: in quick mode all
	// arms are asked at once.
	if err := r.loadAll(ctx, errorLoad, r.env.Mode == record.Quick); err != nil {
		return err
	}
	return r.measureHot(ctx)
}

// startKept starts all arms at the same time. Those that do not start are
// left out from here on.
func (r *cacheRun) startKept(ctx context.Context) error {
	r.Emit(record.Event{Kind: record.EventStep, Text: "starting all arms"})
	started := make([]*runningArm, len(r.arms))
	errs := make([]error, len(r.arms))
	var all sync.WaitGroup // of one goroutine for each arm
	for i, arm := range r.arms {
		all.Go(func() { started[i], errs[i] = r.start(ctx, arm, r.setting(coldLoad)) })
	}
	all.Wait()
	r.kept = map[string]*runningArm{}
	var running []*cacheArm
	for i, arm := range r.arms {
		switch {
		case started[i] != nil:
			r.kept[arm.name] = started[i]
			running = append(running, arm)
		case ctx.Err() == nil:
			r.Note("%s could not be started: %v", arm.name, errs[i])
		}
	}
	r.arms = running
	return ctx.Err()
}

// stopKept stops what startKept started and nobody stopped since.
func (r *cacheRun) stopKept(ctx context.Context) {
	var all sync.WaitGroup // of one goroutine for each arm
	for name, in := range r.kept {
		all.Go(func() {
			if err := in.stop(); err != nil && ctx.Err() == nil {
				r.Note("%s: %v", name, err)
			}
		})
	}
	all.Wait()
}

// loadAll puts every arm under one workload, in random order, one after the
// other or all together.
func (r *cacheRun) loadAll(ctx context.Context, workload string, together bool) error {
	order := slices.Clone(r.arms)
	r.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	found := make([]loadFinding, len(order))
	errs := make([]error, len(order))
	if together && r.Left() < togetherTime {
		r.Note("the workload %s was left out: the time was over", workload)
		return nil
	}
	if together {
		var all sync.WaitGroup // of one goroutine for each arm
		for i, arm := range order {
			all.Go(func() { found[i], errs[i] = r.load(ctx, arm, workload) })
		}
		all.Wait()
	}
	for i, arm := range order {
		if !together {
			if r.Left() < r.setting(workload).length {
				r.Note("%s was not measured under the workload %s: the time was over", arm.name, workload)
				continue
			}
			found[i], errs[i] = r.load(ctx, arm, workload)
		}
		if f := found[i]; f.result != nil && f.result.Took > 0 {
			r.runs = append(r.runs, f)
			sample := f.sample()
			sample.Order = i
			r.res.Samples = append(r.res.Samples, sample)
		}
		if errs[i] != nil {
			return fmt.Errorf("loading %s with %s: %w", arm.name, workload, errs[i])
		}
	}
	return nil
}

// loadConfig is the load of every workload but for its length.
func loadConfig(url string) load.Config {
	return load.Config{
		URL: url + pageTarget(0), Paths: pageTargets(), Connections: clientsAtOnce, Timeout: requestTimeout,
	}
}

// errNoArm is what happens where nothing can be started.
var errNoArm = errors.New("no arm of this experiment can run here (see the notes)")
