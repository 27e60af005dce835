package lane

import (
	"testing"
	"time"
)

// TestSweepEnds: the sweeper removes invalid answers once more after the last client, and
// then has nothing to do.
func TestSweepEnds(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	var gen Generation
	r := newResponse(answerOf("other\n"), Rule{Version: gen.Now()}, b.meters.Job("test"))
	b.lane.table.put(key{1, "/other", false}, demands{}, variant{response: r})
	s, now := sweep{lane: b.lane}, time.Now()
	b.meters.Clients.Add(1)
	for range 2 * int(tableEvery/time.Second) {
		if now = now.Add(time.Second); !s.turn(now) {
			t.Fatal("nothing is left to do while there is a client")
		}
	}
	b.meters.Clients.Add(-1)
	gen.Invalidate()
	turns := 0
	for now = now.Add(time.Second); s.turn(now); now = now.Add(time.Second) {
		if turns++; turns > 2*int(tableEvery/time.Second) {
			t.Fatal("the turns do not end")
		}
	}
	if n := b.meters.LaneEntries.Load(); n != 1 {
		t.Errorf("%d answers are left, want the one that is valid", n)
	}
	for range 3 { // of Poke
		if s.turn(now) {
			t.Error("a turn without clients has more to do")
		}
	}
}
