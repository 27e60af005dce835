package admit

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestTableModel holds a table against a map, over many clients, pauses and sweeps.
func TestTableModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table := NewTable()
	const interval, ahead = int64(time.Second), int64(9 * time.Second)
	due := map[uint64]int64{}
	now := table.start
	for i := range 200_000 {
		now = now.Add(time.Duration(random.IntN(int(time.Millisecond))))
		at := int64(now.Sub(table.start))
		key := table.hash(7, []byte{byte(random.IntN(50)), byte(random.IntN(200))})
		if i%10 == 0 {
			more := random.Int64N(int64(5 * time.Second))
			table.raise(key, now, more)
			due[key] = max(due[key], at+more)
			continue
		}
		want := max(0, max(due[key], at)-at-ahead)
		if got := int64(table.take(key, now, interval, ahead)); got != want {
			t.Fatalf("request %d has to wait %d, not %d", i, got, want)
		}
		if want == 0 {
			due[key] = max(due[key], at) + interval
		}
	}
	active := 0
	for _, d := range due {
		if d > int64(now.Sub(table.start)) {
			active++
		}
	}
	if n := table.Clients(); n < active || n > len(due) {
		t.Errorf("%d clients are counted; %d of %d are ahead of their rate", n, active, len(due))
	}
	restored, err := Restore(table.Save(now))
	if err != nil {
		t.Fatal(err)
	}
	if n := restored.Clients(); n != active {
		t.Errorf("%d clients are restored, not %d", n, active)
	}
}
