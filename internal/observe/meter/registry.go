package meter

import (
	"slices"
	"sync"
)

const (
	// maxNames bounds a registry. Names come from the program and its config,
	// not from clients; the bound is there for a config that makes names up.
	maxNames = 64
	// overflow is where the rest is counted together.
	overflow = "other"
)

// registry holds counters by name. The zero value is ready.
type registry[T any] struct {
	mu    sync.Mutex
	names []string // in order
	all   []*T     // as names
}

// get returns the counters of a name, and makes them at the first call.
func (r *registry[T]) get(name string, fresh func(name string) *T) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, found := slices.BinarySearch(r.names, name)
	if !found && len(r.names) >= maxNames {
		name = overflow
		at, found = slices.BinarySearch(r.names, name)
	}
	if !found {
		r.names = slices.Insert(r.names, at, name)
		r.all = slices.Insert(r.all, at, fresh(name))
	}
	return r.all[at]
}

// known is get without a place for the rest: nil where the registry is full.
func (r *registry[T]) known(name string, fresh func(name string) *T) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, found := slices.BinarySearch(r.names, name)
	switch {
	case found:
	case len(r.names) >= maxNames:
		return nil
	default:
		r.names = slices.Insert(r.names, at, name)
		r.all = slices.Insert(r.all, at, fresh(name))
	}
	return r.all[at]
}

// list is what there is, in the order of names.
func (r *registry[T]) list() []*T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}
