// Package files is the scenario of bench/run files: static files over HTTP/1.1
// from several servers, small ones under load from wrk and a large one by
// downloads.
package files

import (
	"math/rand/v2"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/testsite"
	"millrace/bench/subjects/internal/workload"
)

// Plan is what to measure and for how long.
type Plan struct {
	stage.Plan               // the small files
	Hold       time.Duration // of load with the most connections before memory is read
	Downloads  int           // of the large file in one slot, after each other
	LargeSize  int64
}

// largeGuess is what a slot of downloads takes. For the time left only.
const largeGuess = 1500 * time.Millisecond

// NewPlan is the plan of bench/run files for the given arms: it takes about
// twenty minutes, the quick one about three.
func NewPlan(arms []arm.Arm, length stage.Length, seed uint64) Plan {
	p := Plan{
		Plan: stage.Plan{
			Length: length, Seed: seed, Arms: arms,
			Workloads:   workload.All(),
			Connections: []int{50, 1000},
			Rounds:      5,
			Warm:        time.Second,
			Slot:        3 * time.Second,
		},
		Hold:      60 * time.Second,
		Downloads: 8,
		LargeSize: testsite.LargeSize,
	}
	if length == stage.Quick {
		p.Rounds, p.Slot, p.Hold, p.Downloads = 2, time.Second, 5*time.Second, 3
	}
	return p
}

// networks are the ways over which the large file is downloaded.
func networks() []string { return []string{"tcp", "unix"} }

// largeSlot is one slot of downloads.
type largeSlot struct {
	arm     arm.Arm
	network string
}

// largeOrder draws the order of one round of downloads.
func (p Plan) largeOrder(rnd *rand.Rand) []largeSlot {
	ways := networks()
	stage.Shuffle(rnd, ways)
	var order []largeSlot
	for _, network := range ways {
		arms := p.largeArms()
		stage.Shuffle(rnd, arms)
		for _, a := range arms {
			order = append(order, largeSlot{a, network})
		}
	}
	return order
}

// largeArms are those that the large file is downloaded from: a log line for
// 256 MB costs nothing, so arms with a log would only repeat the others.
func (p Plan) largeArms() []arm.Arm {
	var arms []arm.Arm
	for _, a := range p.Arms {
		if !a.Logs {
			arms = append(arms, a)
		}
	}
	return arms
}

// holdArms are those whose memory is read under load.
func (p Plan) holdArms() []arm.Arm {
	var arms []arm.Arm
	for _, a := range p.Arms {
		if !a.Variant {
			arms = append(arms, a)
		}
	}
	return arms
}

// steps are all slots, and the time that they should take together.
func (p Plan) steps() (n int, total time.Duration) {
	n, total = p.Steps()
	large := p.Rounds * len(p.largeArms()) * len(networks())
	hold := len(p.holdArms())
	return n + large + hold, total + time.Duration(large)*largeGuess + time.Duration(hold)*p.holdTime()
}

func (p Plan) holdTime() time.Duration { return p.Hold + stage.Pause + stage.Overhead }
