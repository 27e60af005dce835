package stats

import (
	"math"
	"testing"
)

func TestSummarise(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name   string
		values []float64
		want   Summary
	}{
		{"one", []float64{3}, Summary{1, 3, 3, 3}},
		{"odd, unsorted", []float64{9, 1, 4}, Summary{3, 4, 1, 9}},
		{"even: the mean of the middle two", []float64{1, 10, 2, 4}, Summary{4, 3, 1, 10}},
		{"gaps are left out", []float64{nan, 2, inf, 6, nan, 7}, Summary{3, 6, 2, 7}},
		{"sum would overflow", []float64{math.MaxFloat64, math.MaxFloat64}, Summary{2, math.MaxFloat64, math.MaxFloat64, math.MaxFloat64}},
	} {
		if got := Summarise(c.values); got != c.want {
			t.Errorf("%s: Summarise(%v) = %+v, want %+v", c.name, c.values, got, c.want)
		}
	}
}

func TestSummariseKeepsTheOrderOfItsInput(t *testing.T) {
	values := []float64{3, 1, 2}
	Summarise(values)
	if values[0] != 3 || values[1] != 1 || values[2] != 2 {
		t.Errorf("the caller's slice became %v", values)
	}
}

func TestNoFigureIsNotZero(t *testing.T) {
	for _, values := range [][]float64{nil, {math.NaN()}} {
		if s := Summarise(values); s.Valid() || !math.IsNaN(s.Median) {
			t.Errorf("Summarise(%v) = %+v, want an invalid one", values, s)
		}
	}
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	// The machine is twice as fast in round 2; a ratio of medians would hide it.
	ours := map[int]float64{1: 10, 2: 20, 3: 30}
	theirs := map[int]float64{1: 20, 2: 40, 3: 30}
	if got, want := Ratios(ours, theirs), (Summary{3, 0.5, 0.5, 1}); got != want {
		t.Errorf("Ratios = %+v, want %+v", got, want)
	}
}

func TestRatiosLeaveOutWhatHasNoPartner(t *testing.T) {
	ours := map[int]float64{1: 10, 2: 20, 4: 7}
	theirs := map[int]float64{2: 10, 3: 5, 4: 0}
	if got, want := Ratios(ours, theirs), (Summary{1, 2, 2, 2}); got != want {
		t.Errorf("Ratios = %+v, want %+v", got, want)
	}
	if got := Ratios(ours, nil); got.Valid() {
		t.Errorf("Ratios without a peer = %+v, want an invalid one", got)
	}
}
