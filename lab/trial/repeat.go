package trial

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millrace/lab/gate"
)

// repeatShare is the part of the budget, and of the number of blocks, that may go
// into measuring disturbed blocks again.
const repeatShare = 4

// repeats are the blocks that were measured again.
type repeats struct {
	count int
	took  time.Duration
	worst float64 // the largest share of CPU time that one of them lost
	taker string  // who had it
	usual float64 // the least that other programs had, where that may be for the arms
}

// disturbed reports whether a block is to be measured again, because the hypervisor
// or other programs took CPU time from it, and there is time and patience left. A
// machine that is disturbed all the time gets its blocks all the same; the gate
// then says what that means.
func (t *trial) disturbed(slots []gate.Slot, took time.Duration) bool {
	stolen, _ := gate.Stolen(slots) // 0 where it is not known
	others, _ := gate.Disturbed(slots)
	r := &t.repeats
	usual := 0.0
	if slices.ContainsFunc(t.runners, func(r *runner) bool { return r.Fixed }) {
		// What somebody else's server has behind it is busy in every block.
		if r.usual = min(cmp.Or(r.usual, others), others); r.usual > 0 {
			usual = r.usual
		}
	}
	share, taker := stolen, "the hypervisor"
	if others > stolen {
		share, taker = others, "other programs"
	}
	switch {
	case stolen <= gate.DefaultSteal && others-usual <= gate.DefaultOthers:
		return false
	case r.count >= (t.lastBlock()+repeatShare-1)/repeatShare:
		return false
	case t.plan.Budget > 0 && r.took+took > t.plan.Budget/repeatShare:
		return false
	}
	r.count++
	r.took += took
	if share > r.worst {
		r.worst, r.taker = share, taker
	}
	return true
}

// noteRepeats says what was measured again.
func (t *trial) noteRepeats() {
	switch r := t.repeats; {
	case r.count == 1:
		t.note(fmt.Sprintf("one block was measured again, because %s took %.1f %% of the CPU time from it", r.taker, 100*r.worst))
	case r.count > 1:
		t.note(fmt.Sprintf("%d blocks were measured again, because %s took up to %.1f %% of the CPU time from them", r.count, r.taker, 100*r.worst))
	}
}
