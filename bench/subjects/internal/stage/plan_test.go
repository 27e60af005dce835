package stage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/workload"
)

func plan() Plan {
	return Plan{
		Arms: arm.Pictures(), Workloads: workload.All(), Connections: []int{50, 1000},
		Rounds: 2, Warm: time.Second, Slot: time.Second,
	}
}

func TestOrderHasEachSlotOnceAndCellsTogether(t *testing.T) {
	p := plan()
	order := p.order(rand.New(rand.NewPCG(1, 0)))
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
	p := plan()
	names := func(rnd *rand.Rand) (list []string) {
		for _, s := range p.order(rnd) {
			list = append(list, fmt.Sprint(s.arm.Name, s.cell()))
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

func TestSteps(t *testing.T) {
	p := plan()
	n, total := p.Steps()
	arms := len(p.Arms)
	if want := 2*arms*6 + arms; n != want {
		t.Errorf("%d steps, want %d", n, want)
	}
	if want := time.Duration(2*arms*6)*(time.Second+Pause+Overhead) + time.Duration(arms)*3*time.Second; total != want {
		t.Errorf("they take %v, want %v", total, want)
	}
}
