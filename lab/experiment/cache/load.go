package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sort"
	"strings"
	"time"

	"millrace/lab/gate"
	"millrace/lab/load"
	"millrace/lab/record"
)

// A loadFinding is what one arm did under one workload from an empty cache.
type loadFinding struct {
	arm, workload string
	result        *load.Result // nil: the arm did not start
	values        map[string]float64
	during, after gradeCounts   // beside the load, and of every URL twice when it was over
	asked         upstreamCount // of the API, until the load was over
}

// wrong is how many wrong answers were seen of how many.
func (f *loadFinding) wrong() (wrong, checked int) {
	return f.during.wrong + f.after.wrong, f.during.checked() + f.after.checked()
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

// sample is the finding as figures.
func (f *loadFinding) sample() record.Sample {
	return record.Sample{Arm: f.arm, Workload: f.workload, Seconds: f.result.Took.Seconds(), Values: f.values}
}

// setting is how the API behaves in a workload, and how long that lasts.
func (r *cacheRun) setting(workload string) upstreamSetting {
	s := upstreamSetting{delay: apiDelay, expiry: publishedExpiry, length: r.runPlan.cold}
	if workload == errorLoad {
		s.errors, s.length = errorShare, r.runPlan.errors
	}
	return s
}

// instance is a fresh instance of an arm for a workload, and how to give it
// back. Those that startKept started are fresh for the first of them.
func (r *cacheRun) instance(ctx context.Context, arm *cacheArm, workload string, s upstreamSetting) (*runningArm, func(), error) {
	if in := r.kept[arm.name]; in != nil && workload == coldLoad {
		return in, func() {}, nil
	}
	in, err := r.start(ctx, arm, s)
	if err != nil {
		return nil, nil, err
	}
	return in, func() {
		if err := in.stop(); err != nil && ctx.Err() == nil {
			r.Note("%s under the workload %s: %v", arm.name, workload, err)
		}
	}, nil
}

// load puts one arm, freshly started, under one workload. An arm that does not
// start is noted, and no error.
func (r *cacheRun) load(ctx context.Context, arm *cacheArm, workload string) (loadFinding, error) {
	f := loadFinding{arm: arm.name, workload: workload}
	setting := r.setting(workload)
	length := setting.length
	r.Emit(record.Event{Kind: record.EventStep, Arm: arm.name, Workload: workload, Text: fmt.Sprintf("%s, %s: %v of load", arm.name, workload, length)})
	in, release, err := r.instance(ctx, arm, workload, setting)
	if err != nil {
		if ctx.Err() == nil {
			r.Note("%s could not be started: %v", arm.name, err)
			err = nil
		}
		return f, err
	}
	defer release()
	target, err := record.Open(in.service.PID)
	if err != nil {
		return f, err
	}
	defer target.Close() //nolint:errcheck // it was only read
	m := gate.Meter{Target: target}
	cfg := loadConfig(in.url)
	cfg.Duration, cfg.Varies, cfg.Window = length, workload == errorLoad, m.Window
	cfg.Progress = func(k load.Tick) { r.Emit(tick(arm.name, workload, k)) }

	if f.result, f.during, err = r.loadAndCheck(ctx, in, cfg); err != nil {
		err = errors.Join(err, m.Err())
	}
	if f.result == nil || f.result.Took <= 0 {
		return f, err
	}
	if err == nil {
		err = f.queryUpstream(ctx, in)
	}
	f.measure(&m)
	r.Step(length.Seconds(), record.Event{
		Kind: record.EventSample, Arm: arm.name, Workload: workload, Requests: f.result.Requests, Errors: failures(f.result),
		Rate: f.values["requests_per_second"], P50: f.result.Latency.Quantile(0.5), P90: f.result.Latency.Quantile(0.9),
		P99: f.result.Latency.Quantile(0.99), TargetCPU: f.values["cpu_share"],
	})
	return f, err
}

// loadAndCheck runs a load with a client beside it that looks at bodies. That
// nothing was answered is a finding here, and no error.
func (r *cacheRun) loadAndCheck(ctx context.Context, in *runningArm, cfg load.Config) (*load.Result, gradeCounts, error) {
	client := newChecker(in, true)
	defer client.close()
	beside, stop := context.WithCancelCause(ctx)
	checks := make(chan gradeCounts, 1)
	random := rand.New(rand.NewPCG(r.env.Seed, 0x636865)) // a choice that must be repeatable
	go func() { checks <- client.beside(beside, random) }()
	got, err := load.Run(ctx, cfg)
	stop(errLoadOver)
	during := <-checks
	if errors.Is(err, load.ErrNoAnswer) && ctx.Err() == nil {
		err = nil
	}
	return got, during, err
}

// queryUpstream asks the API how often it was asked, makes it quick, and then asks
// for every URL twice, by connections of their own, so that all workers of a
// service are asked.
func (f *loadFinding) queryUpstream(ctx context.Context, in *runningArm) (err error) {
	client := newChecker(in, false)
	defer client.close()
	if f.asked, err = client.count(ctx); err != nil {
		return err
	}
	if err := client.set(ctx, "delay=0s"); err != nil {
		return err
	}
	for range 2 {
		f.after.merge(client.sweep(ctx))
	}
	return ctx.Err()
}

// measure works the figures out.
func (f *loadFinding) measure(m *gate.Meter) {
	got := f.result
	f.values = m.Values(got)
	wrong, checked := f.wrong()
	maps.Copy(f.values, map[string]float64{
		"latency_min_ns": float64(got.Latency.Min()), "requests": float64(got.Requests), "over_10s": float64(slower(&got.Latency, slowAnswer)),
		"failed": float64(failures(got)), "unanswered": float64(got.Unanswered),
		"wrong": float64(wrong), "checked": float64(checked), "upstream_requests": float64(f.asked.Requests),
	})
	if cpu, ok := f.values["cpu_ns"]; ok {
		f.values["cpu_share"] = cpu * float64(got.Requests) / float64(got.Took)
	}
}

// ownMetrics are the figures that gate.Metrics does not have.
func ownMetrics() []record.Metric {
	return []record.Metric{
		{Key: "latency_min_ns", Name: "shortest latency", Unit: "ns"},
		{Key: "requests", Name: "requests answered", Higher: true},
		{Key: "over_10s", Name: "requests over 10 s", About: "what the published comparison calls errors"},
		{Key: "failed", Name: "failed requests", About: "without an answer, or with a status other than 2xx"},
		{Key: "unanswered", Name: "requests still waiting when the load ended"},
		{Key: "wrong", Name: "wrong answers seen", About: "status 200 with another body than the API's for that URL"},
		{Key: "checked", Name: "answers whose body was looked at", Higher: true},
		{Key: "upstream_requests", Name: "requests that reached the API", About: "with those of the client that looks at bodies"},
		{Key: "cpu_share", Name: "CPU of the service, in cores"},
	}
}

func tick(arm, workload string, k load.Tick) record.Event {
	e := record.Event{
		Kind: record.EventTick, Arm: arm, Workload: workload, Rate: k.Rate, P50: k.P50, P90: k.P90, P99: k.P99,
		Requests: k.Requests, Errors: k.Errors,
	}
	if k.Length > 0 {
		e.GeneratorCPU = float64(k.CPU) / float64(k.Length)
	}
	return e
}

// wrongText is the column that speed does not excuse.
func wrongText(wrong, checked int) string {
	if checked == 0 {
		return "none looked at"
	}
	if wrong == 0 {
		return fmt.Sprintf("0 of %d", checked)
	}
	return fmt.Sprintf("%d of %d (%s %%)", wrong, checked, strings.TrimSuffix(fmt.Sprintf("%.1f", float64(wrong)/float64(checked)*100), ".0"))
}
