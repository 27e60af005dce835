//go:build !linux

package epoll

// Parker waits for connections without a goroutine for each, on Linux only. Elsewhere nothing
// is parked.
type Parker struct{}

// NewParker returns nil: nothing is parked.
func NewParker() *Parker { return nil }

// Run does nothing.
func (*Parker) Run() {}

// Enter reports false.
func (*Parker) Enter(*Place, Parked) bool { return false }

// Leave does nothing.
func (*Parker) Leave(*Place) {}

// Parked is 0.
func (*Parker) Parked() int { return 0 }

// Close does nothing.
func (*Parker) Close() {}
