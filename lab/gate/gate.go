// Package gate puts the figures of a measured window together ([Meter]), and checks the measurement itself: whether its figures mean what a
// reader takes them to mean. A failed gate makes a result void, whatever its
// figures. A gate that cannot check says so and does not pass.
//
// Gates judge an arm on a workload over all its slots: that one slot of twenty
// was disturbed is what blocks and a robust centre are for. The detail names the
// slot that was furthest out.
package gate

import (
	"fmt"
	"math"
	"strings"
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
)

// The gates by name, in the order in which a result has them.
const (
	nameErrors    = "answers without errors"
	nameLittle    = "Little's law"
	nameGenerator = "generator not the bottleneck"
	nameLate      = "sends on time"
	nameSteal     = "undisturbed by the hypervisor"
	nameOthers    = "undisturbed by other programs"
	nameSame      = "equal answers"
	namePlacebo   = "placebo without effect"
)

// A Slot is what the gates look at of one arm on one workload in one block.
type Slot struct {
	Arm, Workload string
	Block         int
	Seconds       float64 // length of the window
	Task          bool    // it was not a load: nothing is known of a generator

	Requests   uint64 // answered
	Non2xx     uint64 // of them, those with a status outside 200…299 that nobody expected
	Unexpected uint64 // of them, those that were not what was expected
	Errors     uint64 // not answered: refused, closed, timed out, unintelligible
	FirstError string // in words

	Rate        float64       // of the answers that MeanLatency is of, per second
	MeanLatency time.Duration // closed loop: from the write; open loop: the service time, from the write too
	Connections int           // requests that may be in flight at once: connections × streams
	InFlight    float64       // requests under way, on average; 0: unknown
	Rest        float64       // those of them, on average, that Rate and MeanLatency do not say: lost, not as expected, or at the edges of the window

	OpenLoop bool
	Sent     uint64 // requests
	Late     uint64 // of them, those that the generator sent late
	Dropped  uint64 // due and never sent
	Takers   string // who had the CPU meanwhile, in words; empty: unknown

	GeneratorCPU float64 // share of one core, mean over its threads; negative: unknown
	Threads      int     // of the generator
	Steal        float64 // share of all CPU time; negative: unknown
	Others       float64 // what programs had that do not belong to the measurement, likewise
}

// FromLoad makes the slot of one load. of has its Arm, Workload and Block, Steal and Others.
// cfg is what load.Run was given.
func FromLoad(of Slot, cfg load.Config, res *load.Result) Slot {
	s := Slot{
		Arm: of.Arm, Workload: of.Workload, Block: of.Block, Seconds: res.Took.Seconds(),
		Requests: res.Requests, Unexpected: res.Errors.Unexpected, FirstError: res.Errors.First,
		Errors:      res.Errors.Sum() - res.Errors.Unexpected,
		MeanLatency: res.Service.Mean(),
		Connections: connections(cfg) * max(cfg.Streams, 1),
		InFlight:    res.InFlight, Non2xx: res.Non2xx,
		OpenLoop: cfg.Arrival != load.Closed, Late: res.Late, Dropped: res.Dropped,
		Threads: threads(cfg, res.Path), Steal: of.Steal, Others: of.Others, GeneratorCPU: -1,
	}
	s.Sent = s.Requests + s.Errors - res.Errors.Connect + res.Unanswered
	if s.Seconds > 0 {
		s.Rate, s.Rest = float64(res.Service.Count())/s.Seconds, res.Rest.Seconds()/s.Seconds
		if res.CPU > 0 {
			s.GeneratorCPU = res.CPU.Seconds() / s.Seconds / float64(s.Threads)
		}
	}
	return s
}

// Limits are how far things may go. Fields that are zero have the defaults named.
type Limits struct {
	// Failures is the share of requests without a 2xx answer, or with one that is not as
	// expected. Default 0.001. Raise it where the target is meant
	// to fail.
	Failures float64
	// FailuresOn replaces Failures for the workloads named.
	FailuresOn map[string]float64
	// Single is for one target alone: requests that fail are then a finding about it, and
	// void nothing as long as there are others; and a generator that never waited makes
	// its rate a lower bound.
	Single bool
	// Little is how far rate × mean latency and the rest may be from the requests in
	// flight, as a share. Default 0.02.
	Little float64
	// Generator is the share of a core from which its thread counts as never
	// having waited for the target. Default 0.95: a thread that shares its core
	// with a busy target, or waits for one, stays below.
	Generator float64
	// Late is the share of an open loop's sends that may be late. Default 0.01:
	// beyond, the 99th percentile is the generator's, which makes figures doubtful;
	// beyond a half, so is the median, and they are void.
	Late float64
	// Others is the share of CPU time that programs which do not belong to the
	// measurement may have. Default 0.05; beyond, figures are doubtful.
	Others float64
	// Steal is the share of CPU time that the hypervisor may take. Default 0.05.
	// What it takes beyond, up to VoidSteal, makes figures doubtful and not void,
	// as long as it took as much from every arm of a workload, within Steal:
	// then the ratios within blocks hold. Default of VoidSteal: 0.25.
	Steal, VoidSteal float64
}

