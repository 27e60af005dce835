package trial

import (
	"strings"
	"testing"
	"time"

	"millrace/lab/gate"
	"millrace/lab/record"
)

// TestDisturbedBlocksAreRepeated: a block that the hypervisor took time from is
// measured again, until a quarter of the blocks or of the budget has gone into
// that.
func TestDisturbedBlocksAreRepeated(t *testing.T) {
	block := func(steal float64) []gate.Slot {
		return []gate.Slot{{Seconds: 1, Steal: steal}, {Seconds: 1, Steal: steal}}
	}
	of := func(budget time.Duration) *trial {
		return &trial{plan: Plan{Blocks: []int{4, 10}, Budget: budget}, res: new(record.Result), watch: func(record.Event) {}}
	}
	tr := of(time.Minute)
	for _, steal := range []float64{0, 0.05, -1} {
		if tr.disturbed(block(steal), time.Second) {
			t.Errorf("with %v stolen the block was measured again", steal)
		}
	}
	if !tr.disturbed([]gate.Slot{{Seconds: 1, Steal: 0.2}, {Seconds: 1}}, time.Second) {
		t.Error("with a tenth stolen the block counts")
	}
	again := 1
	for range 10 {
		if tr.disturbed(block(0.16), time.Second) {
			again++
		}
	}
	if again != 3 {
		t.Errorf("%d of 10 blocks again, want 3", again)
	}
	tr.noteRepeats()
	if notes := strings.Join(tr.res.Notes, "\n"); !strings.Contains(notes, "3 blocks were measured again") || !strings.Contains(notes, "up to 16.0 %") {
		t.Errorf("notes %q", notes)
	}
	if tr := of(10 * time.Second); !tr.disturbed(block(0.16), 2*time.Second) || tr.disturbed(block(0.16), time.Second) {
		t.Error("more than a quarter of the budget went into repeats")
	}
}

// TestBlocksBesideOtherProgramsAreRepeated: a block beside which another program
// works is measured again, but for what is busy in every block of a server that
// somebody else has started.
func TestBlocksBesideOtherProgramsAreRepeated(t *testing.T) {
	of := func(fixed bool) *trial {
		return &trial{
			plan: Plan{Blocks: []int{20}, Budget: time.Minute}, res: new(record.Result), watch: func(record.Event) {},
			runners: []*runner{{Arm: Arm{Fixed: fixed}}},
		}
	}
	beside := func(share float64) []gate.Slot { return []gate.Slot{{Seconds: 1, Others: share}} }
	tr := of(false)
	if tr.disturbed(beside(0.04), time.Second) || !tr.disturbed(beside(0.3), time.Second) {
		t.Error("30 % for another program, and the block counts, or 4 %, and it does not")
	}
	tr.noteRepeats()
	if notes := strings.Join(tr.res.Notes, "\n"); !strings.Contains(notes, "other programs took 30.0 %") {
		t.Errorf("notes %q", notes)
	}
	tr = of(true)
	if tr.disturbed(beside(0.3), time.Second) || tr.disturbed(beside(0.31), time.Second) || !tr.disturbed(beside(0.6), time.Second) {
		t.Error("a database behind the server counts as a disturbance, or what comes on top of it does not")
	}
}
