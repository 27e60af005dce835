//go:build !linux

package handover

// MonotonicTime is for systemd, which is on Linux only.
func MonotonicTime() string { return "0" }
