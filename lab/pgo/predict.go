package pgo

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// What representative programs gained from profile-guided optimisation, as
// shares of their CPU time: "around 2–14 %" (go.dev/doc/pgo, on Go 1.22). They
// are figures of experience about whole programs, so a prediction made from
// them is an orientation, not a bound that the compiler must keep.
const (
	GainLeast = 0.02
	GainMost  = 0.14
)

// hotShare is which part of all calls' weight the compiler takes for hot: the
// heaviest that make up 99 % (inlineCDFHotCallSiteThresholdPercent in
// cmd/compile/internal/inline).
const hotShare = 0.99

// roughSamples is where a profile becomes too small to say percentages: at
// 1,000 samples a share of 10 % is known to ±1.9 %.
const roughSamples = 1000

// maxCalls is how many hot calls a prediction names. More than a screen is not
// read.
const maxCalls = 10

// A Prediction says what a profile can bring before anybody builds with it.
type Prediction struct {
	Samples int64             `json:"samples"`
	CPU     float64           `json:"cpu_seconds"`
	Shares  map[Class]float64 `json:"shares"` // of the CPU time; they sum to 1
	// Error is half the 95 % interval of the share of Go code, by the number of
	// samples alone.
	Error float64 `json:"error"`
	// Least and Most are shares of all CPU time that may be saved: Shares[Go],
	// Error added, times GainLeast and GainMost.
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	// Hot is the share of all CPU time in Go functions that a hot call leads
	// straight into and that are not inlined there yet: the calls that the
	// compiler looks at. It is never more than Shares[Go].
	Hot   float64 `json:"hot"`
	Calls []Call  `json:"calls"` // the hottest of them
	Rough bool    `json:"rough"` // too few samples
}

// A Call is one place where a function calls another.
type Call struct {
	Caller string  `json:"caller"`
	Callee string  `json:"callee"`
	Line   int64   `json:"line"`  // in the caller's file
	Share  float64 `json:"share"` // of all CPU time in the callee itself
}

// Predict says how much of a server's CPU time is in code that profile-guided
// optimisation can touch at all. Samples are sorted by the innermost function:
// time in the kernel, in C, in assembly, in the garbage collector and in the
// runtime is not counted. (The compiler gives the profile to the runtime's
// packages as well; they are written around what it inlines, and little is
// gained there.)
//
// It can only be wrong in one direction for a program that spends most of its
// time in the kernel: there the rest is too small for any compiler to matter.
func Predict(p *Profile) Prediction {
	total := float64(p.total())
	out := Prediction{Samples: p.Samples(), CPU: total / 1e9, Shares: map[Class]float64{}}
	for _, c := range Classes() {
		out.Shares[c] = 0
	}
	calls := newCallTable()
	for _, s := range p.p.Sample {
		stack := frames(s)
		share := float64(s.Value[p.cpu]) / total
		class := classify(stack)
		out.Shares[class] += share
		calls.add(stack, share, class == Go)
	}
	out.Calls, out.Hot = calls.hot()
	n := float64(max(1, out.Samples))
	reach := out.Shares[Go]
	out.Error = 1.96 * math.Sqrt(reach*(1-reach)/n)
	out.Rough = out.Samples < roughSamples
	high := min(1, reach+out.Error)
	out.Least, out.Most = GainLeast*reach, GainMost*high
	return out
}

// Sentence is the prediction in one line.
func (p Prediction) Sentence() string {
	return fmt.Sprintf("at best %.1f %% less CPU time: %.1f %% of the samples are in Go code that the compiler can optimise by a profile, "+
		"and programs gained %.0f to %.0f %% of theirs", 100*p.Most, 100*p.Shares[Go], 100*GainLeast, 100*GainMost)
}

// Basis says what the figures stand on.
func (p Prediction) Basis() string {
	basis := fmt.Sprintf("basis: %d samples (Go code ±%.1f %%); 2–14 %% is what the Go project saw in representative programs "+
		"(go.dev/doc/pgo), not a law; only `millrace-lab pgo prove` measures", p.Samples, 100*p.Error)
	if p.Rough {
		basis += fmt.Sprintf(". Fewer than %d samples: record longer, under load", roughSamples)
	}
	return basis
}

// callKey is a call as the compiler knows it from a profile.
type callKey struct {
	caller, callee string
	line           int64
}

type callWeight struct {
	all     float64 // how the compiler weighs it
	inGo    float64 // of this, time in Go code of the callee
	inlined bool    // the caller holds the callee's code already
	goish   bool    // the callee is compiled Go code outside the runtime
}

// callTable collects calls. It is bounded by the places in the profile, which
// is bounded by maxData.
type callTable struct{ calls map[callKey]*callWeight }

func newCallTable() callTable { return callTable{map[callKey]*callWeight{}} }

// readPlaces is how many places of a stack the compiler reads, from the
// innermost: the last call, and what is inlined on both of its sides. Calls
// further up happen less often than their samples suggest (internal/profile's
// NewGraph).
const readPlaces = 2

// add counts the calls of a stack that the compiler reads.
func (t callTable) add(stack []frame, share float64, inGo bool) {
	places := 1
	for i := 0; i+1 < len(stack); i++ {
		if !stack[i].inlined {
			if places++; places > readPlaces {
				return
			}
		}
		key := callKey{stack[i+1].name, stack[i].name, stack[i+1].line}
		w := t.calls[key]
		if w == nil {
			w = &callWeight{goish: classify(stack[i:i+1]) == Go, inlined: stack[i].inlined}
			t.calls[key] = w
		}
		w.all += share
		if inGo {
			w.inGo += share
		}
	}
}

// hot is the hottest calls into Go code, and the share of time directly inside
// the callees of all hot ones.
func (t callTable) hot() ([]Call, float64) {
	var all []Call
	var sum float64
	for k, w := range t.calls {
		all = append(all, Call{k.caller, k.callee, k.line, w.all})
		sum += w.all
	}
	slices.SortStableFunc(all, func(a, b Call) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Callee, b.Callee), cmp.Compare(a.Line, b.Line))
	})
	var top []Call
	var cum, inside float64
	for _, c := range all {
		if cum > hotShare*sum {
			break
		}
		cum += c.Share
		w := t.calls[callKey{c.Caller, c.Callee, c.Line}]
		if !w.goish || w.inlined {
			continue
		}
		inside += w.inGo
		if len(top) < maxCalls && w.inGo > 0 {
			top = append(top, c)
		}
	}
	return top, inside
}
