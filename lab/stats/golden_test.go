package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/perf/benchmath"
)

// golden is testdata/golden.json, which testdata/golden.py makes with SciPy and
// statsmodels; its "made" says which function each figure is of.
type golden struct {
	Samples map[string]struct {
		X          []float64
		Centre     float64
		P          float64
		Wilcoxon   *float64
		Percentile []float64
		Quantiles  []float64
	}
	Holm    []struct{ P, Adjusted []float64 }
	Student [][3]float64
	Large   struct {
		X         []float64
		Centre, P float64
	}
}

func readGolden(t *testing.T) golden {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Samples) < 9 || len(g.Holm) < 4 || len(g.Student) < 32 || len(g.Large.X) != 300 {
		t.Fatal("testdata/golden.json is not whole: run testdata/golden.py")
	}
	return g
}

// near reports whether two figures are the same up to rounding, or to share.
func near(a, b, share float64) bool { return math.Abs(a-b) <= share*math.Max(math.Abs(a), math.Abs(b)) }

func TestGoldenCentreAndP(t *testing.T) {
	for name, s := range readGolden(t).Samples {
		if got := HodgesLehmann(s.X); !near(got, s.Centre, 1e-12) {
			t.Errorf("%s: centre %v, NumPy says %v", name, got, s.Centre)
		}
		if got := signFlip(s.X); !near(got, s.P, 1e-12) {
			t.Errorf("%s: p %v, scipy.stats.permutation_test says %v", name, got, s.P)
		}
		if s.Wilcoxon != nil && !near(signFlip(s.X), *s.Wilcoxon, 1e-12) {
			t.Errorf("%s: p %v, scipy.stats.wilcoxon says %v", name, signFlip(s.X), *s.Wilcoxon)
		}
		for i, q := range []float64{0, 0.1, 0.25, 0.5, 0.9, 1} {
			if got := Quantile(s.X, q); !near(got, s.Quantiles[i], 1e-12) {
				t.Errorf("%s: quantile %v is %v, NumPy says %v", name, q, got, s.Quantiles[i])
			}
		}
	}
}

func TestGoldenLargeSampleIsApproximated(t *testing.T) {
	g := readGolden(t).Large
	if len(g.X) <= maxExact {
		t.Fatal("the sample is small enough to be exact")
	}
	if got := signFlip(g.X); !near(got, g.P, 0.05) {
		t.Errorf("p %v, scipy.stats.wilcoxon says %v", got, g.P)
	}
	if got := HodgesLehmann(g.X); !near(got, g.Centre, 1e-9) {
		t.Errorf("centre %v, NumPy says %v", got, g.Centre)
	}
}

func TestGoldenHolm(t *testing.T) {
	for _, c := range readGolden(t).Holm {
		for i, got := range holm(c.P) {
			if !near(got, c.Adjusted[i], 1e-12) {
				t.Errorf("holm(%v)[%d] = %v, statsmodels says %v", c.P, i, got, c.Adjusted[i])
			}
		}
	}
}

func TestGoldenStudent(t *testing.T) {
	for _, c := range readGolden(t).Student {
		if got := studentQuantile(c[0], int(c[1])); !near(got, c[2], 1e-9) {
			t.Errorf("quantile %v with %v degrees: %v, SciPy says %v", c[0], c[1], got, c[2])
		}
	}
}

// The plain bootstrap, before it is stretched, is that of SciPy up to the luck of
// the draw.
func TestGoldenBootstrap(t *testing.T) {
	checked := 0
	for name, s := range readGolden(t).Samples {
		if s.Percentile == nil {
			continue
		}
		checked++
		pairs := make([]Pair, len(s.X))
		for i, x := range s.X {
			pairs[i] = Pair{Block: i, LogRatio: x}
		}
		centres := group(pairs).bootstrap(20000, rand.New(rand.NewPCG(1, 2)))
		low, high := quantile(centres, 0.025), quantile(centres, 0.975)
		width := s.Percentile[1] - s.Percentile[0]
		if math.Abs(low-s.Percentile[0]) > width*0.03 || math.Abs(high-s.Percentile[1]) > width*0.03 {
			t.Errorf("%s: interval [%.5f, %.5f], SciPy says %.5f", name, low, high, s.Percentile)
		}
	}
	if checked < 5 {
		t.Errorf("only %d intervals compared", checked)
	}
}

// Where one arm is plainly slower, or nothing differs, the paired test and
// benchmath's unpaired one agree. Where blocks drift together only the paired
// one sees anything: that is what blocks are for.
func TestPairingFindsWhatMannWhitneyCannot(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	unpaired := func(a, b []float64) float64 {
		limits := &benchmath.DefaultThresholds
		return benchmath.AssumeNothing.Compare(benchmath.NewSample(a, limits), benchmath.NewSample(b, limits)).P
	}
	for _, c := range []struct {
		name                   string
		effect, drift          float64
		pairedSees, othersSees bool
	}{
		{"plainly slower", 0.1, 0, true, true},
		{"nothing differs", 0, 0, false, false},
		{"slower on a machine that drifts", 0.05, 0.2, true, false},
	} {
		var a, b, x []float64
		for range 20 {
			drift := c.drift * random.NormFloat64()
			left, right := drift+0.01*random.NormFloat64(), drift+c.effect+0.01*random.NormFloat64()
			a, b, x = append(a, math.Exp(left)), append(b, math.Exp(right)), append(x, right-left)
		}
		if p := signFlip(x); (p < 0.001) != c.pairedSees {
			t.Errorf("%s: sign-flip p is %v", c.name, p)
		}
		if p := unpaired(a, b); (p < 0.001) != c.othersSees {
			t.Errorf("%s: Mann–Whitney p is %v", c.name, p)
		}
	}
}
