package load

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The bucket of a duration holds it, and its middle is at most 1 % away.
func TestHistogramIsExactToOnePercent(t *testing.T) {
	check := func(d time.Duration) {
		t.Helper()
		b := bucketOf(uint64(d))
		if b >= buckets {
			t.Fatalf("%v is in bucket %d of %d", d, b, buckets)
		}
		if off := math.Abs(float64(middle(int(b)))-float64(d)) / float64(d); off > 0.008 {
			t.Errorf("%v counts as %v: %.2f %% off", d, time.Duration(middle(int(b))), 100*off)
		}
	}
	for d := Shortest; d < 2000; d++ {
		check(d)
	}
	for e := 7; e < 39; e++ {
		for _, d := range []time.Duration{1<<e - 1, 1 << e, 1<<e + 1, 1<<e + 1<<e/64, 1<<e + 1<<e/2} {
			if d >= Shortest && d <= Longest {
				check(d)
			}
		}
	}
	check(Longest)
	if b := bucketOf(uint64(Longest)); b != buckets-1 {
		t.Errorf("the longest duration is in bucket %d, not the last of %d", b, buckets)
	}
}

func TestHistogramBucketsRise(t *testing.T) {
	for b := 1; b < buckets; b++ {
		if middle(b) <= middle(b-1) {
			t.Fatalf("bucket %d is %d ns, and the one before %d", b, middle(b), middle(b-1))
		}
		if got := bucketOf(middle(b)); got != uint(b) {
			t.Fatalf("the middle of bucket %d is in bucket %d", b, got)
		}
	}
}

// Quantiles are compared with those of the sorted durations.
func TestHistogramQuantiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var (
		h   Histogram
		all []float64
		sum float64
	)
	for range 20_000 {
		d := time.Duration(math.Exp(random.NormFloat64()*2+12)) + Shortest
		h.Record(d)
		all = append(all, float64(d))
		sum += float64(d)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(int(math.Ceil(q*float64(len(all))))-1, 0)]
		if got := float64(h.Quantile(q)); math.Abs(got-want) > 0.01*want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got, want := float64(h.Mean()), sum/float64(len(all)); math.Abs(got-want) > 1 {
		t.Errorf("the mean is %v, want %v", got, want)
	}
	if got, want := float64(h.Min()), all[0]; got != want {
		t.Errorf("the minimum is %v, want %v", got, want)
	}
	if got, want := float64(h.Max()), all[len(all)-1]; got != want {
		t.Errorf("the maximum is %v, want %v", got, want)
	}
}

func TestHistogramEmptyAndClamped(t *testing.T) {
	var h Histogram
	if h.Count() != 0 || h.Mean() != 0 || h.Min() != 0 || h.Max() != 0 || h.Quantile(0.5) != 0 || h.Points(10) != nil {
		t.Errorf("an empty histogram is not all zero: %v %v %v", h.Mean(), h.Min(), h.Quantile(0.5))
	}
	for _, d := range []time.Duration{-time.Hour, 0, time.Hour} {
		h.Record(d)
	}
	if h.Count() != 3 || h.Min() != Shortest || h.Max() != Longest {
		t.Errorf("beyond the bounds: %d from %v to %v, want 3 from %v to %v", h.Count(), h.Min(), h.Max(), Shortest, Longest)
	}
	if q := h.Quantile(math.NaN()); q != Shortest {
		t.Errorf("a quantile that is not a number: %v", q)
	}
}

func TestHistogramMergeAndReset(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var whole, merged Histogram
	for range 7 {
		var part Histogram
		for range random.IntN(100) {
			d := time.Duration(random.Int64N(int64(time.Minute)))
			whole.Record(d)
			part.Record(d)
		}
		merged.Merge(&part)
		part.reset()
		if diff := cmp.Diff(Histogram{}, part, cmp.AllowUnexported(Histogram{})); diff != "" {
			t.Fatalf("something is left after reset:\n%s", diff)
		}
		merged.Merge(&part) // nothing
	}
	if diff := cmp.Diff(whole, merged, cmp.AllowUnexported(Histogram{})); diff != "" {
		t.Errorf("parts merged are not the whole (-want +got):\n%s", diff)
	}
}

func TestHistogramPoints(t *testing.T) {
	var h Histogram
	for i := range 100_000 {
		h.Record(time.Duration(i+1) * time.Microsecond)
	}
	points := h.Points(50)
	if len(points) != 50 || points[0][0] != 0 || points[49] != [2]float64{1, float64(h.Max())} {
		t.Fatalf("%d points from %v to %v", len(points), points[0], points[len(points)-1])
	}
	tail := 0
	for i, p := range points {
		if i > 0 && (p[0] <= points[i-1][0] || p[1] < points[i-1][1]) {
			t.Errorf("point %d, %v, does not rise from %v", i, p, points[i-1])
		}
		if want := p[0] * 1e8; math.Abs(p[1]-want) > 0.01*want+2000 {
			t.Errorf("quantile %v is %v ns, want %v", p[0], p[1], want)
		}
		if p[0] > 0.99 {
			tail++
		}
	}
	if tail < 15 {
		t.Errorf("only %d of the points are in the last hundredth", tail)
	}
	if got := h.Points(1); len(got) != 1 || got[0][0] != 1 {
		t.Errorf("a single point is %v, not the longest", got)
	}
	var one Histogram
	one.Record(time.Second)
	for _, p := range one.Points(3) {
		if p[1] != 1e9 {
			t.Errorf("a point of a single duration is %v", p)
		}
	}
}

func TestHistogramJSON(t *testing.T) {
	var h, back Histogram
	for i := range 1000 {
		h.Record(time.Duration(i*i) * time.Microsecond)
	}
	text, err := json.Marshal(&h)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h, back, cmp.AllowUnexported(Histogram{})); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	for _, bad := range []string{
		`[]`,
		`{"count":1,"min_ns":100,"max_ns":100,"buckets":[[99999,1]]}`,
		`{"count":2,"min_ns":100,"max_ns":100,"buckets":[[100,1]]}`,
		`{"count":1,"min_ns":200,"max_ns":100,"buckets":[[100,1]]}`,
		`{"count":1,"min_ns":100,"max_ns":18446744073709551615,"buckets":[[100,1]]}`,
	} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

// above is how many durations exceed one.
func above(h *Histogram, d time.Duration) (n uint64) {
	for i := bucketOf(uint64(d)) + 1; i < buckets; i++ {
		n += h.counts[i]
	}
	return n
}
