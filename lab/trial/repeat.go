package trial

import (
	"fmt"
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
}

// disturbed reports whether a block is to be measured again, because the
// hypervisor took CPU time from it, and there is time and patience left. A
// machine that is disturbed all the time gets its blocks all the same; the gate
// then says what that means.
func (t *trial) disturbed(slots []gate.Slot, took time.Duration) bool {
	share, known := gate.Stolen(slots)
	r := &t.repeats
	switch {
	case !known || share <= gate.DefaultSteal:
		return false
	case r.count >= (t.lastBlock()+repeatShare-1)/repeatShare:
		return false
	case t.plan.Budget > 0 && r.took+took > t.plan.Budget/repeatShare:
		return false
	}
	r.count++
	r.took += took
	r.worst = max(r.worst, share)
	return true
}

// noteRepeats says what was measured again.
func (t *trial) noteRepeats() {
	switch r := t.repeats; {
	case r.count == 1:
		t.note(fmt.Sprintf("one block was measured again, because the hypervisor took %.1f %% of the CPU time from it", 100*r.worst))
	case r.count > 1:
		t.note(fmt.Sprintf("%d blocks were measured again, because the hypervisor took up to %.1f %% of the CPU time from them", r.count, 100*r.worst))
	}
}
