// Package order sorts slices of large elements outside the hot path.
//
// The compiler makes a copy of the functions of package slices for each type of
// element: some 12 KB of code, 25 KB of program (decision 42). Package sort has
// one copy for all, which is called through an interface.
package order

import "sort"

// By sorts a list by a comparison, which is negative where a comes before b.
// Equal elements stay in their order.
func By[T any](list []T, compare func(a, b T) int) {
	sort.SliceStable(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}
