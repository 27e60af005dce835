package gate

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"time"

	"millrace/lab/load"
)

const (
	// defaultConnections and perThread are what load takes where its Config says
	// nothing.
	defaultConnections = 50
	perThread          = 10_000
	// fewAnswers is how many answers per request in flight Little's law takes:
	// with fewer, the edges of the window explain more than a quarter.
	fewAnswers = 4
)

func connections(cfg load.Config) int {
	if cfg.Connections == 0 {
		return defaultConnections
	}
	return cfg.Connections
}

// threads is what the generator's CPU time is shared between. The goroutines of
// the slower paths may use every core.
func threads(cfg load.Config, path string) int {
	n := cfg.Threads
	switch {
	case path == "goroutines":
		return runtime.GOMAXPROCS(0)
	case n == 0:
		n = min((connections(cfg)+perThread-1)/perThread, runtime.GOMAXPROCS(0))
	}
	return max(1, min(n, connections(cfg)))
}

// gauges are the gates over slots, in their order.
func gauges(limits Limits) []gauge {
	fixed := func(limit float64) func(string) float64 { return func(string) float64 { return limit } }
	failures := "at most " + percent(limits.Failures) + " of requests without a 2xx answer, or unlike their path's first"
	if len(limits.FailuresOn) > 0 {
		failures += ", but for workloads that are meant to fail"
	}
	return []gauge{
		{
			name: nameErrors, limit: failures, most: limits.failures,
			measure: failedShare, detail: failedDetail,
		},
		{
			name:  nameLittle,
			limit: "rate × mean latency within " + percent(limits.Little) + " of the requests in flight, and one request for each at the edges of the window",
			most:  fixed(limits.Little), measure: offLittle, detail: littleDetail,
			blind: fmt.Sprintf("fewer than %d answers for each request in flight", fewAnswers),
			idle:  "nothing was put under load",
		},
		{
			name: nameGenerator, limit: "each of its threads busy for at most " + percent(limits.Generator) + " of the time",
			most: fixed(limits.Generator), measure: generatorShare, detail: generatorDetail,
			blind: "the CPU time of the generator is not known",
			idle:  "nothing was put under load",
		},
		{
			name: nameLate, limit: "at most " + percent(limits.Late) + " of sends late",
			most: fixed(limits.Late), measure: lateShare, detail: lateDetail,
			blind: "nothing was sent",
			idle:  "closed loop: no send has a time of its own",
		},
		{
			name: nameSteal, limit: "at most " + percent(limits.Steal) + " of CPU time stolen",
			most: fixed(limits.Steal), measure: stealShare, detail: stolenDetail,
			blind: "the steal time of this machine cannot be read",
		},
	}
}

// total is what several slots sum up to.
type total struct {
	seconds                          float64
	requests, non2xx, changed, error uint64
	sent, late, dropped              uint64
	first                            string
}

func sum(slots []Slot) (t total) {
	for _, s := range slots {
		t.seconds += s.Seconds
		t.requests += s.Requests
		t.non2xx += s.Non2xx
		t.changed += s.Changed
		t.error += s.Errors
		t.sent += s.Sent
		t.late += s.Late
		t.dropped += s.Dropped
		t.first = cmp.Or(t.first, s.FirstError)
	}
	return t
}

// failedShare is the share of requests that failed. A changed answer is mostly
// one with another status, so it counts once: the larger of both. A target that
// answered nothing failed altogether.
func failedShare(slots []Slot) (float64, coverage) {
	t := sum(slots)
	if t.requests == 0 {
		return 1, looked
	}
	return float64(max(t.non2xx, t.changed)+t.error) / float64(t.requests+t.error), looked
}

func failedDetail(slots []Slot) string {
	t := sum(slots)
	if t.requests == 0 {
		return withFirst(fmt.Sprintf("no answer at all, %d errors", t.error), t.first)
	}
	share, _ := failedShare(slots)
	if share == 0 {
		return fmt.Sprintf("none of %d requests failed", t.requests)
	}
	return withFirst(fmt.Sprintf("%s of %d requests: %d not 2xx, %d unlike the first, %d not answered",
		percent(share), t.requests+t.error, t.non2xx, t.changed, t.error), t.first)
}

func withFirst(text, first string) string {
	if first == "" {
		return text
	}
	return text + ", first: " + first
}

