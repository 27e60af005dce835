//go:build unix

package codec

import "syscall"

// readNow reads from a pipe without waiting: Go keeps pipes non-blocking.
func readNow(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }
