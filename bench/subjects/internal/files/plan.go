// Package files is the scenario of bench/run files: static files over HTTP/1.1
// from several servers, small ones under load from wrk and a large one by
// downloads.
//
// All servers run all the time, but only one is under load at any moment. The
// slots of a round are interleaved: what is compared lies next to each other,
// in an order that is drawn anew for each round, so that whatever changes on
// the machine meets all alike.
package files

import (
	"math/rand/v2"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/testsite"
	"millrace/bench/subjects/internal/workload"
)

// Plan is what to measure and for how long.
type Plan struct {
	Quick       bool
	Seed        uint64
	Arms        []arm.Arm
	Workloads   []workload.Workload
	Connections []int
	Rounds      int
	Warm        time.Duration // of load on each arm and workload before anything counts
	Slot        time.Duration // of load in one slot
	Hold        time.Duration // of load with the most connections before memory is read
	Downloads   int           // of the large file in one slot, after each other
	LargeSize   int64
}

const (
	// pause is left after each slot, for the server to close connections and
	// write what it still holds: that is part of what it cost.
	pause = 200 * time.Millisecond
	// overhead is what a slot takes beside load and pause: starting wrk,
	// reading counters. For the time left only.
	overhead = 200 * time.Millisecond
	// largeGuess is what a slot of downloads takes. For the time left only.
	largeGuess = 1500 * time.Millisecond
)

// NewPlan is the plan of bench/run files for the given arms: --full takes about
// twenty minutes, --quick about three.
func NewPlan(arms []arm.Arm, quick bool, seed uint64) Plan {
	p := Plan{
		Quick: quick, Seed: seed, Arms: arms,
		Workloads:   workload.All(),
		Connections: []int{50, 1000},
		Rounds:      5,
		Warm:        time.Second,
		Slot:        3 * time.Second,
		Hold:        60 * time.Second,
		Downloads:   8,
		LargeSize:   testsite.LargeSize,
	}
	if quick {
		p.Rounds, p.Slot, p.Hold, p.Downloads = 2, time.Second, 5*time.Second, 3
	}
	return p
}

// networks are the ways over which the large file is downloaded.
func networks() []string { return []string{"tcp", "unix"} }

// smallSlot is one slot of a round's order.
type smallSlot struct {
	arm         arm.Arm
	workload    workload.Workload
	connections int
}

// smallOrder draws the order of one round: cells are shuffled, and the arms
// within each, so that all arms of a cell follow each other.
func (p Plan) smallOrder(rnd *rand.Rand) []smallSlot {
	var cells []smallSlot
	for _, w := range p.Workloads {
		for _, n := range p.Connections {
			cells = append(cells, smallSlot{workload: w, connections: n})
		}
	}
	shuffle(rnd, cells)
	order := make([]smallSlot, 0, len(cells)*len(p.Arms))
	for _, cell := range cells {
		arms := append([]arm.Arm(nil), p.Arms...)
		shuffle(rnd, arms)
		for _, a := range arms {
			order = append(order, smallSlot{a, cell.workload, cell.connections})
		}
	}
	return order
}

// largeSlot is one slot of downloads.
type largeSlot struct {
	arm     arm.Arm
	network string
}

// largeOrder draws the order of one round of downloads.
func (p Plan) largeOrder(rnd *rand.Rand) []largeSlot {
	ways := networks()
	shuffle(rnd, ways)
	var order []largeSlot
	for _, network := range ways {
		arms := p.largeArms()
		shuffle(rnd, arms)
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
	small := p.Rounds * len(p.Arms) * len(p.Workloads) * len(p.Connections)
	large := p.Rounds * len(p.largeArms()) * len(networks())
	hold := len(p.holdArms())
	total = time.Duration(small)*p.slotTime() + time.Duration(large)*largeGuess +
		time.Duration(hold)*p.holdTime() + time.Duration(len(p.Arms))*p.warmTime()
	return small + large + hold + len(p.Arms), total
}

func (p Plan) slotTime() time.Duration { return p.Slot + pause + overhead }
func (p Plan) holdTime() time.Duration { return p.Hold + pause + overhead }
func (p Plan) warmTime() time.Duration { return time.Duration(len(p.Workloads)) * p.Warm }

// cell describes s for the raw data.
func (s smallSlot) cell() record.Cell {
	return record.Cell{
		Workload: s.workload.Name, Title: s.workload.Title,
		Browser: s.workload.Browser, Connections: s.connections,
	}
}

func shuffle[T any](rnd *rand.Rand, s []T) {
	rnd.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}