func (l Limits) filled() Limits {
	for _, f := range []struct {
		limit   *float64
		missing float64
	}{{&l.Failures, 0.001}, {&l.Little, 0.02}, {&l.Generator, 0.95}, {&l.Late, 0.01}, {&l.Others, DefaultOthers}, {&l.Steal, DefaultSteal}, {&l.VoidSteal, 0.25}} {
		if !(*f.limit > 0) {
			*f.limit = f.missing
		}
	}
	return l
}

func (l Limits) failures(workload string) float64 {
	if most, ok := l.FailuresOn[workload]; ok {
		return most
	}
	return l.Failures
}

// maxNamed bounds how many arms, paths or headers a detail names: the rest is
// counted.
const maxNamed = 5

// Check asks the gates that look at slots: errors, Little's law, generator, late
// sends, steal and other programs, in that order. Without slots all are unknown.
func Check(slots []Slot, limits Limits) []record.Gate {
	limits = limits.filled()
	var groups [][]Slot
	place := map[[2]string]int{}
	for _, s := range slots {
		k := [2]string{s.Arm, s.Workload}
		i, ok := place[k]
		if !ok {
			i = len(groups)
			place[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], s)
	}
	gates := make([]record.Gate, 0, 6)
	for _, g := range gauges(limits) {
		judged := g.judge(groups)
		if judged.Status == record.Failed {
			judged = limits.milder(g, judged, groups)
		}
		gates = append(gates, judged)
	}
	return gates
}

// coverage is whether a gauge could look at some slots.
type coverage int

const (
	looked coverage = iota
	blind           // the figure is not there
	idle            // the question does not arise
)

// A gauge is one gate over slots.
type gauge struct {
	name, limit string
	most        func(workload string) float64
	measure     func([]Slot) (float64, coverage) // beyond most is a failure
	detail      func([]Slot) string              // the figures
	blind, idle string                           // what to say when it could not look, or had no reason to
}

// judge measures each group, and names those that fail, or else the one that is
// furthest out.
func (g gauge) judge(groups [][]Slot) record.Gate {
	gate := record.Gate{Name: g.name, Status: record.Passed, Limit: g.limit, Detail: g.idle}
	var failed, unseen []string
	furthest, seen := math.Inf(-1), ""
	for _, slots := range groups {
		v, found := g.measure(slots)
		switch {
		case found == idle:
			continue
		case found == blind || math.IsNaN(v):
			unseen = append(unseen, title(slots))
			continue
		case v > g.most(slots[0].Workload):
			failed = append(failed, g.describe(slots))
		}
		if v > furthest {
			furthest, seen = v, g.describe(slots)
		}
	}
	switch {
	case len(failed) > 0:
		gate.Status, gate.Detail = record.Failed, list(failed, "; ")
	case len(groups) == 0:
		gate.Status, gate.Detail = record.Unknown, "nothing was measured"
	case len(unseen) > 0:
		gate.Status, gate.Detail = record.Unknown, g.blind+": "+list(unseen, "; ")
		if seen != "" {
			gate.Detail += "; furthest out of the others: " + seen
		}
	case seen != "":
		gate.Detail = "furthest out: " + seen
	}
	return gate
}

// describe names a group, its figures, and its slot that is furthest out.
func (g gauge) describe(slots []Slot) string {
	text := title(slots) + ": " + g.detail(slots)
	if len(slots) == 1 {
		return text
	}
	worst, at := math.Inf(-1), -1
	for i := range slots {
		if v, found := g.measure(slots[i : i+1]); found == looked && v > worst {
			worst, at = v, i
		}
	}
	if at < 0 {
		return text
	}
	return fmt.Sprintf("%s (block %d: %s)", text, slots[at].Block, g.detail(slots[at:at+1]))
}

func title(slots []Slot) string {
	if slots[0].Workload == "" {
		return slots[0].Arm
	}
	return slots[0].Arm + " on " + slots[0].Workload
}

// list joins what is to be named, and counts the rest.
func list(items []string, separator string) string {
	if len(items) <= maxNamed {
		return strings.Join(items, separator)
	}
	return fmt.Sprintf("%s%sand %d more", strings.Join(items[:maxNamed], separator), separator, len(items)-maxNamed)
}

// percent writes a share with three figures at most, and never rounds what is
// above a limit down to it: 0.00101 is "0.101 %".
func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }
