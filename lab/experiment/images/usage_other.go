//go:build !linux

package images

// watchCommand is for Linux only.
func watchCommand(int) (stop func() uint64) { return func() uint64 { return 0 } }
