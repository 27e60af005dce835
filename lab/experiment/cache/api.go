package cache

// This file is the experiment api-cache: a slow API behind each cache, loads from an
// empty cache with a client beside them that looks at bodies, and caches that are full.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/gate"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/trial"
)

const (
	apiDelay        = 104 * time.Millisecond // of the API, as published
	urlCount        = 400
	errorShare      = 0.05
	publishedExpiry = 5 * time.Minute // as published
	// requestTimeout is far above 10 s, so that what the article calls an error is
	// counted as what it is, an answer that came late.
	requestTimeout = time.Minute
	// slowAnswer is what the article calls an error.
	slowAnswer = 10 * time.Second
	// startTime is how long a service may take until all of its workers answer: eight
	// may start at once on two cores, four of them in Python.
	startTime = 20 * time.Second
	// lastWorkerTime is how long the last of several workers is waited for after the
	// first has answered.
	lastWorkerTime = 3 * time.Second
	// fillTries is how many connections are opened to find all workers of a
	// service; one that none of them leads to gets hardly any load either.
	fillTries = 64
	// direct is the arm without a cache.
	direct = "direct"
)

// api is one run of the experiment.
type api struct {
	*experiment.Run

	mu    sync.Mutex // guards what follows
	loads map[string]*load.Result
	found map[string]semantics // by arm
	first map[string]string    // by arm: its first wrong answer
}

// APIHooks are those of the experiment api-cache.
func APIHooks(r *experiment.Run) experiment.Hooks {
	a := &api{Run: r, loads: map[string]*load.Result{}, found: map[string]semantics{}, first: map[string]string{}}
	for i := range r.Spec.Workloads {
		if w := &r.Spec.Workloads[i]; w.Task == "" {
			w.Paths = pageTargets()
		}
	}
	h := experiment.Hooks{
		Prepare: func(ctx context.Context) error {
			if r.Env.Bench == nil {
				return experiment.ErrNoSources
			}
			return a.python(ctx)
		},
		Start:  map[string]func(context.Context) (*trial.Instance, error){},
		Tasks:  map[string]experiment.Task{"semantics": a.semantics, "load": a.load},
		Report: a.report,
	}
	for _, arm := range r.Spec.Arms {
		h.Start[arm.Name] = func(ctx context.Context) (*trial.Instance, error) { return a.full(ctx, arm.Name) }
	}
	return h
}

// A setting is how the API behind a service behaves, and how long that keeps answers.
type setting struct {
	delay  time.Duration
	errors float64
	expiry time.Duration
}

// A service is a running arm with an API of its own behind it.
type service struct {
	url      string // http://host:port of what clients ask
	upstream string // the API's, for its /__count and /__set
	api      *trial.Instance
	front    *trial.Instance // the same as api for the arm direct
}

// start starts an API and the arm in front of it.
func (a *api) start(ctx context.Context, arm string, s setting) (*service, error) {
	fields := map[string]string{
		"Delay": s.delay.String(), "Errors": strconv.FormatFloat(s.errors, 'g', -1, 64), "Seed": strconv.FormatUint(a.Env.Seed, 10),
		"Expiry": s.expiry.String(), "Seconds": strconv.Itoa(max(1, int(s.expiry.Seconds()))), // nginx has whole seconds
	}
	behind, err := a.StartWith(ctx, direct, fields, nil)
	if err != nil {
		return nil, err
	}
	in := &service{upstream: "http://" + behind.URL["address"], api: behind, front: behind}
	if arm != direct {
		fields["Upstream"] = behind.URL["address"]
		if in.front, err = a.StartWith(ctx, arm, fields, nil); err != nil {
			return nil, errors.Join(err, behind.Stop())
		}
	}
	in.url = "http://" + in.front.URL["address"]
	if err := in.await(ctx, workers(arm)); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for %s: %w", arm, err), in.stop())
	}
	return in, nil
}

// workers are the processes with a cache of their own that an arm has.
func workers(arm string) int {
	_, n, _ := strings.Cut(arm, "-")
	count, _ := strconv.Atoi(n) // 0: none in its name
	return max(1, count)
}

