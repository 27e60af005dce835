package stats

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// blocks makes pairs, each block with new processes.
func blocks(logRatios ...float64) []Pair {
	pairs := make([]Pair, len(logRatios))
	for i, x := range logRatios {
		pairs[i] = Pair{Restart: i, Block: i, LogRatio: x}
	}
	return pairs
}

// around makes n log-ratios around a centre, evenly spread.
func around(n int, centre, spread float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = centre + spread*(float64(i)/float64(n-1)-0.5)
	}
	return out
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name  string
		pairs []Pair
		rule  Rule
		want  Outcome
	}{
		{"less", blocks(around(12, -0.2, 0.1)...), Rule{}, Below},
		{"more", blocks(around(12, 0.2, 0.1)...), Rule{}, Above},
		{"the same", blocks(around(12, 0, 0.01)...), Rule{}, Equal},
		{"the very same", blocks(make([]float64, 12)...), Rule{}, Equal},
		{"significant, but within delta", blocks(around(12, 0.005, 0.004)...), Rule{}, Equal},
		{"within a delta that was asked for", blocks(around(12, 0.05, 0.02)...), Rule{Delta: 0.1}, Equal},
		{"wide", blocks(around(12, 0, 0.2)...), Rule{}, Undecided},
		{"significant, around the edge of delta", blocks(around(12, 0.009, 0.012)...), Rule{}, Undecided},
		{"the same below", blocks(around(12, -0.009, 0.012)...), Rule{}, Undecided},
		{"significant, but not for a wider interval", blocks(around(12, 0.06, 0.11)...), Rule{Level: 0.999999}, Undecided},
		{"significant, for the usual interval", blocks(around(12, 0.06, 0.11)...), Rule{}, Above},
		{"too few for p", blocks(around(8, 0.2, 0.1)...), Rule{Looks: 3}, Undecided},
		{"the same few with more alpha", blocks(around(8, 0.2, 0.1)...), Rule{Alpha: 0.05, Looks: 3}, Above},
		{"too few for equal", blocks(around(5, 0, 0.001)...), Rule{}, Undecided},
		{"one block", blocks(0.5), Rule{}, Undecided},
		{"nothing", nil, Rule{}, Undecided},
	} {
		d := Decide(map[string][]Pair{"m": c.pairs}, c.rule)["m"]
		if d.Outcome != c.want {
			t.Errorf("%s: %v, want %v (%+v)", c.name, d.Outcome, c.want, d)
		}
	}
}

