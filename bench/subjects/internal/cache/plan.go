// Package cache is the scenario of bench/run cache: caches in front of one API.
// It has three parts: hits under load from wrk, cases in which a cache decides
// how long clients wait and how often the API is asked, and what a cache holds
// in memory while it is asked for ever other URLs.
package cache

import (
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/workload"
)

// Plan is what to measure and for how long.
type Plan struct {
	stage.Plan               // the hits
	Cases      int           // runs of each case
	Tagged     uint64        // answers with one tag
	Purges     int           // of that tag
	URLs       uint64        // that are asked for while memory is watched
	Hold       time.Duration // in which others are asked for, after these
	Peers      bool          // watch the memory of peers, too
}

const (
	// memory is the budget of each cache, in MiB: nothing that the cases need
	// is evicted.
	memory = 512
	// floodMemory is the budget while memory is watched: what URLs of the
	// least plan need is several times that.
	floodMemory = 256
	// floodSize is the size of each answer then, in bytes.
	floodSize = 1 << 10

	// What the steps take beside the slots, from runs on two cores. For the
	// time left only.
	fillGuess = 130 * time.Microsecond // for each answer that is new to a cache
	caseGuess = 9 * time.Second        // for one run of all cases with one cache
)

// NewPlan is the plan of bench/run cache for the given arms: it takes about
// eleven minutes, the quick one less than three, and the full one half an hour.
func NewPlan(arms []arm.Arm, length stage.Length, seed uint64) Plan {
	p := Plan{
		Plan: stage.Plan{
			Length: length, Seed: seed, Arms: arms,
			Workloads:   workload.Cache(),
			Connections: []int{50, 1000},
			Rounds:      5,
			Warm:        time.Second,
			Slot:        3 * time.Second,
		},
		Cases:  5,
		Tagged: 100_000,
		Purges: 20,
		URLs:   1_000_000,
		Hold:   2 * time.Minute,
	}
	switch length {
	case stage.Quick:
		p.Rounds, p.Slot = 2, time.Second
		p.Cases, p.Tagged, p.Purges = 1, 20_000, 5
		p.URLs, p.Hold = 200_000, 10*time.Second
	case stage.Default:
	case stage.Full:
		p.Cases, p.Hold, p.Peers = 9, 10*time.Minute, true
	}
	return p
}

// purgers are the arms that can forget a tag.
func (p Plan) purgers() []arm.Arm {
	var arms []arm.Arm
	for _, a := range p.Arms {
		if a.Purge != nil {
			arms = append(arms, a)
		}
	}
	return arms
}

// flooded are the arms whose memory is watched. nginx keeps answers in files:
// its own memory says nothing about them.
func (p Plan) flooded() []arm.Arm {
	var arms []arm.Arm
	for _, a := range p.Arms {
		if a.Ours() || p.Peers && a.Program != arm.Nginx {
			arms = append(arms, a)
		}
	}
	return arms
}

// steps are all steps, and the time that they should take together.
func (p Plan) steps() (n int, total time.Duration) {
	n, total = p.Steps()
	cases, purgers, flooded := p.Cases*len(p.Arms), len(p.purgers()), len(p.flooded())
	return n + cases + purgers + flooded, total + time.Duration(cases)*caseGuess +
		time.Duration(purgers)*p.fillTime() + time.Duration(flooded)*p.floodTime()
}

func (p Plan) fillTime() time.Duration { return time.Duration(p.Tagged) * fillGuess }

func (p Plan) floodTime() time.Duration { return time.Duration(p.URLs)*fillGuess + p.Hold }
