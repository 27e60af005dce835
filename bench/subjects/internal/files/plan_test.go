package files

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/stage"
)

func TestOrderIsDrawnFromTheSeed(t *testing.T) {
	p := NewPlan(arm.Files(), stage.Default, 7)
	names := func(rnd *rand.Rand) (list []string) {
		for _, s := range p.largeOrder(rnd) {
			list = append(list, fmt.Sprint(s.arm.Name, s.network))
		}
		return list
	}
	rnd := rand.New(rand.NewPCG(7, 0))
	first, second := names(rnd), names(rnd)
	if !slices.Equal(first, names(rand.New(rand.NewPCG(7, 0)))) {
		t.Error("one seed gives two orders")
	}
	if slices.Equal(first, second) {
		t.Error("two rounds have the same order")
	}
	slices.Sort(first)
	if len(slices.Compact(first)) != len(p.largeArms())*len(networks()) {
		t.Errorf("the slots are %q", first)
	}
}

// TestPlansFitTheirTime holds the bounds that the user was promised.
func TestPlansFitTheirTime(t *testing.T) {
	for length, limit := range map[stage.Length]time.Duration{
		stage.Quick: 4 * time.Minute, stage.Default: 25 * time.Minute, stage.Full: 25 * time.Minute,
	} {
		n, total := NewPlan(arm.Files(), length, 1).steps()
		if total > limit*9/10 {
			t.Errorf("length %v: %d steps take %v, with nothing left of %v", length, n, total, limit)
		}
	}
}