// flying is what Little's law (Little, "A Proof for the Queuing Formula L = λW",
// Operations Research 9, 1961) compares: the requests in flight that rate and
// latency make, and those that there were, both on average over the slots. A
// closed loop has one on each connection all the time; where less comes out, the
// generator was slow to ask again, connections were broken, or some answers never
// came. An open loop counts them.
func flying(slots []Slot) (made, were float64) {
	seconds := 0.0
	for _, s := range slots {
		seconds += s.Seconds
		made += s.Rate * s.MeanLatency.Seconds() * s.Seconds
		if s.OpenLoop {
			were += s.InFlight * s.Seconds
		} else {
			were += float64(s.Connections) * s.Seconds
		}
	}
	return made / seconds, were / seconds
}

// offLittle is how far both are apart, beyond what the window's edges explain: a
// request that was on its way when the window opened is counted whole, one that is
// when it closes not at all. Those are as many as are in flight, so they move the
// product by up to one mean latency each: in a window with N answers for each
// request in flight by 1/N.
func offLittle(slots []Slot) (float64, coverage) {
	if slots[0].Task {
		return 0, idle
	}
	made, were := flying(slots)
	answers, places := 0.0, 0.0
	for _, s := range slots {
		answers += s.Rate * s.Seconds
		places += were
	}
	if !(were > 0) || answers < fewAnswers*places {
		return 0, blind
	}
	return math.Abs(made/were-1) - places/answers, looked
}

func littleDetail(slots []Slot) string {
	made, were := flying(slots)
	kind := "connections"
	if slots[0].OpenLoop {
		kind = "in flight"
	}
	rate, latency := 0.0, 0.0
	for _, s := range slots {
		rate += s.Rate / float64(len(slots))
		latency += s.Rate * s.MeanLatency.Seconds() / float64(len(slots))
	}
	mean := time.Duration(latency / rate * 1e9).Round(100 * time.Nanosecond)
	return fmt.Sprintf("%.0f/s × %v = %.4g, against %.4g %s (%+.1f %%)", rate, mean, made, were, kind, 100*(made/were-1))
}

// generatorShare is how busy the generator's threads were. That the target's core
// is busy too changes nothing: a thread that never sleeps sets the pace itself.
func generatorShare(slots []Slot) (float64, coverage) {
	if slots[0].Task {
		return 0, idle
	}
	return weighted(slots, func(s Slot) float64 { return s.GeneratorCPU })
}

func generatorDetail(slots []Slot) string {
	share, _ := generatorShare(slots)
	if slots[0].Threads == 1 {
		return fmt.Sprintf("its thread was busy for %s of the time", percent(share))
	}
	return fmt.Sprintf("its %d threads were busy for %s of the time", slots[0].Threads, percent(share))
}

func stealShare(slots []Slot) (float64, coverage) {
	return weighted(slots, func(s Slot) float64 { return s.Steal })
}

func stolenDetail(slots []Slot) string {
	share, _ := stealShare(slots)
	return percent(share) + " stolen"
}

// weighted is the mean of a share over the slots, by their length. A slot in
// which it is unknown makes the mean unknown.
func weighted(slots []Slot, share func(Slot) float64) (float64, coverage) {
	mean, seconds := 0.0, 0.0
	for _, s := range slots {
		v := share(s)
		if !(v >= 0) || !(s.Seconds > 0) {
			return 0, blind
		}
		mean += v * s.Seconds
		seconds += s.Seconds
	}
	return mean / seconds, looked
}

func lateShare(slots []Slot) (float64, coverage) {
	if !slots[0].OpenLoop {
		return 0, idle
	}
	t := sum(slots)
	if t.sent == 0 {
		return 0, blind
	}
	return float64(t.late) / float64(t.sent), looked
}

func lateDetail(slots []Slot) string {
	t := sum(slots)
	text := fmt.Sprintf("%d of %d sends late (%s)", t.late, t.sent, percent(float64(t.late)/float64(t.sent)))
	if t.dropped > 0 {
		text += fmt.Sprintf(", and %d due but never sent, for no connection was free", t.dropped)
	}
	if t.late > 0 && slots[0].Takers != "" {
		text += "; " + slots[0].Takers
	}
	return text
}
