package gogc

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"millrace/internal/bytesize"
)

func TestPercentFor(t *testing.T) {
	const MiB = 1 << 20
	for _, c := range []struct {
		budget, live bytesize.Size
		want         int
	}{
		{320 * MiB, 0, 100},
		{320 * MiB, 10 * MiB, 100},
		{320 * MiB, 100 * MiB, 48},
		{320 * MiB, 270 * MiB, 17},
		{320 * MiB, 600 * MiB, 15},
		{320 * MiB, 100 << 30, 15},
		{1 * MiB, 10 * MiB, 80},
		{1 << 40, 1 << 40, 15},
	} {
		if got := percentFor(c.budget, c.live); got < c.want-1 || got > c.want {
			t.Errorf("with a budget of %s and %s in use: %d %%, want %d", c.budget, c.live, got, c.want)
		}
	}
	// A full cache and its garbage stay below 1.3 times the budget.
	for b := bytesize.Size(256 * MiB); b <= 1<<40; b *= 2 {
		if peak := b + b*bytesize.Size(percentFor(b, b))/100; peak > b/100*120 {
			t.Errorf("a full cache of %s may grow to %s", b, peak)
		}
	}
}

func current() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestGovernorFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetGCPercent(90)
	defer debug.SetGCPercent(before)
	g := New()
	g.Budget(200 << 20)
	until := func(what string, ok func(uint64) bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !ok(current()); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: GOGC is %d", what, current())
			}
			runtime.GC()
		}
	}
	until("a small heap", func(p uint64) bool { return p == goPercent })
	held := make([]byte, 200<<20)
	until("a full cache", func(p uint64) bool { return p == garbageShare || p == garbageShare-1 })
	runtime.KeepAlive(held) // up to here
	until("an empty one again", func(p uint64) bool { return p == goPercent })
	g.Budget(0)
	if current() != 90 {
		t.Errorf("given back as %d, was 90", current())
	}
	runtime.GC()
	g.Budget(200 << 20)
	g.Budget(0)
	if current() != 90 {
		t.Errorf("given back a second time as %d, was 90", current())
	}
}

// TestCollectSooner: until each caller is done, collections come sooner, whatever the
// budget; then everything is as it was.
func TestCollectSooner(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetGCPercent(90)
	defer debug.SetGCPercent(before)
	g := New()
	is := func(want uint64) {
		t.Helper()
		if got := current(); got != want {
			t.Errorf("GOGC is %d, want %d", got, want)
		}
	}
	one := g.CollectSooner()
	two := g.CollectSooner()
	is(soonerPercent)
	one()
	one()
	is(soonerPercent)
	two()
	is(90)
	three := g.CollectSooner()
	g.Budget(1 << 40)
	is(soonerPercent)
	three()
	is(goPercent)
	four := g.CollectSooner()
	is(soonerPercent)
	g.Budget(0)
	is(soonerPercent)
	four()
	is(90)
	(*Governor)(nil).CollectSooner()()
}

func TestGovernorLeavesTheUsersSetting(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", "")
			t.Setenv("GOMEMLIMIT", "")
			t.Setenv(name, "200")
			before := current()
			g := New()
			g.Budget(200 << 20)
			if current() != before {
				t.Errorf("GOGC became %d although the user has said %s", current(), name)
			}
		})
	}
}
