package meter

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

func TestCaches(t *testing.T) {
	m := New()
	var wg sync.WaitGroup
	got := make([]*Cache, 30)
	for i := range got {
		wg.Go(func() { got[i] = m.Cache([]string{"/b/", "/c/", "/a/"}[i%3]) })
	}
	wg.Wait()
	var routes []string
	for _, c := range m.Caches() {
		routes = append(routes, c.Route)
	}
	if want := []string{"/a/", "/b/", "/c/"}; !slices.Equal(routes, want) {
		t.Errorf("caches of %v, want %v", routes, want)
	}
	for i, c := range got {
		if c != got[i%3] || c == nil {
			t.Errorf("call %d got other counters than call %d", i, i%3)
		}
	}
	if len(m.Jobs()) != 0 {
		t.Error("a cache became a job")
	}
}

func TestCachesAreBounded(t *testing.T) {
	m := New()
	first := m.Cache("first")
	var last *Cache
	for i := range maxNames * 2 {
		last = m.Cache(fmt.Sprint("made up ", i))
	}
	if n := len(m.Caches()); n != maxNames+1 {
		t.Errorf("%d caches, want %d", n, maxNames+1)
	}
	if last.Route != overflow || last != m.Cache("one more") {
		t.Errorf("the last cache is counted as %q, want %q", last.Route, overflow)
	}
	if m.Cache("first") != first {
		t.Error("a cache that exists was lost when the registry became full")
	}
}

// counts is what Each tells, and the order it tells it in.
func counts(r *Reasons) (order []string, n map[string]uint64) {
	n = map[string]uint64{}
	r.Each(func(reason string, count uint64) {
		order = append(order, reason)
		n[reason] = count
	})
	return order, n
}

// Several goroutines that meet new reasons at once lose none of each other's.
func TestReasons(t *testing.T) {
	var r Reasons
	if order, _ := counts(&r); order != nil {
		t.Errorf("an empty table tells of %v", order)
	}
	const goroutines, rounds, words = 8, 500, 40
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range rounds * words {
				r.Add(fmt.Sprintf("reason %02d", (i+g*5)%words))
			}
		})
	}
	for range 100 {
		order, _ := counts(&r)
		if !slices.IsSorted(order) {
			t.Fatalf("the order is %v", order)
		}
	}
	wg.Wait()
	order, n := counts(&r)
	if len(order) != words {
		t.Fatalf("%d reasons, want %d", len(order), words)
	}
	for reason, count := range n {
		if count != goroutines*rounds {
			t.Errorf("%s was counted %d times, want %d", reason, count, goroutines*rounds)
		}
	}
}

func TestReasonsAreBounded(t *testing.T) {
	var r Reasons
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 10 * maxReasons {
				r.Add(fmt.Sprintf("%04d", i))
			}
		})
	}
	wg.Wait()
	order, n := counts(&r)
	if len(order) != maxReasons+1 || order[maxReasons] != overflowReason {
		t.Fatalf("%d reasons up to %q, want %d and %q", len(order), order[len(order)-1], maxReasons, overflowReason)
	}
	var sum uint64
	for _, count := range n {
		sum += count
	}
	if want := uint64(4 * 10 * maxReasons); sum != want || n[overflowReason] < want-uint64(maxReasons)*4 {
		t.Errorf("%d counted, %d of them as %q; want %d in all", sum, n[overflowReason], overflowReason, want)
	}
}

// A program that has a reason called like the overflow does not lose the bound.
func TestReasonOther(t *testing.T) {
	var r Reasons
	r.Add(overflowReason)
	for i := range 2 * maxReasons {
		r.Add(fmt.Sprint(i))
	}
	if order, _ := counts(&r); len(order) != maxReasons {
		t.Errorf("%d reasons, want %d", len(order), maxReasons)
	}
}

func TestReasonsNoAllocations(t *testing.T) {
	var r Reasons
	r.Add("cookie")
	if n := testing.AllocsPerRun(1000, func() { r.Add("cookie") }); n != 0 {
		t.Errorf("counting a known reason allocates %v times", n)
	}
}

func BenchmarkReasons(b *testing.B) {
	var r Reasons
	for i := range 20 {
		r.Add(fmt.Sprint("a reason of some words ", i))
	}
	reason := fmt.Sprint("a reason of some words ", 7)
	each(b, func(uint32) { r.Add(reason) })
}