// await waits until a service answers, with all of its workers: a socket accepts
// connections long before a worker in Python has loaded what it needs. A service that
// has several names the one that answers at /ready; of any other, every answer will do.
func (in *service) await(ctx context.Context, workers int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("it does not answer within %v", startTime))
	defer cancel()
	seen := map[string]bool{}
	var mu sync.Mutex                             // guards seen
	var answered time.Time                        // when first
	const hands, rests = 4, 20 * time.Millisecond // questions at once for each worker, so that none gets all
	for ctx.Err() == nil {
		_ = experiment.Each(hands*workers, hands*workers, func(int) error { // it reports none
			client := newChecker(in, false)
			defer client.close()
			if _, body, err := client.get(ctx, in.url+"/ready"); err == nil {
				mu.Lock()
				seen[string(body)] = true
				mu.Unlock()
			}
			return nil
		})
		switch {
		case len(seen) >= workers:
			return nil
		case len(seen) > 0 && answered.IsZero():
			answered = time.Now()
		case len(seen) > 0 && time.Since(answered) > lastWorkerTime:
			return nil // a worker that gets no question now will get few later
		}
		_ = experiment.Sleep(ctx, rests) // its end is seen above
	}
	return context.Cause(ctx)
}

// stop ends both processes.
func (in *service) stop() error {
	err := in.front.Stop()
	if in.api != in.front {
		err = errors.Join(err, in.api.Stop())
	}
	return err
}

// full starts an arm, fills its cache from an API that is quick for once, and makes
// that slow again. The arm without a cache takes no part.
func (a *api) full(ctx context.Context, arm string) (*trial.Instance, error) {
	if arm == direct {
		return &trial.Instance{Reports: true, URL: map[string]string{}}, nil
	}
	in, err := a.start(ctx, arm, setting{expiry: publishedExpiry})
	if err != nil {
		return nil, err
	}
	client := newChecker(in, true)
	defer client.close()
	if err = in.fill(ctx, workers(arm)); err == nil {
		err = client.set(ctx, "delay="+apiDelay.String())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("filling the cache: %w", err), in.stop())
	}
	return &trial.Instance{URL: map[string]string{"": in.url + pageTarget(0)}, PIDs: in.front.PIDs, Stop: in.stop}, nil
}

// fill asks for every page through each worker of a service, which has a cache
// of its own and stays with a connection.
func (in *service) fill(ctx context.Context, workers int) error {
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
	return experiment.Each(len(clients), len(clients), func(i int) error {
		if c := clients[i].pages(ctx); c.right < urlCount {
			return errors.Join(ctx.Err(), fmt.Errorf("only %d of %d answers were right", c.right, urlCount))
		}
		return nil
	})
}

// load puts a fresh service under load, from an empty cache, with a client beside it
// that looks at bodies, and asks for every URL twice when it is over. That nothing was
// answered is a finding, and no error.
func (a *api) load(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (got trial.TaskResult, err error) {
	s := setting{delay: apiDelay, expiry: publishedExpiry}
	if w.Over == "errors" {
		s.errors = errorShare
	}
	in, err := a.start(ctx, slot.Arm, s)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, in.stop()) }()
	target, err := record.Open(in.front.PIDs...)
	if err != nil {
		return got, err
	}
	defer target.Close() //nolint:errcheck // it was only read
	m := gate.Meter{Target: target}
	client := newChecker(in, true)
	defer client.close()
	beside, stop := context.WithCancel(ctx)
	defer stop()
	checks := make(chan grades, 1)
	go func() { checks <- client.beside(beside, rand.New(rand.NewPCG(a.Env.Seed, 0x636865))) }() // a choice that must be repeatable
	found, err := load.Run(ctx, load.Config{
		URL: in.url + pageTarget(0), Paths: pageTargets(), Connections: w.Connections, Timeout: requestTimeout, Duration: w.Idle, Alike: s.errors == 0, Window: m.Window,
	})
	stop()
	seen := <-checks
	if err != nil && !errors.Is(err, load.ErrNoAnswer) || found == nil || ctx.Err() != nil {
		return got, errors.Join(err, ctx.Err())
	}
	asked, err := in.after(ctx, &seen)
	if err = errors.Join(err, m.Err()); err != nil {
		return got, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loads[w.Name+slot.Arm] = found
	if a.first[slot.Arm] == "" {
		a.first[slot.Arm] = seen.first
	}
	values := m.Values(found)
	maps.Copy(values, map[string]float64{
		"latency_min_ns": float64(found.Latency.Min()), "requests": float64(found.Requests), "over_10s": float64(slower(&found.Latency, slowAnswer)),
		"failed": float64(failures(found)), "unanswered": float64(found.Unanswered),
		"wrong": float64(seen.wrong), "checked": float64(seen.checked()), "upstream_requests": float64(asked.Requests),
	})
	if cpu, ok := values[experiment.CPU]; ok {
		values["cpu_share"] = cpu * float64(found.Requests) / float64(found.Took)
	}
	return trial.TaskResult{Values: values, Done: found.Requests, Failed: failures(found), FirstFailure: found.Errors.First}, nil
}

