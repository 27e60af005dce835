// Package pictures is the scenario of bench/run images: photographs converted
// when they are asked for, what that costs beside vips and cwebp, what it holds,
// and what it does to everybody else.
package pictures

import (
	"slices"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/workload"
)

// The parts.
const (
	ConvertPart = "convert"
	MemoryPart  = "memory"
	CachedPart  = "cached"
	CrowdPart   = "crowd"
	RefusedPart = "refused"
)

// Parts are all, in the order in which they run.
func Parts() []string {
	return []string{ConvertPart, MemoryPart, CachedPart, CrowdPart, RefusedPart}
}

// Plan is what to measure and for how long.
type Plan struct {
	stage.Plan // Rounds and Slot are those of the variants that are ready
	Parts      []string

	photos      []photo
	FolderRound int // of the folder

	Row  int // conversions in a row
	Crop int // pictures, converted again each time that they have changed

	Clients, Crowd int           // clients, pictures
	Each           int           // requests of a client
	Budget         int           // MiB for conversions
	Idle           time.Duration // of the requests for a small file before the crowd comes

	Refusals     int // rounds
	RefusedCount int // requests of one
}

const (
	// settle is how long a server rests after an answer before its CPU clock is
	// read: what it does for the answer may end after it.
	settle = 60 * time.Millisecond
	// rest is how long after a folder its memory is read: workers without work
	// end after 3 s.
	rest = 5 * time.Second
	// smallRate is how often a small file is asked for while a crowd is there.
	smallRate = 200
	// smallConnections share these requests: one that waits holds up no other.
	smallConnections = 4
	// rowClients ask for the conversions in a row.
	rowClients = 2
	// visit is how long a client may wait for a conversion: the most that
	// millrace's images.wait takes.
	visit = 30 * time.Second

	// The time that parts may take; rounds that would not fit are left out.
	convertBudget = 4 * time.Minute
	// What steps take, from runs on two cores. For the time left only.
	folderGuess = 6 * time.Second
	rowGuess    = 45 * time.Second
	crowdGuess  = 25 * time.Second
	scoreGuess  = 3 * time.Minute
	refuseGuess = 2 * time.Second
)

// NewPlan is the plan of bench/run images for the given arms and parts (all if
// there is none): it takes about twelve minutes, the quick one two or three.
func NewPlan(arms []arm.Arm, parts []string, length stage.Length, seed uint64) Plan {
	p := Plan{
		Plan: stage.Plan{
			Length: length, Seed: seed, Arms: arms, Workloads: workload.Pictures(), Connections: []int{50},
			Rounds: 5, Warm: time.Second, Slot: 3 * time.Second,
		},
		Parts: Parts(), photos: photos(), FolderRound: 5,
		Row: 1000, Crop: 250,
		Clients: 64, Crowd: 50, Each: 10, Budget: 512, Idle: 10 * time.Second,
		Refusals: 3, RefusedCount: 20_000,
	}
	if length == stage.Quick {
		p.Rounds, p.Slot = 2, time.Second
		p.photos = slices.DeleteFunc(p.photos, func(f photo) bool { return !f.look })
		p.FolderRound = 2
		p.Row, p.Crop = 160, 40
		p.Clients, p.Crowd, p.Each, p.Idle = 16, 12, 5, 2*time.Second
		p.Refusals, p.RefusedCount = 1, 2000
	}
	if len(parts) > 0 {
		p.Parts = slices.DeleteFunc(p.Parts, func(name string) bool { return !slices.Contains(parts, name) })
	}
	return p
}

// has tells whether a part is asked for.
func (p Plan) has(part string) bool { return slices.Contains(p.Parts, part) }

// engines are the arms that convert.
func (p Plan) engines() []arm.Arm {
	return slices.DeleteFunc(slices.Clone(p.Arms), func(a arm.Arm) bool { return !a.Ours() })
}

// still are the arms that serve a variant that is ready: there the engine does
// not matter.
func (p Plan) still() []arm.Arm {
	return slices.DeleteFunc(slices.Clone(p.Arms), func(a arm.Arm) bool { return a.Variant })
}

// steps are all steps, and the time that they should take together.
func (p Plan) steps() (n int, total time.Duration) {
	add := func(count int, each time.Duration) {
		n += count
		total += time.Duration(count) * each
	}
	if p.has(ConvertPart) {
		add(p.FolderRound*(len(p.engines())+len(commands())), folderGuess)
		add(1, scoreGuess)
	}
	if p.has(MemoryPart) {
		add(len(p.engines()), 2*folderGuess+rest)
		add(len(p.engines()), rowGuess)
	}
	if p.has(CachedPart) {
		served := p.Plan
		served.Arms = p.still()
		slots, time := served.Steps()
		n, total = n+slots, total+time
	}
	if p.has(CrowdPart) {
		add(len(p.engines()), crowdGuess+p.Idle)
	}
	if p.has(RefusedPart) {
		add(p.Refusals*len(refusals()), refuseGuess)
	}
	return n, total
}
