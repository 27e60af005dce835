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
	failures := "at most " + percent(limits.Failures) + " of requests without a 2xx answer, or with one that is not as expected"
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
			limit: "rate × mean latency within " + percent(limits.Little) + " of the requests in flight",
			most:  fixed(limits.Little), measure: offLittle, detail: littleDetail,
			blind: "nobody counted the requests in flight",
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
		{
			name: nameOthers, limit: "at most " + percent(limits.Others) + " of CPU time for programs beside the measurement",
			most: fixed(limits.Others), measure: othersShare, detail: othersDetail,
			blind: "what other programs use cannot be read",
		},
	}
}

// total is what several slots sum up to.
type total struct {
	seconds                             float64
	requests, non2xx, unexpected, error uint64
	sent, late, dropped                 uint64
	first                               string
}

func sum(slots []Slot) (t total) {
	for _, s := range slots {
		t.seconds += s.Seconds
		t.requests += s.Requests
		t.non2xx += s.Non2xx
		t.unexpected += s.Unexpected
		t.error += s.Errors
		t.sent += s.Sent
		t.late += s.Late
		t.dropped += s.Dropped
		t.first = cmp.Or(t.first, s.FirstError)
	}
	return t
}

// failedShare is the share of requests that failed. A target that answered nothing
// failed altogether.
func failedShare(slots []Slot) (float64, coverage) {
	t := sum(slots)
	if t.requests == 0 {
		return 1, looked
	}
	return float64(t.non2xx+t.unexpected+t.error) / float64(t.requests+t.error), looked
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
	return withFirst(fmt.Sprintf("%s of %d requests: %d not 2xx, %d not as expected, %d not answered",
		percent(share), t.requests+t.error, t.non2xx, t.unexpected, t.error), t.first)
}

func withFirst(text, first string) string {
	if first == "" {
		return text
	}
	return text + ", first: " + first
}

// flying is what Little's law (Little, "A Proof for the Queuing Formula L = λW",
// Operations Research 9, 1961) compares: the requests in flight that rate and latency
// make together with the rest, and those that were counted, both on average over the
// slots. The law holds for any server and any loop, also where connections are opened
// anew, so that fewer requests are in flight than there are connections. Where it does
// not, the clock, the count or the latency is wrong.
func flying(slots []Slot) (made, rest, were float64) {
	seconds := 0.0
	for _, s := range slots {
		seconds += s.Seconds
		made += s.Rate * s.MeanLatency.Seconds() * s.Seconds
		rest += s.Rest * s.Seconds
		were += s.InFlight * s.Seconds
	}
	return made / seconds, rest / seconds, were / seconds
}

// offLittle is how far both are apart.
func offLittle(slots []Slot) (float64, coverage) {
	if slots[0].Task {
		return 0, idle
	}
	made, rest, were := flying(slots)
	if !(were > 0) {
		return 0, blind
	}
	return math.Abs((made+rest)/were - 1), looked
}

func littleDetail(slots []Slot) string {
	made, rest, were := flying(slots)
	rate, latency := 0.0, 0.0
	for _, s := range slots {
		rate += s.Rate / float64(len(slots))
		latency += s.Rate * s.MeanLatency.Seconds() / float64(len(slots))
	}
	mean := time.Duration(latency / rate * 1e9).Round(100 * time.Nanosecond)
	others := ""
	if math.Abs(rest) >= 0.001*were {
		others = fmt.Sprintf(", %+.3g of requests that were lost, not as expected, or at the edges of the window", rest)
	}
	return fmt.Sprintf("%.0f/s × %v = %.4g%s, against %.4g in flight (%+.1f %%)", rate, mean, made, others, were, 100*((made+rest)/were-1))
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

func othersShare(slots []Slot) (float64, coverage) {
	return weighted(slots, func(s Slot) float64 { return s.Others })
}

func othersDetail(slots []Slot) string {
	share, _ := othersShare(slots)
	return percent(share) + " used by other programs"
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
