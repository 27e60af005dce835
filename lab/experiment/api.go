package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"millrace/lab/load"
	"millrace/lab/result"
)

// apiCache is the experiment about caches in front of a slow API.
func apiCache() Experiment {
	return Experiment{
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
		Run: runAPICache,
	}
}

const (
	apiDelay       = 104 * time.Millisecond // of the API, as published
	apiConnections = 100
	apiURLs        = 400
	apiErrorShare  = 0.05
	apiExpiry      = 5 * time.Minute // as published
	// apiTimeout is far above 10 s, so that what the article calls an error is
	// counted as what it is, an answer that came late.
	apiTimeout = time.Minute
	// apiSlow is what the article calls an error.
	apiSlow = 10 * time.Second
	// apiTogether is what loading all arms at once may take, with starting them.
	apiTogether = 15 * time.Second
	// apiDelta is the smallest effect that gets a verdict.
	apiDelta = 0.05
)

// The workloads.
const (
	apiCold   = "cold"
	apiErrors = "errors"
	apiHot    = "full cache"
)

// An apiPlan is what is measured.
type apiPlan struct {
	cold, errors  time.Duration // of one arm
	stampede      int           // clients that ask for one URL at once
	blocks        int           // of the full cache
	perRestart    int
	slot, warmup  time.Duration
	build, python time.Duration // limits for compiling and for installing
}

func newAPIPlan(mode result.Mode) apiPlan {
	if mode == result.Full {
		return apiPlan{
			cold: time.Minute, errors: 10 * time.Second, stampede: 50,
			blocks: 12, perRestart: 1, slot: time.Second, warmup: 200 * time.Millisecond,
			build: fullBuild, python: 4 * time.Minute,
		}
	}
	return apiPlan{
		cold: 2500 * time.Millisecond, errors: 2 * time.Second, stampede: 20,
		blocks: 9, perRestart: 9, slot: 200 * time.Millisecond, warmup: 50 * time.Millisecond,
		build: quickBuild, python: 28 * time.Second,
	}
}

// An apiRun is one run of the experiment.
type apiRun struct {
	*stage
	apiPlan  apiPlan
	random   *rand.Rand
	upstream string // executable of the API
	arms     []*apiArm
	kept     map[string]*apiInstance // by arm: those that stay up from the first load to the last
	runs     []apiFinding
	sub      []apiSemantics
}

func runAPICache(ctx context.Context, env Env, res *result.Result) error {
	r := &apiRun{
		stage: newStage(env, res), apiPlan: newAPIPlan(env.Mode),
		random: rand.New(rand.NewPCG(env.Seed, 0x617069)), //nolint:gosec // an order that must be repeatable
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

func (r *apiRun) workloads() []result.Workload {
	load := fmt.Sprintf("%d connections, closed loop, %d URLs in turn", apiConnections, apiURLs)
	together := ""
	if r.env.Mode == result.Quick {
		together = "; all arms at once"
	}
	return []result.Workload{
		{Name: apiCold, About: fmt.Sprintf("%s, %v, from an empty cache", load, r.apiPlan.cold)},
		{Name: apiErrors, About: fmt.Sprintf("%s, %v, from an empty cache; 5 %% of the API's answers are errors (500)%s", load, r.apiPlan.errors, together)},
		{Name: apiHot, About: load + ", all of them in the cache"},
	}
}

// measure does everything in the order of what matters most if time runs
// short. What was measured is in r and in the result whenever it returns.
func (r *apiRun) measure(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	r.say(result.Event{Kind: result.EventStep, Text: "stampede, expiry and a dying API, for all arms at once"})
	perArm := r.apiPlan.cold + r.apiPlan.errors
	hot := time.Duration(r.apiPlan.blocks) * (r.apiPlan.slot + r.apiPlan.warmup)
	r.plan(float64(len(r.arms)) * (perArm + hot).Seconds())
	if err := r.measureSemantics(ctx); err != nil {
		return err
	}
	if r.env.Mode == result.Quick {
		// Starting services takes longer than loading them: here they stay up
		// between the first load and the last.
		defer r.stopKept(ctx)
		if err := r.startKept(ctx); err != nil {
			return err
		}
	}
	if err := r.loadAll(ctx, apiCold, false); err != nil {
		return err
	}
	// What 5 % errors do to answers is no question of speed: in quick mode all
	// arms are asked at once.
	if err := r.loadAll(ctx, apiErrors, r.env.Mode == result.Quick); err != nil {
		return err
	}
	return r.measureHot(ctx)
}

// startKept starts all arms at the same time. Those that do not start are
// left out from here on.
func (r *apiRun) startKept(ctx context.Context) error {
	r.say(result.Event{Kind: result.EventStep, Text: "starting all arms"})
	started := make([]*apiInstance, len(r.arms))
	errs := make([]error, len(r.arms))
	var all sync.WaitGroup // of one goroutine for each arm
	for i, arm := range r.arms {
		all.Go(func() { started[i], errs[i] = r.start(ctx, arm, r.setting(apiCold)) })
	}
	all.Wait()
	r.kept = map[string]*apiInstance{}
	var running []*apiArm
	for i, arm := range r.arms {
		switch {
		case started[i] != nil:
			r.kept[arm.name] = started[i]
			running = append(running, arm)
		case ctx.Err() == nil:
			r.note("%s could not be started: %v", arm.name, errs[i])
		}
	}
	r.arms = running
	return ctx.Err()
}

// stopKept stops what startKept started and nobody stopped since.
func (r *apiRun) stopKept(ctx context.Context) {
	var all sync.WaitGroup // of one goroutine for each arm
	for name, in := range r.kept {
		all.Go(func() {
			if err := in.stop(); err != nil && ctx.Err() == nil {
				r.note("%s: %v", name, err)
			}
		})
	}
	all.Wait()
}

// loadAll puts every arm under one workload, in random order, one after the
// other or all together.
func (r *apiRun) loadAll(ctx context.Context, workload string, together bool) error {
	order := slices.Clone(r.arms)
	r.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	found := make([]apiFinding, len(order))
	errs := make([]error, len(order))
	if together && r.left() < apiTogether {
		r.note("the workload %s was left out: the time was over", workload)
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
			if r.left() < r.setting(workload).length {
				r.note("%s was not measured under the workload %s: the time was over", arm.name, workload)
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
		URL: url + apiPath(0), Paths: apiPaths(), Connections: apiConnections, Timeout: apiTimeout,
	}
}

// errNoArm is what happens where nothing can be started.
var errNoArm = errors.New("no arm of this experiment can run here (see the notes)")
