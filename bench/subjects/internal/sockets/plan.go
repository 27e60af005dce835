// Package sockets is the scenario of bench/run ws: WebSocket servers under
// echoes, publishing to many, holding quiet connections, and holding as many as
// they may. The client is a process of its own: see package wsload.
package sockets

import (
	"fmt"
	"slices"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/stage"
)

// The parts.
const (
	EchoPart      = "echo"
	BroadcastPart = "broadcast"
	IdlePart      = "idle"
	RampPart      = "ramp"
)

// Parts are all, in the order in which they run.
func Parts() []string { return []string{EchoPart, BroadcastPart, IdlePart, RampPart} }

// Plan is what to measure and for how long.
type Plan struct {
	stage.Plan // Rounds and Slot are those of the echoes
	Parts      []string

	Connections []int // of the echoes
	Sizes       []int // bytes of their messages

	Casts      []Cast
	CastRounds int

	Idle, Proxied int           // connections
	Rest          time.Duration // of them, before memory is read

	Ramp    int // connections to one process
	Many    int // and to several
	Servers int // so many

	Short string // why there are fewer connections than there should be; or empty
}

// Cast is one number of subscribers, and how often something is published to
// them.
type Cast struct {
	Subscribers int
	Every       []time.Duration
	Length      time.Duration // for each
}

const (
	// spare are the descriptors that a process needs beside its connections.
	spare = 400
	// data is how many bytes a publication has.
	data = 100
	// warmUp is how many connections are opened and closed again before memory
	// is read.
	warmUp = 500

	// The time that the parts may take; rounds that would not fit are left out.
	echoBudget      = 5*time.Minute + 30*time.Second
	broadcastBudget = 5 * time.Minute

	// What the steps take beside their slots, from runs on two cores. For the
	// time left only.
	openGuess = 200 * time.Microsecond // for one connection, closing included
	tlsGuess  = 1200 * time.Microsecond
	slotGuess = 250 * time.Millisecond
)

// NewPlan is the plan of bench/run ws for the given arms and parts (all if there
// is none), where a process may hold so many descriptors: it takes about
// thirteen minutes, the quick one less than two.
func NewPlan(arms []arm.Arm, parts []string, length stage.Length, seed uint64, descriptors int) Plan {
	p := Plan{
		Plan:        stage.Plan{Length: length, Seed: seed, Arms: arms, Rounds: 6, Warm: 500 * time.Millisecond, Slot: time.Second},
		Parts:       Parts(),
		Connections: []int{50, 200, 1000},
		Sizes:       []int{16, 20, 1024},
		Casts: []Cast{
			{1000, []time.Duration{20 * time.Millisecond}, 2 * time.Second},
			{10_000, []time.Duration{500 * time.Millisecond, 200 * time.Millisecond}, 3 * time.Second},
		},
		CastRounds: 6,
		Idle:       18_000, Proxied: 9000, Rest: 20 * time.Second,
		Ramp: 19_000, Many: 100_000, Servers: 6,
	}
	if length == stage.Quick {
		p.Rounds, p.Slot, p.Warm = 2, 300*time.Millisecond, 200*time.Millisecond
		p.CastRounds = 1
		p.Casts = []Cast{
			{1000, []time.Duration{50 * time.Millisecond}, time.Second},
			{10_000, []time.Duration{500 * time.Millisecond}, 1500 * time.Millisecond},
		}
		p.Idle, p.Proxied, p.Rest = 5000, 2500, 5*time.Second
		p.Ramp, p.Many = 5000, 12_000
	}
	if len(parts) > 0 {
		p.Parts = slices.DeleteFunc(p.Parts, func(name string) bool { return !slices.Contains(parts, name) })
	}
	most := max(1, descriptors-spare)
	if most < p.Ramp || most < 2*p.Proxied {
		p.Short = fmt.Sprintf("A process may hold only %d descriptors here, so there were fewer connections than there should be (raise that with ulimit -Hn as root)", descriptors)
	}
	p.Idle, p.Ramp, p.Many = min(p.Idle, most), min(p.Ramp, most), min(p.Many, most*p.Servers)
	p.Proxied = min(p.Proxied, max(1, most/2))
	return p
}

// has tells whether a part is asked for.
func (p Plan) has(part string) bool { return slices.Contains(p.Parts, part) }

// of are the arms that have a mode.
func (p Plan) of(m arm.Mode) []arm.Arm {
	return slices.DeleteFunc(slices.Clone(p.Arms), func(a arm.Arm) bool { return !a.Has(m) })
}

// rests are all servers whose memory is read.
func (p Plan) rests() []rest {
	var list []rest
	for _, m := range []arm.Mode{arm.Echo, arm.Channels, arm.TLS, arm.Proxy} {
		for _, a := range p.of(m) {
			if m == arm.Channels && !a.Ours() {
				continue // it has no subscriptions to pay for: it is as its echo
			}
			n := p.Idle
			if m == arm.Proxy {
				n = p.Proxied
			}
			list = append(list, rest{a, m, n})
		}
	}
	return list
}

// climbs are all ramps.
func (p Plan) climbs() []climb {
	var list []climb
	for _, a := range p.of(arm.Echo) {
		list = append(list, climb{a, 1, p.Ramp})
	}
	for _, a := range p.of(arm.Echo) {
		if a.Ours() || a.Program == arm.GWS { // others would take the memory of small machines
			list = append(list, climb{a, p.Servers, p.Many})
		}
	}
	return list
}

func (p Plan) echoTime() time.Duration { return p.Slot + slotGuess }

func (p Plan) castTime(c Cast) time.Duration {
	return time.Duration(len(c.Every))*(c.Length+slotGuess) + time.Duration(c.Subscribers)*openGuess + slotGuess
}

func (p Plan) restTime(r rest) time.Duration {
	guess := openGuess
	if r.mode == arm.TLS {
		guess = tlsGuess
	}
	return time.Duration(r.connections)*guess + p.Rest/restingAtOnce
}

func (w climb) time() time.Duration { return time.Duration(w.connections)*2*openGuess + slotGuess }

// steps are all steps, and the time that they should take together.
func (p Plan) steps() (n int, total time.Duration) {
	if p.has(EchoPart) {
		arms := len(p.of(arm.Echo))
		slots := p.Rounds * arms * len(p.Connections) * len(p.Sizes)
		n += slots
		total += time.Duration(slots) * p.echoTime()
	}
	if p.has(BroadcastPart) {
		for _, c := range p.Casts {
			slots := p.CastRounds * len(p.of(arm.Channels))
			n += slots
			total += time.Duration(slots) * p.castTime(c)
		}
	}
	if p.has(IdlePart) {
		for _, r := range p.rests() {
			n++
			total += p.restTime(r)
		}
	}
	if p.has(RampPart) {
		for _, c := range p.climbs() {
			n++
			total += c.time()
		}
	}
	return n, total
}
