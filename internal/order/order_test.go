package order

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestBy: the order is that of slices.SortStableFunc.
func TestBy(t *testing.T) {
	type element struct{ key, place int }
	compare := func(a, b element) int { return cmp.Compare(a.key, b.key) }
	for n := range 200 {
		list := make([]element, n)
		for i := range list {
			list[i] = element{rand.IntN(10), i}
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, compare)
		if By(list, compare); !slices.Equal(list, want) {
			t.Fatalf("%d elements: %v, not %v", n, list, want)
		}
	}
}
