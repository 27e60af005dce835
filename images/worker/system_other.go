//go:build !linux

package worker

// awaitEnd cannot wait without reaping here.
func awaitEnd(int) bool { return false }

// lowerPriority does nothing here.
func lowerPriority(bool) error { return nil }

// resident is not known here.
func resident(int) int64 { return 0 }

// killFamily does nothing: what a worker has started is in its group here.
func killFamily(int) {}