func TestWithoutDataNothingIsSaid(t *testing.T) {
	if got := Decide(nil, Rule{}); got == nil || len(got) != 0 {
		t.Errorf("an empty family gives %v", got)
	}
	got := Decide(map[string][]Pair{"none": nil, "one": blocks(math.Log(2))}, Rule{})
	want := map[string]Decision{
		"none": {Estimate: Estimate{P: 1}, Adjusted: 1},
		"one":  {Estimate: Estimate{Ratio: 2, P: 1, Blocks: 1, Restarts: 1, Units: 1}, Adjusted: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPairsThatAreNoFiguresAreDroppedAndCounted(t *testing.T) {
	good := blocks(around(12, 0.2, 0.1)...)
	poisoned := slices.Clone(good)
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -701} {
		poisoned = append(poisoned, Pair{Restart: 99, Block: 99, LogRatio: x})
	}
	want := Decide(map[string][]Pair{"m": good}, Rule{})["m"]
	got := Decide(map[string][]Pair{"m": poisoned}, Rule{})["m"]
	want.Dropped = 5
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOrderOfPairsChangesNothing(t *testing.T) {
	var pairs []Pair
	for i, x := range around(24, 0.02, 0.1) {
		pairs = append(pairs, Pair{Restart: i * 7 % 8, Block: i, LogRatio: x})
	}
	want := Decide(map[string][]Pair{"m": pairs}, Rule{Seed: 4})
	slices.Reverse(pairs)
	if diff := cmp.Diff(want, Decide(map[string][]Pair{"m": pairs}, Rule{Seed: 4})); diff != "" {
		t.Error(diff)
	}
	if want["m"].Low == Decide(map[string][]Pair{"m": pairs}, Rule{Seed: 5})["m"].Low {
		t.Error("another seed draws the same resamples")
	}
}

// What other metrics are in the family changes a metric's adjusted p, nothing of
// its estimate.
func TestFamilyChangesOnlyAdjustedP(t *testing.T) {
	a, b := blocks(around(12, 0.2, 0.1)...), blocks(around(12, 0.03, 0.1)...)
	alone, together := Decide(map[string][]Pair{"a": a}, Rule{}), Decide(map[string][]Pair{"a": a, "b": b, "c": nil}, Rule{})
	if diff := cmp.Diff(alone["a"].Estimate, together["a"].Estimate); diff != "" {
		t.Error(diff)
	}
	if want := 3 * alone["a"].P; together["a"].Adjusted != want {
		t.Errorf("adjusted p %v in a family of three, want %v", together["a"].Adjusted, want)
	}
	many := map[string][]Pair{"a": a}
	for i := range 20 {
		many["other "+strings.Repeat("x", i)] = b
	}
	if got := Decide(many, Rule{})["a"].Outcome; got != Undecided {
		t.Errorf("p of %v in a family of 21 gives the verdict %v", alone["a"].P, got)
	}
}

// Twelve blocks of three processes are three findings, not twelve.
func TestRestartsAreTheUnits(t *testing.T) {
	var pairs []Pair
	for i, x := range around(12, 0.2, 0.1) {
		pairs = append(pairs, Pair{Restart: i / 4, Block: i, LogRatio: x})
	}
	d := Decide(map[string][]Pair{"m": pairs}, Rule{})["m"]
	if d.P != 0.25 || d.Units != 3 || d.Restarts != 3 || d.Blocks != 12 {
		t.Errorf("three restarts: p %v, %d units, %d restarts, %d blocks", d.P, d.Units, d.Restarts, d.Blocks)
	}
	for i := range pairs {
		pairs[i].Restart = 7
	}
	d = Decide(map[string][]Pair{"m": pairs}, Rule{})["m"]
	if d.P != 2/4096. || d.Units != 12 || d.Restarts != 1 {
		t.Errorf("one restart: p %v, %d units, %d restarts", d.P, d.Units, d.Restarts)
	}
}

func TestLooksShareAlpha(t *testing.T) {
	// p is 2/2^9 = 0.0039: enough for one look or two, not for three.
	pairs := map[string][]Pair{"m": blocks(around(9, 0.2, 0.1)...)}
	for looks, want := range map[int]Outcome{0: Above, 1: Above, 2: Above, 3: Undecided, 99: Undecided} {
		if got := Decide(pairs, Rule{Looks: looks})["m"].Outcome; got != want {
			t.Errorf("%d looks: %v, want %v", looks, got, want)
		}
	}
}

// FewestBlocks is exact: with as many blocks, all on one side, there is a verdict;
// with one less there is none.
func TestFewestBlocks(t *testing.T) {
	for _, c := range []struct {
		family int
		rule   Rule
		want   int
	}{
		{1, Rule{}, 8},
		{3, Rule{Looks: 3}, 11},
		{0, Rule{Looks: 3}, 10},
		{60, Rule{Looks: 3}, 16},
		{3, Rule{Looks: 3, PerRestart: 4}, 44},
		{1, Rule{Alpha: 0.9}, 6},
		{1, Rule{Alpha: 2. / 1024}, 10},
	} {
		got := FewestBlocks(c.family, c.rule)
		if got != c.want {
			t.Errorf("FewestBlocks(%d, %+v) = %d, want %d", c.family, c.rule, got, c.want)
		}
		if c.rule.PerRestart > 1 || got == fewestUnits {
			continue
		}
		for n, decided := range map[int]bool{got: true, got - 1: false} {
			family := map[string][]Pair{"m": blocks(around(n, 0.3, 0.1)...)}
			for i := 1; i < c.family; i++ {
				family[strings.Repeat("x", i)] = nil
			}
			if o := Decide(family, c.rule)["m"].Outcome; (o == Above) != decided {
				t.Errorf("FewestBlocks(%d, %+v) = %d: %d blocks give %v", c.family, c.rule, got, n, o)
			}
		}
	}
}

func TestMore(t *testing.T) {
	more := func(pairs []Pair) int {
		t.Helper()
		d := Decide(map[string][]Pair{"m": pairs}, Rule{Looks: 3})["m"]
		if d.Outcome != Undecided {
			t.Fatalf("decided: %+v", d)
		}
		return d.More
	}
	little, much := more(blocks(around(12, 0.03, 0.09)...)), more(blocks(around(12, 0.03, 0.18)...))
	if little < 1 || much < 3*little {
		t.Errorf("more blocks for a spread of 9 %%: %d, of 18 %%: %d; want four times as many in all", little, much)
	}
	if got := more(blocks(around(12, 0.2, 0.001)[:8]...)); got != 2 {
		t.Errorf("eight clear blocks: %d more, want 2: ten make p small enough", got)
	}
	if got := more(blocks(around(12, 0, 0.1)...)); got < 12 || got > 100 {
		t.Errorf("equal within 3 %% so far: %d more", got)
	}
	if got := more(blocks(around(12, math.Log(1.01), 0.1)...)); got != 0 {
		t.Errorf("around the edge of delta: %d more, want 0: nothing would decide it", got)
	}
	if got := more(blocks(around(12, 0.011, 3)...)); got != 0 {
		t.Errorf("hopeless: %d more, want 0", got)
	}
	if got := more(blocks(0.4)); got != 0 {
		t.Errorf("one block: %d more, want 0: no spread was seen", got)
	}
	var grouped []Pair
	for i, x := range around(24, 0.03, 0.3) {
		grouped = append(grouped, Pair{Restart: i * 5 % 8, Block: i, LogRatio: x})
	}
	if got := more(grouped); got < 3 || got%3 != 0 {
		t.Errorf("restarts of three blocks: %d more, want whole restarts", got)
	}
}

func TestSummaries(t *testing.T) {
	nan := math.NaN()
	if got := Median([]float64{3, nan, 1, math.Inf(1), 2}); got != 2 {
		t.Errorf("median %v, want 2", got)
	}
	if got := Median([]float64{4, 1}); got != 2.5 {
		t.Errorf("median %v, want 2.5", got)
	}
	for name, got := range map[string]float64{
		"median": Median(nil), "quantile": Quantile([]float64{1, 2}, nan),
		"centre": HodgesLehmann(nil), "centre of NaN": HodgesLehmann([]float64{1, nan}),
	} {
		if !math.IsNaN(got) {
			t.Errorf("%s of nothing is %v, want NaN", name, got)
		}
	}
	if got := Quantile([]float64{1, 2}, 7); got != 2 {
		t.Errorf("quantile beyond 1 is %v, want the largest", got)
	}
	if got := HodgesLehmann([]float64{math.MaxFloat64, math.MaxFloat64}); got != math.MaxFloat64 {
		t.Errorf("centre of the largest float64 is %v", got)
	}
}

// FuzzDecide feeds anything: bytes become pairs of several metrics, eight bytes a
// log-ratio and one its restart.
func FuzzDecide(f *testing.F) {
	bytes := func(xs ...float64) []byte {
		var b []byte
		for i, x := range xs {
			b = append(binary.LittleEndian.AppendUint64(b, math.Float64bits(x)), byte(i))
		}
		return b
	}
	f.Add([]byte{}, 0.01, 0.01, 0.95, 1)
	f.Add(bytes(0.1), 0.01, 0.01, 0.95, 1)
	f.Add(bytes(math.NaN(), math.Inf(1), math.Inf(-1)), math.NaN(), math.Inf(1), -1.0, -7)
	f.Add(bytes(around(12, 0.2, 0.1)...), 0.0, 0.0, 0.0, 3)
	f.Add(bytes(0, 0, math.Copysign(0, -1), 0, 0, 0, 0), 1e-9, 0.5, 0.999999999, 2)
	f.Add(bytes(700, -700, 700, -700, 5e-324, -5e-324, 0.1, 1e-300), 1.0, 0.99, 0.5, 2)
	f.Fuzz(func(t *testing.T, data []byte, delta, alpha, level float64, looks int) {
		family := map[string][]Pair{}
		total := 0
		for i := 0; i+9 <= min(len(data), 9*60); i += 9 {
			x := math.Float64frombits(binary.LittleEndian.Uint64(data[i:]))
			key := string(rune('a' + data[i+8]>>6))
			family[key] = append(family[key], Pair{Restart: int(data[i+8]&63) - 5, Block: i, LogRatio: x})
			total++
		}
		rule := Rule{Delta: delta, Alpha: alpha, Level: level, Looks: looks, Look: looks, Resamples: 30}
		decisions := Decide(family, rule)
		if _, err := json.Marshal(decisions); err != nil {
			t.Errorf("cannot be written as JSON: %v", err)
		}
		for k, d := range decisions {
			total -= d.Blocks + d.Dropped
			if !(d.P > 0 && d.P <= 1 && d.Adjusted >= d.P && d.Adjusted <= 1) {
				t.Errorf("%s: p %v, adjusted %v", k, d.P, d.Adjusted)
			}
			if d.Units > 1 && !(0 < d.Low && d.Low <= d.Ratio*(1+1e-9) && d.Ratio <= d.High*(1+1e-9)) {
				t.Errorf("%s: %v not in [%v, %v]", k, d.Ratio, d.Low, d.High)
			}
			if d.More < 0 || d.More > MaxMore || d.More > 0 && d.Outcome != Undecided {
				t.Errorf("%s: %v and %d more blocks", k, d.Outcome, d.More)
			}
			if d.Outcome != Undecided && d.Units < fewestUnits {
				t.Errorf("%s: %v from %d units", k, d.Outcome, d.Units)
			}
		}
		if total != 0 {
			t.Errorf("%d pairs neither used nor dropped", total)
		}
	})
}

// TestWhyUndecided: an interval on one side of 1 that decides nothing says what
// is missing.
func TestWhyUndecided(t *testing.T) {
	pairs := func(n int, centre, spread float64) []Pair {
		out := make([]Pair, n)
		for i := range out {
			out[i] = Pair{Restart: i, Block: i, LogRatio: centre + spread*(float64(i)/float64(n-1)-0.5)}
		}
		return out
	}
	for _, c := range []struct {
		name  string
		pairs []Pair
		rule  Rule
		want  string
	}{
		{"few units", pairs(4, 0.2, 0.02), Rule{}, "4 restarts are too few for any verdict, it takes 8"},
		{"p", append(pairs(9, 0.2, 0.1), Pair{Restart: 9, Block: 9, LogRatio: -0.05}), Rule{Looks: 3}, "p 0.0039 is above 0.0033, what this look allows"},
		{"centre within delta", pairs(20, 0.009, 0.008), Rule{}, "the centre is within ±1 %, which counts as no difference"},
		{"1 in the interval", pairs(20, 0.0, 0.2), Rule{}, ""},
	} {
		d := Decide(map[string][]Pair{"m": c.pairs}, c.rule)["m"]
		if d.Outcome != Undecided || d.Why != c.want {
			t.Errorf("%s: %v [%.4f, %.4f], p %.4f, because of %q; want %q", c.name, d.Outcome, d.Low, d.High, d.Adjusted, d.Why, c.want)
		}
	}
	if d := Decide(map[string][]Pair{"m": pairs(20, 0.2, 0.02)}, Rule{})["m"]; d.Outcome != Above || d.Why != "" {
		t.Errorf("decided, and yet %q", d.Why)
	}
}