// after asks the API how often it was asked, makes it quick, and then asks for
// every URL twice, by connections of their own, so that all workers of a service are
// asked.
func (in *service) after(ctx context.Context, seen *grades) (asked upstreamCount, err error) {
	client := newChecker(in, false)
	defer client.close()
	if asked, err = client.count(ctx); err != nil {
		return asked, err
	}
	if err := client.set(ctx, "delay=0s"); err != nil {
		return asked, err
	}
	for range 2 {
		seen.merge(client.sweep(ctx))
	}
	return asked, ctx.Err()
}

// failures are requests without an answer and those with a status that says
// that they failed.
func failures(got *load.Result) uint64 {
	n := got.Errors.Sum()
	for status, count := range got.Status {
		if status < 200 || status > 299 {
			n += count
		}
	}
	return n
}

// slower is how many durations of a histogram are above a limit.
func slower(h *load.Histogram, limit time.Duration) uint64 {
	n := int(h.Count()) // far below the largest int
	if n == 0 {
		return 0
	}
	fast := sort.Search(n, func(i int) bool { return h.Quantile((float64(i)+0.5)/float64(n)) > limit })
	return uint64(n - fast) // not negative
}

// report adds what caches do where a load does not show it, the course of the cold
// load, and who gave wrong answers.
func (a *api) report() {
	arms := a.Res.Arms
	t := record.Table{
		Title: "What the caches do where a load does not show it",
		About: "Stampede: that many clients ask at once for what nobody asked for before. Expired: the API has a new answer by then. " +
			"API gone: what is served that is young enough, too old, or was never asked for. The expiry is 2 s here.",
		Columns: []string{"arm", "stampede reaches the API", "right answers", "expired", "API gone: young", "too old", "unknown", "wrong"},
	}
	rate := record.Chart{
		Title: "Answers while the cache fills", Lead: true, About: "A cache that asks the API once for each URL is full after 42 s.",
		X: record.Axis{Name: "time", Unit: "s"}, Y: record.Axis{Name: "answers", Unit: "1/s", Log: true},
	}
	spread := record.Chart{
		Title: "Latency from an empty cache", Lead: true, X: record.Axis{Name: "share of requests", Unit: "%"},
		Y: record.Axis{Name: "latency", Unit: "ns", Log: true},
	}
	var wrong []string
	looked := false
	for _, arm := range arms {
		if s, ok := a.found[arm.Name]; ok {
			t.Rows = append(t.Rows, append([]string{arm.Name}, s.cells()...))
		}
		if got := a.loads["cold"+arm.Name]; got != nil {
			rate.Series = append(rate.Series, record.Series{Name: arm.Name, Points: ratePoints(got.Ticks)})
			points := got.Latency.Points(60)
			for i := range points {
				points[i][0] *= 100
			}
			spread.Series = append(spread.Series, record.Series{Name: arm.Name, Points: points})
		}
		var bad, all float64
		for _, s := range a.Res.Samples {
			if s.Arm == arm.Name {
				bad, all = bad+s.Values["wrong"], all+s.Values["checked"]
			}
		}
		if looked = looked || all > 0; bad > 0 {
			wrong = append(wrong, fmt.Sprintf("%s (%.0f of %.0f)", arm.Name, bad, all))
			a.Note("%s served %.0f wrong answers of %.0f that were looked at: %s", arm.Name, bad, all, a.first[arm.Name])
		}
	}
	if len(t.Rows) > 0 {
		a.Res.Tables = append(a.Res.Tables, t)
	}
	if len(rate.Series) > 0 {
		a.Res.Charts = append(a.Res.Charts, rate, spread)
	}
	says := ""
	switch {
	case len(wrong) > 0:
		says = "wrong answers came from " + experiment.List(wrong)
	case looked:
		says = "no wrong answer was seen"
	}
	a.Res.Answer = strings.Trim(a.Res.Answer+"; "+says, "; ")
}

// ratePoints are the answers per second of each whole second or so: four ticks
// together, as most single ones have none while the API is all there is.
func ratePoints(ticks []load.Tick) [][2]float64 {
	const together = 4
	var points [][2]float64
	for group := range slices.Chunk(ticks, together) {
		var requests, seconds float64
		for _, k := range group {
			requests += float64(k.Requests)
			seconds += k.Length.Seconds()
		}
		if last := group[len(group)-1]; requests > 0 && seconds > 0 && last.At > 0 {
			points = append(points, [2]float64{last.At.Seconds(), requests / seconds})
		}
	}
	return points
}
