package pgo

import (
	"cmp"
	"math"
	"slices"
)

const (
	// minFrame is the smallest share that has a box in a flame graph: at 1200
	// pixels it is about one wide.
	minFrame = 0.001
	// maxDepth is how deep a flame graph goes. Recursion may be deeper; what is
	// above belongs to its last box.
	maxDepth = 200
	// noiseErrors is how many standard errors a change must have to count as
	// one. With some hundred functions compared, one or two would appear by
	// chance every time.
	noiseErrors = 3
)

// A Difference is what changed from one profile to another. All shares are of
// their own profile's CPU time, so that two recordings of different length or
// load compare (as `go tool pprof -normalize -diff_base`).
type Difference struct {
	Base, Other Side
	Changes     []Change // largest change of a function's own time first
	Moved       float64  // share of the CPU time that is in another function now, 0…1, noise included
	Root        *Frame
}

// A Side is one of the two profiles.
type Side struct {
	Name    string            `json:"name"`
	CPU     float64           `json:"cpu_seconds"`
	Samples int64             `json:"samples"`
	Shares  map[Class]float64 `json:"shares"`
}

// A Change is one function in both profiles.
type Change struct {
	Func      string  `json:"func"`
	Base      float64 `json:"base"`       // share of time in the function itself
	Other     float64 `json:"other"`      //
	BaseBelow float64 `json:"base_below"` // with all that it called
	Below     float64 `json:"other_below"`
	// Noise means that the change of its own time could come from sampling
	// alone: less than three standard errors.
	Noise bool `json:"noise,omitempty"`
}

// Delta is the change of the function's own time, in shares of all time.
func (c Change) Delta() float64 { return c.Other - c.Base }

// A Frame is one box of a difference flame graph: a function below the callers
// that lead to it.
type Frame struct {
	Name     string
	Value    float64 // share of the other profile's time
	Base     float64 // share of the base's time
	Children []*Frame
}

// Delta is how much more of all time is spent in and below the box.
func (f *Frame) Delta() float64 { return f.Value - f.Base }

// Diff compares two profiles.
func Diff(base, other *Profile) *Difference {
	d := &Difference{Root: &Frame{Name: "all"}, Base: sideOf(base), Other: sideOf(other)}
	byName := map[string]*Change{}
	index := frameIndex{}
	d.collect(base, byName, index, true)
	d.collect(other, byName, index, false)
	for _, c := range byName {
		d.Moved += math.Abs(c.Delta()) / 2
		se := math.Sqrt(variance(c.Base, d.Base.Samples) + variance(c.Other, d.Other.Samples))
		c.Noise = math.Abs(c.Delta()) < noiseErrors*se
		d.Changes = append(d.Changes, *c)
	}
	slices.SortStableFunc(d.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(math.Abs(b.Delta()), math.Abs(a.Delta())), cmp.Compare(a.Func, b.Func))
	})
	d.Root.prune()
	return d
}

// variance of a share by the number of samples. A function that no sample hit
// may still have a little: it counts as one in n.
func variance(share float64, n int64) float64 {
	m := float64(max(1, n))
	share = max(share, 1/m)
	return share * (1 - min(share, 1)) / m
}

func sideOf(p *Profile) Side {
	s := Side{Name: p.Name, CPU: p.CPU().Seconds(), Samples: p.Samples(), Shares: map[Class]float64{}}
	total := float64(p.total())
	for _, sample := range p.p.Sample {
		s.Shares[classify(frames(sample))] += float64(sample.Value[p.cpu]) / total
	}
	return s
}

// frameIndex finds the box of a function below a box.
type frameIndex map[frameKey]*Frame

type frameKey struct {
	parent *Frame
	name   string
}

func (d *Difference) collect(p *Profile, byName map[string]*Change, index frameIndex, base bool) {
	total := float64(p.total())
	for _, s := range p.p.Sample {
		share := float64(s.Value[p.cpu]) / total
		stack := frames(s)
		seen := map[string]bool{}
		for i, f := range stack {
			c := byName[f.name]
			if c == nil {
				c = &Change{Func: f.name}
				byName[f.name] = c
			}
			c.add(share, i == 0, seen[f.name], base)
			seen[f.name] = true
		}
		d.Root.add(stack, share, index, base)
	}
}

func (c *Change) add(share float64, leaf, again, base bool) {
	own, below := &c.Other, &c.Below
	if base {
		own, below = &c.Base, &c.BaseBelow
	}
	if leaf {
		*own += share
	}
	if !again { // recursion counts once
		*below += share
	}
}

// add puts a stack, innermost first, below the root.
func (f *Frame) add(stack []frame, share float64, index frameIndex, base bool) {
	at := f
	at.count(share, base)
	for depth := 0; depth < min(len(stack), maxDepth); depth++ {
		name := stack[len(stack)-1-depth].name
		key := frameKey{at, name}
		next := index[key]
		if next == nil {
			next = &Frame{Name: name}
			index[key] = next
			at.Children = append(at.Children, next)
		}
		next.count(share, base)
		at = next
	}
}

func (f *Frame) count(share float64, base bool) {
	if base {
		f.Base += share
	} else {
		f.Value += share
	}
}

// prune drops boxes too small to be seen and puts the rest in the order of
// their names, so that the same function is found at the same place in two
// graphs. Its depth is at most maxDepth.
func (f *Frame) prune() {
	f.Children = slices.DeleteFunc(f.Children, func(c *Frame) bool { return max(c.Value, c.Base) < minFrame })
	slices.SortFunc(f.Children, func(a, b *Frame) int { return cmp.Compare(a.Name, b.Name) })
	for _, c := range f.Children {
		c.prune()
	}
}
