package files

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"millrace/bench/subjects/internal/arm"
)

func TestOrderHasEachSlotOnceAndCellsTogether(t *testing.T) {
	p := NewPlan(arm.Files(), false, 1)
	order := p.smallOrder(rand.New(rand.NewPCG(1, 0)))
	if want := len(p.Arms) * len(p.Workloads) * len(p.Connections); len(order) != want {
		t.Fatalf("%d slots, want %d", len(order), want)
	}
	seen := map[string]bool{}
	for i, s := range order {
		name := fmt.Sprint(s.arm.Name, s.workload.Name, s.connections)
		if seen[name] {
			t.Errorf("%s comes twice", name)
		}
		seen[name] = true
		first := order[i-i%len(p.Arms)]
		if s.cell() != first.cell() {
			t.Errorf("slot %d is of another cell than its neighbours", i)
		}
	}
}

func TestOrderIsDrawnFromTheSeed(t *testing.T) {
	p := NewPlan(arm.Files(), false, 7)
	names := func(rnd *rand.Rand) (list []string) {
		for _, s := range p.smallOrder(rnd) {
			list = append(list, fmt.Sprint(s.arm.Name, s.cell()))
		}
		for _, s := range p.largeOrder(rnd) {
			list = append(list, s.arm.Name+s.network)
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
}

// TestPlansFitTheirTime holds the bounds that the user was promised.
func TestPlansFitTheirTime(t *testing.T) {
	for quick, limit := range map[bool]time.Duration{true: 4 * time.Minute, false: 25 * time.Minute} {
		n, total := NewPlan(arm.Files(), quick, 1).steps()
		if total > limit*9/10 {
			t.Errorf("quick %v: %d steps take %v, with nothing left of %v", quick, n, total, limit)
		}
	}
}
