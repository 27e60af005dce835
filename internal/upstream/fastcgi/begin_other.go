//go:build !linux

package fastcgi

// Only Linux has event loops.

func connect(string) (fd int, ok bool) { return noFD, false }

func write(int, []byte) bool { return false }
