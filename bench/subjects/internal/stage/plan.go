package stage

import (
	"math/rand/v2"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/workload"
)

// Length is how much time a run may take.
type Length int

// The lengths: a look, what the results are made from, and longer than most
// have patience for.
const (
	Quick Length = iota
	Default
	Full
)

// Plan is the part under wrk of what to measure: every workload with every
// number of connections on every arm, once a round.
type Plan struct {
	Length      Length
	Seed        uint64
	Arms        []arm.Arm
	Workloads   []workload.Workload
	Connections []int
	Rounds      int
	Warm        time.Duration // of load on each arm and workload before anything counts
	Slot        time.Duration // of load in one slot
}

const (
	// Pause is left after each slot, for the server to close connections and
	// write what it still holds: that is part of what it cost.
	Pause = 200 * time.Millisecond
	// Overhead is what a slot takes beside load and pause: starting wrk,
	// reading counters. For the time left only.
	Overhead = 200 * time.Millisecond
)

// Steps are the slots and warming up, and the time that they should take
// together.
func (p Plan) Steps() (n int, total time.Duration) {
	slots := p.Rounds * len(p.Arms) * len(p.Workloads) * len(p.Connections)
	return slots + len(p.Arms), time.Duration(slots)*p.SlotTime() + time.Duration(len(p.Arms))*p.WarmTime()
}

// SlotTime is what a slot should take.
func (p Plan) SlotTime() time.Duration { return p.Slot + Pause + Overhead }

// WarmTime is what warming up an arm should take.
func (p Plan) WarmTime() time.Duration { return time.Duration(len(p.Workloads)) * p.Warm }

// slot is one slot of a round's order.
type slot struct {
	arm         arm.Arm
	workload    workload.Workload
	connections int
}

// order draws the order of one round: cells are shuffled, and the arms within
// each, so that all arms of a cell follow each other.
func (p Plan) order(random *rand.Rand) []slot {
	var cells []slot
	for _, w := range p.Workloads {
		for _, n := range p.Connections {
			cells = append(cells, slot{workload: w, connections: n})
		}
	}
	Shuffle(random, cells)
	order := make([]slot, 0, len(cells)*len(p.Arms))
	for _, cell := range cells {
		arms := append([]arm.Arm(nil), p.Arms...)
		Shuffle(random, arms)
		for _, a := range arms {
			order = append(order, slot{a, cell.workload, cell.connections})
		}
	}
	return order
}

// cell describes s for the raw data.
func (s slot) cell() record.Cell {
	return record.Cell{
		Workload: s.workload.Name, Title: s.workload.Title,
		Browser: s.workload.Browser, Connections: s.connections,
	}
}

// Shuffle puts s into an order drawn from random.
func Shuffle[T any](random *rand.Rand, s []T) {
	random.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}
